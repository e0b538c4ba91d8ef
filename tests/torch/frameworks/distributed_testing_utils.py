# SPDX-License-Identifier: Apache-2.0
"""Functions that start processes, for the tests in transformers' source distribution. They import a file of this name,
which is only in transformers' repository. run.py copies this file to their directory.
"""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing


def _get_distributed_device_type() -> str:
    return "cpu"


def _get_distributed_backend() -> str:
    return "gloo"


def _get_rank_device(rank: int) -> torch.device:
    return torch.device("cpu")


def _set_rank_device(rank: int) -> None:
    pass


def _start_rank_processes(function, args, nprocs: int) -> None:
    torch.multiprocessing.start_processes(function, args=args, nprocs=nprocs, start_method="fork")


def _run_rank(rank: int, function, arguments, world_size: int, port: int) -> None:
    os.environ.update(
        WORLD_SIZE=str(world_size), RANK=str(rank), LOCAL_RANK=str(rank), MASTER_ADDR="localhost", MASTER_PORT=str(port)
    )
    store = dist.TCPStore("localhost", port, world_size=None, is_master=False)
    dist.init_process_group(_get_distributed_backend(), store=store, rank=rank, world_size=world_size)
    try:
        function(rank, *arguments)
    finally:
        dist.destroy_process_group()


def run_distributed(world_size: int):
    def decorate(function):
        def call(*arguments):
            store = dist.TCPStore("localhost", 0, world_size=None, is_master=True, wait_for_workers=False)
            _start_rank_processes(_run_rank, (function, arguments, world_size, store.port), world_size)

        return call

    return decorate
