# SPDX-License-Identifier: Apache-2.0
"""Works and futures: many at once, coalesced, dropped, and awaited by callbacks and threads.

    python works_test.py [-k PATTERN]
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import threading
import time
import unittest
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

from ranks import Condition, eventually, raising, run_ranks


def thread_names() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # The thread has ended.
            names.append(open(f"/proc/self/task/{task}/comm").read().strip())
    return names


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
            # No thread waits for this call, but its future must complete.
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
                with raising(ValueError, "not contiguous"):
                    dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.zeros(2, 3).t(), after)])
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
            wholes = [torch.ones(2 * size), torch.ones(2 * size)]  # The second call is refused.
            with raising(ValueError, "both must have one type"):
                dist.group.WORLD.reduce_scatter_tensor_coalesced(parts, wholes).wait()
            dist.barrier()

        run_ranks(2, body)
        run_ranks(3, body)

    def test_a_callback_may_wait_for_other_futures(self):
        """As in torch's hook of PowerSGD."""

        def body(rank, size):
            def again(done):
                second = dist.all_reduce(done.value()[0].clone(), async_op=True).get_future()
                third = dist.all_reduce(second.wait()[0].clone(), async_op=True).get_future()
                return third.wait()[0]

            # A small call ends within the call, and a large one may end later. All ranks must make
            # the callbacks' calls in the same order. So all futures are obtained before the first
            # callback is attached.
            for count in (1, 1 << 10, 1 << 18):
                firsts = [
                    dist.all_reduce(torch.full((count,), i + 1.0), async_op=True) for i in range(4)
                ]
                futures = [first.get_future() for first in firsts]
                futures = [future.then(again) for future in futures]
                for i, future in enumerate(futures):
                    assert torch.equal(future.wait(), torch.full((count,), (i + 1.0) * size**3))

        for size in (1, 2, 3, 5):
            run_ranks(size, body)

    def test_a_chain_of_callbacks(self):
        """Each callback attaches the next one, and the number of threads does not grow."""

        def body(rank, size):
            count, done = 0, threading.Event()

            def again(_):
                nonlocal count
                count += 1
                if count == 300:
                    return done.set()
                dist.all_reduce(torch.ones(1 << 15), async_op=True).get_future().then(again)

            first = dist.all_reduce(torch.ones(1 << 15), async_op=True).get_future()
            first.then(again)
            assert done.wait(30)
            assert len(os.listdir("/proc/self/task")) < 100

        run_ranks(2, body)

    def test_messages_hold_no_collective_back(self):
        def body(rank, size):
            group = dist.group.WORLD
            got = torch.zeros(1)
            if rank == 0:
                # The receive ends last. Futures of later calls must not wait for this receive.
                batch = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, 1)])
                received = [work.get_future() for work in batch]
                dist.all_reduce(torch.ones(1 << 16), async_op=True).get_future().wait()
                dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
                dist.send(torch.ones(1), 1)
                for future in received:
                    future.wait()
                assert got.item() == 7
            else:
                group.allreduce([torch.ones(1 << 16)]).wait()
                group.allreduce([torch.ones(1)]).wait()
                dist.recv(got, 0)
                dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((1,), 7.0), 0)])[0].wait()

        run_ranks(2, body)

    def test_callbacks_that_wait_beside_each_other(self):
        """A callback waits for its call while another callback waits for a later call."""
        attached, begun, called = Condition(), Condition(), Condition()

        def call():
            return dist.all_reduce(torch.ones(1 << 16), async_op=True)

        def watched(rank, size):
            inner, between, last, through = (threading.Event() for _ in range(4))

            def first(_):
                call().get_future().then(second)
                inner.set()

            def second(_):
                assert between.wait(20)
                mine = call().get_future()
                last.set()
                called.tell()
                mine.wait()
                through.set()

            def beside(_):
                assert last.wait(20)
                return call().get_future().wait()

            call().get_future().then(first)
            attached.tell()
            assert inner.wait(20)
            begun.tell()
            work = call()
            between.set()
            work.get_future().then(beside).wait()
            assert through.wait(20)

        def other(rank, size):
            # This rank calls only after the other rank has attached its callbacks to incomplete
            # futures. It calls in callbacks of the same calls as the other rank.
            attached.wait()
            work = call()
            work.wait()
            begun.wait()
            inner = []

            def first(_):
                inner.append(call())
                inner[0].wait()

            work.get_future().then(first).wait()
            called.wait()
            last = call()
            inner[0].get_future().then(lambda _: call().wait()).wait()
            last.wait()
            last.get_future().then(lambda _: call().wait()).wait()

        run_ranks(2, lambda rank, size: (watched if rank == 0 else other)(rank, size))

    def test_calls_in_callbacks_match_those_of_the_same_call(self):
        """Otherwise calls of two chains of callbacks could be combined with each other without an
        error.
        """
        ready = Condition()

        def call(value=0.0):
            return dist.all_reduce(torch.full((8,), value), async_op=True)

        def body(rank, size):
            futures = []

            def chain(value):
                return lambda _: futures.append(call(value).get_future())

            # The first calls of both chains, in the same order at both ranks.
            for value in (1.0, 2.0):
                call().get_future().then(chain(value)).wait()
            for future in futures:
                future.wait()
            # The callbacks of these futures call further collectives, in another order at each
            # rank.
            with raising(RuntimeError, "mismatch.*label 100000000000[12].*label 100000000000[12]"):
                for future in futures if rank == 0 else reversed(futures):
                    future.then(lambda _: call().wait()).wait()
            ready.tell() if rank == 0 else ready.wait()

        run_ranks(2, body)

    def test_a_call_after_all_of_several(self):
        """When then() is called, collect_all() is complete at some ranks, and not yet at others."""

        attached = Condition()

        def body(rank, size):
            other = dist.new_group()
            if rank == 0:
                attached.wait()
            futures = [dist.all_reduce(torch.ones(4), group=g, async_op=True).get_future() for g in (None, other)]
            value, whole = torch.ones(1), torch.futures.collect_all(futures)
            if rank == 0:
                whole.wait()
            end = whole.then(lambda _: dist.all_reduce(value))
            if rank == 1:
                attached.tell()
            end.wait()
            assert value.item() == size

        run_ranks(2, body)

    def test_calls_in_callbacks_of_another_group(self):
        """The callbacks call on the world. At each rank they belong to another call of another
        group.
        """

        def body(rank, size):
            mine = [dist.new_group([0, 1]), dist.new_group([2])][rank // 2]
            for _ in range(rank // 2):
                dist.all_reduce(torch.ones(1), group=mine)
            values = []

            def after(_):
                value = torch.full((1,), float(rank))
                dist.all_reduce(value)
                values.append(value.item())

            dist.all_reduce(torch.ones(1), group=mine, async_op=True).get_future().then(after).wait()
            assert values == [3.0], values

        run_ranks(3, body)

    def test_callbacks_of_sparse_and_dense_calls_wait_for_each_other(self):
        attached = Condition()

        def body(rank, size):
            both = threading.Barrier(2)

            def sparse():
                tensor = torch.sparse_coo_tensor([[rank]], [1.0], (size,), device="cpu")
                return dist.all_reduce(tensor, async_op=True).get_future()

            def dense():
                return dist.all_reduce(torch.ones(1 << 16), async_op=True).get_future()

            def after_dense(_):
                both.wait(20)
                return sparse().wait()

            def after_sparse(_):
                both.wait(20)
                return dense().wait()

            # The first sparse call of a callback is ordered with the dense calls.
            dense().then(lambda _: sparse().wait()).wait()
            if rank == 0:
                ends = dense().then(after_dense), sparse().then(after_sparse)
                attached.tell()
            else:
                # Until then, rank 0's calls cannot end, so no callback runs when it is attached.
                attached.wait()
                first = dense(), sparse()
                ends = first[0].then(lambda _: sparse().wait()), first[1].then(lambda _: dense().wait())
            for end in ends:
                end.wait()

        run_ranks(2, body)

    def test_callbacks_may_destroy_each_others_groups(self):
        attached = Condition()

        def body(rank, size):
            groups = [dist.new_group() for _ in range(2)]
            both, gone = threading.Barrier(2), threading.Semaphore(0)

            def drop(_, other):
                both.wait(20)
                dist.destroy_process_group(groups[other])
                groups[other] = None
                gone.release()

            if rank == 0:
                works = [dist.all_reduce(torch.ones(1 << 16), group=g, async_op=True) for g in groups]
                for i, work in enumerate(works):
                    work.get_future().add_done_callback(lambda done, i=i: drop(done, 1 - i))
                del work
                works.clear()
                attached.tell()
                assert gone.acquire(timeout=20) and gone.acquire(timeout=20)
            else:
                attached.wait()
                for group in groups:
                    dist.all_reduce(torch.ones(1 << 16), group=group)
                    dist.destroy_process_group(group)
            dist.barrier()

        run_ranks(2, body)

    def test_a_future_is_complete_once_its_work_has_been_waited_for(self):
        def body(rank, size):
            for _ in range(300):
                work = dist.all_reduce(torch.ones(1 << 12), async_op=True)
                future = work.get_future()
                work.wait()
                assert future.done()
                assert future.value()[0][0] == size

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
        called = Condition()

        def body(rank, size):
            group = dist.new_group()
            tensor = torch.ones(1000)
            if rank == 1:
                called.wait()
            work = dist.all_reduce(tensor, group=group, async_op=True)
            if rank == 0:
                called.tell()
            else:
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
        """Ten thousand calls on four groups. Each rank waits for them in another order."""

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
            # The address sanitizer does not return freed memory to the system.
            if "asan" not in os.environ.get("LD_PRELOAD", ""):
                assert before is not None and memory - before < 4096, f"{memory - before} KiB more"

        run_ranks(2, body)
        run_ranks(3, body, deadline=120)

    def test_dropped_works_give_their_tensors_back(self):
        def body(rank, size):
            alive = []
            # These two receives are under way until the end.
            open_receives = [dist.irecv(torch.empty(1), (rank + 1) % size, tag=7) for _ in range(2)]
            for _ in range(20):
                tensor = torch.ones(1000)
                alive.append(weakref.ref(tensor.untyped_storage()))
                dist.all_reduce(tensor, async_op=True)  # No thread waits for it.
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
        counted = Condition()

        def body(rank, size):
            called = threading.Event()

            def count():
                called.wait()
                for _ in range(1000000):
                    pass
                counted.tell()

            if rank == 0:
                counted.wait()  # The other rank reports this while it waits for this rank.
                dist.all_reduce(torch.ones(4))
            else:
                thread = threading.Thread(target=count)
                thread.start()
                called.set()
                dist.all_reduce(torch.ones(4))
                thread.join()

        run_ranks(2, body)

    def test_wait_with_a_limit(self):
        def body(rank, size):
            tensor = torch.zeros(2)
            if rank == 0:
                work = dist.irecv(tensor, 1)
                with raising(dist.DistBackendError, "has not completed within 200 ms"):
                    work.wait(timedelta(milliseconds=200))
                dist.barrier()
                work.wait()
                assert tensor.tolist() == [1, 1]
            else:
                dist.barrier()
                dist.send(torch.ones(2), 0)

        run_ranks(2, body)

    def test_small_calls_end_before_they_return_if_the_others_have_called(self):
        called = Condition()

        def body(rank, size):
            ended = 0
            dist.all_reduce(torch.ones(2))  # The first call also plans.
            for _ in range(50):
                tensor = torch.ones(2)
                if rank == 0:
                    called.wait()
                work = dist.all_reduce(tensor, async_op=True)
                if rank == 0:
                    ended += work.is_success()  # Makes no progress.
                else:
                    called.tell()
                work.wait()
            # The work may not have ended if another thread of the process drives the operations at
            # this moment.
            assert rank == 1 or ended >= 40, ended

        run_ranks(2, body)

    def test_tensors_are_kept_until_their_call_has_ended(self):
        dropped = Condition()

        def body(rank, size):
            if rank == 1:
                dropped.wait()
            tensor, inputs = torch.ones(1 << 16), [torch.ones(1 << 10) for _ in range(size)]
            others = [torch.ones(1 << 16) for _ in range(10)]
            kept = [weakref.ref(t.untyped_storage()) for t in [tensor, *inputs, *others]]
            part = torch.ones(1 << 10)
            for one in [tensor, *others]:
                dist.all_reduce(one, async_op=True)  # No thread waits for it.
            del one, others
            last = dist.reduce_scatter(part, inputs, async_op=True)
            address = tensor.data_ptr()
            del tensor, inputs
            gc.collect()
            if rank == 0:
                assert kept[0]() is not None
                other = torch.zeros(1 << 16)
                assert other.data_ptr() != address
                dropped.tell()
            last.wait()
            assert part[0] == size
            dist.barrier()
            gc.collect()
            assert not any(reference() is not None for reference in kept)

        run_ranks(2, body)

    def test_futures_get_a_thread_when_the_first_is_asked_for(self):
        called = Condition()

        def body(rank, size):
            names = ["xylem progress"]
            assert sorted(n for n in thread_names() if n.startswith("xylem")) == names
            work = dist.all_reduce(torch.ones(1), async_op=True)
            work.wait()
            work.get_future().wait()  # The future is already complete, so no thread is needed.
            assert sorted(n for n in thread_names() if n.startswith("xylem")) == names
            if rank == 1:
                called.wait()
                called.wait()
                dist.all_reduce(torch.ones(1))
                dist.send(torch.ones(1), 0)
                return
            future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
            names = ["xylem futures", "xylem progress"]
            end = time.monotonic() + Condition.DEADLINE
            while sorted(n for n in thread_names() if n.startswith("xylem")) != names:
                assert time.monotonic() < end, thread_names()
            called.tell()
            message = dist.irecv(torch.ones(1), 1).get_future()  # Messages have their own thread.
            while thread_names().count("xylem futures") != 2:
                assert time.monotonic() < end, thread_names()
            called.tell()
            future.wait()
            message.wait()

        run_ranks(2, body)

    def test_callbacks_run_in_the_order_of_their_futures(self):
        asked = Condition()

        def body(rank, size):
            seen, threads = [], set()
            if rank == 0:
                asked.wait()

            def note(number):
                seen.append(number)
                threads.add(threading.get_ident())

            works = [dist.all_reduce(torch.ones(1 << 12), async_op=True) for _ in range(20)]
            order = torch.randperm(20, generator=torch.Generator().manual_seed(rank)).tolist()
            futures = [works[i].get_future().then(lambda _, i=i: note(i)) for i in order]
            if rank == 1:
                asked.tell()  # Until then no call has ended or run a callback.
            for future in futures:
                future.wait()
            if rank == 1:
                assert seen == order, (seen, order)
                assert len(threads) == 1 and threading.get_ident() not in threads

        run_ranks(2, body)

    def test_callbacks_of_messages_run_as_they_end_on_a_thread_of_their_own(self):
        attached = Condition()

        def body(rank, size):
            seen = []
            if rank == 1:
                attached.wait()
                for tag in (3, 1, 2):
                    dist.send(torch.ones(1), 0, tag=tag)
                    attached.wait()
                dist.all_reduce(torch.ones(1))
                dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (1,)))
                return

            def note(what):
                seen.append((what, threading.get_ident()))

            receives = {tag: dist.irecv(torch.ones(1), 1, tag=tag).get_future() for tag in (1, 2, 3)}
            futures = {tag: future.then(lambda _, tag=tag: note(tag)) for tag, future in receives.items()}
            dense = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda _: note("dense"))
            sparse = torch.sparse_coo_tensor([[0]], [1.0], (1,))
            sparse = dist.all_reduce(sparse, async_op=True).get_future().then(lambda _: note("sparse"))
            attached.tell()
            for tag in (3, 1, 2):
                futures[tag].wait()
                attached.tell()
            dense.wait()
            sparse.wait()
            assert [what for what, _ in seen if what in (1, 2, 3)] == [3, 1, 2], seen
            threads = dict(seen)
            assert threads[1] == threads[2] == threads[3]
            assert len({threads[1], threads["dense"], threads["sparse"], threading.get_ident()}) == 4

        run_ranks(2, body)

    def test_a_wait_runs_the_callbacks_of_its_work_here_and_out_of_order(self):
        attached = Condition()

        def body(rank, size):
            if rank == 1:
                attached.wait()
            works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(3)]
            if rank == 0:
                begun, over, ran = threading.Event(), threading.Event(), []
                works[0].get_future().then(lambda _: (begun.set(), over.wait(20)))
                for work in works[1:]:
                    work.get_future().then(lambda _: ran.append(threading.get_ident()))
                attached.tell()
                assert begun.wait(20)
                works[1].wait()
                eventually(works[2].is_completed)
                assert ran == 2 * [threading.get_ident()], ran
                over.set()
            for work in works:
                work.wait()

        run_ranks(2, body)

    def test_a_callback_of_a_completed_future_runs_here(self):
        """then() of a completed future runs its callback on the calling thread."""

        def body(rank, size):
            here, seen = threading.get_ident(), []
            work = dist.all_reduce(torch.ones(1), async_op=True)
            work.wait()
            work.get_future().then(lambda _: seen.append(threading.get_ident()))
            assert seen == [here]

        run_ranks(2, body)

    def test_calls_end_without_the_progress_thread(self):
        """wait() drives the operations itself."""

        def body(rank, size):
            for count in (1, 1 << 20):
                tensor = torch.ones(count)
                work = dist.all_reduce(tensor, async_op=True)
                work.wait()
                assert torch.equal(tensor, torch.full((count,), float(size)))

        run_ranks(3, body, environment={"XYLEM_PROGRESS_THREAD": "off"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
