# SPDX-License-Identifier: Apache-2.0
"""The backend against what torch.distributed documents: every operation, type, layout and error.

    python backend_test.py [-k PATTERN]

Ranks are forked processes; each test has a deadline.
"""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist

from ranks import run_ranks

SIZES = (1, 2, 3, 5, 8)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
MOVED = (torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2)


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers that differ by rank and place; exact in every type, and as sums of 8."""
    numbers = (torch.arange(count) * 3 + rank) % 7 + 1
    if dtype is torch.bool:
        return numbers % 2 == 0
    if dtype.is_complex:
        return torch.complex(numbers.double(), -numbers.double()).to(dtype)
    return numbers.to(torch.float32).to(dtype) if dtype.itemsize == 1 else numbers.to(dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit by bit, and of one shape and type."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bytes(a.contiguous().view(-1).view(torch.uint8).numpy()) == bytes(
        b.contiguous().view(-1).view(torch.uint8).numpy()
    )


def reduction(op: dist.ReduceOp, parts: list[torch.Tensor]) -> torch.Tensor:
    """What a reduction of these must be, computed with room to spare."""
    dtype = parts[0].dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64
    stacked = torch.stack([part.to(wide) for part in parts])
    if op == dist.ReduceOp.SUM:
        result = stacked.sum(0)
    elif op == dist.ReduceOp.AVG:
        result = stacked.sum(0) / len(parts)
        if not dtype.is_floating_point and not dtype.is_complex:
            result = result.trunc()
    elif op == dist.ReduceOp.PRODUCT:
        result = stacked.prod(0)
    elif op == dist.ReduceOp.MIN:
        result = stacked.amin(0)
    elif op == dist.ReduceOp.MAX:
        result = stacked.amax(0)
    else:
        result = parts[0].clone()
        for part in parts[1:]:
            result = {
                dist.ReduceOp.BAND: torch.bitwise_and,
                dist.ReduceOp.BOR: torch.bitwise_or,
                dist.ReduceOp.BXOR: torch.bitwise_xor,
            }[op](result, part)
    return result.to(dtype)


class Collectives(unittest.TestCase):
    """Results, on every number of ranks."""

    def test_all_reduce_of_every_type_and_reduction(self):
        def body(rank, size):
            ops = dist.ReduceOp
            for dtype in INTEGERS + FLOATS + COMPLEX:
                whole = [ops.SUM, ops.AVG] if dtype.is_complex else [ops.SUM, ops.MIN, ops.MAX, ops.AVG]
                if dtype in INTEGERS:
                    whole += [ops.BAND, ops.BOR, ops.BXOR]
                if dtype in (torch.int64, torch.float64):
                    whole += [ops.PRODUCT]
                for op in whole:
                    for count in (1, 17, 5000):
                        tensor = values(rank, count, dtype)
                        dist.all_reduce(tensor, op)
                        expected = reduction(op, [values(r, count, dtype) for r in range(size)])
                        if op == ops.AVG:
                            torch.testing.assert_close(tensor, expected, rtol=1e-2, atol=0)
                        else:
                            assert same(tensor, expected), (dtype, op, count, tensor, expected)

        for size in SIZES:
            run_ranks(size, body)

    def test_moves_of_every_type(self):
        def body(rank, size):
            for dtype in INTEGERS + FLOATS + COMPLEX + MOVED:
                mine = values(rank, 33, dtype)
                everyone = [values(r, 33, dtype) for r in range(size)]
                root = size // 2
                got = mine.clone()
                dist.broadcast(got, root)
                assert same(got, everyone[root]), ("broadcast", dtype)
                listed = [torch.empty_like(mine) for _ in range(size)]
                dist.all_gather(listed, mine)
                assert all(map(same, listed, everyone)), ("all_gather", dtype)
                flat = torch.empty(33 * size, dtype=dtype)
                dist.all_gather_into_tensor(flat, mine)
                assert same(flat, torch.cat(everyone)), ("all_gather_into_tensor", dtype)
                parts = [torch.empty_like(mine) for _ in range(size)] if rank == root else None
                dist.gather(mine, parts, root)
                assert parts is None or all(map(same, parts, everyone)), ("gather", dtype)
                got = torch.empty_like(mine)
                dist.scatter(got, everyone if rank == root else None, root)
                assert same(got, everyone[rank]), ("scatter", dtype)
                outputs = [torch.empty_like(mine) for _ in range(size)]
                dist.all_to_all(outputs, [values(rank + r, 33, dtype) for r in range(size)])
                assert all(
                    same(outputs[r], values(rank + r, 33, dtype)) for r in range(size)
                ), ("all_to_all", dtype)

        for size in SIZES:
            run_ranks(size, body)

    def test_reductions_to_one_and_to_parts(self):
        def body(rank, size):
            for dtype in (torch.int32, torch.bfloat16, torch.float32):
                everyone = [values(r, 21 * size, dtype) for r in range(size)]
                total = reduction(dist.ReduceOp.SUM, everyone)
                for root in range(size):
                    tensor = everyone[rank].clone()
                    dist.reduce(tensor, root)
                    if rank == root:
                        assert same(tensor, total)
                part = torch.empty(21, dtype=dtype)
                dist.reduce_scatter_tensor(part, everyone[rank].clone())
                assert same(part, total[21 * rank : 21 * rank + 21])
                part = torch.empty(21, dtype=dtype)
                dist.reduce_scatter(part, [t.clone() for t in everyone[rank].split(21)])
                assert same(part, total[21 * rank : 21 * rank + 21])

        for size in SIZES:
            run_ranks(size, body)

    def test_uneven_parts(self):
        def body(rank, size):
            counts = [3 * r for r in range(size)]  # Rank 0 has none.
            mine = torch.full((counts[rank],), float(rank))
            listed = [torch.empty(count) for count in counts]
            dist.all_gather(listed, mine)
            assert all(same(listed[r], torch.full((counts[r],), float(r))) for r in range(size))
            inputs = [torch.full((count,), float(rank + 1)) for count in counts]
            part = torch.empty(counts[rank])
            dist.reduce_scatter(part, inputs)
            assert same(part, torch.full((counts[rank],), size * (size + 1) / 2))
            given = [(rank + r) % 3 for r in range(size)]
            source = torch.full((sum(given), 2), float(rank))
            target = torch.empty(sum(given), 2)
            dist.all_to_all_single(target, source, given, given)  # Sizes are symmetric.
            expected = torch.cat([torch.full((given[r], 2), float(r)) for r in range(size)])
            assert same(target, expected)

        for size in SIZES:
            run_ranks(size, body)

    def test_layouts(self):
        def body(rank, size):
            base = torch.arange(12.0).reshape(3, 4)
            turned = (base + rank).t()
            dist.all_reduce(turned)
            assert torch.equal(turned, (base * size + sum(range(size))).t())
            strided = torch.zeros(4, 6)[:, ::2]
            strided += rank
            dist.all_reduce(strided)
            assert torch.equal(strided, torch.full((4, 3), float(sum(range(size)))))
            pixels = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
            dist.all_reduce(pixels)
            assert torch.equal(pixels, torch.full((2, 3, 4, 5), float(size)))
            outputs = [torch.zeros(3, 4).t() for _ in range(size)]
            dist.all_gather(outputs, base.t())
            assert all(torch.equal(output, base.t()) for output in outputs)
            views = list(torch.zeros(size, 5).unbind(0))  # In a row: no copy is needed.
            dist.all_gather(views, torch.full((5,), float(rank)))
            assert all(torch.equal(views[r], torch.full((5,), float(r))) for r in range(size))
            part = torch.zeros(4, 3).t()
            dist.reduce_scatter(part, [base.clone() for _ in range(size)])
            assert torch.equal(part, base * size)
            empty = torch.zeros(0)
            dist.all_reduce(empty)
            dist.broadcast(empty, 0)
            dist.all_gather([torch.zeros(0) for _ in range(size)], empty)
            leaf = torch.ones(3, requires_grad=True)
            with torch.no_grad():
                dist.all_reduce(leaf)
            scalar = torch.tensor(1.0)
            dist.all_reduce(scalar)
            assert scalar.item() == size

        for size in (1, 2, 3):
            run_ranks(size, body)

    def test_in_place_lists(self):
        def body(rank, size):
            views = list(torch.zeros(size, 5).unbind(0))
            views[rank].fill_(rank)
            dist.all_gather(views, views[rank])
            assert all(torch.equal(views[r], torch.full((5,), float(r))) for r in range(size))
            uneven = list(torch.zeros(sum(range(1, size + 1))).split(list(range(1, size + 1))))
            uneven[rank].fill_(rank)
            dist.all_gather(uneven, uneven[rank])
            assert all(torch.equal(uneven[r], torch.full((r + 1,), float(r))) for r in range(size))
            inputs = list(torch.ones(size, 5).unbind(0))
            dist.reduce_scatter(inputs[rank], inputs)
            assert torch.equal(inputs[rank], torch.full((5,), float(size)))
            inputs = [torch.full((3,), float(rank)) for _ in range(size)]
            dist.all_to_all(inputs, inputs)
            assert all(torch.equal(inputs[r], torch.full((3,), float(r))) for r in range(size))

        for size in (1, 2, 3):
            run_ranks(size, body)

    def test_lazy_conjugates(self):
        def body(rank, size):
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            tensor = torch.tensor([1 + 2j, 3 - 1j]).conj()
            backend.allreduce([tensor]).wait()
            assert torch.equal(tensor, torch.tensor([1 - 2j, 3 + 1j]) * size), tensor

        run_ranks(2, body)

    def test_premultiplied_sum(self):
        def body(rank, size):
            tensor = torch.ones(9)
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
            assert torch.equal(tensor, torch.full((9,), size * 0.5))
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(torch.tensor(2.0)))
            assert torch.equal(tensor, torch.full((9,), size * size * 1.0))

        run_ranks(3, body)

    def test_sparse_all_reduce(self):
        def body(rank, size):
            for _ in range(3):
                rows = torch.tensor([[rank, size]])
                tensor = torch.sparse_coo_tensor(rows, torch.full((2, 4), rank + 1.0), (size + 1, 4))
                work = dist.all_reduce(tensor, async_op=True)
                work.wait()
                expected = torch.arange(1.0, size + 1)[:, None].expand(size, 4)
                last = torch.full((1, 4), size * (size + 1) / 2)
                assert torch.equal(tensor.to_dense(), torch.cat([expected, last]))
            whole = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([-5]), (3,))
            dist.all_reduce(whole, dist.ReduceOp.AVG)
            assert whole.to_dense().tolist() == [0, -5, 0]
            empty = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.long), torch.zeros(0), (5,))
            dist.all_reduce(empty)
            assert empty.to_dense().sum() == 0

        for size in (1, 2, 3):
            run_ranks(size, body)

    def test_objects(self):
        def body(rank, size):
            everyone = [None] * size
            dist.all_gather_object(everyone, {"rank": rank, "text": "x" * rank})
            assert [item["rank"] for item in everyone] == list(range(size))
            shared = ["from 0", 7] if rank == 0 else [None, None]
            dist.broadcast_object_list(shared, 0)
            assert shared == ["from 0", 7]

        run_ranks(3, body)


class Messages(unittest.TestCase):
    def test_send_and_recv(self):
        def body(rank, size):
            for count in (1, 1000, 300000):
                if rank == 0:
                    for to in range(1, size):
                        dist.send(torch.full((count,), float(to)), to, tag=to)
                    for _ in range(1, size):
                        tensor = torch.empty(count)
                        source = dist.recv(tensor)  # From any.
                        assert torch.equal(tensor, torch.full((count,), float(source)))
                else:
                    tensor = torch.empty(count)
                    assert dist.recv(tensor, 0, tag=rank) == 0
                    assert torch.equal(tensor, torch.full((count,), float(rank)))
                    dist.send(tensor, 0)
                dist.barrier()

        for size in (2, 3, 5):
            run_ranks(size, body)

    def test_batched_in_both_directions(self):
        def body(rank, size):
            after, before = (rank + 1) % size, (rank - 1) % size
            got = torch.empty(100000)
            for _ in range(10):
                works = dist.batch_isend_irecv(
                    [
                        dist.P2POp(dist.isend, torch.full((100000,), float(rank)), after),
                        dist.P2POp(dist.irecv, got, before),
                    ]
                )
                for work in works:
                    work.wait()
                assert torch.equal(got, torch.full((100000,), float(before)))

        for size in (2, 3, 5):
            run_ranks(size, body)


class Works(unittest.TestCase):
    def test_futures_callbacks_and_results(self):
        def body(rank, size):
            tensor = torch.full((1000,), rank + 1.0)
            work = dist.all_reduce(tensor, async_op=True)
            future = work.get_future().then(lambda done: done.value()[0] * 2)
            total = size * (size + 1) / 2
            assert torch.equal(future.wait(), torch.full((1000,), 2 * total))
            assert work.is_completed()
            outputs = [torch.zeros(3) for _ in range(size)]
            future = dist.all_gather(outputs, torch.full((3,), float(rank)), async_op=True).get_future()
            future.wait()
            assert all(torch.equal(future.value()[r], torch.full((3,), float(r))) for r in range(size))
            # Nobody waits for this one; its future comes all the same.
            seen = threading.Event()
            late = dist.all_reduce(torch.ones(1 << 20), async_op=True).get_future()
            late.add_done_callback(lambda done: seen.set())
            assert seen.wait(10)

        for size in (1, 2, 3):
            run_ranks(size, body)

    def test_coalesced(self):
        def body(rank, size):
            tensors = [torch.full((n,), rank + 1.0) for n in (1, 100, 70000)]
            with dist._coalescing_manager(async_ops=True) as manager:
                for tensor in tensors:
                    dist.all_reduce(tensor)
            manager.wait()
            total = size * (size + 1) / 2
            assert all(torch.equal(t, torch.full_like(t, total)) for t in tensors)
            parts = [torch.full((n,), float(rank)) for n in (2, 33)]
            wholes = [torch.empty(n * size) for n in (2, 33)]
            with dist._coalescing_manager(device=torch.device("cpu"), async_ops=False):
                for whole, part in zip(wholes, parts):
                    dist.all_gather_into_tensor(whole, part)
            ranks = torch.arange(float(size))
            assert all(
                torch.equal(w, ranks.repeat_interleave(n)) for w, n in zip(wholes, (2, 33))
            )
            with dist._coalescing_manager(device=torch.device("cpu"), async_ops=False):
                for whole, part in zip(wholes, parts):
                    dist.reduce_scatter_tensor(part, whole)
            assert all(torch.equal(p, torch.full_like(p, float(rank * size))) for p in parts)

        for size in (2, 3):
            run_ranks(size, body)

    def test_an_exception_within_a_coalesced_block_leaves_the_group_whole(self):
        def body(rank, size):
            after, before = (rank + 1) % size, (rank - 1) % size
            for attempt in range(2):
                try:
                    dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.zeros(2, 3).t(), after)])
                    raise AssertionError("not refused")
                except ValueError:
                    pass
                got = torch.empty(5)
                works = dist.batch_isend_irecv(
                    [
                        dist.P2POp(dist.irecv, got, before),
                        dist.P2POp(dist.isend, torch.full((5,), float(rank)), after),
                    ]
                )
                for work in works:
                    work.wait()
                assert torch.equal(got, torch.full((5,), float(before)))
            parts = [torch.zeros(2), torch.zeros(2, dtype=torch.int32)]
            wholes = [torch.ones(2 * size), torch.ones(2 * size)]  # The second is refused.
            try:
                dist.group.WORLD.reduce_scatter_tensor_coalesced(parts, wholes).wait()
                raise AssertionError("not refused")
            except ValueError:
                pass
            dist.barrier()

        run_ranks(2, body)
        run_ranks(3, body)

    def test_a_callback_may_wait_for_other_futures(self):
        """As torch's hook of PowerSGD does."""

        def body(rank, size):
            def again(done):
                second = dist.all_reduce(done.value()[0].clone(), async_op=True).get_future()
                third = dist.all_reduce(second.wait()[0].clone(), async_op=True).get_future()
                return third.wait()[0]

            futures = [
                dist.all_reduce(torch.full((1 << 18,), 1.0), async_op=True).get_future().then(again)
                for _ in range(2)
            ]
            for future in futures:
                assert torch.equal(future.wait(), torch.full((1 << 18,), float(size**3)))

        run_ranks(2, body)
        run_ranks(3, body)

    def test_powersgd(self):
        def body(rank, size):
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

            torch.manual_seed(0)
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
            state = powersgd.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            model.register_comm_hook(state, powersgd.powerSGD_hook)
            for _ in range(6):
                model(torch.randn(8, 256)).square().mean().backward()
            grads = [torch.empty_like(model.module.weight) for _ in range(size)]
            dist.all_gather(grads, model.module.weight.grad)
            assert all(torch.equal(grad, grads[0]) for grad in grads)

        run_ranks(2, body)

    def test_a_callback_may_destroy_the_group(self):
        def body(rank, size):
            group = dist.new_group()
            done = threading.Event()

            def destroy(future):
                nonlocal group
                group = None
                done.set()

            future = dist.all_reduce(torch.ones(1 << 18), group=group, async_op=True).get_future()
            dist.destroy_process_group(group)
            future.add_done_callback(destroy)
            assert done.wait(20)
            dist.barrier()

        run_ranks(2, body)

    def test_what_was_called_goes_through_before_the_group_ends(self):
        def body(rank, size):
            group = dist.new_group()
            tensor = torch.ones(1000)
            if rank == 1:
                time.sleep(0.5)
            work = dist.all_reduce(tensor, group=group, async_op=True)
            if rank == 1:
                work.wait()
                assert torch.equal(tensor, torch.full((1000,), float(size)))
            dist.destroy_process_group(group)
            del group
            gc.collect()
            dist.barrier()

        run_ranks(2, body)

    def test_a_barrier_waits_for_collectives_but_not_for_messages(self):
        def body(rank, size):
            got = torch.zeros(2)
            if rank == 0:
                works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, 1)])
                dist.barrier()
                dist.send(torch.ones(2), 1)
                for work in works:
                    work.wait()
                assert got.tolist() == [5, 5]
            else:
                dist.barrier()
                dist.recv(got, 0)
                dist.send(torch.full((2,), 5.0), 0)
            tensors = [torch.ones(1 << 16) for _ in range(4)]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            dist.barrier()
            assert all(work.is_completed() for work in works)

        run_ranks(2, body, timeout=10)

    def test_many_in_flight_over_groups(self):
        """Ten thousand calls over four groups, waited for in another order on each rank."""

        def body(rank, size):
            generator = torch.Generator().manual_seed(rank)
            groups = [None] + [dist.new_group() for _ in range(3)]
            before = None
            for turn in range(3):
                tensors = [torch.full((1 + i % 50,), float(rank + i % 5)) for i in range(2500)]
                works = [
                    dist.all_reduce(tensor, group=groups[i % 4], async_op=True)
                    for i, tensor in enumerate(tensors)
                ]
                messages = [torch.full((8,), float(rank)) for _ in range(50)]
                got = [torch.empty(8) for _ in range(50)]
                after, prior = (rank + 1) % size, (rank - 1) % size
                works += [dist.isend(m, after, tag=i) for i, m in enumerate(messages)]
                works += [dist.irecv(g, prior, tag=i) for i, g in enumerate(got)]
                for i in torch.randperm(len(works), generator=generator).tolist():
                    works[i].wait()
                ranks = sum(range(size))
                for i, tensor in enumerate(tensors):
                    assert torch.equal(tensor, torch.full_like(tensor, ranks + size * (i % 5)))
                assert all(torch.equal(g, torch.full((8,), float(prior))) for g in got)
                del works, tensors
                gc.collect()
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                if turn == 1:
                    before = memory
            assert before is not None and memory - before < 4096, f"{memory - before} KiB more"

        run_ranks(2, body)
        run_ranks(3, body, deadline=120)

    def test_dropped_works_give_their_tensors_back(self):
        def body(rank, size):
            alive = []

            class Tensor(torch.Tensor):
                pass

            import weakref

            # Two that go on for as long as the rest.
            open_receives = [dist.irecv(torch.empty(1), (rank + 1) % size, tag=7) for _ in range(2)]
            for _ in range(20):
                tensor = torch.ones(1000)
                alive.append(weakref.ref(tensor.untyped_storage()))
                dist.all_reduce(tensor, async_op=True)  # Nobody waits.
                del tensor
            for _ in range(40):
                dist.barrier()
            gc.collect()
            assert not any(reference() is not None for reference in alive)
            for _ in range(2):
                dist.send(torch.zeros(1), (rank - 1) % size, tag=7)
            for receive in open_receives:
                receive.wait()

        run_ranks(2, body)

    def test_waiting_lets_other_threads_run(self):
        def body(rank, size):
            counted = [0]
            stop = threading.Event()

            def count():
                while not stop.is_set():
                    counted[0] += 1
                    time.sleep(0)

            thread = threading.Thread(target=count)
            thread.start()
            if rank == 0:
                time.sleep(1)  # The others wait for it meanwhile.
            tensor = torch.ones(4)
            dist.all_reduce(tensor)
            stop.set()
            thread.join()
            assert counted[0] > 100, counted

        run_ranks(2, body)

    def test_wait_with_a_limit(self):
        def body(rank, size):
            tensor = torch.zeros(2)
            if rank == 0:
                work = dist.irecv(tensor, 1)
                try:
                    work.wait(timedelta(milliseconds=200))
                    raise AssertionError("it has completed")
                except dist.DistBackendError as error:
                    assert "200 ms" in str(error), error
                dist.barrier()
                work.wait()
                assert tensor.tolist() == [1, 1]
            else:
                dist.barrier()
                dist.send(torch.ones(2), 0)

        run_ranks(2, body)


