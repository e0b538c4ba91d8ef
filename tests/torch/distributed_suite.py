# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of torch.distributed (_DistTestBase, which ships with torch) on a backend.

    python distributed_suite.py --backend xylem --world-size 3 --json out.json [PATTERN ...]

Exits with 1 if a test failed. With --backend gloo, the same command runs the tests on gloo.
"""

from __future__ import annotations

import argparse
import fnmatch
import inspect
import os
import sys
import tempfile
import unittest

from suite_results import Results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="xylem")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument(
        "--also-as",
        metavar="NAME",
        help="run what is for this backend alone as well (gloo; mpi for all_to_all): the suite "
        "takes the backend for it",
    )
    parser.add_argument("--device", help="the default device of tensors, standin or cuda")
    parser.add_argument("--json", help="file for what each test came to")
    parser.add_argument("--list", action="store_true", help="only tell the tests' names")
    parser.add_argument("patterns", nargs="*", default=["*"], help="names of tests, with * and ?")
    return parser.parse_args()


def excuses() -> dict[str, str]:
    """Returns tests that only torch's own backends can pass with this version of torch, with the
    reasons.
    """
    import torch.distributed as dist

    excused = {
        "test_ddp_logging_data_cpu": "DDP's logs name every backend that is not part of torch 'custom' "
        "(ProcessGroup::getBackendName of torch)",
    }
    if "only implemented for GLOO" in inspect.getsource(dist.monitored_barrier):
        for name in ("test_monitored_barrier_gloo", "test_monitored_barrier_gloo_subgroup"):
            excused[name] = "monitored_barrier of this torch refuses all backends except gloo"
    return excused


# Tests that need a GPU for each process.
NEED_GPUS = {"*cuda*": "the processes share a GPU", "*gpu*": "the processes share a GPU"}

# Tests that the device of tests/torch/device cannot run, with the reasons.
UNFIT = {
    "*SyncBatchNorm*": "the device has no kernels of batch norm over processes",
    "*sync_bn": "the device has no kernels of batch norm over processes",
    "test_ddp_uneven_inputs": "the device has no kernels of convolutions",
    "*sparse*": "sparse tensors are reduced on the CPU only",
    "test_average_parameters": "the test makes a group of nccl",
    "test_monitored_barrier_allreduce_hang*": "the test makes a group of nccl",
    "test_ddp_apply_optim_in_backward*": "the test uses CUDA itself",
    "test_ddp_hook_pickling_powerSGD": "the test uses CUDA itself",
    "test_detect_ddp_is_actually_static": "the test uses CUDA itself",
    "test_static_graph_multi_forward": "the test uses CUDA itself",
    "test_ddp_device": "the test expects that arguments move to cuda",
    "test_ddp_logging_data_gpu": "torch has timers for cpu and cuda only",
}


class BothNames(str):
    """The name of a backend. It also compares equal to another name."""

    other: str

    def __eq__(self, name):
        return str.__eq__(self, name) or name == self.other

    def __ne__(self, name):
        return not self == name

    def __hash__(self):
        return hash(self.other)


def put_in_place_of_cuda(device: str) -> None:
    """Replaces torch.cuda by this device in tests that use torch.cuda, or move tensors and modules
    to it.
    """
    import torch

    module = getattr(torch, device)

    def moved(self, target=None, non_blocking=False):
        return self.to(torch.device(device, module.index_of(target)))

    torch.Tensor.cuda = torch.nn.Module.cuda = moved
    names = "device_count current_device set_device device synchronize current_stream stream"
    for name in names.split():
        setattr(torch.cuda, name, getattr(module, name))


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory() as directory:
        # The suite reads these variables when it is imported.
        os.environ.update(
            BACKEND=arguments.backend,
            WORLD_SIZE=str(arguments.world_size),
            TEMP_DIR=directory,
            INIT_METHOD="env://",
            MASTER_ADDR="127.0.0.1",
            OMP_NUM_THREADS="1",
            TORCH_FR_DUMP_TEMP_FILE=os.path.join(directory, "calls_"),
        )
        if arguments.device == "cuda":
            # Otherwise the import of the suite would initialize CUDA, and forked processes could
            # not use it.
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    if arguments.device:
        os.environ["TEST_DEVICE"] = arguments.device
    import torch

    from ranks import use_device

    if arguments.device and arguments.device != "cuda":
        put_in_place_of_cuda(arguments.device)
    from torch.testing._internal.common_distributed import DistTestCases

    if arguments.backend == "xylem":
        import xylem  # noqa: F401  The import registers the backend.

        # The suite runs these kinds of tests only on backends that are listed for the feature.
        for feature in ("ddp", "plugin", "subgroup"):
            DistTestCases.backend_feature[feature].add("xylem")

    if arguments.also_as:
        both = BothNames(arguments.backend)
        both.other = arguments.also_as
        read = os.environ
        os.environ = {**read, "BACKEND": both}
    from torch.testing._internal.distributed import distributed_test
    from torch.testing._internal.distributed.distributed_test import (
        DistributedTest,
        TestDistBackend,
    )

    if arguments.also_as:
        os.environ = read
        assert distributed_test.BACKEND == arguments.also_as

    excused = excuses() if arguments.backend == "xylem" else {}
    unfit = {None: {}, "cuda": NEED_GPUS}.get(arguments.device, UNFIT)

    class Suite(TestDistBackend, DistributedTest._DistTestBase):
        def setUp(self):
            if self._testMethodName in excused:
                self.skipTest(excused[self._testMethodName])
            for pattern, why in unfit.items():
                if fnmatch.fnmatch(self._testMethodName, pattern):
                    self.skipTest(why)
            super().setUp()
            # In these tests, forked processes behave like spawned ones. They need not import torch,
            # which takes seconds.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank, test_name, *args, **kwargs):
            use_device(rank)
            if arguments.device == "cuda":
                # The suite skips its tests if there are fewer GPUs than processes.
                torch.cuda.device_count = lambda: arguments.world_size
            super()._run(rank, test_name, *args, **kwargs)

    names = [
        name
        for name in unittest.TestLoader().getTestCaseNames(Suite)
        if any(fnmatch.fnmatch(name, pattern) for pattern in arguments.patterns)
    ]
    if arguments.list:
        print("\n".join(names))
        return 0
    if not names:
        print(f"no test is called {' or '.join(arguments.patterns)}", file=sys.stderr)
        return 2
    suite = unittest.TestSuite(Suite(name) for name in names)
    results = unittest.TextTestRunner(verbosity=2, resultclass=Results).run(suite)
    print(
        f"{arguments.backend}, {arguments.world_size} processes, torch {torch.__version__}: "
        f"{results.counts()}"
    )
    if arguments.json:
        results.write(
            arguments.json,
            backend=arguments.backend,
            torch=torch.__version__,
            world_size=arguments.world_size,
            also_as=arguments.also_as or "",
        )
    return 0 if results.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
