# SPDX-License-Identifier: Apache-2.0
"""Runs the same code on gloo and on xylem, to show the differences that docs/pytorch.md lists.

    python tests/torch/differences.py [-k PATTERN]

Prints the results of two ranks. Some ranks end, or wait until a time limit, so it runs for 20 to 40 s.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

TYPES = (
    "int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool float16 bfloat16 float32 float64 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz complex64"
).split()
LIMIT, DEADLINE = 3, 20
context = multiprocessing.get_context("fork")


def outcome(call: Callable[[], Any]) -> str:
    """Returns the result of a call, or the error that it raises."""
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"


def tensors_that_are_not_contiguous(rank: int) -> str:
    strided = torch.zeros(2, 6)[:, ::2]
    strided += 1
    dist.all_reduce(strided)
    return f"all_reduce of ones: {strided.tolist()}"


def unequal_all_gather(rank: int) -> str:
    parts = [torch.zeros(2), torch.zeros(3)]
    dist.all_gather(parts, torch.ones(2 + rank))
    return str([part.tolist() for part in parts])


def unequal_reduce_scatter(rank: int) -> str:
    part = torch.zeros(2 + rank)
    dist.reduce_scatter(part, [torch.ones(2), torch.ones(3)])
    return str(part.tolist())


def types_refused(rank: int) -> str:
    refused = []
    for name in TYPES:
        got = outcome(lambda name=name: dist.all_reduce(torch.ones(4).to(getattr(torch, name))))
        if got != "None":
            refused.append(name)
    return "all_reduce refuses " + (", ".join(refused) or "none")


def types_refused_by_others(rank: int) -> str:
    refused = {}
    for name in TYPES:
        kind = getattr(torch, name)

        def made(count: int, kind=kind) -> torch.Tensor:
            return torch.zeros(count * kind.itemsize, dtype=torch.uint8).view(kind)

        for title, call in {
            "broadcast": lambda: dist.broadcast(made(4), 0),
            "all_gather": lambda: dist.all_gather([made(4), made(4)], made(4)),
            "gather": lambda: dist.gather(made(4), [made(4), made(4)] if rank == 0 else None, 0),
            "scatter": lambda: dist.scatter(made(4), [made(4), made(4)] if rank == 0 else None, 0),
            "all_to_all_single": lambda: dist.all_to_all_single(made(4), made(4)),
        }.items():
            if outcome(call) != "None":
                refused.setdefault(title, []).append(name)
    return "; ".join(f"{title} refuses {', '.join(names)}" for title, names in refused.items()) or "none refused"


def average_of_integers(rank: int) -> str:
    tensor = torch.tensor([-3 + rank, 3 - rank])
    return f"{outcome(lambda: dist.all_reduce(tensor, dist.ReduceOp.AVG))}; the tensor is {tensor.tolist()}"


def another_operation(rank: int) -> str:
    tensor = torch.tensor([1.0, 2.0])
    got = outcome(lambda: dist.broadcast(tensor, 0) if rank else dist.all_reduce(tensor))
    return f"{got}; the tensor is {tensor.tolist()}"


def no_call(rank: int) -> str:
    if rank == 1:
        time.sleep(2 * LIMIT)
        return "has not called"
    return outcome(lambda: dist.all_reduce(torch.ones(2)))


def death(rank: int) -> str:
    dist.barrier()
    if rank == 1:
        os._exit(1)
    begin = time.monotonic()

    def call_for_ever():
        while True:
            dist.all_reduce(torch.ones(1 << 16))

    got = outcome(call_for_ever)
    return f"{got} (after {time.monotonic() - begin:.1f} s)"


def coalescing(rank: int) -> str:
    def coalesce(**options):
        tensor = torch.ones(3)
        with dist._coalescing_manager(**options):
            dist.all_reduce(tensor)
        return tensor.tolist()

    return f"{outcome(coalesce)}; with a device: {outcome(lambda: coalesce(device=torch.device('cpu')))}"


def run_rank(body, backend: str, rank: int, path: str, results) -> None:
    torch.set_num_threads(1)
    import xylem  # noqa: F401

    dist.init_process_group(
        backend, store=dist.FileStore(path, 2), rank=rank, world_size=2, timeout=timedelta(seconds=LIMIT)
    )
    results.put((rank, outcome(lambda: body(rank))))
    results.close()
    results.join_thread()
    os._exit(0)


def run(body: Callable[[int], str], backend: str) -> dict[int, str]:
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(folder, "calls_")
        os.environ["XYLEM_LOG"] = "off"
        path = os.path.join(folder, "store")
        ranks = [context.Process(target=run_rank, args=(body, backend, rank, path, results)) for rank in (0, 1)]
        for rank in ranks:
            rank.start()
        got: dict[int, str] = {}
        end = time.monotonic() + DEADLINE
        while len(got) < 2 and time.monotonic() < end:
            try:
                rank, text = results.get(timeout=0.5)
                got[rank] = text
            except queue.Empty:
                if not any(rank.is_alive() for rank in ranks):
                    break
        for rank in ranks:
            rank.kill()
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="PATTERN", help="only differences whose names contain it")
    pattern = parser.parse_args().k
    for body in (
        tensors_that_are_not_contiguous, unequal_all_gather, unequal_reduce_scatter, types_refused,
        types_refused_by_others, average_of_integers, another_operation, no_call, death, coalescing,
    ):
        if pattern not in body.__name__:
            continue
        print(body.__name__.replace("_", " "))
        for backend in ("gloo", "xylem"):
            got = run(body, backend)
            for rank in (0, 1):
                print(f"  {backend:5} rank {rank}: {got.get(rank, 'has ended, or stands still')}")


if __name__ == "__main__":
    main()
