# SPDX-License-Identifier: Apache-2.0
"""A torch device named "standin", over the stand-in for the CUDA driver. The import registers it.
"""

from __future__ import annotations

import contextlib
import functools
import sys

import torch

import _standin


Event = functools.partial(torch.Event, "standin")


class Stream:
    """A stream of the device. If it is made from an id, it returns the driver's handle (before
    torch 2.10).
    """

    def __new__(cls, device=None, priority=0, stream_id=None, device_index=None, device_type=None):
        if stream_id is None:
            return torch.Stream(torch.device("standin", index_of(device)), priority=priority)
        self = super().__new__(cls)
        self.cuda_stream = stream_id % (1 << 64)
        return self


def current_stream(device=None) -> torch.Stream:
    index = index_of(device)
    return torch.Stream(stream_id=_standin.current_stream(index), device_index=index, device_type=20)


@contextlib.contextmanager
def stream(chosen: torch.Stream):
    with chosen:
        yield


class CUDAGraph:
    """A graph of what is enqueued on the current stream while `torch.standin.graph` is entered."""

    def replay(self) -> None:
        _standin.launch(self._executable)


@contextlib.contextmanager
def graph(made: CUDAGraph):
    with stream(torch.Stream("standin")):
        _standin.begin_capture()
        try:
            yield
        finally:
            made._executable = _standin.end_capture()


def synchronize(device=None) -> None:
    current_stream(device).synchronize()


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def manual_seed_all(seed: int) -> None:
    """Does nothing: operations run on the CPU, and use the random numbers of the CPU's generator.
    """


device_count = _standin.device_count
current_device = _standin.current_device


def index_of(device) -> int:
    """Returns the number of a device, which is given as in torch's functions. None means the
    current one.
    """
    if device is None:
        return current_device()
    index = device if isinstance(device, int) else torch.device(device).index
    return current_device() if index is None else index


def set_device(device) -> None:
    _standin.set_device(index_of(device))


@contextlib.contextmanager
def device(index: int):
    before = current_device()
    set_device(index)
    yield
    set_device(before)


torch.utils.rename_privateuse1_backend("standin")
torch._register_device_module("standin", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend()
