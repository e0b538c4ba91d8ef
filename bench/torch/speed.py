# SPDX-License-Identifier: Apache-2.0
"""Times torch.distributed's operations on several backends, in turn in one run.

    torchrun --nproc-per-node 2 bench/torch/speed.py
    torchrun --nproc-per-node 4 bench/torch/speed.py --dtype bfloat16 --ops all_reduce

All backends run in the same processes. Each round times every backend once. A cell is the median
over the rounds, and a ratio is the median of the ratios of the rounds. Results are checked once,
before the timing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

try:
    import xylem  # noqa: F401  Registers the backend; torch 2.15 finds it without this.
except ImportError:
    pass  # A missing backend is reported when it is used.

SIZES = "8,64K,1M,16M"
UNITS = {"K": 1 << 10, "M": 1 << 20}


def read_size(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def show_size(size: int) -> str:
    for unit, factor in (("M", 1 << 20), ("K", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}iB"
    return f"{size} B"


class Operation:
    """One operation with its own tensors. `size` is that of the larger buffer, in bytes."""

    def __init__(self, name: str, size: int, dtype: torch.dtype):
        ranks = dist.get_world_size()
        count = max(ranks, size // dtype.itemsize)
        count -= count % ranks
        self.name = name
        self.whole = torch.ones(count, dtype=dtype)
        self.part = torch.ones(count // ranks, dtype=dtype)

    def __call__(self, group) -> None:
        if self.name == "all_reduce":
            # The mean, so that the values do not change.
            dist.all_reduce(self.whole, dist.ReduceOp.AVG, group=group)
        elif self.name == "all_reduce_sum":
            dist.all_reduce(self.whole, group=group)
        elif self.name == "all_gather_into_tensor":
            dist.all_gather_into_tensor(self.whole, self.part, group=group)
        elif self.name == "reduce_scatter_tensor":
            dist.reduce_scatter_tensor(self.part, self.whole, group=group)
        elif self.name == "broadcast":
            dist.broadcast(self.whole, 0, group=group)
        elif self.name == "all_to_all_single":
            dist.all_to_all_single(torch.empty_like(self.whole), self.whole, group=group)
        elif self.name == "send_recv":
            rank, size = dist.get_rank(), dist.get_world_size()
            partner = rank ^ 1
            if partner >= size:
                return
            if rank < partner:
                dist.send(self.whole, partner, group=group)
                dist.recv(self.whole, partner, group=group)
            else:
                dist.recv(self.whole, partner, group=group)
                dist.send(self.whole, partner, group=group)
        else:
            raise SystemExit(f"speed.py: there is no operation '{self.name}'")

    def check(self, group) -> None:
        """Checks the results of operations on values that differ between the ranks."""
        rank, size = dist.get_rank(), dist.get_world_size()
        ranks = torch.arange(size, dtype=torch.float32)
        self.whole.fill_(rank + 1)
        self.part.fill_(rank + 1)
        self(group)
        expected = {
            "all_reduce": (self.whole, (ranks + 1).mean()),
            "all_reduce_sum": (self.whole, (ranks + 1).sum()),
            "reduce_scatter_tensor": (self.part, (ranks + 1).sum()),
            "broadcast": (self.whole, torch.tensor(1.0)),
        }
        if self.name == "all_gather_into_tensor":
            wrong = (self.whole.view(size, -1).float() != (ranks + 1)[:, None]).any()
        elif self.name in expected:
            got, want = expected[self.name]
            wrong = (got.float() - want).abs().max() > 1e-2 * want
        else:
            wrong = False
        if wrong:
            raise SystemExit(f"speed.py: rank {rank}: {self.name} gave a wrong result")
        self.whole.fill_(1)
        self.part.fill_(1)


def time_calls(operation: Operation, group, calls: int) -> float:
    """The time of one call on the slowest rank in microseconds."""
    operation(group)
    begin = time.perf_counter()
    for _ in range(calls):
        operation(group)
    return (time.perf_counter() - begin) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="xylem,gloo", help="the first is compared to the others")
    parser.add_argument("--ops", default="all_reduce_sum,all_gather_into_tensor,reduce_scatter_tensor")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1, help="about, of each measurement")
    parser.add_argument("--json", help="a file for the times of all rounds")
    parser.add_argument("--bind", action="store_true", help="each rank on cores of its own, in turn")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    names = arguments.backends.split(",")
    dist.init_process_group(names[0])
    groups = {name: dist.new_group(backend=name) for name in names}
    rank = dist.get_rank()
    if arguments.bind:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    clock = groups[names[-1]]  # For data that ranks exchange between measurements.
    if rank == 0:
        print(f"torch {torch.__version__}, {dist.get_world_size()} ranks, {arguments.dtype}")
        print(f"{'operation':24} {'size':>8} " + " ".join(f"{name + ' us':>12}" for name in names) + "  ratios")
    rows = []
    for name in arguments.ops.split(","):
        for size in map(read_size, arguments.sizes.split(",")):
            operation = Operation(name, size, getattr(torch, arguments.dtype))
            calls = {}
            for backend, group in groups.items():
                operation.check(group)
                once = torch.tensor(time_calls(operation, group, 3))
                dist.all_reduce(once, dist.ReduceOp.MAX, group=clock)
                calls[backend] = max(1, min(10000, int(arguments.seconds * 1e6 / once.item())))
            times: dict[str, list[float]] = {backend: [] for backend in names}
            for _ in range(arguments.rounds):
                for backend, group in groups.items():
                    dist.barrier(group)
                    taken = torch.tensor(time_calls(operation, group, calls[backend]))
                    dist.all_reduce(taken, dist.ReduceOp.MAX, group=clock)
                    times[backend].append(taken.item())
            rows.append({"op": name, "bytes": size, "times_us": times})
            if rank == 0:
                ratios = [
                    statistics.median(b / a for a, b in zip(times[names[0]], times[other]))
                    for other in names[1:]
                ]
                print(
                    f"{name:24} {show_size(size):>8} "
                    + " ".join(f"{statistics.median(times[name]):12.1f}" for name in names)
                    + "  "
                    + " ".join(f"{ratio:.1f}x" for ratio in ratios),
                    flush=True,
                )
    if rank == 0 and arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"arguments": vars(arguments), "ranks": dist.get_world_size(), "rows": rows}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
