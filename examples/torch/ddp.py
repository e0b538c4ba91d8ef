# SPDX-License-Identifier: Apache-2.0
"""Trains a small network with DistributedDataParallel or FSDP over Xylem.

    torchrun --nproc-per-node 4 examples/torch/ddp.py
    torchrun --nproc-per-node 4 examples/torch/ddp.py --fsdp --dtype bfloat16
    torchrun --nproc-per-node 4 examples/torch/ddp.py --device cuda       # each rank on its GPU
    torchrun --nproc-per-node 4 examples/torch/ddp.py --backend gloo      # to compare

The data are generated: points of interleaved spirals, which a network of three layers learns to
distinguish. At the end all ranks compare their parameters bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 3


def spirals(points: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns points [points, 2], and for each the number of its spiral [points]."""
    label = torch.randint(CLASSES, (points,), generator=generator)
    radius = torch.rand(points, generator=generator)
    turn = 4 * radius + 2 * math.pi / CLASSES * label
    turn += 0.1 * torch.randn(points, generator=generator)
    return torch.stack((radius * turn.sin(), radius * turn.cos()), dim=1), label


def network(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(2, width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, CLASSES),
    )


def digest(model: nn.Module) -> str:
    """A hash of all parameters. Sharded parameters are gathered first."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        sha.update(whole.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="xylem")
    parser.add_argument("--device", default="cpu", help="where the network is, such as cuda")
    parser.add_argument("--fsdp", action="store_true", help="shard parameters, gradients and state")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="points of each rank in a step")
    parser.add_argument("--width", type=int, default=64, help="of the hidden layers")
    parser.add_argument("--json", help="file to which rank 0 writes the losses")
    arguments = parser.parse_args()

    if arguments.backend == "xylem":
        import xylem  # noqa: F401  Registers the backend; torch 2.15 does so by itself.

    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device(arguments.device)
    if device.type != "cpu":
        module = getattr(torch, device.type)
        local = int(os.environ.get("LOCAL_RANK", rank))
        device = torch.device(device.type, local % module.device_count())
        module.set_device(device)
    torch.manual_seed(0)  # The same parameters on all ranks.
    dtype = getattr(torch, arguments.dtype)
    model: nn.Module = network(arguments.width).to(device, dtype)
    if arguments.fsdp:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (size,))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    data = torch.Generator().manual_seed(1 + rank)  # Each rank has different points.

    losses = []
    begin = time.perf_counter()
    for step in range(arguments.steps):
        points, labels = spirals(arguments.batch, data)
        loss = nn.functional.cross_entropy(
            model(points.to(device, dtype)).float(), labels.to(device)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
        if rank == 0 and (step + 1) % max(1, arguments.steps // 10) == 0:
            print(f"step {step + 1}: loss {losses[-1]:.4f}", flush=True)
    seconds = time.perf_counter() - begin

    digests: list[str | None] = [None] * size
    dist.all_gather_object(digests, digest(model))
    if rank == 0:
        print(
            f"{arguments.backend}, {size} ranks, torch {torch.__version__}: "
            f"{seconds / arguments.steps * 1e3:.2f} ms a step"
        )
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(losses, file)
    if len(set(digests)) != 1:
        raise SystemExit(f"rank {rank}: the ranks' parameters differ: {digests}")
    if rank == 0:
        print(f"all {size} ranks have the same parameters ({digests[0][:16]})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
