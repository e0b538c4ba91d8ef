# SPDX-License-Identifier: Apache-2.0
"""Times the overhead of torch and a backend: all_reduce of 8 bytes with a single rank.

    taskset -c 0 python bench/torch/call.py xylem
    taskset -c 0 python bench/torch/call.py fake      # torch's own, which does nothing

A single rank never waits for others, so all the time is spent in the layers: torch.distributed's
function, the process group's method and the backend's method.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Callable

import torch
import torch.distributed as dist

CALLS, TURNS = 20000, 7


def microseconds(call: Callable[[], object]) -> float:
    """The time of one call in the fastest turn."""
    best = float("inf")
    for _ in range(TURNS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - begin)
    return best / CALLS * 1e6


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    name = sys.argv[1]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if name == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        store: dist.Store = FakeStore()
    else:
        import xylem  # noqa: F401  Registers the backend.

        store = dist.HashStore()
    dist.init_process_group(name, store=store, rank=0, world_size=1)
    tensor = torch.ones(2)
    group = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    print(
        f"{name}: dist.all_reduce {microseconds(lambda: dist.all_reduce(tensor)):.2f} us, "
        f"the group's {microseconds(lambda: group.allreduce([tensor]).wait()):.2f}, "
        f"the backend's {microseconds(lambda: backend.allreduce([tensor]).wait()):.2f}"
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
