# SPDX-License-Identifier: Apache-2.0
"""Groups: how they are made, split and destroyed, and the record of their calls.

    python groups_test.py [-k PATTERN]
"""

from __future__ import annotations

import gc
import inspect
import multiprocessing
import os
import pickle
import shutil
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


def wait_for_file(path: str) -> None:
    """Waits for a file. Fails if it does not appear in time."""
    eventually(lambda: os.path.isfile(path) and not os.path.islink(path), path)


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
                return  # This version of torch splits only groups of GPUs.
            reverse = dist.split_group(split_ranks=[[size - 1, 0]])
            if rank in (0, size - 1):
                flat = torch.zeros(2)
                dist.all_gather_into_tensor(flat, torch.tensor([float(rank)]), group=reverse)
                assert flat.tolist() == [size - 1, 0], flat
            dist.barrier()

        run_ranks(5, body)

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
        failed = Condition()

        def body(rank, size):
            dist.monitored_barrier(timeout=timedelta(seconds=10))
            if rank in (1, 2):
                failed.wait()
                return
            missing = "Ranks 1, 2 failed to pass monitoredBarrier in 1000 ms"
            with raising(dist.DistBackendError, missing):
                dist.monitored_barrier(timeout=timedelta(seconds=1), wait_all_ranks=True)
            failed.tell()

        if "only implemented for GLOO" in inspect.getsource(dist.monitored_barrier):
            self.skipTest("this torch's monitored_barrier refuses any backend but gloo")
        run_ranks(4, body)

    def test_a_monitored_barrier_knows_the_start_it_belongs_to(self):
        failed = Condition()

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
                with raising(dist.DistBackendError, "Rank 1 failed"):
                    backend.monitored_barrier(timedelta(seconds=1), False)
                failed.tell()
            else:
                failed.wait()

        run_ranks(2, body)

    def test_a_monitored_barrier_works_on_a_group_that_has_failed(self):
        def body(rank, size):
            with raising(dist.DistBackendError, "mismatch"):
                dist.all_reduce(torch.ones(2 + rank))
            # In torch 2.7, torch's own function refuses this (see below).
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            backend.monitored_barrier(timedelta(seconds=20), False)

        run_ranks(2, body)

    def test_a_group_goes_on_after_errors_that_end_no_call(self):
        """Examples are a monitored barrier that fails, and a group that cannot be formed."""
        done = Condition()

        def body(rank, size):
            def goes_on():
                done.tell() if rank == 0 else done.wait()
                tensor = torch.ones(2)
                dist.all_reduce(tensor)
                assert tensor.tolist() == [size] * 2

            short = timedelta(milliseconds=300)
            if rank == 0:
                with raising(dist.DistBackendError, "Rank 1 failed to pass"):
                    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
                    backend.monitored_barrier(short, False)
            goes_on()
            if rank == 0:
                with raising(dist.DistBackendError, "these did not come: 1"):
                    dist.new_group(timeout=short)
            goes_on()

        run_ranks(2, body)

    def test_time_limits_are_those_of_the_group(self):
        def body(rank, size):
            import xylem

            def limit_of(group):
                dist.all_reduce(torch.ones(1), group=group)
                return xylem.record()["entries"][-1]["timeout_ms"]

            assert limit_of(None) == 30_000
            assert limit_of(dist.new_group(timeout=timedelta(seconds=70))) == 70_000
            assert limit_of(dist.new_group()) == 30 * 60_000  # torch's default, not the world's limit.

        run_ranks(2, body, timeout=30)

    def test_only_errors_about_the_limit_of_a_group_say_how_to_set_it(self):
        over = Condition()

        def body(rank, size):
            short = dist.new_group(timeout=timedelta(seconds=0.5))
            group, other = (dist.new_group(timeout=timedelta(seconds=30)) for _ in range(2))
            if rank == 1:
                over.wait()
                return
            remedy = "the timeout of a group is an argument of init_process_group and new_group"
            with raising(dist.DistBackendError, f"rank 1 did not call it.*{remedy}"):
                dist.all_reduce(torch.ones(1), group=short)
            with raising(dist.DistBackendError, f"these did not come: 1;.*{remedy}"):
                dist.new_group(timeout=timedelta(seconds=0.5))
            texts = []
            backend = group._get_backend(torch.device("cpu"))
            with raising(dist.DistBackendError, "it goes on: wait again") as text:
                dist.irecv(torch.ones(1), 1, group=group).wait(timedelta(seconds=0.1))
            texts += text
            with raising(dist.DistBackendError, "Rank 1 failed to pass monitoredBarrier") as text:
                backend.monitored_barrier(timedelta(seconds=0.5), False)
            texts += text
            options = dist.AllreduceOptions()
            options.timeout = timedelta(seconds=0.5)
            sparse = torch.sparse_coo_tensor([[0]], [1.0], (1,))
            for tensor, group in ((sparse, group), (torch.ones(1), other)):
                backend = group._get_backend(torch.device("cpu"))
                with raising(dist.DistBackendError, "rank 1 did not call it") as text:
                    backend.allreduce([tensor], options).wait()
                texts += text
            assert not any(remedy in text for text in texts), texts
            over.tell()

        run_ranks(2, body)

    def test_what_is_not_implemented_says_so(self):
        def body(rank, size):
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            for feature in ("shrinking", "reconfigure", "window"):  # Older versions of torch have fewer.
                assert not getattr(backend, "supports_" + feature, False), feature
            if hasattr(backend, "allocate_tensor"):
                with raising(RuntimeError, "does not support allocateTensor"):
                    backend.allocate_tensor(8, dtype=torch.float32, device=torch.device("cpu"))

        run_ranks(2, body)

    def test_ddp_is_told_the_name_custom(self):
        def body(rank, size):
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
            assert model._get_ddp_logging_data()["backend_name"] == "custom"

        run_ranks(2, body)

    def test_what_torch_2_7_refuses(self):
        def body(rank, size):
            if not torch.__version__.startswith("2.7."):
                dist.monitored_barrier()
                dist.split_group(split_ranks=[list(range(size))])
                return
            with raising(ValueError, "only implemented for GLOO"):
                dist.monitored_barrier()
            with raising(RuntimeError, "No device associated"):
                dist.split_group(split_ranks=[list(range(size))])

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
            dist.all_reduce(torch.sparse_coo_tensor([[rank]], [1.0], (size,)))
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
            assert told[-1] == (
                "xylem:all_reduce", 3, [[size]], [[size]], ["Float"], "completed", False
            ), told
            dist.barrier()
            if rank == 1:
                dist.send(torch.ones(5), 0, tag=9)
            elif rank == 0:
                open_receive.wait()
            assert all(e["state"] == "completed" for e in xylem.record()["entries"])

        run_ranks(3, body)

    def test_the_time_limit_is_half_an_hour_by_default(self):
        def body(rank, size):
            dist.destroy_process_group()
            store = dist.FileStore(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "store", size)
            dist.init_process_group("xylem", store=store, rank=rank, world_size=size)
            for group in (dist.group.WORLD, dist.new_group()):
                backend = group._get_backend(torch.device("cpu"))
                if hasattr(backend, "options"):  # Not in torch 2.7.
                    assert backend.options._timeout == timedelta(minutes=30), backend.options._timeout

        with tempfile.TemporaryDirectory() as directory:
            run_ranks(2, body, environment={"TORCH_FR_DUMP_TEMP_FILE": os.path.join(directory, "calls_")})

    def test_records_have_at_most_six_sizes(self):
        def body(rank, size):
            import xylem

            dist.all_reduce(torch.ones(1, 1, 1, 1, 1, 2, 1, 3))
            assert xylem.record()["entries"][-1]["input_sizes"] == [[1, 1, 1, 1, 1, 2]]

        run_ranks(2, body)

    def test_a_group_goes_on_after_a_record_that_cannot_be_written(self):
        def body(rank, size):
            import xylem

            os.environ["TORCH_FR_DUMP_TEMP_FILE"] = "/nonexistent/calls_"
            dist.new_group()  # Reads the setting.
            with raising(Exception, "/nonexistent/calls_"):
                xylem.dump()
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            assert tensor.item() == size

        run_ranks(2, body)

    def test_only_the_first_failure_writes_the_record(self):
        def body(rank, size):
            path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
            groups = [dist.new_group() for _ in range(2)]
            with raising(dist.DistBackendError, "sizes"):
                dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (rank + 1,)))
            assert not os.path.exists(path)
            with raising(dist.DistBackendError, "mismatch"):
                dist.all_reduce(torch.ones(rank + 1), group=groups[0])
            wait_for_file(path)
            dist.barrier()
            os.remove(path)
            with raising(dist.DistBackendError, "mismatch"):
                dist.all_reduce(torch.ones(rank + 1), group=groups[1])
            dist.barrier()
            assert not os.path.exists(path)

        with tempfile.TemporaryDirectory() as directory:
            run_ranks(2, body, environment={"TORCH_FR_DUMP_TEMP_FILE": os.path.join(directory, "calls_")})

    def test_a_signal_writes_the_record(self):
        def body(rank, size):
            import xylem

            xylem.dump_on_signal(signal.SIGUSR2)
            dist.all_reduce(torch.ones(7))
            if rank == 1:
                os.kill(os.getpid(), signal.SIGUSR2)
                wait_for_file(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "1")

        with tempfile.TemporaryDirectory() as directory:
            prefix = os.path.join(directory, "calls_")
            # All users may be able to write to this directory. A symbolic link with the file's name
            # must be replaced, not followed.
            other = os.path.join(directory, "other")
            with open(other, "w") as file:
                file.write("untouched")
            os.symlink(other, prefix + "1")
            run_ranks(2, body, environment={"TORCH_FR_DUMP_TEMP_FILE": prefix})
            with open(other) as file:
                self.assertEqual(file.read(), "untouched")
            os.remove(other)
            self.assertEqual(os.listdir(directory), ["calls_1"])
            self.assertFalse(os.path.islink(prefix + "1"))
            self.assertEqual(os.stat(prefix + "1").st_mode & 0o777, 0o600)

    def check_tool(self, directory: str, verdict: str, *options: str) -> None:
        """Runs torch's tool on the records in a directory."""
        try:
            from torch.distributed.flight_recorder import fr_trace  # noqa: F401
        except ImportError:
            return  # In torch 2.7, the tool is only in the repository.
        told = subprocess.run(
            [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", directory, *options],
            capture_output=True, text=True, timeout=60,
        )
        self.assertRegex(told.stdout + told.stderr, verdict)
        self.assertEqual(told.returncode, 0, told.stderr)

    def check_failure(self, body, verdict: str, lost: str = "", *options: str) -> list[dict]:
        """Runs `body` on 3 ranks with a failing call, and torch's tool on the records.

        All ranks write a record; those of the ranks `lost` are deleted before the tool is run.
        Returns the entries of the record of rank 0.
        """
        over = all_meet(3)

        def with_end(rank, size):
            body(rank, size)
            wait_for_file(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank))
            over.wait()

        with tempfile.TemporaryDirectory() as directory:
            prefix = os.path.join(directory, "calls_")
            run_ranks(3, with_end, timeout=3, environment={"TORCH_FR_DUMP_TEMP_FILE": prefix})
            self.assertEqual(sorted(os.listdir(directory)), [f"calls_{rank}" for rank in range(3)])
            for rank in lost:
                os.remove(prefix + rank)
            with open(prefix + "0", "rb") as file:
                entries = pickle.load(file)["entries"]
            self.check_tool(directory, verdict, *options)
        return entries

    def test_a_rank_that_does_not_call_is_named_by_torchs_tool(self):
        def body(rank, size):
            dist.all_reduce(torch.ones(7))
            if rank != 1:
                waits = r"rank 1 did not call it.*; rank [02] waits too"
                with raising(dist.DistBackendError, waits):
                    dist.all_reduce(torch.ones(8))

        entries = self.check_failure(body, r"(?s)xylem:all_reduce.*missing ranks: \{1\}")
        self.assertEqual([entry["input_sizes"] for entry in entries], [[[7]], [[8]]])
        self.assertEqual(entries[0]["state"], "completed")
        # The record may be written before the waiting thread knows the outcome.
        self.assertIn(entries[1]["state"], ("started", "failed"))

    def test_a_rank_that_calls_something_else_is_named_by_torchs_tool(self):
        def body(rank, size):
            dist.all_reduce(torch.ones(7))
            with raising(dist.DistBackendError, "mismatch"):
                dist.all_reduce(torch.ones(9 if rank == 1 else 8))

        self.check_failure(body, r"(?s)xylem:all_reduce.*Culprit rank.*SIZE_OR_SYNTAX_MISMATCH.*\[\[9\]\]")

    def test_a_rank_that_is_stopped_is_named_by_torchs_tool(self):
        pids = multiprocessing.Array("i", 3)

        def body(rank, size):
            pids[rank] = os.getpid()
            dist.all_reduce(torch.ones(7))
            if rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
                return
            with raising(dist.DistBackendError, "rank 1 gave no answer"):
                dist.all_reduce(torch.ones(8))
            wait_for_file(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank))
            if rank == 0:
                os.kill(pids[1], signal.SIGCONT)

        self.check_failure(body, r"(?s)xylem:all_reduce.*missing ranks: \{1\}")
        # The same if the job was killed while the rank was stopped.
        self.check_failure(body, r"missed FR dumps from ranks \(\{1\}\)", "1", "--allow-incomplete-ranks")

    def test_errors_number_calls_as_the_record_does(self):
        def body(rank, size):
            import xylem

            for group in (dist.new_group(), dist.new_group([0, 1]), dist.group.WORLD):
                for _ in range(3):
                    dist.all_reduce(torch.ones(1), group=group)
                with dist._coalescing_manager(group):  # One call with three operations.
                    for _ in range(3):
                        dist.all_reduce(torch.ones(1), group=group)
                dist.barrier(group=group)
                with raising(dist.DistBackendError, "mismatch: call 8 of") as text:
                    dist.all_reduce(torch.ones(rank + 1), group=group)
                entry = xylem.record()["entries"][-1]
                assert entry["collective_seq_id"] == 8 and entry["state"] == "failed", entry

        run_ranks(2, body)

    def test_stacks_are_recorded_when_asked_for(self):
        def body(rank, size):
            import xylem

            def calls_it():
                dist.all_reduce(torch.ones(1))

            calls_it()
            xylem.record_stacks()
            calls_it()
            xylem.record_stacks(False)
            calls_it()
            stacks = [entry["frames"] for entry in xylem.record()["entries"]]
            assert stacks[0] == stacks[2] == [], stacks
            names = [frame["name"] for frame in stacks[1]]
            assert "all_reduce" in names[0] and "calls_it" in names, names
            mine = stacks[1][names.index("calls_it")]
            assert mine["filename"] == __file__ and mine["line"] > 0, mine

        run_ranks(2, body)

    def test_the_last_calls_are_kept(self):
        def body(rank, size):
            import xylem

            def numbers():
                return [entry["record_id"] for entry in xylem.record()["entries"]]

            for _ in range(2100):
                dist.all_reduce(torch.ones(1))
            last = numbers()[-1]
            assert numbers() == list(range(last - 1999, last + 1))
            entry = xylem.record()["entries"][-1]
            assert entry["time_created_ns"] <= entry["time_discovered_completed_ns"] <= time.time_ns()
            assert time.time_ns() - entry["time_created_ns"] < 30e9
            for kept in (5, 0):
                os.environ["TORCH_FR_BUFFER_SIZE"] = str(kept)
                group = dist.new_group()  # Reads the setting.
                for _ in range(9):
                    dist.all_reduce(torch.ones(1), group=group)
                assert len(numbers()) == kept

        run_ranks(2, body)

    def test_dump_writes_the_record(self):
        def body(rank, size):
            import xylem

            dist.all_reduce(torch.ones(7))
            path = xylem.dump()
            assert path == os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
            with open(path, "rb") as file:
                assert pickle.load(file) == xylem.record()

        run_ranks(2, body)

    def test_each_job_has_a_folder_of_its_own_by_default(self):
        def body(rank, size):
            import xylem

            dist.all_reduce(torch.ones(7), group=dist.new_group())
            return xylem.dump()

        jobs = [run_ranks(2, body, environment={"TORCH_FR_DUMP_TEMP_FILE": ""}) for _ in range(2)]
        folders = [os.path.dirname(paths[0]) for paths in jobs]
        try:
            self.assertNotEqual(*folders)
            for folder, paths in zip(folders, jobs):
                self.assertRegex(folder, r"^/tmp/xylem_trace_[0-9a-f]{16}$")
                self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
                self.assertEqual(paths, [f"{folder}/rank_{rank}" for rank in range(2)])
                self.check_tool(folder, "xylem:all_reduce")
        finally:
            for folder in folders:
                shutil.rmtree(folder)

    def test_a_signal_writes_the_record_while_the_process_waits(self):
        pids = multiprocessing.Array("i", 2)

        def body(rank, size):
            import xylem

            xylem.dump_on_signal()
            pids[rank] = os.getpid()
            dist.barrier()
            if rank == 1:
                dist.all_reduce(torch.ones(7))  # Rank 0 calls after this rank has written.
                return
            os.kill(pids[1], signal.SIGUSR2)
            wait_for_file(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + "1")
            dist.all_reduce(torch.ones(7))

        run_ranks(2, body)

    def test_a_rank_that_calls_another_operation_is_named_by_torchs_tool(self):
        def body(rank, size):
            dist.all_reduce(torch.ones(7))
            with raising(dist.DistBackendError, "rank 1 calls broadcast"):
                dist.broadcast(torch.ones(8), 0) if rank == 1 else dist.all_reduce(torch.ones(8))
                dist.barrier()

        verdict = (
            r"(?s)unrecognized comm library 'xylem'.*Culprit rank.*COLLECTIVE_TYPE_MISMATCH"
            r"|COLLECTIVE_TYPE_MISMATCH.*unrecognized comm library 'xylem'"
        )
        self.check_failure(body, verdict)


if __name__ == "__main__":
    unittest.main(verbosity=2)
