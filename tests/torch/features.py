# SPDX-License-Identifier: Apache-2.0
"""Shows what the table of features in docs/pytorch.md says of torch's own backends: which functions their classes
override in the headers of the torch that is installed.

    python tests/torch/features.py
"""

from __future__ import annotations

import os
import re

import torch

CLASSES = ("Gloo", "NCCL", "UCC", "MPI")
FUNCTIONS = {
    "recv from any rank": "recvAnysource",
    "several all_gathers in one call": "all_gather_single_coalesced|allgather_into_tensor_coalesced",
    "several reduce_scatters in one call": "reduce_scatter_single_coalesced|reduce_scatter_tensor_coalesced",
    "sparse all_reduce": "allreduce_sparse",
    "coalescing manager with a device": "startCoalescing",
    "split_group": "split",
    "monitored_barrier": "monitoredBarrier",
    "shrink": "shrink",
} | {
    name: name
    for name in (
        "broadcast", "allreduce", "reduce", "allgather", "gather", "scatter", "barrier", "reduce_scatter",
        "alltoall", "send", "recv",
    )
}


def overrides(name: str, function: str) -> bool:
    folder = os.path.join(os.path.dirname(torch.__file__), "include", "torch", "csrc", "distributed", "c10d")
    with open(os.path.join(folder, f"ProcessGroup{name}.hpp"), encoding="utf-8") as header:
        # "// Unsupported Ops" precedes functions that only throw.
        text = re.sub(r"// Unsupported Ops[^;]*;", "", header.read())
    return re.search(rf"\b(?:{function})\([^;{{]*\boverride\b", text) is not None


def main() -> None:
    print(f"{'torch ' + torch.__version__:36}", *(f"{name:5}" for name in CLASSES))
    for what, function in FUNCTIONS.items():
        print(f"{what:36}", *(f"{'yes' if overrides(name, function) else 'no':5}" for name in CLASSES))


if __name__ == "__main__":
    main()
