# SPDX-License-Identifier: Apache-2.0
"""Calls on tensors of a device: the order of streams, wait(), futures, errors, and training.

    TEST_DEVICE=standin python device_test.py [-k PATTERN]

The device is that of tests/torch/device, or cuda on a machine with GPUs. In tests/torch/device, the
host cannot access device memory, streams run late, and freed memory is overwritten at once. So a
missing ordering leads to a wrong result.
"""

from __future__ import annotations

import copy
import ctypes
import os
import threading
import time
import unittest
from datetime import timedelta

import torch
import torch._dynamo  # noqa: F401  Optimizers import it, which takes seconds on each rank.
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ranks import DEVICE, Condition, raising, run_ranks

COUNT = 1 << 15


def full(value: float, count: int = COUNT) -> torch.Tensor:
    """Returns a tensor that the current stream fills later."""
    return torch.full((count,), float(value))


def is_full(tensor: torch.Tensor, value: float) -> bool:
    """True if all elements have this value when the current stream has run its work so far."""
    return bool((tensor.cpu() == value).all())


def stream() -> torch.Stream:
    return torch.Stream(torch.device(DEVICE, getattr(torch, DEVICE).current_device()))


def all_reduce_within(seconds: float) -> dist.Work:
    """Makes an all_reduce with a time limit of its own."""
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=seconds)
    return dist.group.WORLD.allreduce([full(1)], options)


def total(size: int) -> float:
    return size * (size + 1) / 2


# Older versions of torch use device_id only with backends that can split groups, and treat only
# nccl as such a backend.
CONNECTS_DEVICES = hasattr(dist.ProcessGroup, "split_group")


def has_called(function: str) -> bool:
    """True if this process has called a function of the driver. Only the stand-in can report this.
    """
    return ctypes.CDLL("libcuda.so.1").fake_cuda_calls(function.encode()) > 0


def has_mesh(size: int) -> bool:
    """True if the devices of bound ranks carry out calls. Processes that share a device do not form
    a mesh.
    """
    return CONNECTS_DEVICES and getattr(torch, DEVICE).device_count() >= size


# Streams wait for all calls, including those that the host has to complete.
STREAMS_WAIT = {"TORCH_NCCL_BLOCKING_WAIT": "0"}

only_over_the_stand_in = unittest.skipUnless(
    DEVICE == "standin",
    "a GPU's driver may stand still while a stream waits for a call that the host has to end",
)


def run_ranks_in_each_way(size: int, body) -> None:
    """Runs ranks whose threads wait for calls, and then ranks whose streams wait: with the
    stand-in, for calls that the host completes, and, if there are enough devices, for calls on a
    mesh.
    """
    run_ranks(size, body)
    if DEVICE == "standin":
        run_ranks(size, body, environment=STREAMS_WAIT)
        if size == 2 and CONNECTS_DEVICES:
            run_ranks(size, body, binds=True)


def late_all_reduce(rank: int, size: int, called: Condition, check) -> None:
    """Makes an all_reduce. Rank 1 makes it only after `check(work, tensor)` on rank 0 has called
    tell().
    """
    tensor = full(rank + 1)
    if rank == 0:
        check(dist.all_reduce(tensor, async_op=True), tensor)
    else:
        called.wait()
        dist.all_reduce(tensor)
    assert is_full(tensor, total(size))


def check_futures_of_a_late_call(rank: int, size: int, called: Condition, are_early: bool) -> None:
    """Checks the futures of a call that rank 1 makes only after rank 0 has obtained its own future.
    Early futures are complete at once. Their callbacks then run on a stream that waits for the
    call.
    """
    tensor = full(rank + 1)
    if rank == 1:
        called.wait()
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    copied = future.then(lambda done: torch.empty_like(tensor).copy_(done.value()[0]))
    if are_early:
        assert future.done() and copied.done()
    if rank == 0:
        assert are_early or not (future.done() or copied.done())
        assert not work.is_completed()
        called.tell()
    assert is_full(copied.wait(), total(size))
    assert is_full(future.wait()[0], total(size))
    assert are_early or (future.done() and work.is_completed())
    assert work.get_future_result().wait() == 0