class Groups(unittest.TestCase):
    def test_subgroups_and_splits(self):
        def body(rank, size):
            halves = [dist.new_group(list(range(start, size, 2))) for start in range(2)]
            mine = halves[rank % 2]
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=mine)
            assert tensor.item() == sum(range(rank % 2, size, 2))
            assert dist.get_group_rank(mine, rank) == rank // 2
            if "No device associated" in inspect.getsource(dist.split_group):
                return  # This torch splits GPUs' groups only.
            reverse = dist.split_group(split_ranks=[[size - 1, 0]])
            if rank in (0, size - 1):
                flat = torch.zeros(2)
                dist.all_gather_into_tensor(flat, torch.tensor([float(rank)]), group=reverse)
                assert flat.tolist() == [size - 1, 0], flat
            dist.barrier()

        run_ranks(5, body)

    def test_many_groups_are_made_and_destroyed(self):
        def body(rank, size):
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(30):
                group = dist.new_group()
                tensor = torch.ones(1)
                dist.all_reduce(tensor, group=group)
                dist.barrier()
                dist.destroy_process_group(group)
            del group, tensor
            gc.collect()
            assert len(os.listdir("/proc/self/fd")) <= before

        run_ranks(2, body)

    def test_ranks_as_threads(self):
        def body(_, __):
            import xylem._C as native

            store = dist.HashStore()
            errors = []

            def one(rank):
                try:
                    group = native.create(store, rank, 3, timedelta(seconds=20), "threads", [])
                    tensor = torch.full((1000,), rank + 1.0)
                    group.allreduce([tensor]).wait()
                    assert torch.equal(tensor, torch.full((1000,), 6.0))
                except BaseException as error:  # noqa: BLE001
                    errors.append(error)

            threads = [threading.Thread(target=one, args=(rank,)) for rank in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert not errors, errors

        run_ranks(1, body)

    def test_monitored_barrier_names_who_is_missing(self):
        def body(rank, size):
            dist.monitored_barrier(timeout=timedelta(seconds=10))
            if rank in (1, 2):
                time.sleep(1.5)
                return
            try:
                dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
                raise AssertionError("nobody was missing")
            except dist.DistBackendError as error:
                assert "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms" in str(error), error

        if "only implemented for GLOO" in inspect.getsource(dist.monitored_barrier):
            self.skipTest("this torch's monitored_barrier refuses any backend but gloo")
        run_ranks(4, body)


    def test_a_monitored_barrier_knows_the_start_it_belongs_to(self):
        def body(rank, size):
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            store = dist.distributed_c10d._get_default_store()
            backend.monitored_barrier(timedelta(seconds=10), False)
            del backend
            dist.barrier()
            dist.destroy_process_group()
            dist.init_process_group("xylem", store=store, rank=rank, world_size=size)
            if rank == 0:
                backend = dist.group.WORLD._get_backend(torch.device("cpu"))
                try:
                    backend.monitored_barrier(timedelta(seconds=1), False)
                    raise AssertionError("it has passed")
                except dist.DistBackendError as error:
                    assert "Rank 1 failed" in str(error), error
            else:
                time.sleep(1.5)

        run_ranks(2, body)


class Records(unittest.TestCase):
    def test_calls_are_recorded_in_torchs_form(self):
        def body(rank, size):
            import xylem

            dist.all_reduce(torch.ones(3, 4))
            part = torch.zeros(2, dtype=torch.int64)
            dist.reduce_scatter_tensor(part, torch.ones(2 * size, dtype=torch.int64))
            if rank == 0:
                dist.send(torch.ones(5), 1)
                open_receive = dist.irecv(torch.ones(5), 1, tag=9)
            elif rank == 1:
                dist.recv(torch.ones(5), 0)
            whole = xylem.record()
            assert whole["pg_config"]["0"]["ranks"] == str(list(range(size))), whole["pg_config"]
            told = [
                (e["profiling_name"], e["collective_seq_id"], e["input_sizes"], e["output_sizes"],
                 e["input_dtypes"], e["state"], e["is_p2p"])
                for e in whole["entries"]
            ]
            assert told[0] == (
                "xylem:all_reduce", 1, [[3, 4]], [[3, 4]], ["Float"], "completed", False
            ), told
            assert told[1][2:5] == ([[2 * size]], [[2]], ["Long"]), told
            if rank == 0:
                assert told[2][0] == "xylem:send 0->1" and told[3][5] == "started", told
            elif rank == 1:
                assert told[2][0] == "xylem:recv 1<-0", told
            dist.barrier()
            if rank == 1:
                dist.send(torch.ones(5), 0, tag=9)
            elif rank == 0:
                open_receive.wait()
            assert all(e["state"] == "completed" for e in xylem.record()["entries"])

        run_ranks(3, body)

    def test_a_time_out_and_a_signal_write_what_torchs_tool_reads(self):
        def body(rank, size):
            import xylem

            xylem.dump_on_signal(signal.SIGUSR2)
            dist.all_reduce(torch.ones(7))
            if rank == 1:
                os.kill(os.getpid(), signal.SIGUSR2)
                time.sleep(4)
                return
            try:
                dist.all_reduce(torch.ones(8))
                raise AssertionError("it has completed")
            except dist.DistBackendError:
                pass

        with tempfile.TemporaryDirectory() as directory:
            prefix = os.path.join(directory, "calls_")
            run_ranks(2, body, timeout=1.5, environment={"TORCH_FR_DUMP_TEMP_FILE": prefix})
            self.assertEqual(sorted(os.listdir(directory)), ["calls_0", "calls_1"])
            with open(prefix + "0", "rb") as file:
                entries = pickle.load(file)["entries"]
            self.assertEqual([entry["input_sizes"] for entry in entries], [[[7]], [[8]]])
            self.assertEqual([entry["state"] for entry in entries], ["completed", "failed"])
            try:
                from torch.distributed.flight_recorder import fr_trace  # noqa: F401
            except ImportError:
                return  # Torch 2.7 has the tool in its repository only.
            told = subprocess.run(
                [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", directory],
                capture_output=True, text=True, timeout=60,
            )
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertRegex(told.stdout + told.stderr, r"(?s)xylem:all_reduce.*missing ranks: \{1\}")


class Failures(unittest.TestCase):
    def test_arguments_are_refused_on_the_spot(self):
        def body(rank, size):
            def refused(pattern, call, *arguments, error=ValueError):
                try:
                    call(*arguments)
                except error as why:
                    assert re.search(pattern, str(why)), (pattern, why)
                else:
                    raise AssertionError(f"not refused: {pattern}")

            group = dist.group.WORLD
            two = torch.zeros(2)
            refused("8-bit floats", dist.all_reduce, two.to(torch.float8_e5m2), error=NotImplementedError)
            refused("bitwise", dist.all_reduce, two, dist.ReduceOp.BOR)
            refused("not contiguous", dist.send, torch.zeros(2, 3).t(), (rank + 1) % size)
            refused(
                "output of 2, which|2 elements, output of 2", dist.all_gather_into_tensor, two, two
            )
            refused("split sizes of the input add up to 5", dist.all_to_all_single,
                    torch.zeros(4), torch.zeros(4), [2, 2], [2, 3])
            refused("rank 9", group.broadcast, [two], _broadcast_options(9))
            tensor = torch.ones(1)  # And the group goes on.
            dist.all_reduce(tensor)
            assert tensor.item() == size

        run_ranks(2, body)

    def test_mismatches_name_both_ranks_everywhere(self):
        def shapes(rank, size):
            dist.all_reduce(torch.zeros(3 if rank == 1 else 2))

        def types(rank, size):
            dist.all_reduce(torch.zeros(2, dtype=torch.int32 if rank == 1 else torch.float32))

        def reductions(rank, size):
            dist.all_reduce(torch.zeros(2), dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)

        def operations(rank, size):
            if rank == 1:
                dist.broadcast(torch.zeros(2), 0)
                dist.barrier()
            else:
                dist.all_reduce(torch.zeros(2))

        for call in (shapes, types, reductions, operations):

            def body(rank, size, call=call):
                try:
                    call(rank, size)
                    dist.barrier()
                    raise AssertionError("no mismatch was found")
                except dist.DistBackendError as error:
                    text = str(error)
                    assert "mismatch" in text and re.search("rank 1 .*rank [02]|rank [02] .*rank 1", text), text

            run_ranks(3, body)

    def test_a_missing_call_is_told_and_ends_within_its_time(self):
        def body(rank, size):
            begin = time.monotonic()
            if rank == 2:
                time.sleep(3)
                return
            try:
                dist.all_reduce(torch.zeros(2))
                raise AssertionError("it has completed")
            except dist.DistBackendError as error:
                assert "rank 2 did not call it" in str(error), error
                assert time.monotonic() - begin < 4

        run_ranks(3, body, timeout=1.5, environment={"XYLEM_STALL_REPORT": "500ms"})

    def test_a_time_limit_of_one_call(self):
        def body(rank, size):
            options = dist.AllreduceOptions()
            options.timeout = timedelta(seconds=1)
            if rank == 1:
                time.sleep(2)
                return
            begin = time.monotonic()
            try:
                dist.group.WORLD.allreduce([torch.zeros(2)], options).wait()
                raise AssertionError("it has completed")
            except dist.DistBackendError as error:
                assert "rank 1 did not call it" in str(error), error
                assert time.monotonic() - begin < 3

        run_ranks(2, body, timeout=600)

    def test_a_barriers_limit_is_its_own(self):
        def body(rank, size):
            if rank == 1:
                time.sleep(3)
                return
            work = dist.all_reduce(torch.zeros(2), async_op=True)
            options = dist.BarrierOptions()
            options.timeout = timedelta(seconds=60)
            dist.group.WORLD.barrier(options)
            begin = time.monotonic()
            try:
                work.wait()
                raise AssertionError("it has completed")
            except dist.DistBackendError:
                assert time.monotonic() - begin < 2.5

        run_ranks(2, body, timeout=1)

    def test_abort_ends_sparse_calls(self):
        def body(rank, size):
            if rank == 0:
                tensor = torch.sparse_coo_tensor([[0]], [1.0], (3,))
                work = dist.all_reduce(tensor, async_op=True)
                dist.group.WORLD._get_backend(torch.device("cpu")).abort()
                try:
                    work.wait()
                    raise AssertionError("it has completed")
                except dist.DistBackendError as error:
                    assert "abort" in str(error), error
            else:
                time.sleep(1)

        run_ranks(2, body)

    def test_a_program_may_end_without_destroying_its_groups(self):
        program = (
            "import torch, torch.distributed as dist, xylem\n"
            "dist.init_process_group('xylem', store=dist.HashStore(), rank=0, world_size=1)\n"
            "future = dist.all_reduce(torch.ones(1 << 20), async_op=True).get_future()\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], capture_output=True, timeout=60
        )
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_a_killed_rank_is_named_within_three_seconds(self):
        def body(rank, size):
            dist.barrier()
            tensor = torch.ones(1 << 18)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            begin = time.monotonic()
            try:
                while True:
                    dist.all_reduce(tensor, dist.ReduceOp.MAX)
            except dist.DistBackendError as error:
                assert "rank 1" in str(error) and "lost" in str(error), error
                assert time.monotonic() - begin < 3

        for size in (2, 3, 5):
            run_ranks(size, body, killed=(1,))

    def test_abort_ends_what_goes_on(self):
        def body(rank, size):
            tensor = torch.zeros(2)
            if rank == 0:
                work = dist.irecv(tensor, 1)
                threading.Timer(0.2, dist.group.WORLD._get_backend(torch.device("cpu")).abort).start()
                try:
                    work.wait()
                    raise AssertionError("it has completed")
                except dist.DistBackendError as error:
                    assert "abort" in str(error), error
            else:
                time.sleep(1)

        run_ranks(2, body)


def _broadcast_options(root: int) -> dist.BroadcastOptions:
    options = dist.BroadcastOptions()
    options.rootRank = root
    return options


if __name__ == "__main__":
    unittest.main(verbosity=2)
