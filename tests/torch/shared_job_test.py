# SPDX-License-Identifier: Apache-2.0
"""Groups that share a job: their resources, the ranks that must join, and how they end.

    python shared_job_test.py [-k PATTERN]
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import inspect
import itertools
import multiprocessing.util
import os
import random
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from typing import Callable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ranks import Condition, all_meet, context, eventually, raising, run_ranks

SEATS = 1024


class Held:
    """The file descriptors and threads of this process."""

    def __init__(self):
        self.before = self._count()

    @staticmethod
    def _count() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def check(self, more: int = 0) -> None:
        """Checks that there are no more than before, except `more` descriptors. There may be fewer,
        since ranks that leave close connections.
        """
        (descriptors, threads), now = self.before, self._count()
        assert now[0] <= descriptors + more and now[1] <= threads, (now, self.before)


def native_group(store, rank, size, name, global_ranks, timeout=20.0):
    import xylem._C as native

    return native.create(store, rank, size, timedelta(seconds=timeout), name, global_ranks)


def sum_over(group, value: float = 1.0) -> float:
    tensor = torch.tensor([value])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


class SlowStore(dist.Store):
    """A store that delays the operations of a start that follow after all ranks have joined."""

    def __init__(self, store, seconds):
        super().__init__()
        self.store, self.seconds, self.asked = store, seconds, 0

    def get(self, key):
        return self.store.get(key)

    def set(self, key, value):
        if "/xylem/" in key and "card" not in key and "current" not in key:
            self.asked += 1
            time.sleep(self.seconds)
        self.store.set(key, value)

    def compare_set(self, key, expected, desired):
        return self.store.compare_set(key, expected, desired)

    def check(self, keys):
        return self.store.check(keys)

    def wait(self, keys, timeout=None):
        return self.store.wait(keys, timeout) if timeout else self.store.wait(keys)

    def add(self, key, value):
        return self.store.add(key, value)

    def clone(self):
        return self


class Members(unittest.TestCase):
    def check_random_groups(self, local: bool) -> None:
        def body(rank, size):
            choose = random.Random(5)
            # The first calls of a process may make torch create threads and file descriptors.
            sum_over(dist.new_group())
            held = Held()
            groups = []
            for _ in range(200):
                ranks = sorted(choose.sample(range(size), choose.randint(1, size)))
                group = dist.new_group(ranks, use_local_synchronization=local)
                if rank in ranks:
                    groups.append((group, ranks))
            for group, ranks in groups:
                assert sum_over(group, rank) == sum(ranks), ranks
            held.check()
            for group, _ in groups:
                dist.destroy_process_group(group)
            held.check()

        run_ranks(4, body)

    def test_all_ranks_call_new_group(self):
        self.check_random_groups(local=False)

    def test_only_members_call_new_group(self):
        self.check_random_groups(local=True)

    def test_a_thousand_groups_are_made_and_destroyed_in_turn(self):
        def body(rank, size):
            held = Held()
            for round in range(1000):
                group = dist.new_group([round % size, (round + 1) % size])
                if group != dist.GroupMember.NON_GROUP_MEMBER:
                    assert sum_over(group) == 2
                    dist.destroy_process_group(group)
            # If a rank left the job here, the others would start a new job for the last group.
            dist.barrier()
            held.check()

        run_ranks(3, body)

    def test_members_that_do_not_come_are_named(self):
        done = Condition()

        def body(rank, size):
            if rank == 2:
                done.wait()
                done.wait()
                return
            world = "of the group's 3 ranks these did not come: 2;"
            with raising(dist.DistBackendError, world):
                dist.new_group(timeout=timedelta(seconds=1))
            assert sum_over(dist.new_group([0, 1])) == 2
            done.tell()

        run_ranks(3, body)

    def test_a_member_that_gave_up_is_no_member(self):
        """Rank 1 joins and times out. Then rank 0 times out, and rank 2 joins later. All use the
        world after that.
        """
        gave_up, done = Condition(), Condition()

        def body(rank, size):
            store = dist.distributed_c10d._get_default_store()

            def make(timeout):
                place = dist.PrefixStore("late/", store)
                return native_group(place, rank, size, "late", list(range(size)), timeout)

            if rank == 1:
                # The first rank has joined: its name is in the store.
                members = hashlib.sha1(str(list(range(size))).encode()).hexdigest()
                store.wait([f"late//xylem/{members}/current"], timedelta(seconds=Condition.DEADLINE))
                with raising(dist.DistBackendError, "rank 0, the first of the group, still waits"):
                    make(0.5)
                gave_up.tell()
            elif rank == 0:
                with raising(dist.DistBackendError, "these did not come: 1, 2;"):
                    make(4)
                done.tell()
            if rank == 2:
                gave_up.wait()
                done.wait()
            dist.barrier()
            assert sum_over(None) == size

        run_ranks(3, body)

    def check_different_lists(self, lists: list[list[int]], first: set[int], formed: set[int]) -> None:
        """The ranks `first` call new_group before the others. Ranks that are not in `formed` get an
        error that names two lists.
        """
        meets = all_meet(len(lists))

        def body(rank, size):
            if rank not in first:
                meets.wait()
            named = r"rank \d calls new_group with the ranks \[.*\], rank \d with \[.*\];"
            with contextlib.nullcontext() if rank in formed else raising(dist.DistBackendError, named) as told:
                group = dist.new_group(lists[rank], timeout=timedelta(seconds=20))
                assert sum_over(group, 10.0**rank) == sum(10**member for member in lists[rank])
            if rank not in formed:
                for ranks in lists:
                    assert str(ranks) in told[0], (ranks, told)
            if rank in first:
                meets.wait()
            dist.barrier()
            assert sum_over(None) == size

        run_ranks(len(lists), body)

    def test_ranks_that_come_at_once_with_different_lists_learn_of_both(self):
        self.check_different_lists([[0, 3], [1, 2], [1, 2], [0, 3]], {0, 2}, set())
        self.check_different_lists([[0, 1], [1, 2], [1, 2]], {0, 1}, set())

    def test_a_rank_with_another_list_than_a_group_that_has_formed_learns_of_both(self):
        self.check_different_lists([[0, 1], [1, 2], [1, 2]], {1, 2}, {1, 2})
        self.check_different_lists([[0, 1, 2], [1, 2], [1, 2]], {1, 2}, {1, 2})

    def test_each_rank_may_make_a_group_of_itself(self):
        def body(rank, size):
            assert sum_over(dist.new_group([rank]), rank) == rank

        run_ranks(3, body)

    def test_splits_and_meshes_cost_nothing_either(self):
        def body(rank, size):
            sum_over(dist.new_group())
            init_device_mesh("cpu", (size,))
            held = Held()
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
            assert sum_over(mesh["a"].get_group(), rank) == 2 * (rank % 2) + 2
            assert sum_over(mesh["b"].get_group(), rank) == 4 * (rank // 2) + 1
            if "No device associated" not in inspect.getsource(dist.split_group):
                part = dist.split_group(split_ranks=[[0, 3], [1, 2]])
                assert sum_over(part, rank) == 3
            # If a rank left the job here, the others would start a new job for the last group.
            dist.barrier()
            held.check()

        run_ranks(4, body)

    def test_a_start_has_half_a_minute_once_all_have_come(self):
        def body(rank, size):
            store = dist.distributed_c10d._get_default_store()
            dist.destroy_process_group()
            slow = SlowStore(store, 2)
            begin = time.monotonic()
            group = native_group(dist.PrefixStore("slow/", slow), rank, size, "slow", [], timeout=1.0)
            assert time.monotonic() - begin > 1.5  # Longer than the group's limit.
            tensor = torch.ones(1)
            group.allreduce([tensor]).wait()
            group.barrier().wait()
            return slow.asked

        self.assertGreater(sum(run_ranks(2, body)), 0)

    def test_a_receive_from_any_rank_tells_the_sender(self):
        def body(rank, size):
            for group in (dist.group.WORLD, dist.new_group([1, 2, 3]), dist.new_group([3, 1])):
                if rank not in dist.get_process_group_ranks(group):
                    continue
                for sender, receiver in itertools.permutations(dist.get_process_group_ranks(group), 2):
                    if rank == sender:
                        dist.send(torch.ones(1), receiver, group=group)
                    elif rank == receiver:
                        assert dist.recv(torch.zeros(1), group=group) == sender
                    dist.barrier(group=group)  # So that no later sender comes first.
            if rank > 0:  # Torch sorts the members of its own groups.
                order = [3, 1, 2]
                store = dist.PrefixStore("order", dist.distributed_c10d._get_default_store())
                group = native_group(store, order.index(rank), 3, "order", order)
                if rank == 1:
                    group.send([torch.ones(1)], 2, 0).wait()
                elif rank == 2:
                    work = group.recv_anysource([torch.zeros(1)], 0)
                    work.wait()
                    assert work._source_rank() == 1, work._source_rank()
                group.barrier().wait()
                group.shutdown()
            dist.barrier()

        run_ranks(4, body)


class Threads(unittest.TestCase):
    def test_threads_make_overlapping_groups_at_once(self):
        """Each of 4 threads makes 10 groups. The threads use them in another order at each rank."""

        def body(rank, size):
            store = dist.distributed_c10d._get_default_store()
            errors = []

            def one(thread):
                try:
                    choose, shuffle = random.Random(thread), random.Random(100 * rank + thread)
                    groups = []
                    for number in range(10):
                        ranks = sorted(choose.sample(range(size), choose.randint(2, size)))
                        if rank not in ranks:
                            continue
                        name = f"{thread}.{number}"
                        place = dist.PrefixStore(f"{name}/", store)
                        group = native_group(place, ranks.index(rank), len(ranks), name, ranks)
                        groups.append((group, ranks))
                    for _ in range(250):
                        works = []
                        for group, ranks in shuffle.sample(groups, len(groups)):
                            tensor = torch.full((3,), float(rank))
                            works.append((group.allreduce([tensor]), tensor, ranks))
                        for work, tensor, ranks in shuffle.sample(works, len(works)):
                            work.wait()
                            assert tensor.tolist() == [sum(ranks)] * 3, (tensor, ranks)
                except BaseException as error:  # noqa: BLE001
                    errors.append(error)

            threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(50)
                assert not thread.is_alive(), "a thread stands still"
            assert not errors, errors

        run_ranks(4, body)

    def test_groups_of_the_same_members_are_told_apart(self):
        def body(rank, size):
            groups = [dist.new_group(use_local_synchronization=True) for _ in range(20)]
            tensors = [torch.full((4,), float(number)) for number in range(20)]
            works = [
                dist.all_reduce(tensors[number], group=groups[number], async_op=True)
                for number in (range(20) if rank == 0 else reversed(range(20)))
            ]
            for work in works:
                work.wait()
            for number, tensor in enumerate(tensors):
                assert tensor.tolist() == [number * size] * 4

        run_ranks(3, body)


class Ends(unittest.TestCase):
    def test_the_first_group_may_end_first(self):
        def body(rank, size):
            store = dist.distributed_c10d._get_default_store()
            dist.destroy_process_group()
            before = Held()
            groups = [
                native_group(dist.PrefixStore(name, store), rank, size, name, [])
                for name in ("a", "b", "c")
            ]
            # All three groups share these.
            shared = Held()
            groups.pop(0).shutdown()
            for group in groups:
                tensor = torch.ones(4)
                group.allreduce([tensor]).wait()
                assert tensor.tolist() == [size] * 4
            shared.check()
            del group
            while groups:
                groups.pop().shutdown()
            gc.collect()
            before.check(more=1)  # The store keeps one file descriptor.
            # A further group starts a new job.
            again = native_group(dist.PrefixStore("d", store), rank, size, "d", [])
            tensor = torch.ones(4)
            again.allreduce([tensor]).wait()
            assert tensor.tolist() == [size] * 4
            again.barrier().wait()

        run_ranks(3, body)

    def check_that_a_rank_comes_back(self, others_know: bool) -> None:
        """One rank has no group left, and the others still have one. Then all ranks make a new
        group.
        """

        def body(rank, size):
            store = dist.distributed_c10d._get_default_store()
            extra = dist.new_group([0, 1])
            if rank == 2:
                dist.destroy_process_group()
            elif others_know:
                with raising(dist.DistBackendError, "rank 2 left the job before it took its part"):
                    sum_over(None)
            held = Held()
            group = native_group(dist.PrefixStore("new/", store), rank, size, "new", list(range(size)))
            tensor = torch.ones(2)
            group.allreduce([tensor]).wait()
            assert tensor.tolist() == [size] * 2
            more = Held()
            # The new job has its own progress thread.
            assert not others_know or more.before[1] == held.before[1] + 1, (held.before, more.before)
            if rank != 2:
                assert sum_over(extra) == 2
            group.barrier().wait()
            group.shutdown()

        run_ranks(3, body)

    def test_ranks_that_have_left_the_job_can_come_back(self):
        self.check_that_a_rank_comes_back(others_know=False)

    def test_after_a_rank_has_left_groups_start_another_job(self):
        self.check_that_a_rank_comes_back(others_know=True)

    def test_there_are_1024_groups(self):
        def body(rank, size):
            groups = [dist.new_group() for _ in range(SEATS - 1)]
            with raising(dist.DistBackendError, "rank 0 has 1024 groups already"):
                dist.new_group()
            sparse = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
            with raising(dist.DistBackendError, "needs a communicator of its own, and rank 0 has 1024"):
                dist.all_reduce(sparse)
            assert sum_over(groups[500]) == size
            dist.destroy_process_group(groups.pop(500))
            assert sum_over(dist.new_group()) == size

        run_ranks(2, body)

    def test_an_error_of_a_group_leaves_the_others_alone(self):
        def body(rank, size):
            groups = [dist.new_group() for _ in range(3)]
            tensor = torch.ones(3 + rank)
            with raising(dist.DistBackendError, "mismatch"):
                dist.all_reduce(tensor, group=groups[1])
            for group in (None, groups[0], groups[2], dist.new_group()):
                assert sum_over(group) == size
            with raising(dist.DistBackendError, "mismatch"):
                sum_over(groups[1])

        run_ranks(2, body)

    def test_a_rank_that_destroys_a_group_too_early_is_named(self):
        def body(rank, size):
            group = dist.new_group([0, 2])
            if rank == 2:
                dist.destroy_process_group(group)
            elif rank == 0:
                begun = time.monotonic()
                with raising(dist.DistBackendError, "rank 2 left the communicator before it took"):
                    sum_over(group)
                assert time.monotonic() - begun < 10
            assert sum_over(None) == size

        run_ranks(3, body)

    def test_a_job_holds_a_thread_memory_and_connections(self):
        def body(rank, size):
            def held():
                tasks = os.listdir("/proc/self/task")
                names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks]
                with open("/proc/self/maps") as maps:
                    spans = [line.split()[0].split("-") for line in maps if "memfd:xylem" in line]
                shared = sum(int(end, 16) - int(begin, 16) for begin, end in spans)
                return names.count("xylem progress"), shared, len(os.listdir("/proc/self/fd"))

            threads, shared, descriptors = held()
            assert threads == 1
            assert 0.9 * size * (2 << 20) < shared <= size * (2 << 20), shared
            groups = [dist.new_group() for _ in range(5)]
            assert held() == (threads, shared, descriptors)
            groups.clear()
            dist.barrier()
            dist.destroy_process_group()
            # A thread that has been joined may exist in /proc for a short time after that.
            eventually(lambda: held()[0] == 0, "the end of the thread")
            assert held()[:2] == (0, 0) and held()[2] < descriptors

        run_ranks(3, body)

    def test_a_death_ends_the_groups_of_the_rank_alone_and_survivors_make_another(self):
        def body(rank, size):
            others, all_ranks = dist.new_group([0, 2]), dist.new_group()
            dist.barrier()
            if rank == 1:
                os._exit(1)
            for group in (None, all_ranks):
                with raising(dist.DistBackendError, "rank 1 .*was lost"):
                    sum_over(group)
            assert sum_over(others) == 2
            assert sum_over(dist.new_group([0, 2], use_local_synchronization=True)) == 2

        run_ranks(3, body, killed=(1,))


def has_ended(process: int) -> bool:
    """True if a process has ended, even if its parent has not waited for it yet."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def end_program(status: int) -> None:
    """Ends this process as a Python program ends: first the interpreter, and then the process by
    exit().
    """
    multiprocessing.util._finalizer_registry.clear()  # Only children of multiprocessing have finalizers.
    ctypes.pythonapi.Py_Exit(status)


