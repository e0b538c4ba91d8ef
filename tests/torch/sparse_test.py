# SPDX-License-Identifier: Apache-2.0
"""Failing all_reduces of sparse tensors, and callbacks. collectives_test.py tests the results."""

from __future__ import annotations

import gc
import queue
import threading
import time
import unittest
import weakref

import torch
import torch.distributed as dist

from ranks import Condition, eventually, raising, run_ranks


def reduced_later() -> dist.Work:
    tensor = torch.sparse_coo_tensor([[dist.get_rank()]], [1.0], (dist.get_world_size(),))
    return dist.all_reduce(tensor, async_op=True)


class Sparse(unittest.TestCase):
    def test_abort_ends_calls(self):
        joined, aborted = Condition(), Condition()

        def body(rank, size):
            if rank == 0:
                joined.wait()  # An abort would also end the other rank's start.
                work = reduced_later()
                dist.group.WORLD._get_backend(torch.device("cpu")).abort()
                with raising(dist.DistBackendError, "abort"):
                    work.wait()
                aborted.tell()
            else:
                joined.tell()
                aborted.wait()

        run_ranks(2, body)

    def test_a_call_that_another_does_not_make_fails_in_time_and_is_recorded(self):
        failed = Condition()

        def body(rank, size):
            import xylem

            if rank == 1:
                failed.wait()
                return
            begin = time.monotonic()
            with raising(dist.DistBackendError, "rank 1 did not call it"):
                reduced_later().wait()
            assert time.monotonic() - begin < 4
            last = xylem.record()["entries"][-1]
            assert (last["profiling_name"], last["state"]) == ("xylem:all_reduce", "failed"), last
            failed.tell()

        run_ranks(2, body, timeout=1)

    def test_a_group_goes_on_after_tensors_of_different_shapes(self):
        def body(rank, size):
            with raising(dist.DistBackendError, r"sizes \[[12]\].*rank [01] has sizes \[[12]\]"):
                dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (rank + 1,)))
            tensor = torch.sparse_coo_tensor([[0]], [1.0], (1,))
            dist.all_reduce(tensor)
            assert tensor.to_dense().item() == size

        run_ranks(2, body)

    def test_a_barrier_ends_after_calls_before_it(self):
        called = Condition()

        def body(rank, size):
            for _ in range(20):
                works = [reduced_later() for _ in range(5)]
                dist.barrier()
                assert all(work.is_completed() for work in works)
            if rank == 0:
                work = reduced_later()
                called.tell()
                dist.barrier()
                assert work.is_completed()
                work.wait()
            else:
                called.wait()  # The other rank is in the barrier, or will call it soon.
                work = reduced_later()
                dist.barrier()
                assert work.is_completed()

        run_ranks(2, body)

    def test_a_barrier_for_which_nobody_waits_yet_does_not_block(self):
        def body(rank, size):
            tensor = torch.ones(1)
            if rank == 0:
                work = reduced_later()
                barrier = dist.barrier(async_op=True)
                assert not barrier.is_completed()
                dist.send(tensor, 1)  # The other rank calls the barrier only after this.
                barrier.wait()
                assert work.is_completed()
            else:
                dist.recv(tensor, 0)
                work = reduced_later()
                future = dist.barrier(async_op=True).get_future()
                future.wait()
                assert work.is_completed()

        run_ranks(2, body)

    def test_a_call_that_has_ended_keeps_nothing(self):
        def body(rank, size):
            class Mark:
                pass

            tensor = torch.sparse_coo_tensor([[0]], [1.0], (1,))
            tensor.mark = Mark()
            kept = weakref.ref(tensor.mark)
            dist.all_reduce(tensor)
            del tensor
            # The thread that has executed the call may still hold a reference for a moment.
            eventually(lambda: gc.collect() >= 0 and kept() is None, "the end of the tensor")

        run_ranks(2, body)

    def test_a_callback_that_would_wait_for_itself_behind_a_barrier_is_refused(self):
        called = Condition()

        def body(rank, size):
            barriers, ended = queue.Queue(), threading.Event()

            def after(_):
                barrier = barriers.get(timeout=20)
                if rank == 0:
                    with raising(ValueError, "begins only after it"):
                        barrier.wait()
                ended.set()

            if rank == 1:
                called.wait()
            first = reduced_later()
            first.get_future().then(after)
            second = reduced_later()
            barriers.put(dist.barrier(async_op=True))
            called.tell()
            assert ended.wait(20)
            second.wait()
            dist.barrier()

        run_ranks(2, body)

    def test_a_barrier_of_a_failed_call_has_no_error_of_it(self):
        def body(rank, size):
            work = dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (rank + 1,)), async_op=True)
            dist.barrier()
            with raising(dist.DistBackendError, "sizes"):
                work.wait()

        run_ranks(2, body)

    def test_a_callback_may_wait_for_another_call(self):
        def body(rank, size):
            def after(_):
                return reduced_later().get_future().wait()[0].to_dense()

            assert reduced_later().get_future().then(after).wait().tolist() == [1.0] * size

        run_ranks(2, body)

    def test_a_callback_that_would_wait_for_itself_is_refused(self):
        """The callback belongs to a call that another callback has made."""
        attached = Condition()

        def body(rank, size):
            def inner(_):
                later = reduced_later()
                if rank == 0:
                    with raising(ValueError, "begins only after it"):
                        later.wait()

            def outer(_):
                if rank > 0:
                    # Until then, rank 0's call cannot end. So the callback does not run when it is
                    # attached.
                    attached.wait()
                end = reduced_later().get_future().then(inner)
                attached.tell()
                end.wait()

            reduced_later().get_future().then(outer).wait()
            dist.barrier()

        run_ranks(2, body)

    def test_calls_behind_a_callback_that_destroys_the_group_fail_as_calls(self):
        attached, through, ended = Condition(), Condition(), Condition()

        def body(rank, size):
            if rank > 0:
                attached.wait()
                reduced_later().wait()
                through.tell()
                ended.wait()
                return

            def destroy(_):
                through.wait()  # Otherwise this could abort the other rank's first call.
                dist.destroy_process_group()

            first, second = reduced_later(), reduced_later()
            first.get_future().then(destroy)
            attached.tell()
            with raising(dist.DistBackendError, "destroyed"):
                second.wait()
            ended.tell()

        run_ranks(2, body)

    def test_a_group_ends_although_a_callback_waits(self):
        attached, ended = Condition(), Condition()

        def body(rank, size):
            if rank > 0:
                attached.wait()
                reduced_later().wait()
                ended.wait()
                return
            waits, told = threading.Event(), queue.SimpleQueue()

            def after(_):
                work = dist.irecv(torch.zeros(1), 1)
                waits.set()
                try:
                    work.wait()
                except dist.DistBackendError as error:
                    told.put(str(error))

            reduced_later().get_future().then(after)
            attached.tell()
            assert waits.wait(20)
            begin = time.monotonic()
            dist.destroy_process_group()
            assert time.monotonic() - begin < 15
            assert "destroyed" in told.get(timeout=10)
            ended.tell()

        run_ranks(2, body)


