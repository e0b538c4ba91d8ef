# SPDX-License-Identifier: Apache-2.0
"""Failing all_reduces of sparse tensors, and callbacks. collectives_test.py tests their results."""

from __future__ import annotations

import queue
import threading
import time
import unittest

import torch
import torch.distributed as dist

from ranks import Condition, raising, run_ranks


def reduced_later() -> dist.Work:
    tensor = torch.sparse_coo_tensor([[dist.get_rank()]], [1.0], (dist.get_world_size(),))
    return dist.all_reduce(tensor, async_op=True)


class Sparse(unittest.TestCase):
    def test_abort_ends_calls(self):
        joined, aborted = Condition(), Condition()

        def body(rank, size):
            if rank == 0:
                joined.wait()  # An abort would end the other rank's start, too.
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

    def test_a_callback_that_would_wait_for_itself_is_refused(self):
        attached = Condition()

        def body(rank, size):
            if rank > 0:
                # Until then, rank 0's call cannot end, so its callback does not run at once.
                attached.wait()
                for work in [reduced_later(), reduced_later()]:
                    work.wait()
                return

            def after(_):
                with raising(ValueError, "begins only after it"):
                    reduced_later().wait()

            end = reduced_later().get_future().then(after)
            attached.tell()
            end.wait()

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
                through.wait()  # Otherwise this could abort the other rank's part of the first call.
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
