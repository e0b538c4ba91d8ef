# SPDX-License-Identifier: Apache-2.0
"""Features of torch that use a backend: functional collectives (also traced and with gradients),
device meshes, DTensor, and checkpoints.

    python functional_test.py [-k PATTERN]
"""

from __future__ import annotations

import shutil
import tempfile
import unittest
import warnings

import torch
import torch._dynamo  # Imported once for all ranks, which are forks.
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
import torch.distributed.nn.functional as differentiable
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ranks import run_ranks

SIZES = (1, 2, 3, 5)


def waited(result):
    """Waits for the values of a functional collective and returns them."""
    return functional.wait_tensor(result)


class Functional(unittest.TestCase):
    def test_gather_of_a_sharded_tensor(self):
        """If the backend has a device other than the CPU, torch gathers on this device."""

        def body(rank, size):
            spec = ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in range(size)])
            shards = sharded_tensor.full(spec, (2 * size, 3), float(rank))
            whole = torch.zeros(2 * size, 3) if rank == 0 else None
            shards.gather(dst=0, out=whole)
            if rank == 0:
                assert torch.equal(whole, torch.arange(float(size)).repeat_interleave(2)[:, None].expand(-1, 3)), whole

        for size in SIZES:
            run_ranks(size, body)

    def test_each_collective(self):
        def body(rank, size):
            world = dist.group.WORLD
            ranks = torch.arange(float(size))
            mine = torch.full((2, 3), float(rank))
            total = float(ranks.sum())
            for op, expected in (("sum", total), ("avg", total / size), ("max", size - 1.0)):
                assert torch.equal(waited(functional.all_reduce(mine, op, world)), torch.full((2, 3), expected))
            gathered = waited(functional.all_gather_tensor(mine, 0, world))
            assert torch.equal(gathered, ranks.repeat_interleave(2)[:, None].expand(-1, 3))
            gathered = waited(functional.all_gather_tensor(mine, 1, world))
            assert torch.equal(gathered, ranks.repeat_interleave(3)[None].expand(2, -1))
            whole = torch.arange(2.0 * size)
            part = waited(functional.reduce_scatter_tensor(whole + rank, "sum", 0, world))
            assert torch.equal(part, whole.chunk(size)[rank] * size + total)
            sent = waited(functional.broadcast(mine, size - 1, world))
            assert torch.equal(sent, torch.full((2, 3), size - 1.0))
            parts = torch.full((size,), float(rank))
            assert torch.equal(waited(functional.all_to_all_single(parts, None, None, world)), ranks)
            # Rank r sends r + 1 rows to each rank.
            given = torch.full(((rank + 1) * size,), float(rank))
            taken = waited(
                functional.all_to_all_single(given, [r + 1 for r in range(size)], [rank + 1] * size, world)
            )
            assert torch.equal(taken, torch.repeat_interleave(ranks, torch.arange(size) + 1))
            assert torch.equal(mine, torch.full((2, 3), float(rank)))  # The input was not changed.

        for size in SIZES:
            run_ranks(size, body)

    def test_coalesced(self):
        def body(rank, size):
            world = dist.group.WORLD
            given = [torch.full((n,), rank + 1.0) for n in (1, 7)]
            total = size * (size + 1) / 2
            for n, got in zip((1, 7), functional.all_reduce_coalesced(given, "sum", world)):
                assert torch.equal(waited(got), torch.full((n,), total))
            ranks = torch.arange(1.0, size + 1)
            for n, got in zip((1, 7), functional.all_gather_into_tensor_coalesced(given, world)):
                assert torch.equal(waited(got), ranks.repeat_interleave(n))
            wholes = [torch.ones(n * size) for n in (1, 7)]
            parts = functional.reduce_scatter_tensor_coalesced(wholes, "sum", [0, 0], world)
            for n, got in zip((1, 7), parts):
                assert torch.equal(waited(got), torch.full((n,), float(size)))

        for size in SIZES:
            run_ranks(size, body)

    def test_gradients(self):
        def body(rank, size):
            world = dist.group.WORLD
            leaf = torch.full((2,), rank + 1.0, requires_grad=True)
            gathered = functional.all_gather_tensor_autograd(leaf, 0, world)
            (waited(gathered) * (rank + 1)).sum().backward()
            assert torch.equal(leaf.grad, torch.full((2,), size * (size + 1) / 2))
            leaf = torch.ones(size, requires_grad=True)
            part = functional.reduce_scatter_tensor_autograd(leaf, "sum", 0, world)
            (waited(part) * (rank + 1)).sum().backward()
            assert torch.equal(leaf.grad, torch.arange(1.0, size + 1))
            leaf = torch.ones(size, requires_grad=True)
            (differentiable.all_reduce(leaf) * (rank + 1)).sum().backward()
            assert torch.equal(leaf.grad, torch.full((size,), size * (size + 1) / 2))
            leaf = torch.ones(3, requires_grad=True)
            outputs = differentiable.all_gather(leaf)
            sum(output.sum() * (r + 1) for r, output in enumerate(outputs)).backward()
            assert torch.equal(leaf.grad, torch.full((3,), size * (rank + 1.0)))

        for size in SIZES:
            run_ranks(size, body)

    def test_compiled(self):
        """The function is traced as one graph that contains the collectives."""

        def body(rank, size):
            world = dist.group.WORLD

            def step(tensor):
                total = functional.all_reduce(tensor * 2, "sum", world)
                return functional.all_gather_tensor(total + 1, 0, world).sin()

            tensor = torch.arange(4.0) + rank
            compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = compiled(tensor)
            torch.testing.assert_close(got, waited(step(tensor)))

        for size in (1, 2, 3):
            run_ranks(size, body)

    def test_meshes_and_dtensors(self):
        def body(rank, size):
            mesh = init_device_mesh("cpu", (size,))
            torch.manual_seed(0)
            whole = torch.randn(7, 5)  # These sizes are not multiples of the number of ranks.
            for dim in (0, 1):
                sharded = distribute_tensor(whole, mesh, [Shard(dim)])
                assert torch.equal(sharded.full_tensor(), whole)
                other = sharded.redistribute(mesh, [Shard(1 - dim)])
                assert torch.equal(other.full_tensor(), whole)
            partial = DTensor.from_local(whole, mesh, [Partial()])
            torch.testing.assert_close(partial.redistribute(mesh, [Replicate()]).to_local(), whole * size)
            torch.testing.assert_close(partial.redistribute(mesh, [Shard(0)]).full_tensor(), whole * size)
            left = distribute_tensor(whole, mesh, [Shard(1)])
            right = distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
            torch.testing.assert_close((left @ right).full_tensor(), whole @ whole.t())

        for size in SIZES:
            run_ranks(size, body)

    def test_a_mesh_of_two_dimensions(self):
        def body(rank, size):
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
            total = torch.tensor([float(rank)])
            dist.all_reduce(total, group=mesh["data"].get_group())
            assert total.item() == 2 * (rank % 2) + 2

            torch.manual_seed(0)
            model = torch.nn.Sequential(
                torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
            )
            inputs = torch.randn(4, 6)
            expected = model(inputs)
            expected.square().mean().backward()
            gradient = model[0].weight.grad.clone()
            model.zero_grad()
            parallelize_module(model, mesh["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(model, mesh=mesh["data"])
            got = model(inputs)
            torch.testing.assert_close(got, expected.detach(), check_dtype=False)
            got.square().mean().backward()
            torch.testing.assert_close(model[0].weight.grad.full_tensor(), gradient)

        run_ranks(4, body)

    def test_a_checkpoint_of_shards(self):
        def body(rank, size):
            mesh = init_device_mesh("cpu", (size,))
            whole = torch.arange(12.0).reshape(6, 2)
            folder = [tempfile.mkdtemp() if rank == 0 else None]
            dist.broadcast_object_list(folder)
            state = {"weight": distribute_tensor(whole, mesh, [Shard(0)]), "step": 3}
            checkpoint.save(state, checkpoint_id=folder[0])
            read = {"weight": distribute_tensor(torch.zeros(6, 2), mesh, [Shard(1)]), "step": 0}
            checkpoint.load(read, checkpoint_id=folder[0])
            assert torch.equal(read["weight"].full_tensor(), whole)
            assert read["step"] == 3
            dist.barrier()
            if rank == 0:
                shutil.rmtree(folder[0])

        for size in (1, 2, 3):
            run_ranks(size, body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
