# SPDX-License-Identifier: Apache-2.0
"""The results of collectives and messages, for every operation, type, layout and number of ranks.

    python collectives_test.py [-k PATTERN]
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from ranks import DEVICE, raising, run_ranks

# The builds with sanitizers use fewer ranks (CMakeLists.txt).
SIZES = [size for size in (1, 2, 3, 5, 8) if size <= int(os.environ.get("TEST_MOST_RANKS", "8"))]
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
FLOATS8 = (torch.float8_e4m3fn, torch.float8_e5m2)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
MOVED = (torch.bool, *UNSIGNED, *FLOATS8)


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers that differ by rank and index. They and sums of 8 of them are exact in every
    type.
    """
    numbers = (torch.arange(count) * 3 + rank) % 7 + 1
    if dtype is torch.bool:
        return numbers % 2 == 0
    if dtype.is_complex:
        return torch.complex(numbers.double(), -numbers.double()).to(dtype)
    return numbers.to(torch.float32).to(dtype) if dtype.itemsize == 1 else numbers.to(dtype)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors have the same type, shape and bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bits(a) == bits(b)


def reduction(op: dist.ReduceOp, parts: list[torch.Tensor]) -> torch.Tensor:
    """Returns the expected reduction of `parts`, computed in a wider type."""
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


class Allocations(TorchDispatchMode):
    """Counts the tensors that are created while it is active, including those of the backend."""

    def __init__(self):
        super().__init__()
        self.made = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.made += function is torch.ops.aten.empty.memory_format
        return function(*arguments, **(options or {}))


