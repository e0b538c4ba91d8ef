# SPDX-License-Identifier: Apache-2.0
"""Runs a function on several ranks, each in a separate process.

With TEST_DEVICE=standin, tensors are created on that device (tests/torch/device) by default, so the
same tests use the backend's code for CUDA memory. With TEST_DEVICE=cuda, they are on GPUs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.synchronize
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from importlib import import_module
from typing import Any, Callable

import torch
import torch.distributed as dist

import xylem  # noqa: F401  The import registers the backend.

DEVICE = os.environ.get("TEST_DEVICE", "cpu")
if DEVICE not in ("cpu", "cuda"):
    import_module(DEVICE)
    xylem.register_device(DEVICE)

# Factor for all deadlines. A sanitizer makes tests slower (tests/torch/CMakeLists.txt).
SLOWNESS = int(os.environ.get("TEST_SLOWNESS", "1"))

# Forked ranks need not import torch, which takes seconds.
context = multiprocessing.get_context("fork")


class Condition:
    """A rank signals an event to other ranks with tell(). They wait for it with a deadline.

    Must be made before the ranks are forked. Each tell() ends one wait().
    """

    DEADLINE = 30 * SLOWNESS

    def __init__(self):
        self._told = context.Semaphore(0)

    def tell(self) -> None:
        self._told.release()

    def wait(self) -> None:
        if not self._told.acquire(timeout=self.DEADLINE):
            raise AssertionError(f"nobody told in {self.DEADLINE} s")


def all_meet(ranks: int) -> multiprocessing.synchronize.Barrier:
    """Returns a barrier of the ranks outside of any group. Its wait() has a deadline. Make it
    before the ranks are forked.
    """
    return context.Barrier(ranks, timeout=Condition.DEADLINE)


def eventually(condition: Callable[[], bool], what: str = "what was expected") -> None:
    """Waits until the condition holds. Fails after a deadline."""
    deadline = time.monotonic() + Condition.DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come about in {Condition.DEADLINE} s"
        time.sleep(0.001)


@contextlib.contextmanager
def raising(error: type[BaseException], pattern: str):
    """Fails unless the block raises `error` with a text that matches `pattern`.

    Returns a list, which has the text after the block.
    """
    texts = []
    try:
        yield texts
    except error as raised:
        texts.append(str(raised))
        if not re.search(pattern, str(raised), re.DOTALL):
            raise AssertionError(f"{raised!r} does not say {pattern!r}") from raised
    else:
        raise AssertionError(f"nothing was raised; expected {error.__name__} with {pattern!r}")


def use_device(rank: int) -> None:
    """Makes a device current for this rank, and makes it the default device of its tensors.

    Called in the rank's process, since a process must not fork after it has used a device. Ranks
    share devices if there are fewer.
    """
    if DEVICE == "cpu":
        return
    module = getattr(torch, DEVICE)
    index = rank % module.device_count()
    module.set_device(index)
    torch.set_default_device(torch.device(DEVICE, index))


def _rank(body: Callable, rank: int, size: int, store_path: str, options: dict, results) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(options["deadline"] - 5, exit=True)
    os.environ.update(options["environment"])
    torch.set_num_threads(1)
    try:
        use_device(rank)
        store = dist.FileStore(store_path, size)
        dist.init_process_group(
            "xylem",
            store=store,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=options["timeout"]),
            device_id=torch.get_default_device() if options["binds"] else None,
        )
        result = body(rank, size)
        if dist.is_initialized():
            dist.destroy_process_group()
        results.put((rank, "returned", result))
    except BaseException:
        results.put((rank, "raised", traceback.format_exc()))
        # The groups are not shut down, since they may have failed.
    results.close()
    results.join_thread()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_ranks(
    size: int,
    body: Callable[[int, int], Any],
    *,
    timeout: float = 30,
    deadline: float = 60,
    environment: dict[str, str] | None = None,
    killed: tuple[int, ...] = (),
    binds: bool = False,
) -> list[Any]:
    """Calls `body(rank, size)` on each rank of a world with backend xylem. Returns all their results.

    Ranks in `killed` may end in any way; their result is None. The test fails if another rank raises
    an exception, whose traceback is shown, or still runs after `deadline` seconds (times SLOWNESS).
    With `binds`, the world is bound to the devices of the ranks.
    """
    deadline *= SLOWNESS
    options = {
        "timeout": timeout,
        "deadline": deadline,
        "binds": binds,
        "environment": dict(environment or {}),
    }
    results = context.Queue()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "store")
        # A directory for the files that torch writes after a time-out. It is removed after the
        # test.
        options["environment"].setdefault(
            "TORCH_FR_DUMP_TEMP_FILE", os.path.join(directory, "calls_")
        )
        processes = [
            context.Process(target=_rank, args=(body, rank, size, path, options, results))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        outcomes: dict[int, tuple[str, Any]] = {}
        end = time.monotonic() + deadline
        try:
            while len(outcomes) < size - len(killed) and time.monotonic() < end:
                if not results.empty():
                    rank, how, result = results.get()
                    outcomes[rank] = (how, result)
                elif all(process.exitcode is not None for process in processes) and results.empty():
                    break
                else:
                    multiprocessing.connection.wait([results._reader], timeout=0.1)
            for process in processes:
                process.join(max(0.1, end - time.monotonic()))
        finally:
            for process in processes:
                if process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                    process.join()
    # A rank that has reported its result may have been ended by a sanitizer afterwards.
    broken = [
        rank
        for rank, process in enumerate(processes)
        if rank in outcomes and rank not in killed and process.exitcode != 0
    ]
    missing = [rank for rank in range(size) if rank not in outcomes and rank not in killed]
    raised = [f"rank {rank}: {text}" for rank, (how, text) in outcomes.items() if how == "raised"]
    if raised or missing or broken:
        codes = [process.exitcode for process in processes]
        raise AssertionError("\n".join(raised) + f"\nno result of ranks {missing}, exit codes {codes}")
    return [outcomes[rank][1] if rank in outcomes else None for rank in range(size)]
