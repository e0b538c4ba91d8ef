# SPDX-License-Identifier: Apache-2.0
"""Refusals, mismatches, missing calls, lost ranks and aborts: the errors, the ranks that get them,
and their delay.

    python failures_test.py [-k PATTERN]
"""

from __future__ import annotations

import os
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

from ranks import Condition, all_meet, eventually, raising, run_ranks


def _broadcast_options(root: int, tensor: int = 0) -> dist.BroadcastOptions:
    options = dist.BroadcastOptions()
    options.rootRank = root
    options.rootTensor = tensor
    return options


class Failures(unittest.TestCase):
    def test_arguments_are_refused_on_the_spot(self):
        def body(rank, size):
            def refused(pattern, call, *arguments, error=ValueError):
                with raising(error, pattern):
                    call(*arguments)

            group = dist.group.WORLD
            two = torch.zeros(2)
            refused("bitwise", dist.all_reduce, two, dist.ReduceOp.BOR)
            refused("bitwise", dist.all_reduce, two.to(torch.float8_e5m2), dist.ReduceOp.BOR)
            refused("not contiguous", dist.send, torch.zeros(2, 3).t(), (rank + 1) % size)
            refused(
                "input of 2 elements, output of 2", dist.all_gather_into_tensor, two, two
            )
            refused("split sizes of the input add up to 5", dist.all_to_all_single,
                    torch.zeros(4), torch.zeros(4), [2, 2], [2, 3])
            refused("Tensors must be contiguous", dist.all_to_all_single,
                    torch.zeros(2, 2), torch.zeros(2, 2).t())
            refused("rank 9", group.broadcast, [two], _broadcast_options(9))
            refused("root tensor 1", group.broadcast, [two], _broadcast_options(0, 1))
            refused("another of 2", group.allgather_coalesced, [[two], [two[:1]]], [two])
            tensor = torch.ones(1)  # The group still works.
            dist.all_reduce(tensor)
            assert tensor.item() == size

        run_ranks(2, body)

    def test_errors_of_a_part_of_the_world_name_ranks_of_the_world(self):
        def body(rank, size):
            group = dist.new_group([2, 1])
            if rank > 0:
                pattern = r"rank [12] (has|calls).*rank [12] (has|calls)"
                sparse = torch.sparse_coo_tensor([[0]], [1.0], (rank,), device="cpu")
                with raising(dist.DistBackendError, pattern):
                    dist.all_reduce(sparse, group=group)
                with raising(dist.DistBackendError, pattern):
                    dist.all_reduce(torch.zeros(rank), group=group)
            dist.barrier()

        run_ranks(3, body)

    def test_a_group_that_does_not_come_about_tells_who_is_missing(self):
        failed = Condition()

        def body(rank, size):
            if rank < 2:
                failed.wait()
                return
            with raising(dist.DistBackendError, "rank 1, the first of the group, did not come in time"):
                dist.new_group([1, 2], timeout=timedelta(seconds=1))
            failed.tell()
            failed.tell()

        run_ranks(3, body)

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

        both = "rank 1 .*rank [02]|rank [02] .*rank 1"
        calls = "rank 1 calls broadcast of 2 float32, root 0"
        both_calls = f"rank [02] calls all_reduce of 2 float32, sum.*{calls}|{calls}.*rank [02] calls all_reduce of 2"
        for call, named in ((shapes, both), (types, both), (reductions, both), (operations, both_calls)):

            def body(rank, size, call=call, named=named):
                with raising(dist.DistBackendError, f"mismatch.*({named})"):
                    call(rank, size)
                    dist.barrier()

            run_ranks(3, body)

    def test_the_root_of_a_broadcast_may_learn_of_a_mismatch_from_its_next_call(self):
        def body(rank, size):
            with raising(dist.DistBackendError, "mismatch.*rank 0 calls broadcast.*rank 1 calls all_reduce"):
                dist.broadcast(torch.zeros(2), 0) if rank == 0 else dist.all_reduce(torch.zeros(2))
                dist.barrier()

        run_ranks(2, body)

    def test_a_missing_call_is_told_and_logged_and_ends_within_its_time(self):
        failed = Condition()

        def body(rank, size):
            if rank == 2:
                failed.wait()
                failed.wait()
                return
            begin = time.monotonic()
            with raising(dist.DistBackendError, "rank 2 did not call it"):
                dist.all_reduce(torch.zeros(2))
            assert time.monotonic() - begin < 4
            failed.tell()

        with tempfile.TemporaryDirectory() as directory:
            log = os.path.join(directory, "%r")
            environment = {"XYLEM_STALL_REPORT": "500ms", "XYLEM_LOG": f"warn,file={log}"}
            run_ranks(3, body, timeout=1.5, environment=environment)
            with open(os.path.join(directory, "0"), encoding="utf-8") as file:
                self.assertRegex(file.read(), r"warn .* stalled: .*rank 2 did not call it")

    def test_all_ranks_write_their_records_within_a_second(self):
        written = all_meet(3)

        def body(rank, size):
            path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
            begin = time.time()
            if rank != 2:
                with raising(dist.DistBackendError, "rank 2 did not call it"):
                    dist.all_reduce(torch.zeros(2))
            eventually(lambda: os.path.isfile(path), path)
            written.wait()
            # The result includes the difference between the start times of the ranks.
            return os.stat(path).st_mtime - begin

        for seconds in run_ranks(3, body, timeout=2):
            self.assertGreater(seconds, 1)
            self.assertLess(seconds, 2 + 1)

    def test_a_barriers_limit_is_its_own(self):
        failed = Condition()

        def body(rank, size):
            if rank == 1:
                failed.wait()
                return
            work = dist.all_reduce(torch.zeros(2), async_op=True)
            options = dist.BarrierOptions()
            options.timeout = timedelta(seconds=60)
            dist.group.WORLD.barrier(options)
            begin = time.monotonic()
            with raising(dist.DistBackendError, "rank 1 did not call it"):
                work.wait()
            assert time.monotonic() - begin < 2.5
            failed.tell()

        run_ranks(2, body, timeout=1)

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
        joined, aborted = Condition(), Condition()

        def body(rank, size):
            if rank == 0:
                joined.wait()  # An abort would end the other rank's start, too.
                work = dist.irecv(torch.zeros(2), 1)
                backend = dist.group.WORLD._get_backend(torch.device("cpu"))
                thread = threading.Thread(target=backend.abort)
                thread.start()
                with raising(dist.DistBackendError, "abort"):
                    work.wait()
                thread.join()
                aborted.tell()
            else:
                joined.tell()
                aborted.wait()

        run_ranks(2, body)

    def test_futures_raise_the_error(self):
        def body(rank, size):
            future = dist.all_reduce(torch.zeros(2 + rank), async_op=True).get_future()
            with raising(dist.DistBackendError, "mismatch"):
                future.wait()

        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