class SparseInCallbacks(unittest.TestCase):
    """Sparse calls in callbacks while the program makes sparse calls, and callbacks of sparse
    calls.
    """

    def test_they_have_an_order_of_their_own(self):
        def body(rank, size):
            def sparse(value):
                return torch.sparse_coo_tensor([[rank]], [value], (size,), device="cpu")

            def again(value):
                def callback(future):
                    tensor = sparse(value)
                    dist.all_reduce(tensor)
                    # A new tensor, since the callback may run on the thread of sparse calls.
                    dense = torch.full((3,), value, device="cpu")
                    dist.all_reduce(dense)
                    return tensor.to_dense(), dense

                return callback

            for round in range(15):
                futures = []
                for i in range(4):
                    work = dist.all_reduce(torch.ones(5, device="cpu"), async_op=True)
                    if (i + rank) % 2 == 0:
                        work.wait()  # Some futures are complete when the callback is attached.
                    futures.append(work.get_future().then(again(100.0 + i)))
                    mine = sparse(float(i))
                    dist.all_reduce(mine)
                    assert mine.to_dense().tolist() == [float(i)] * size, mine
                for i, future in enumerate(futures):
                    one, dense = future.wait()
                    assert one.tolist() == [100.0 + i] * size, one
                    assert dense.tolist() == [size * (100.0 + i)] * 3, dense

        run_ranks(3, body)

    def test_a_callback_of_a_sparse_call_calls_a_dense_one(self):
        def body(rank, size):
            for round in range(30):
                tensor = torch.sparse_coo_tensor([[rank]], [1.0], (size,), device="cpu")
                work = dist.all_reduce(tensor, async_op=True)
                if rank == round % size:
                    work.wait()  # The future is complete at this rank.

                def callback(future):
                    dense = torch.ones(2, device="cpu")
                    dist.all_reduce(dense)
                    return dense

                future = work.get_future().then(callback)
                dist.all_reduce(torch.ones(1, device="cpu"))
                assert future.wait().tolist() == [size] * 2

        run_ranks(3, body)

    def test_a_destroyed_group_gives_its_seats_back(self):
        def body(rank, size):
            for _ in range(1200):
                group = dist.new_group()
                kept.append(group)
                if len(kept) > 3:
                    kept.pop(0)
                tensor = torch.sparse_coo_tensor([[rank]], [1.0], (size,), device="cpu")
                dist.all_reduce(tensor, group=group)
                dist.destroy_process_group(group)

        kept = []
        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
