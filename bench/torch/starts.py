# SPDX-License-Identifier: Apache-2.0
"""Times init_process_group of several backends, in turn: the slowest rank, from a barrier on.

    PYTHONPATH=build/python python bench/torch/starts.py --ranks 2,8 --runs 15

All ranks have imported torch and made a TCPStore before. Prints the median, the least and the largest of the runs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time

import torch
import torch.distributed as dist
import xylem  # noqa: F401  Registers the backend.

PATIENCE = 60  # Seconds.


def run_rank(backend: str, rank: int, ranks: int, ports, all_are_here, times) -> None:
    torch.set_num_threads(1)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, wait_for_workers=False)
        for _ in range(ranks - 1):
            ports.put(store.port)
    else:
        store = dist.TCPStore("127.0.0.1", ports.get(timeout=PATIENCE), ranks, False)
    all_are_here.wait()
    begin = time.perf_counter()
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    times.put(time.perf_counter() - begin)
    dist.barrier()
    dist.destroy_process_group()
    all_are_here.wait()  # Rank 0 serves the store until all ranks have ended.


def start(backend: str, ranks: int) -> float:
    """Returns the time of the slowest rank, in milliseconds."""
    context = multiprocessing.get_context("fork")
    ports, times = context.Queue(), context.Queue()
    all_are_here = context.Barrier(ranks, timeout=PATIENCE)
    processes = [context.Process(target=run_rank, args=(backend, rank, ranks, ports, all_are_here, times), daemon=True)
                 for rank in range(ranks)]
    for process in processes:
        process.start()
    slowest = max(times.get(timeout=PATIENCE) for _ in processes)
    for process in processes:
        process.join(PATIENCE)
    return slowest * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="xylem,gloo", help="[%(default)s]")
    parser.add_argument("--ranks", default="2", help="numbers of ranks [%(default)s]")
    parser.add_argument("--runs", type=int, default=15, help="of each [%(default)s]")
    parser.add_argument("--json", help="a file for the times of all runs")
    arguments = parser.parse_args()
    report = {}
    for ranks in map(int, arguments.ranks.split(",")):
        found: dict[str, list[float]] = {name: [] for name in arguments.backends.split(",")}
        for _ in range(arguments.runs):
            for name, times in found.items():
                times.append(start(name, ranks))
        for name, times in found.items():
            print(f"{ranks} ranks, {name}: {statistics.median(times):.1f} ms ({min(times):.1f} to {max(times):.1f})")
        report[ranks] = found
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file)


if __name__ == "__main__":
    main()