class Collectives(unittest.TestCase):
    """Results of collectives on several numbers of ranks."""

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

    def test_all_reduce_of_8_bit_floats(self):
        def few_values(rank, dtype):
            """Integers whose sums over 8 ranks are exact in all types."""
            return ((torch.arange(5000) * 2 + rank * 7) % 3 - 1).float().to(dtype)

        def body(rank, size):
            ops = dist.ReduceOp
            for dtype in FLOATS8:
                for op in (ops.SUM, ops.AVG, ops.PRODUCT, ops.MIN, ops.MAX):
                    tensor = few_values(rank, dtype)
                    dist.all_reduce(tensor, op)
                    expected = reduction(op, [few_values(r, dtype).float() for r in range(size)])
                    # A zero may have either sign.
                    assert torch.equal(tensor.float(), expected.to(dtype).float()), (dtype, op)

        for size in SIZES:
            run_ranks(size, body)

    def test_every_sum_of_two_8_bit_floats_is_that_of_torch(self):
        def body(rank, size):
            codes = torch.arange(256, dtype=torch.uint8)
            sides = (codes.repeat_interleave(256), codes.repeat(256))
            for dtype in FLOATS8:
                tensor = sides[rank].clone().view(dtype)
                dist.all_reduce(tensor)
                expected = sides[0].view(dtype).float() + sides[1].view(dtype).float()
                if dtype is torch.float8_e4m3fn:
                    expected = expected.clamp(-448, 448)  # Before 2.12, torch converts it to NaN.
                torch.testing.assert_close(
                    tensor.float(), expected.to(dtype).float(), rtol=0, atol=0, equal_nan=True
                )

        run_ranks(2, body)

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
            counts = [3 * r for r in range(size)]  # Rank 0 has no elements.
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
            # The views are adjacent in memory, so no copy is needed.
            views = list(torch.zeros(size, 5).unbind(0))
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

    def test_overlapping_tensors_of_one_call(self):
        def body(rank, size):
            whole = torch.arange(8.0) + rank
            total = size * torch.arange(8.0) + sum(range(size))
            again = whole.view(2, 4).t()  # Not contiguous, and in the same memory.
            lists = [[whole, whole], [whole[:5], whole[3:], whole[2:4]], [again, whole], [whole[:0], whole]]
            for tensors in lists:
                whole.copy_(torch.arange(8.0) + rank)
                dist.group.WORLD.allreduce_coalesced(tensors).wait()
                assert torch.equal(whole, total), (tensors, whole)

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
            torch.set_default_device("cpu")  # Sparse tensors are reduced on the CPU only.
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

    def test_all_reduce_of_unsigned_integers(self):
        def body(rank, size):
            ops = dist.ReduceOp
            for dtype in UNSIGNED:
                for op in (ops.SUM, ops.AVG, ops.PRODUCT, ops.MIN, ops.MAX, ops.BAND, ops.BOR, ops.BXOR):
                    tensor = values(rank, 500, dtype)
                    dist.all_reduce(tensor, op)
                    # torch computes with signed integers only.
                    expected = reduction(op, [values(r, 500, torch.int64) for r in range(size)])
                    assert tensor.long().equal(expected), (dtype, op)

        for size in (2, 3, 5):
            run_ranks(size, body)

    def test_all_reduce_of_bool(self):
        def body(rank, size):
            ops = dist.ReduceOp
            everyone = torch.stack([(torch.arange(64) >> r) % 2 == 0 for r in range(size)])
            for op, expected in (
                (ops.SUM, everyone.any(0)), (ops.PRODUCT, everyone.all(0)), (ops.MIN, everyone.all(0)),
                (ops.MAX, everyone.any(0)), (ops.BAND, everyone.all(0)), (ops.BOR, everyone.any(0)),
                (ops.BXOR, everyone.sum(0) % 2 == 1),
            ):
                tensor = everyone[rank].clone()
                dist.all_reduce(tensor, op)
                assert tensor.equal(expected), op
            with raising(ValueError, "a truth value has no average"):
                dist.all_reduce(torch.ones(2, dtype=torch.bool), ops.AVG)

        for size in (2, 3, 5):
            run_ranks(size, body)

    def test_the_average_of_integers_is_truncated_towards_zero(self):
        def body(rank, size):
            for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
                tensor = torch.tensor([-3 - rank, 3 + rank], dtype=dtype)  # -3.5 and 3.5
                dist.all_reduce(tensor, dist.ReduceOp.AVG)
                assert tensor.tolist() == [-3, 3], tensor
                sparse = torch.sparse_coo_tensor([[0, 1]], [-3 - rank, 3 + rank], (2,), dtype=dtype, device="cpu")
                dist.all_reduce(sparse, dist.ReduceOp.AVG)
                assert sparse.to_dense().tolist() == [-3, 3], sparse

        run_ranks(2, body)

    def test_reductions_that_are_not_defined_are_not_implemented(self):
        def body(rank, size):
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp.MAX
            with raising(NotImplementedError, "max of ComplexFloat"):  # torch itself refuses it.
                backend.allreduce([torch.ones(2, dtype=torch.complex64)], options)
            with raising(NotImplementedError, "sum of Float8_e4m3fnuz"):
                dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fnuz))
            with raising(NotImplementedError, "max of sparse tensors"):
                dist.all_reduce(torch.ones(2, device="cpu").to_sparse(), dist.ReduceOp.MAX)
            tensor = torch.ones(2)
            dist.all_reduce(tensor)
            assert tensor.tolist() == [size] * 2

        run_ranks(2, body)

    @unittest.skipIf(DEVICE != "cpu", "devices have streams, for which results are copied")
    def test_what_is_adjacent_is_used_in_place(self):
        """Tensors are copied only if they are not adjacent in memory. A call creates no other
        tensors.
        """

        def body(rank, size):
            backend = dist.group.WORLD._get_backend(torch.get_default_device())

            def made_by(call, *arguments):
                with Allocations() as allocations:
                    call(*arguments).wait()
                return allocations.made

            flat, apart = torch.zeros(6 * size), [torch.zeros(6) for _ in range(size)]
            views, mine, turned = list(flat.chunk(size)), torch.ones(6), torch.ones(2, 3).t()
            assert made_by(backend.allreduce, [mine]) == 0
            assert made_by(backend.allreduce, [turned]) == 1
            assert made_by(backend.allgather, [views], [mine]) == 0
            assert made_by(backend.allgather, [apart], [mine]) == 1
            assert made_by(backend.reduce_scatter, [mine], [views]) == 0
            assert made_by(backend.reduce_scatter, [mine], [apart]) == 1
            assert made_by(backend.alltoall, views, list(torch.ones(6 * size).chunk(size))) == 0
            assert made_by(backend.alltoall, apart, [torch.ones(6) for _ in range(size)]) == 2

        run_ranks(2, body)

    def test_messages_and_all_to_all_single_refuse_what_is_not_contiguous(self):
        def body(rank, size):
            strided = torch.zeros(4, 6)[:, ::2]
            with raising(ValueError, "recv: the tensor is not contiguous"):
                dist.recv(strided, 1 - rank)
            with raising(ValueError, "Tensors must be contiguous; the input is not"):
                dist.all_to_all_single(torch.zeros(4, 3), strided)
            for move in (
                lambda: dist.broadcast(strided, 0),
                lambda: dist.reduce(strided, 0),
                lambda: dist.scatter(strided, [torch.ones(4, 3)] * size if rank == 0 else None, 0),
                lambda: dist.gather(strided, [torch.zeros(4, 3)] * size if rank == 0 else None, 0),
                lambda: dist.all_to_all([torch.zeros(2, 3) for _ in range(size)], list(strided.chunk(size))),
                lambda: dist.all_gather_into_tensor(torch.zeros(4 * size, 3), strided),
                lambda: dist.reduce_scatter_tensor(torch.zeros(2, 3), strided),
            ):
                move()

        run_ranks(2, body)


