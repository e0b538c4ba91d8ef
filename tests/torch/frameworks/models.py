# SPDX-License-Identifier: Apache-2.0
"""Small models for the tests of sharding, tensor and expert parallelism that transformers' source distribution has.
These tests are mixins, which transformers' own repository combines with its tests of models. run.py copies this file
to their directory.
"""

import unittest

from transformers import AutoConfig, AutoModelForCausalLM

from .test_expert_parallel_mixin import EP_DISTRIBUTED_TEST_MODEL_TYPES, ExpertParallelTesterMixin
from .test_fsdp_mixin import FSDP_DISTRIBUTED_TEST_MODEL_TYPES, FSDPTesterMixin
from .test_tensor_parallel_mixin import TP_DISTRIBUTED_TEST_MODEL_TYPES, TensorParallelTesterMixin

SIZES = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 512, "moe_intermediate_size": 16,
    "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "shared_expert_intermediate_size": 36, "decoder_sparse_step": 1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}
MIXINS = {
    FSDPTesterMixin: FSDP_DISTRIBUTED_TEST_MODEL_TYPES,
    TensorParallelTesterMixin: TP_DISTRIBUTED_TEST_MODEL_TYPES,
    ExpertParallelTesterMixin: EP_DISTRIBUTED_TEST_MODEL_TYPES,
}


class ModelTester:
    def __init__(self, kind: str):
        self.kind = kind
        self.causal_lm_class = AutoModelForCausalLM._model_mapping[type(self.get_config())]

    def get_config(self):
        known = AutoConfig.for_model(self.kind)
        return AutoConfig.for_model(self.kind, **{name: size for name, size in SIZES.items() if hasattr(known, name)})

    def prepare_config_and_inputs_for_common(self):
        return self.get_config(), {}


for kind in ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "olmoe"):
    bases = tuple(mixin for mixin, kinds in MIXINS.items() if kind in kinds)
    tester = ModelTester(kind)
    globals()[f"Test_{kind}"] = type(
        f"Test_{kind}",
        (*bases, unittest.TestCase),
        {"model_tester": tester, "all_model_classes": (tester.causal_lm_class,), "__module__": __name__},
    )