class Streams(unittest.TestCase):
    def test_one_init_serves_cpu_and_device(self):
        def body(rank, size):
            devices = {device.type for device in dist.group.WORLD._device_types}
            assert {"cpu", DEVICE} <= devices, devices
            tensors = [torch.ones(5, device="cpu"), full(1), torch.ones(70, device="cpu")]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            for work in works:
                work.wait()
            assert all(is_full(tensor, size) for tensor in tensors)
            assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "xylem"
            dist.barrier()
            gathered = [None] * size
            dist.all_gather_object(gathered, rank)
            assert gathered == list(range(size))

        run_ranks(2, body)

    def test_what_was_given_before_and_after(self):
        def body(rank, size):
            for number in range(20):
                tensor = full(rank + number)
                work = dist.all_reduce(tensor, async_op=True)
                work.wait()
                result = tensor * 2
                tensor.fill_(-1)  # After the call, in the order of the stream.
                assert is_full(result, 2 * (total(size) - size + size * number))
            # On a stream that the program has made.
            own = stream()
            with own:
                tensor = full(rank + 1)
                dist.all_reduce(tensor)
                assert is_full(tensor, total(size))

        run_ranks_in_each_way(3, body)

    @only_over_the_stand_in
    def test_the_callers_stream_goes_on(self):
        called = Condition()

        def check(work, tensor):
            # The stream of the call runs work while rank 1 has not called.
            assert is_full(full(5) + 1, 6)
            assert not work.is_completed()
            work.wait()  # This thread does not wait, ...
            assert not work.is_completed()
            result = torch.empty_like(tensor)
            result.copy_(tensor)
            called.tell()
            assert is_full(result, total(2))  # ... but the stream does.
            work.wait(timedelta(seconds=20))
            assert work.is_completed()

        def body(rank, size):
            late_all_reduce(rank, size, called, check)

        run_ranks(2, body, environment=STREAMS_WAIT)
        if has_mesh(2):
            run_ranks(2, body, binds=True)

    def test_receives_hold_no_sends_back(self):
        def body(rank, size):
            other = 1 - rank
            got, sent = full(0, 1 << 20), full(rank + 1, 1 << 20)
            # Both ranks receive first. In their streams, the receive is before the send.
            receive = dist.irecv(got, other)
            send = dist.isend(sent, other)
            receive.wait()
            send.wait()
            assert is_full(got, other + 1)
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.irecv, got, other), dist.P2POp(dist.isend, sent.add_(1), other)]
            )
            for work in works:
                work.wait()
            assert is_full(got, other + 2)
            if rank == 0:
                dist.send(full(7), 1, tag=3)
            else:
                tensor = full(0)
                assert dist.recv(tensor, tag=3) == 0
                assert is_full(tensor, 7)

        run_ranks_in_each_way(2, body)

    def test_memory_is_given_back_in_the_order_of_the_stream(self):
        def body(rank, size):
            results = []
            for number in range(30):
                tensor = full(rank + number)
                work = dist.all_reduce(tensor, async_op=True)
                work.wait()
                results.append(tensor + 0)
                del tensor, work
                torch.empty(COUNT)  # Reuses the memory and overwrites it.
            for number, result in enumerate(results):
                assert is_full(result, total(size) - size + size * number)
            # The works are dropped without a wait. The memory is in use until the calls have ended.
            for number in range(10):
                dist.all_reduce(full(1), async_op=True)
                torch.empty(COUNT)
            parts = [torch.empty(3, COUNT).t() for _ in range(size)]
            dist.all_gather(parts, full(rank, 3 * COUNT).view(COUNT, 3))
            assert all(is_full(part, number) for number, part in enumerate(parts))

        run_ranks_in_each_way(2, body)

    def test_many_at_once(self):
        def body(rank, size):
            tensors = [full(rank + number, 100 + 7 * number) for number in range(200)]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            for work in reversed(works):
                work.wait()
            for number, tensor in enumerate(tensors):
                assert is_full(tensor, total(size) - size + size * number), number

        run_ranks_in_each_way(3, body)

    def test_coalesced(self):
        def body(rank, size):
            tensors = [full(rank + 1, n) for n in (1, 100, 70000)]
            with dist._coalescing_manager(async_ops=True) as manager:
                for tensor in tensors:
                    dist.all_reduce(tensor)
            manager.wait()
            assert all(is_full(tensor, total(size)) for tensor in tensors)

        run_ranks_in_each_way(2, body)

    def test_several_threads_wait(self):
        def body(rank, size):
            tensor = full(rank + 1)
            index = getattr(torch, DEVICE).current_device()
            work = dist.all_reduce(tensor, async_op=True)
            right = []

            def wait():
                getattr(torch, DEVICE).set_device(index)
                with stream():
                    work.wait()
                    right.append(is_full(tensor, total(size)))

            threads = [threading.Thread(target=wait) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert right == [True] * 4

        run_ranks_in_each_way(2, body)


class Threads(unittest.TestCase):
    """By default, threads wait for calls that the host has to complete, and streams do not."""

    def check_that_no_stream_has_waited(self) -> None:
        if DEVICE == "standin":
            assert not has_called("cuStreamWaitValue64_v2")

    def test_wait_returns_when_the_call_has_ended(self):
        called = Condition()

        def check(work, _):
            assert is_full(full(5) + 1, 6)  # The stream continues.
            assert not work.is_completed()
            called.tell()
            work.wait()
            assert work.is_completed()

        def body(rank, size):
            late_all_reduce(rank, size, called, check)
            self.check_that_no_stream_has_waited()

        run_ranks(2, body)

    def test_results_that_are_copied_are_there_after_the_end(self):
        def body(rank, size):
            def columns(value):
                return full(value, 3 * COUNT).view(3, COUNT).t()

            def gather():
                return dist.all_gather(parts, columns(rank + 1), async_op=True)

            def is_right():
                return all(is_full(part, number + 1) for number, part in enumerate(parts))

            for wait in (
                lambda work: work.wait(),
                lambda work: work.wait(timedelta(seconds=20)),
                lambda work: work.get_future().wait(),
                lambda work: wait_by_asking(work),
            ):
                parts = [columns(0) for _ in range(size)]
                wait(gather())
                assert is_right()
            # No thread waits for the call. Later calls detect that it has ended.
            parts = [columns(0) for _ in range(size)]
            gather()
            dist.barrier()
            end = time.monotonic() + Condition.DEADLINE
            is_right_everywhere = False
            while not is_right_everywhere:
                assert time.monotonic() < end
                rights = full(1 if is_right() else 0)
                dist.all_reduce(rights)
                is_right_everywhere = is_full(rights, size)
            # Several threads detect the end of the call.
            for number in range(10):
                parts = [columns(0) for _ in range(size)]
                work = gather()
                threads = [threading.Thread(target=work.wait) for _ in range(3)]
                for thread in threads:
                    thread.start()
                wait_by_asking(work)
                assert is_right()
                for thread in threads:
                    thread.join()
            self.check_that_no_stream_has_waited()

        def wait_by_asking(work):
            end = time.monotonic() + Condition.DEADLINE
            while not work.is_completed():
                assert time.monotonic() < end

        run_ranks(2, body)

    def test_futures_are_complete_after_the_end(self):
        called = Condition()

        def body(rank, size):
            check_futures_of_a_late_call(rank, size, called, are_early=False)
            self.check_that_no_stream_has_waited()

        run_ranks(2, body)

    def test_wait_raises_the_error(self):
        done = Condition()

        def body(rank, size):
            if rank == 0:
                with raising(dist.DistBackendError, "rank 1 did not call it"):
                    all_reduce_within(1).wait()
                done.tell()
            else:
                done.wait()

        for asked in ("", "1"):
            run_ranks(2, body, environment={"TORCH_NCCL_BLOCKING_WAIT": asked})

    def test_wait_if_the_program_asks_for_it(self):
        called = Condition()

        def check(work, _):
            called.tell()
            work.wait()
            assert work.is_completed()

        def body(rank, size):
            late_all_reduce(rank, size, called, check)

        # Without the progress thread, only a waiting thread carries out the calls.
        for environment in ({"TORCH_NCCL_BLOCKING_WAIT": "yes"}, {"XYLEM_PROGRESS_THREAD": "off"}):
            run_ranks(2, body, environment=environment, binds=True)

    def test_a_value_that_means_nothing_is_refused(self):
        def body(rank, size):
            os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "perhaps"
            with raising(ValueError, "TORCH_NCCL_BLOCKING_WAIT is 'perhaps'.* set it to 1 or 0"):
                dist.new_group()

        run_ranks(1, body)


class Futures(unittest.TestCase):
    @only_over_the_stand_in
    def test_are_complete_at_once_in_the_order_of_streams(self):
        called = Condition()

        def body(rank, size):
            check_futures_of_a_late_call(rank, size, called, are_early=True)

        run_ranks(2, body, environment=STREAMS_WAIT)
        if has_mesh(2):
            run_ranks(2, body, binds=True)

    def test_of_messages_complete_when_they_end(self):
        def body(rank, size):
            tensor = full(rank + 1)
            if rank == 0:
                work = dist.irecv(tensor, 1)
                future = work.get_future()
                assert not future.done()
                dist.barrier()
                assert is_full(future.wait()[0], 2)
            else:
                dist.barrier()
                dist.send(tensor, 0)

        run_ranks(2, body)


@unittest.skipUnless(CONNECTS_DEVICES, "this torch connects no devices")
class Bound(unittest.TestCase):
    """With device_id, devices that can access each other's memory carry out calls without the CPU.
    """

    def test_all_operations(self):
        def body(rank, size):
            for count in (1, 1000, 100_000):
                mine, parts = full(rank + 1, count), full(rank + 1, size * count)
                dist.all_reduce(mine)
                if DEVICE == "standin" and count > 1:  # Of one element, rank 1 sums nothing.
                    assert has_called("xylem_exchange_sum_float32")
                assert is_full(mine, total(size))
                work = dist.all_reduce(mine, async_op=True)
                other = full(1)  # The stream continues.
                work.wait()
                assert is_full(mine, size * total(size)) and is_full(other, 1)
                dist.broadcast(mine.fill_(rank), 1)
                assert is_full(mine, 1)
                dist.all_gather_into_tensor(parts, mine.fill_(rank))
                assert all(is_full(parts[r * count : (r + 1) * count], r) for r in range(size))
                dist.reduce_scatter_tensor(mine, parts.fill_(rank))
                assert is_full(mine, total(size) - size)
                dist.all_to_all_single(parts, full(rank, size * count))
                assert all(is_full(parts[r * count : (r + 1) * count], r) for r in range(size))
                dist.reduce(mine.fill_(rank + 1), 0)
                assert rank != 0 or is_full(mine, total(size))
                dist.barrier()
                gathered = [None] * size
                dist.all_gather_object(gathered, rank)
                assert gathered == list(range(size))

        run_ranks(2, body, binds=True)

    def test_streams_wait_for_collectives_and_threads_for_messages(self):
        called = Condition()

        def body(rank, size):
            tensor, received = full(rank + 1), full(0)
            other = 1 - rank
            if rank == 0:
                work = dist.all_reduce(tensor, async_op=True)
                with dist._coalescing_manager(async_ops=True) as manager:
                    dist.all_reduce(tensor)
                if has_mesh(size):
                    work.wait()
                    manager.wait()
                    assert not work.is_completed()
                called.tell()
                request = dist.irecv(received, other)
                assert not request.get_future().done()
                request.wait()
                assert request.is_completed()
                work.wait()
                manager.wait()
            else:
                called.wait()
                dist.all_reduce(tensor)
                with dist._coalescing_manager(async_ops=True) as manager:
                    dist.all_reduce(tensor)
                manager.wait()
                request = dist.isend(full(7), other)
                request.wait()
                assert request.is_completed()
            assert is_full(tensor, size * total(size))
            assert rank != 0 or is_full(received, 7)
            if DEVICE == "standin":
                assert not has_called("cuStreamWaitValue64_v2")

        run_ranks(2, body, binds=True)

    def test_calls_are_captured(self):
        def body(rank, size):
            if not has_mesh(size):
                return
            runtime = getattr(torch, DEVICE)
            values, total_ = full(0), full(0)
            # The call copies its results to the tensors of a list.
            parts = [full(0) for _ in range(size)]
            reduced, gathered = full(0), full(0, size * COUNT)

            def step():
                total_.copy_(values)
                dist.all_reduce(total_)
                pending = dist.all_gather(parts, total_, async_op=True)
                work = dist.all_reduce(total_, async_op=True)
                with dist._coalescing_manager(async_ops=True) as manager:
                    dist.all_gather_into_tensor(gathered, values)
                pending.wait()
                work.get_future().wait()
                reduced.copy_(total_)
                manager.wait()

            step()  # Its copies have not been settled when the capture begins.
            runtime.synchronize()
            made = runtime.CUDAGraph()
            with runtime.graph(made):
                step()
            for turn in range(3):
                values.fill_(turn + rank)
                made.replay()
                expected = total(size) + size * (turn - 1)
                assert all(is_full(part, expected) for part in parts)
                assert is_full(reduced, size * expected)
                for r in range(size):
                    assert is_full(gathered[r * COUNT : (r + 1) * COUNT], turn + r)
                dist.all_reduce(values)  # Calls between launches
                assert is_full(values, expected)

        run_ranks(2, body, binds=True)
        run_ranks(2, body, environment={"TORCH_NCCL_BLOCKING_WAIT": "1"}, binds=True)

    def test_a_capture_without_a_mesh_names_the_remedy(self):
        def body(rank, size):
            runtime, values = getattr(torch, DEVICE), full(rank)
            made = runtime.CUDAGraph()
            with self.assertRaisesRegex(RuntimeError, "device_id"), runtime.graph(made):
                dist.all_reduce(values)

        run_ranks(2, body)

    def test_a_coalesced_call_with_a_message_needs_the_host(self):
        def body(rank, size):
            tensor, received = full(rank + 1), full(0)
            parts = [torch.empty(3, COUNT).t() for _ in range(size)]
            group, device = dist.group.WORLD, torch.get_default_device()
            group._start_coalescing(device)
            group.allreduce([tensor])
            group.allgather([parts], [full(rank, 3 * COUNT).view(COUNT, 3)])
            if rank == 0:
                group.send([full(7)], 1, 0)
            else:
                group.recv([received], 0, 0)
            work = group._end_coalescing(device)
            work.wait()
            assert work.is_completed()
            assert is_full(tensor, total(size))
            assert all(is_full(part, number) for number, part in enumerate(parts))
            assert rank == 0 or is_full(received, 7)

        run_ranks(2, body, binds=True)


class Failures(unittest.TestCase):
    def test_wait_with_a_limit_blocks(self):
        def check(work, _):
            with raising(dist.DistBackendError, "has not completed within 200 ms"):
                work.wait(timedelta(milliseconds=200))
            called.tell()
            work.wait(timedelta(seconds=20))
            assert work.is_completed()

        called = Condition()
        run_ranks(2, lambda rank, size: late_all_reduce(rank, size, called, check))

    def test_streams_go_on_after_a_time_out(self):
        def body(rank, size):
            if rank == 1:
                return done.wait()
            work = all_reduce_within(1)
            work.wait()
            assert is_full(full(1), 1)  # The stream waits for the call, and then continues.
            # The work ends shortly after the call.
            with raising(dist.DistBackendError, "rank 1 did not call it"):
                work.wait(timedelta(seconds=20))
            assert work.is_completed()
            with raising(dist.DistBackendError, "rank 1 did not call it"):
                work.wait()
            with raising(dist.DistBackendError, "rank 1 did not call it"):
                dist.all_reduce(full(1), async_op=True).wait(timedelta(seconds=20))
            done.tell()

        done = Condition()
        if DEVICE == "standin":
            run_ranks(2, body, environment=STREAMS_WAIT)
        if CONNECTS_DEVICES:
            run_ranks(2, body, binds=True)

    @only_over_the_stand_in
    def test_streams_go_on_after_an_abort_and_a_death(self):
        def body(rank, size):
            group = dist.new_group()
            if rank == 0:
                first = dist.all_reduce(full(1), group=group, async_op=True)
                second = dist.all_reduce(full(1), async_op=True)
                first.wait()
                called.tell()
                is_full(full(1), 1)
                with raising(dist.DistBackendError, "abort"):
                    first.wait(timedelta(seconds=20))
                second.wait()
                called.tell()
                is_full(full(1), 1)
                with raising(dist.DistBackendError, "rank 1"):
                    second.wait(timedelta(seconds=20))
            else:
                called.wait()
                group._get_backend(torch.get_default_device()).abort()
                called.wait()
                os._exit(1)

        for binds in (False, True):
            called = Condition()
            run_ranks(2, body, killed=(1,), binds=binds, environment=STREAMS_WAIT)

    def test_arguments_are_refused_on_the_spot(self):
        def body(rank, size):
            here, on_host = full(1), torch.ones(COUNT, device="cpu")
            with raising(ValueError, "both must be on one device"):
                dist.all_gather_into_tensor(torch.empty(size * COUNT, device="cpu"), here)
            with raising(ValueError, "all must be on one device"):
                dist.all_gather([here, on_host], here)
            with raising(ValueError, "all must be on one device"):
                dist.all_reduce_coalesced([here, on_host])
            with raising(ValueError, "bitwise"):
                dist.all_reduce(torch.ones(2), dist.ReduceOp.BOR)
            with raising(ValueError, "serves tensors on cpu and cuda"):
                dist.group.WORLD._get_backend(torch.device("cpu")).allreduce(
                    [torch.empty(2, device="meta")]
                )
            dist.all_reduce(here)
            assert is_full(here, size)

        run_ranks(2, body)

    def test_tensors_of_different_kinds_are_a_mismatch(self):
        def body(rank, size):
            for count in (3, COUNT):
                group = dist.new_group()
                place = torch.get_default_device() if rank == 0 else torch.device("cpu")
                tensor = torch.ones(count, device=place)
                with raising(
                    dist.DistBackendError,
                    f"rank 0 calls all_reduce of {count} float32, sum, in device memory, "
                    f"rank 1 calls all_reduce of {count} float32, sum, in host memory",
                ):
                    dist.all_reduce(tensor, group=group)
            dist.barrier()

        run_ranks(2, body)

    def test_without_a_driver_the_call_says_so(self):
        def body(rank, size):
            with raising(NotImplementedError, "no CUDA device"):
                dist.all_reduce(full(1))
            on_host = torch.ones(3, device="cpu")
            dist.all_reduce(on_host)
            assert on_host.tolist() == [size] * 3

        if DEVICE != "standin":
            self.skipTest("the driver of a GPU does not fail")
        # The second initialization of the driver fails. Xylem makes it.
        driver = ctypes.CDLL("libcuda.so.1")
        os.environ["FAKE_CUDA_FAULTS"] = "cuInit:2=100"
        driver.fake_cuda_reset()
        try:
            run_ranks(2, body)
        finally:
            del os.environ["FAKE_CUDA_FAULTS"]
            driver.fake_cuda_reset()


class Training(unittest.TestCase):
    def network(self) -> torch.nn.Module:
        # From the same seed, a device generates other random numbers than the CPU.
        with torch.device("cpu"):
            torch.manual_seed(0)
            return torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 7))

    def data(self, rank: int) -> torch.Tensor:
        generator = torch.Generator("cpu").manual_seed(rank)
        return torch.randn(8, 20, generator=generator, device="cpu")

    def train(self, model, batches) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    def parameters_of_one_process(self, size: int, steps: int) -> list[torch.Tensor]:
        with torch.device("cpu"):
            model = self.network()
            batches = [[self.data(size * step + r) for r in range(size)] for step in range(steps)]
            self.train(model, [torch.cat(batch) for batch in batches])
        return [parameter.detach() for parameter in model.parameters()]

    def check(self, model, size: int, steps: int) -> None:
        for mine, expected in zip(model.parameters(), self.parameters_of_one_process(size, steps)):
            whole = mine.full_tensor() if hasattr(mine, "full_tensor") else mine
            torch.testing.assert_close(whole.detach().cpu(), expected, rtol=1e-5, atol=1e-6)

    def test_ddp(self):
        def body(rank, size):
            for hook in (None, allreduce_hook):
                model = copy.deepcopy(self.network()).to(torch.get_default_device())
                # Small buckets, so that several calls are under way at once.
                wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.002)
                if hook:
                    wrapped.register_comm_hook(None, hook)
                device = torch.get_default_device()
                self.train(wrapped, [self.data(size * step + rank).to(device) for step in range(3)])
                self.check(model, size, 3)

        run_ranks(2, body)

    def test_fsdp(self):
        def body(rank, size):
            device = torch.get_default_device()
            model = self.network().to(device)
            mesh = init_device_mesh(DEVICE, (size,))
            for layer in (model[0], model[2], model):
                fully_shard(layer, mesh=mesh)
            self.train(model, [self.data(size * step + rank).to(device) for step in range(3)])
            self.check(model, size, 3)

        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main(verbosity=2)
