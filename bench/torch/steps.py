# SPDX-License-Identifier: Apache-2.0
"""Times training steps with DistributedDataParallel and FSDP2 on several backends, in turn in one run.

    torchrun --nproc-per-node 2 bench/torch/steps.py
    torchrun --nproc-per-node 2 bench/torch/steps.py --model resnet --ways ddp,ddp_view --rounds 31
    torchrun --nproc-per-node 8 bench/torch/steps.py --threads 2 --batch 8      # 16 cores

Each round makes one step of every way of training with every backend, and one of each reference:
the model alone, DDP with a communication hook that does nothing, and FSDP2 in groups of one rank,
which shows the time of FSDP2 itself. A step's time is that of the slowest rank. The cost of a way
of training is its time less that of its reference, in the same round: for DDP the hook that does
nothing, for FSDP2 the model alone. Costs are compared by the ratio of their medians. Its interval
contains 95 % of 2000 bootstrap samples of the rounds.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import statistics
import time
from typing import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

try:
    import xylem  # noqa: F401  Registers the backend; torch 2.15 finds it without this.
except ImportError:
    pass  # A missing backend is reported when it is used.
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

WAYS = ("ddp", "ddp_view", "ddp_static", "ddp_bf16", "ddp_powersgd", "fsdp2", "fsdp2_bf16")


# --- models ---


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.attention(self.before(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    """As GPT-2, with 29.5 million parameters; the output shares its weight with the embedding."""

    WORDS, WIDTH, LAYERS, HEADS, LENGTH = 8192, 512, 8, 8, 64

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(self.WORDS, self.WIDTH)
        self.places = nn.Embedding(self.LENGTH, self.WIDTH)
        self.blocks = nn.Sequential(*(Block(self.WIDTH, self.HEADS) for _ in range(self.LAYERS)))
        self.last = nn.LayerNorm(self.WIDTH)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        x = self.words(batch) + self.places(torch.arange(batch.shape[1]))
        logits = self.last(self.blocks(x)) @ self.words.weight.t()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(self.WORDS, (size, self.LENGTH), generator=generator)


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(after), nn.BatchNorm2d(after)])
        self.beside = nn.Conv2d(before, after, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + self.beside(x))


class ResNet(nn.Module):
    """As ResNet-18, for images of 32 by 32: 11 million parameters in many small tensors."""

    def __init__(self):
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        parts = [
            Residual(widths[max(i + k - 1, i) if k else i - 1], widths[i], 2 if i > 1 and k == 0 else 1)
            for i in range(1, 5)
            for k in range(2)
        ]
        self.blocks = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *parts)
        self.last = nn.Linear(512, 10)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(batch).mean((2, 3))).logsumexp(1).mean()

    def batch(self, size: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(size, 3, 32, 32, generator=generator)


MODELS: dict[str, Callable[[], nn.Module]] = {"gpt": Gpt, "resnet": ResNet}


# --- ways of training ---


def nothing(_, bucket):  # Torch rejects annotations that are strings.
    future: torch.futures.Future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def prepared(way: str, model: nn.Module, group) -> nn.Module:
    """The model, ready to be trained this way by the ranks of the group."""
    if way == "alone":
        return model
    if way.startswith("fsdp2"):
        mesh = DeviceMesh.from_group(group, "cpu")
        halves = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        policy = halves if way == "fsdp2_bf16" else MixedPrecisionPolicy()
        for block in model.blocks:
            if any(True for _ in block.parameters()):
                fully_shard(block, mesh=mesh, mp_policy=policy)
        return fully_shard(model, mesh=mesh, mp_policy=policy)
    ddp = DistributedDataParallel(
        model,
        process_group=group,
        gradient_as_bucket_view=way == "ddp_view",
        static_graph=way == "ddp_static",
    )
    if way == "hook":
        ddp.register_comm_hook(None, nothing)
    elif way == "ddp_bf16":
        ddp.register_comm_hook(group, default_hooks.bf16_compress_hook)
    elif way == "ddp_powersgd":
        state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return ddp


def step(model: nn.Module, batch: torch.Tensor) -> float:
    """The time of forward, backward and update in milliseconds."""
    begin = time.perf_counter()
    model(batch).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=1e-3)
            parameter.grad = None
    return (time.perf_counter() - begin) * 1e3


# --- results ---


def ratio_of_costs(first: list[float], second: list[float], references: list[float]) -> dict:
    """The ratio of the medians of first - reference and second - reference, with its interval."""
    rounds = list(zip(first, second, references))

    def ratio(sample) -> float:
        mine = statistics.median(a - r for a, _, r in sample)
        other = statistics.median(b - r for _, b, r in sample)
        return mine / other if other > 0 else float("nan")

    chance = random.Random(1)
    samples = sorted(ratio(chance.choices(rounds, k=len(rounds))) for _ in range(2000))
    return {"ratio": ratio(rounds), "low": samples[50], "high": samples[1949]}


def table(times: dict[str, list[float]], names: list[str], ways: list[str]) -> list[dict]:
    rows = []
    for way in ways:
        reference = times["alone" if way.startswith("fsdp2") else "hook"]
        row: dict = {"way": way}
        for name in names:
            taken = times[f"{way} {name}"]
            row[name] = {
                "step_ms": statistics.median(taken),
                "cost_ms": statistics.median(a - r for a, r in zip(taken, reference)),
            }
        if len(names) > 1:
            row |= ratio_of_costs(times[f"{way} {names[0]}"], times[f"{way} {names[1]}"], reference)
        rows.append(row)
    return rows


def show(times: dict[str, list[float]], rows: list[dict], names: list[str]) -> None:
    for reference in ("alone", "hook", "fsdp2, 1 rank"):
        if reference in times:
            print(f"{reference:14}{statistics.median(times[reference]):9.1f} ms a step")
    for row in rows:
        cells = [f"{row[n]['step_ms']:9.1f} ms, cost {row[n]['cost_ms']:7.1f}" for n in names]
        text = f"{row['way']:14}" + "  ".join(f"{n} {c}" for n, c in zip(names, cells))
        if "ratio" in row:
            text += f"   ratio {row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="xylem,gloo", help="costs of the first are compared to the second's")
    parser.add_argument("--model", choices=MODELS, default="gpt")
    parser.add_argument("--ways", default="ddp,ddp_view", help=",".join(WAYS))
    parser.add_argument("--batch", type=int, default=2, help="samples of each rank in a step")
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank that compute")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--bind", action="store_true", help="each rank on cores of its own, in turn")
    parser.add_argument("--json", help="a file for the times of all rounds")
    arguments = parser.parse_args()
    names, ways = arguments.backends.split(","), arguments.ways.split(",")
    for way in ways:
        if way not in WAYS:
            parser.error(f"there is no way '{way}'; there are {', '.join(WAYS)}")

    torch.set_num_threads(arguments.threads)
    dist.init_process_group(names[0])
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if arguments.bind:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.manual_seed(0)
    whole = MODELS[arguments.model]()
    batch = whole.batch(arguments.batch, torch.Generator().manual_seed(rank))
    models = {"alone": prepared("alone", copy.deepcopy(whole), None)}
    if any(way.startswith("ddp") for way in ways):
        models["hook"] = prepared("hook", copy.deepcopy(whole), dist.new_group([rank], use_local_synchronization=True))
    if any(way.startswith("fsdp2") for way in ways):
        own = dist.new_group([rank], use_local_synchronization=True)
        models["fsdp2, 1 rank"] = prepared("fsdp2", copy.deepcopy(whole), own)
    for name in names:
        group = dist.new_group(backend=name)
        for way in ways:
            models[f"{way} {name}"] = prepared(way, copy.deepcopy(whole), group)
    times: dict[str, list[float]] = {name: [] for name in models}
    turns = list(models)
    for turn in range(arguments.rounds + 3):  # DDP reorders its buckets after the first step.
        random.Random(turn).shuffle(turns)
        for name in turns:
            dist.barrier()
            taken = torch.tensor(step(models[name], batch))
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            if turn >= 3:
                times[name].append(taken.item())
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in whole.parameters())
        print(
            f"{arguments.model}, {parameters / 1e6:.1f} million parameters, torch {torch.__version__}, "
            f"{ranks} ranks of {arguments.threads} threads, {len(os.sched_getaffinity(0))} cores, "
            f"{arguments.rounds} rounds"
        )
        rows = table(times, names, ways)
        show(times, rows, names)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump({"arguments": vars(arguments), "ranks": ranks, "rows": rows, "times": times}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
