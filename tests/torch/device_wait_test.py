# SPDX-License-Identifier: Apache-2.0
"""Tensors on a device: whether threads or streams wait, the calls of a mesh, and the lifetime of
tensors.

TEST_DEVICE=standin python device_wait_test.py [-k PATTERN]
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
import unittest
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

from device_test import (
    CONNECTS_DEVICES,
    COUNT,
    STREAMS_WAIT,
    full,
    has_called,
    is_full,
    stream,
    total,
)
from ranks import DEVICE, Condition, raising, run_ranks


def cuda(function: str, *arguments) -> None:
    assert getattr(ctypes.CDLL("libcuda.so.1"), function)(*arguments) == 0, function


def free_memory() -> int:
    """Returns the free bytes of the current device."""
    free, total_bytes = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total_bytes))
    return free.value


class Waiter(threading.Thread):
    """Calls wait() of a work on a new thread, and stores the exception that it raises."""

    def __init__(self, work):
        super().__init__()
        self.work, self.error, self.is_waiting = work, None, threading.Event()
        self.index = getattr(torch, DEVICE).current_device()
        self.start()

    def run(self):
        getattr(torch, DEVICE).set_device(self.index)
        self.is_waiting.set()
        try:
            self.work.wait()
        except Exception as error:
            self.error = error

    def returns(self) -> bool:
        """True if wait() returns although another rank has not called."""
        self.join(Condition.DEADLINE)
        return not self.is_alive()

    def blocks(self) -> bool:
        """True if wait() has not returned some time after it was called."""
        self.is_waiting.wait()
        self.join(0.3)
        return self.is_alive()


def late_all_reduce(called: Condition, rank: int, size: int, check) -> None:
    """Makes an all_reduce. Rank 1 makes it after rank 0 has run check(work, waiter)."""
    tensor = full(rank + 1)
    if rank == 1:
        called.wait()
    work = dist.all_reduce(tensor, async_op=True)
    if rank == 0:
        waiter = Waiter(work)
        check(work, waiter)
        called.tell()
        waiter.join()
    work.wait(timedelta(seconds=20))
    assert is_full(tensor, total(size))


class Threads(unittest.TestCase):
    def test_every_stream_sees_the_result_after_a_wait(self):
        def body(rank, size):
            for number in range(10):
                tensor = full(rank + number)
                dist.all_reduce(tensor)
                with stream():  # This stream waits for nothing.
                    assert is_full(tensor, total(size) - size + size * number)

        run_ranks(2, body)

    def test_the_values_of_the_variable(self):
        from xylem._backend import _blocking_wait, native

        before = dict(os.environ)
        try:
            for ways, values in (
                (native.BlockingWait.always, ("1", "true", "yes", "on", "y", "t", "TRUE")),
                (native.BlockingWait.never, ("0", "false", "no", "off", "n", "f", "Off")),
                (native.BlockingWait.by_need, ("",)),
            ):
                for value in values:
                    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = value
                    self.assertEqual(_blocking_wait(), ways, value)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def test_without_the_progress_thread_threads_wait(self):
        called = Condition()

        def check(work, waiter):
            assert waiter.blocks()

        def body(rank, size):
            late_all_reduce(called, rank, size, check)

        run_ranks(2, body, binds=True, environment={"XYLEM_PROGRESS_THREAD": "off", **STREAMS_WAIT})

    def test_with_one_hardware_queue_threads_wait(self):
        called = Condition()

        def by_default(work, waiter):
            assert waiter.blocks() and not work.is_completed()

        def refused(work, waiter):
            assert waiter.returns() and isinstance(waiter.error, NotImplementedError)
            assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in str(waiter.error)

        for check, environment in ((by_default, {}), (refused, STREAMS_WAIT)):
            run_ranks(
                2,
                lambda rank, size: late_all_reduce(called, rank, size, check),
                binds=True,
                environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1", **environment},
            )

    def test_a_barrier_blocks_the_thread_in_any_case(self):
        called = Condition()

        def body(rank, size):
            if rank == 1:
                called.wait()
            work = dist.barrier(async_op=True)
            if rank == 0:
                waiter = Waiter(work)
                assert waiter.blocks()
                called.tell()
                waiter.join()
            work.wait()

        run_ranks(2, body, environment=STREAMS_WAIT)


@unittest.skipUnless(CONNECTS_DEVICES, "this torch connects no devices")
class Bound(unittest.TestCase):
    def test_what_runs_on_a_mesh(self):
        """Streams wait for all collectives except barriers."""
        called = Condition()

        def body(rank, size):
            def parts(uneven=0):
                return [full(1, 64 + r * uneven) for r in range(size)]

            mine, whole = full(1, 64), full(1, 64 * size)
            on_mesh = {
                "all_reduce": lambda: dist.all_reduce(mine, async_op=True),
                "broadcast": lambda: dist.broadcast(mine, 1, async_op=True),
                "reduce": lambda: dist.reduce(mine, 0, async_op=True),
                "all_gather": lambda: dist.all_gather(parts(), mine, async_op=True),
                "uneven all_gather": lambda: dist.all_gather(parts(7), full(1, 64 + 7 * rank), async_op=True),
                "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, mine, async_op=True),
                "gather": lambda: dist.gather(mine, parts() if rank == 0 else None, 0, async_op=True),
                "scatter": lambda: dist.scatter(mine, parts() if rank == 1 else None, 1, async_op=True),
                "reduce_scatter": lambda: dist.reduce_scatter(mine, parts(), async_op=True),
                "uneven reduce_scatter": lambda: dist.reduce_scatter(
                    full(1, 64 + 7 * rank), parts(7), async_op=True
                ),
                "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(mine, whole, async_op=True),
                "all_to_all_single": lambda: dist.all_to_all_single(full(1, 64 * size), whole, async_op=True),
            }
            splits = [64] * size
            on_mesh["all_to_all"] = lambda: dist.all_to_all(parts(), parts(), async_op=True)
            on_mesh["all_to_all_single with splits"] = lambda: dist.all_to_all_single(
                full(1, 64 * size), whole, splits, splits, async_op=True
            )
            off_mesh = {
                "barrier": lambda: dist.barrier(async_op=True),
                "recv": lambda: dist.irecv(mine, 1) if rank == 0 else dist.isend(mine, 0),
            }
            for name, call in {**on_mesh, **off_mesh}.items():
                if rank == 1:
                    called.wait()
                work = call()
                if rank == 0:
                    waiter = Waiter(work)
                    assert waiter.returns() if name in on_mesh else waiter.blocks(), name
                    assert not work.is_completed(), name
                    assert name not in on_mesh or work.get_future().done(), name
                    called.tell()
                    waiter.join()
                work.wait(timedelta(seconds=20))

        run_ranks(2, body, binds=True)

    def test_groups_form_meshes_by_themselves(self):
        """Without device_id, the first calls run without the mesh."""
        called = Condition()

        def body(rank, size):
            groups = [dist.group.WORLD, dist.new_group()]
            tensor = full(1, 64)
            for _ in range(1000):
                for group in groups:
                    dist.all_reduce(tensor.fill_(rank), group=group)
                    assert tensor[0].item() == 1
            for group in groups:
                if rank == 1:
                    called.wait()
                work = dist.all_reduce(tensor, group=group, async_op=True)
                if rank == 0:
                    waiter = Waiter(work)
                    assert waiter.returns()
                    assert not work.is_completed()
                    called.tell()
                    waiter.join()
                work.wait(timedelta(seconds=20))

        run_ranks(2, body)

    def test_devices_are_made_ready_when_they_are_bound(self):
        def body(rank, size):
            early = has_called("cuLibraryLoadData")
            dist.all_reduce(full(1))
            assert has_called("cuLibraryLoadData")
            return early

        if DEVICE == "standin":
            self.assertEqual(run_ranks(2, body, binds=True), [True, True])
            self.assertEqual(run_ranks(2, body), [False, False])

    def test_a_mesh_takes_16_mib(self):
        def body(rank, size):
            tensor = full(1)
            for _ in range(3):
                dist.all_reduce(tensor)
                before = free_memory()
                dist.all_reduce(tensor, group=dist.new_group())
                assert 16 << 20 <= before - free_memory() <= 17 << 20

        run_ranks(2, body, binds=True)

    def test_ranks_with_other_memory_are_a_mismatch(self):
        def body(rank, size):
            on_host = torch.ones(COUNT, device="cpu")
            dist.all_reduce(on_host)  # No rank passes a tensor on a device.
            assert is_full(on_host, size)
            with raising(dist.DistBackendError, "mismatch.*on a stream"):
                work = dist.all_reduce(full(1) if rank == 0 else on_host, async_op=True)
                work.wait(timedelta(seconds=20))

        run_ranks(2, body, binds=True)

    def test_inputs_are_not_kept_after_a_wait(self):
        called = Condition()

        def body(rank, size):
            output, tensor = full(0, size * COUNT), full(rank)
            kept = weakref.ref(tensor.untyped_storage())
            if rank == 1:
                called.wait()
            work = dist.all_gather_into_tensor(output, tensor, async_op=True)
            del tensor
            if rank == 0:
                gc.collect()
                assert kept() is not None
                work.wait()
                gc.collect()
                assert kept() is None and not work.is_completed()
                torch.empty(COUNT)  # Reuses the memory and overwrites it.
                called.tell()
            work.wait()
            assert all(is_full(output[r * COUNT : (r + 1) * COUNT], r) for r in range(size))

        run_ranks(2, body, binds=True)

    def test_a_group_ends_after_the_calls_for_which_streams_wait(self):
        destroying = Condition()

        def body(rank, size):
            group = dist.new_group()
            tensor = full(rank + 1)
            dist.all_reduce(full(1), group=group)
            if rank == 1:
                destroying.wait()
                # Longer than a group that is being destroyed waits for other calls.
                time.sleep(6)
            dist.all_reduce(tensor, group=group, async_op=True).wait()
            if rank == 0:
                destroying.tell()
            dist.destroy_process_group(group)
            assert is_full(tensor, total(size))

        run_ranks(2, body, binds=True)

    def test_a_backward_pass_returns_before_the_buckets_are_reduced(self):
        returned = Condition()

        def body(rank, size):
            layer = torch.nn.Linear(20, 30, device="cpu").to(torch.get_default_device())
            model = torch.nn.parallel.DistributedDataParallel(layer, gradient_as_bucket_view=True)
            loss = model(torch.ones(4, 20)).square().mean()
            if rank == 1:
                returned.wait()
            loss.backward()
            if rank == 0:
                returned.tell()
            gradients = [torch.empty_like(layer.weight.grad) for _ in range(size)]
            dist.all_gather(gradients, layer.weight.grad)
            assert torch.equal(gradients[0].cpu(), gradients[1].cpu())

        run_ranks(2, body, binds=True)


if __name__ == "__main__":
    unittest.main(verbosity=1)
