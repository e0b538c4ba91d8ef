# SPDX-License-Identifier: Apache-2.0
"""Registration with torch.distributed."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.util
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ._record import configure
from ._version import native

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend as C10dBackend

NAME = "xylem"


def _blocking_wait() -> native.BlockingWait:
    """When wait() for a call on device tensors blocks the calling thread.

    By default, wait() blocks the thread if a thread of the host must end the call. Without Xylem's progress thread,
    the backend ignores this setting, and wait() always blocks.
    """
    asked = os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "")
    if not asked:
        return native.BlockingWait.by_need
    if asked.lower() in ("1", "y", "yes", "t", "true", "on"):
        return native.BlockingWait.always
    if asked.lower() in ("0", "n", "no", "f", "false", "off"):
        return native.BlockingWait.never
    raise ValueError(
        f"xylem: TORCH_NCCL_BLOCKING_WAIT is '{asked}', which means neither yes nor no: set it to 1 or "
        "0, or unset it"
    )


@functools.cache
def _leave_at_end_of_child(process: int) -> None:
    """Registers that this process leaves its jobs in good order if it is a child of multiprocessing and ends normally.

    A forked child ends by os._exit(), which runs no exit handlers. Before os._exit(), it runs multiprocessing's
    finalizers.
    """

    def leave() -> None:
        error = sys.exc_info()[1]  # The exception that ends the program, if any.
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            # Join the threads that are not daemons, since they may still make calls. Without this line, they would be
            # joined after the finalizers of multiprocessing.
            threading._shutdown()
            native.leave_jobs()

    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, leave, exitpriority=-1000)  # After all others.


def _create(options: Any, backend_options: Any) -> C10dBackend:
    """Called by torch for each group that this process is a member of."""
    configure()
    _leave_at_end_of_child(os.getpid())
    return native.create(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        name=options.group_id,
        global_ranks=list(options.global_ranks_in_group),
        blocking_wait=_blocking_wait(),
    )


def _know_callbacks_of_collect_all() -> None:
    """Makes torch.futures.collect_all() return a future whose callbacks count as callbacks, and not as the program.

    then() runs the callback of a complete future at once, on the thread of the program. On another rank, the same
    future may not be complete, and the callback runs on another thread. The collectives that the callback calls must
    match on all ranks, so they count as calls of a callback on all ranks.
    """
    collect = torch._C._collect_all

    def collect_all(futures: list[torch._C.Future]) -> torch._C.Future:
        return native.collected(collect(futures), futures)

    torch._C._collect_all = collect_all


def _may_have_cuda() -> bool:
    """Whether the kernel has a driver for NVIDIA devices, and torch could use it. Does not initialize CUDA."""
    drivers = ("/dev/nvidiactl", "/dev/nvhost-ctrl", "/dev/nvgpu", "/dev/dxg")  # All but the first: Jetson, WSL.
    return torch.version.cuda is not None and any(map(os.path.exists, drivers))


def register() -> None:
    """Registers the backend "xylem" for tensors on the CPU and on CUDA. Further calls have no effect.

    Registers it for CUDA only if there may be a CUDA device: if a backend serves a device other than the CPU, torch
    uses that device for the tensors that it gathers (``ShardedTensor.gather()``).

    Raises:
        RuntimeError: another package has registered a backend with that name.
    """
    known = dist.Backend._plugins.get(NAME.upper())
    if known is not None:
        if known.creator_fn is _create:
            return
        raise RuntimeError(
            f"xylem: a backend named '{NAME}' is registered already, by "
            f"{known.creator_fn.__module__}: uninstall one of the two packages"
        )
    # This backend records its calls itself (xylem.record()). Without this line torch would record
    # them, too, which would take as long as a small call.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add(NAME)
    devices = ["cpu", "cuda"] if _may_have_cuda() else ["cpu"]
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=devices)
    _know_callbacks_of_collect_all()


def register_device(device: str) -> None:
    """Serves the tensors of an accelerator that is not part of torch but uses CUDA's driver.

    ``device`` is the name that the accelerator's package gave to torch's device type PrivateUse1
    (``torch.utils.rename_privateuse1_backend``). Its tensors must be in memory of ``cuMemAlloc`` on
    the device of the same number, the native handles of its streams must be those of ``CUstream``,
    and its device guard must offer events and a pool of streams. Before torch 2.10, its class
    ``torch.DEVICE.Stream`` must have ``cuda_stream``. Call this before ``init_process_group``; further
    calls have no effect.

    Raises:
        ValueError: torch knows no such device.
    """
    register()
    private = torch._C._get_privateuse1_backend_name()
    if device != private:
        raise ValueError(
            f"xylem: register_device('{device}'): torch's own device type for other packages is named "
            f"'{private}'; pass that name, after the package of the device was imported"
        )
    native.serve_private_device()
    served = dist.Backend.backend_capability[NAME]
    if device not in served:
        served.append(device)
