# SPDX-License-Identifier: Apache-2.0
"""Times a training step of DistributedDataParallel on several backends, in turn in one run,
and the same step without communication.

    torchrun --nproc-per-node 2 bench/torch/ddp_step.py

The model is a stack of linear layers with 25 million parameters, so its gradients are 100 MB of
float32, in torch's buckets of 25 MiB. DDP always copies gradients into buckets and out of them. So
the time of communication is the difference to DDP in groups of one rank.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time

import torch
import torch.distributed as dist

try:
    import xylem  # noqa: F401  Registers the backend; torch 2.15 finds it without this.
except ImportError:
    pass  # A missing backend is reported when it is used.
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def step(model: nn.Module, batch: torch.Tensor) -> float:
    """The time of forward, backward and update in milliseconds."""
    begin = time.perf_counter()
    model(batch).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=1e-3)
            parameter.grad = None
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="xylem,gloo")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bind", action="store_true", help="each rank on cores of its own, in turn")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    names = arguments.backends.split(",")
    dist.init_process_group(names[0])
    if arguments.bind:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[dist.get_rank() % len(cores)]})
    torch.manual_seed(0)
    width = arguments.width
    alone = nn.Sequential(*(nn.Linear(width, width) for _ in range(arguments.layers)))
    ones = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    models: dict[str, nn.Module] = {
        "no DDP": alone,
        "one rank": DistributedDataParallel(copy.deepcopy(alone), process_group=ones[dist.get_rank()]),
    }
    for name in names:
        group = dist.new_group(backend=name)
        models[name] = DistributedDataParallel(copy.deepcopy(alone), process_group=group)
    batch = torch.randn(arguments.batch, width)
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(arguments.rounds + 2):  # DDP orders its buckets anew after the first.
        for name, model in models.items():
            dist.barrier()
            taken = torch.tensor(step(model, batch))
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            if turn >= 2:
                times[name].append(taken.item())
    if dist.get_rank() == 0:
        parameters = sum(parameter.numel() for parameter in alone.parameters())
        print(
            f"torch {torch.__version__}, {dist.get_world_size()} ranks, "
            f"{parameters / 1e6:.1f} million parameters"
        )
        for name in models:
            more = statistics.median(a - b for a, b in zip(times[name], times["one rank"]))
            print(
                f"{name:8} {statistics.median(times[name]):8.1f} ms a step, "
                f"{more:7.1f} ms of them for communication"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