class Programs(unittest.TestCase):
    """Programs that end without destroy_process_group()."""

    def check_others(self, end: Callable[[], object], is_normal: bool) -> None:
        """Ends the program of rank 0 with `end`. If this is a normal end, rank 0 has sent messages
        to rank 1 before.
        """

        def body(rank, size):
            processes = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
            dist.all_gather(processes, torch.tensor([os.getpid()]))
            word = torch.full((16,), 7.0)
            if rank == 0:
                for other in range(1, size):
                    dist.recv(word, other)  # All ranks have ended the call before.
                if is_normal:
                    dist.send(word, 1)
                    dist.isend(torch.ones(1 << 20), 1, tag=1)
                dist.irecv(word, 2)  # This message is never sent.
                end()
            dist.send(word, 0)
            large = torch.zeros(1 << 20)
            if rank == 1 and is_normal:
                dist.recv(large, 0, tag=1)
                assert large.eq(1).all()
            eventually(lambda: has_ended(int(processes[0])), "the end of rank 0")
            if not is_normal:
                with raising(dist.DistBackendError, "rank 0 on .* was lost"):
                    dist.recv(word, 0)
                return
            word.zero_()
            if rank == 1:
                dist.recv(word, 0)
                dist.send(word, 2)
            else:
                dist.recv(word, 1)
            assert word.eq(7).all()
            begin = time.monotonic()
            with raising(dist.DistBackendError, "rank 0 left the job"):
                dist.all_reduce(word)
            assert time.monotonic() - begin < 5

        run_ranks(3, body, killed=(0,))

    def test_that_end_normally_leave_in_good_order(self):
        self.check_others(lambda: end_program(0), is_normal=True)

    def test_that_end_with_another_status_are_lost(self):
        self.check_others(lambda: end_program(1), is_normal=False)

    def test_that_end_without_exit_handlers_are_lost(self):
        self.check_others(lambda: os._exit(0), is_normal=False)

    def check_child(self, end: Callable[[], object], is_normal: bool, messages: int = 1) -> None:
        """Like check_others, for a child of multiprocessing, which ends by os._exit(). `end` sends
        all messages but one.
        """

        def program(rank: int, path: str) -> None:
            store = dist.FileStore(path, 2)
            dist.init_process_group("xylem", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=20))
            word = torch.full((16,), 7.0)
            if rank == 0:
                dist.recv(word, 1)
                if is_normal:
                    dist.send(word, 1)
                end()
                return
            dist.send(word, 0)
            has_sent.wait()
            if is_normal:
                for _ in range(messages):
                    word.zero_()
                    dist.recv(word, 0)
                    assert word.eq(7).all()
            else:
                with raising(dist.DistBackendError, "rank 0 on .* was lost"):
                    dist.recv(word, 0)

        has_sent = Condition()
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "store")
            children = [context.Process(target=program, args=(rank, path)) for rank in range(2)]
            for child in children:
                child.start()
            for child in children:
                child.join(Condition.DEADLINE)
                has_sent.tell()
            codes = [child.exitcode for child in children]
            for child in children:
                child.kill()
            assert codes == [0 if is_normal else 1, 0], codes

    def test_that_are_forked_and_return_leave_in_good_order(self):
        self.check_child(lambda: None, is_normal=True)

    def test_that_are_forked_and_exit_leave_in_good_order(self):
        self.check_child(lambda: sys.exit(0), is_normal=True)

    def test_that_are_forked_leave_after_their_threads_have_ended(self):
        def send_after_the_return() -> None:
            eventually(lambda: multiprocessing.util._exiting)
            dist.send(torch.full((16,), 7.0), 1)

        self.check_child(lambda: threading.Thread(target=send_after_the_return).start(), is_normal=True, messages=2)

    def test_that_are_forked_and_fail_are_lost(self):
        self.check_child(lambda: sys.exit(1), is_normal=False)

    def test_that_are_forked_and_raise_are_lost(self):
        self.check_child(lambda: 1 // 0, is_normal=False)


def start_gloo(rank, size):
    """Replaces Xylem's world by a world of gloo."""
    store = dist.PrefixStore("gloo", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


class BesideGloo(unittest.TestCase):
    def test_subgroups_of_a_world_of_gloo(self):
        def body(rank, size):
            start_gloo(rank, size)
            # Two jobs, of ranks 0, 1 and of ranks 1, 2: before this, no ranks have a job in common.
            pairs = [dist.new_group([a, a + 1], backend="xylem") for a in range(size - 1)]
            for first, group in enumerate(pairs):
                if rank in (first, first + 1):
                    assert sum_over(group) == 2
            held = Held()
            again = [dist.new_group([a, a + 1], backend="xylem") for a in range(size - 1)]
            for first, group in enumerate(again):
                if rank in (first, first + 1):
                    assert sum_over(group) == 2
            held.check()
            if rank > 0:
                # Errors contain ranks of the job, and say to which ranks of the world these
                # correspond.
                mine = pairs[-1]
                note = r"this group's ranks, from 0 on, are ranks 1, 2 of the world"
                with raising(dist.DistBackendError, note):
                    dist.all_reduce(torch.ones(rank), group=mine)

        run_ranks(3, body)

    def test_ranks_with_different_lists_never_meet(self):
        """Without a common job, the lists cannot be compared, since the store may contain lists of
        an earlier start.
        """

        def body(rank, size):
            start_gloo(rank, size)
            if rank % 2 == 0:
                with raising(dist.DistBackendError, "new_group with the same list of ranks"):
                    dist.new_group([0, 3] if rank == 0 else [1, 2], timedelta(seconds=1), "xylem")
            dist.barrier()

        run_ranks(4, body)

    def test_gloo_waits_where_torch_gives_members_different_names(self):
        """This is the reason why members find each other by their ranks (docs/pytorch.md)."""

        def body(rank, size, backend, made):
            start_gloo(rank, size)
            if rank < 2:
                dist.new_group([0, 1], backend=backend, use_local_synchronization=True)
                # If rank 0 ended earlier, its exit would break gloo's connections to the ranks that
                # still make groups.
                made.wait() if rank == 0 else made.tell()
            if rank > 0:
                # Rank 1 has made one more group than rank 2.
                limit = timedelta(seconds=2 if backend == "gloo" else 20)
                try:
                    dist.new_group([1, 2], limit, backend, use_local_synchronization=True)
                except RuntimeError as error:
                    assert "timeout" in str(error), error
                    return "waits"
            return "is made"

        for backend, outcome in (("gloo", "waits"), ("xylem", "is made")):
            made = Condition()
            got = run_ranks(3, lambda rank, size: body(rank, size, backend, made))
            self.assertEqual(got[1:], [outcome] * 2, backend)


if __name__ == "__main__":
    unittest.main(verbosity=2)
