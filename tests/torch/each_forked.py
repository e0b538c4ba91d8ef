# SPDX-License-Identifier: Apache-2.0
"""Runs a program several times on the ranks of one torchrun, so that torch is imported once.

    torchrun --nproc-per-node 3 each_forked.py [--import MODULE,...] PROGRAM -- [OPTION...] [-- [OPTION...]]...

For each list of options, every rank forks a process, which runs the program and ends as `python PROGRAM OPTION...`
would. Before each run, rank 0 prints "RUN OPTION...". A rank whose process fails prints "FAILED OPTION...", and ends
with status 1 after the last run. A run begins when the previous run has ended on all ranks. MODULEs are also imported
only once.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys

import torch.distributed as dist

RANK = os.environ["RANK"]


def torchruns_store() -> dist.TCPStore:
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def meet(what: str) -> None:
    """Returns after all ranks have called this function."""
    store = torchruns_store()
    store.set(f"{what} {RANK}", "")
    store.wait([f"{what} {rank}" for rank in range(int(os.environ["WORLD_SIZE"]))])


def own_store(number: int) -> dist.TCPStore | None:
    """Makes a separate store for a run, since torchrun's store contains group names of the previous
    run.
    """
    store, own = torchruns_store(), None
    if RANK == "0":
        own = dist.TCPStore(os.environ["MASTER_ADDR"], 0, is_master=True, wait_for_workers=False)
        store.set(f"port of run {number}", str(own.port))
    os.environ["MASTER_PORT"] = store.get(f"port of run {number}").decode()
    return own


def say(what: str, options: list[str]) -> None:
    sys.stdout.write(f"\n{' '.join([what, *options])}\n")  # At once, so that nothing comes between.
    sys.stdout.flush()


def main() -> None:
    words = sys.argv[1:]
    if words[0] == "--import":
        for module in words[1].split(","):
            importlib.import_module(module)
        words = words[2:]
    program, *words = words
    runs: list[list[str]] = []
    for word in words:
        if word == "--":
            runs.append([])
        else:
            runs[-1].append(word)
    meet("imports")  # They may print warnings.
    failed = False
    for number, options in enumerate(runs):
        if RANK == "0":
            say("RUN", options)
        process = os.fork()
        if process == 0:
            own = own_store(number)  # noqa: F841  It lasts until the end of the program.
            sys.argv = [program, *options]
            sys.path[0] = os.path.dirname(program)
            runpy.run_path(program, run_name="__main__")
            return
        _, status = os.waitpid(process, 0)
        if status != 0:
            say("FAILED", options)
            failed = True
        meet(f"end of run {number}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