class Messages(unittest.TestCase):
    def test_send_and_recv(self):
        def body(rank, size):
            for count in (1, 1000, 300000):
                if rank == 0:
                    for to in range(1, size):
                        dist.send(torch.full((count,), float(to)), to, tag=to)
                    for _ in range(1, size):
                        tensor = torch.empty(count)
                        source = dist.recv(tensor)  # From any source.
                        assert torch.equal(tensor, torch.full((count,), float(source)))
                else:
                    tensor = torch.empty(count)
                    assert dist.recv(tensor, 0, tag=rank) == 0
                    assert torch.equal(tensor, torch.full((count,), float(rank)))
                    dist.send(tensor, 0)
                dist.barrier()

        for size in (2, 3, 5):
            run_ranks(size, body)

    def test_shorter_than_their_receives(self):
        def body(rank, size):
            for count, room in ((5, 8), (0, 3), (100000, 100001), (3000000, 3000001)):
                sent, expected = (values(r, count, torch.complex64) for r in (rank, 1 - rank))
                for source in (1 - rank, None):
                    got = torch.full((room,), -1, dtype=torch.complex64)
                    request = dist.isend(sent, 1 - rank)
                    assert dist.recv(got, source) == 1 - rank
                    request.wait()
                    assert torch.equal(got[:count], expected)
                    assert torch.equal(got[count:], torch.full((room - count,), -1, dtype=torch.complex64))
            dist.barrier()

        run_ranks(2, body)

    def test_shorter_than_their_receives_are_logged_once_for_each_group(self):
        def body(rank, size):
            groups = [dist.group.WORLD, dist.new_group([0, 1])]
            warnings.simplefilter("always")  # Otherwise Python would log equal warnings only once.
            with tempfile.TemporaryFile() as log:
                os.dup2(log.fileno(), sys.stderr.fileno())
                for group in groups:
                    for count in (8, 5, 5, 4):
                        if rank == 0:
                            dist.send(torch.ones(count), 1, group)
                        else:
                            dist.recv(torch.ones(8), 0, group)
                dist.barrier()
                log.seek(0)
                return log.read().decode().count("a tensor of 8 elements got a message of 5 from rank 0")

        self.assertEqual(run_ranks(2, body), [0, 2])

    def test_longer_than_their_receives_fail_alone(self):
        def body(rank, size):
            for count in (5, 100000, 3000000):
                got = torch.full((count - 1,), -1.0)
                if rank == 0:
                    sends = dist.isend(torch.zeros(count), 1)
                    if count == 3000000:
                        with raising(dist.DistBackendError, "mismatch.* sends 3000000 float32 to rank 1"):
                            sends.wait()
                else:
                    with raising(dist.DistBackendError, f"mismatch.*at most {count - 1};"):
                        dist.recv(got, 0)
                    assert torch.equal(got, torch.full((count - 1,), -1.0))
                total = torch.ones(2)
                dist.all_reduce(total)
                assert total.tolist() == [2, 2]

        # If streams wait, and not threads, wait() raises no error.
        run_ranks(2, body, environment={"TORCH_NCCL_BLOCKING_WAIT": "1"})

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


if __name__ == "__main__":
    unittest.main(verbosity=2)
