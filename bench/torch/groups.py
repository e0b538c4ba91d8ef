# SPDX-License-Identifier: Apache-2.0
"""Times new_group on several backends, and counts the descriptors and threads that groups use.

    torchrun --nproc-per-node 4 bench/torch/groups.py
    torchrun --nproc-per-node 4 bench/torch/groups.py --members-alone

Each backend makes the same groups of random members, uses each once, and destroys them. Rank 0
prints the times of its own calls, and the descriptors and threads of its process before the groups,
with all of them, and after them. With --members-alone only the members call new_group
(use_local_synchronization). Gloo then hangs in torch 2.15, since the members get different names.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time

import torch
import torch.distributed as dist

try:
    import xylem  # noqa: F401  Registers the backend; torch 2.15 finds it without this.
except ImportError:
    pass  # A missing backend is reported when it is used.


def held() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def measure(backend: str, groups: int, local: bool) -> tuple[list[float], list[tuple[int, int]]]:
    rank, size = dist.get_rank(), dist.get_world_size()
    choose = random.Random(5)
    times, made, counts = [], [], [held()]
    for _ in range(groups):
        ranks = sorted(choose.sample(range(size), choose.randint(min(2, size), size)))
        begin = time.perf_counter()
        group = dist.new_group(ranks, backend=backend, use_local_synchronization=local)
        if rank in ranks:
            times.append((time.perf_counter() - begin) * 1e3)
            made.append((group, ranks))
    for group, ranks in made:
        value = torch.tensor([float(rank)])
        dist.all_reduce(value, group=group)
        if value.item() != sum(ranks):
            raise SystemExit(f"groups.py: {backend} summed {ranks} to {value.item()}")
    counts.append(held())
    for group, _ in made:
        dist.destroy_process_group(group)
    made.clear()
    dist.barrier()
    counts.append(held())
    return times, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="xylem,gloo")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--members-alone", action="store_true", help="only the members call new_group")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = arguments.backends.split(",")
    dist.init_process_group(names[0])
    for name in names:
        if arguments.members_alone and name == "gloo":
            continue
        times, counts = measure(name, arguments.groups, arguments.members_alone)
        if dist.get_rank() == 0:
            times.sort()
            print(
                f"{name:8}{len(times):4} groups: median {statistics.median(times):6.2f} ms, "
                f"90 % {times[len(times) * 9 // 10]:6.2f}, longest {times[-1]:6.2f}; descriptors "
                + ", ".join(str(d) for d, _ in counts)
                + "; threads "
                + ", ".join(str(t) for _, t in counts)
            )
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
