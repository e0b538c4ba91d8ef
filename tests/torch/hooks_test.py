# SPDX-License-Identifier: Apache-2.0
"""Training with the communication hooks of torch, whose callbacks call further collectives.

The same training runs on gloo, with a wait after every call of a hook: then all callbacks run in the
order of the calls. Without these waits gloo's ranks may order the calls differently.

    python hooks_test.py [-k PATTERN]
"""

from __future__ import annotations

import contextlib
import threading
import unittest
from unittest import mock

import torch
import torch._dynamo  # DistributedDataParallel imports it, which takes seconds, and each rank is forked.
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (
    ddp_zero_hook,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from ranks import DEVICE, raising, run_ranks

STEPS, WIDTH = 12, 60
# gloo's destructor holds the GIL while it waits for a thread that may need the GIL (observed in
# torch 2.7). So groups of gloo are kept until the process ends.
kept: list[dist.ProcessGroup] = []


@contextlib.contextmanager
def waiting():
    """While it is active, every asynchronous all_reduce and broadcast waits before it returns."""

    def with_wait(call):
        def waited(*arguments, **options):
            work = call(*arguments, **options)
            if work is not None:
                work.wait()
            return work

        return waited

    with mock.patch.object(dist, "all_reduce", with_wait(dist.all_reduce)), mock.patch.object(
        dist, "broadcast", with_wait(dist.broadcast)
    ):
        yield


def model_of(layers: int) -> torch.nn.Module:
    torch.manual_seed(layers)
    return torch.nn.Sequential(
        *[m for _ in range(layers) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    )


def train(rank: int, group, layers: int, buckets: int, prepare) -> torch.Tensor:
    """Returns the parameters after some steps. `prepare(model, group)` adds the hook, and returns
    the optimizer.
    """
    whole = model_of(layers)
    megabytes = 4 * sum(p.numel() for p in whole.parameters()) / 2**20
    model = DistributedDataParallel(
        whole, process_group=group, bucket_cap_mb=megabytes / buckets * 0.99
    )
    optimizer = prepare(model, group)
    generator = torch.Generator().manual_seed(1000 + rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(8, WIDTH, generator=generator)).pow(2).mean().backward()
        if not isinstance(optimizer, ZeroRedundancyOptimizer):  # Its hook makes the steps.
            optimizer.step()
    return torch.cat([p.detach().flatten() for p in whole.parameters()])


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def power_sgd(rank, warm_start, hook=powerSGD_hook.powerSGD_hook):
    def prepare(model, group):
        state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=rank, start_powerSGD_iter=2, warm_start=warm_start,
            min_compression_rate=1,
        )
        model.register_comm_hook(state, hook)
        return sgd(model)

    return prepare


def with_hook(hook):
    def prepare(model, group):
        model.register_comm_hook(group, hook)
        return sgd(model)

    return prepare


def post_local_sgd(model, group):
    state = post_localSGD_hook.PostLocalSGDState(group, group, start_localSGD_iter=4)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=3, warmup_steps=4, process_group=group)
    inner = sgd(model)

    class Averaging:
        def zero_grad(self):
            inner.zero_grad()

        def step(self):
            inner.step()
            averager.average_parameters(model.parameters())

    return Averaging()


class Late:
    """An optimizer whose first steps do nothing, like those of the overlapping
    ZeroRedundancyOptimizer.
    """

    SKIPPED = 2

    def __init__(self, inner):
        self.inner, self.steps = inner, 0

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self):
        self.steps += 1
        if self.steps > self.SKIPPED:
            self.inner.step()


def zero_with_overlap(model, group):
    if dist.get_backend(group) == "gloo":  # Torch refuses the overlap with gloo.
        return Late(sgd(model))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, process_group=group, overlap_with_ddp=True, lr=0.1
    )
    hook = ddp_zero_hook.hook_with_zero_step(default_hooks.allreduce_hook, model, optimizer)
    model.register_comm_hook(None, hook)
    return optimizer


class Hooks(unittest.TestCase):
    def check(self, prepare, layers: int = 8, buckets: int = 4) -> None:
        """Trains on 2 and 3 ranks, with xylem and gloo. Sums of 2 numbers have the same bits."""

        def body(rank, size):
            gloo = dist.new_group(backend="gloo")
            kept.append(gloo)
            mine = train(rank, dist.group.WORLD, layers, buckets, prepare)
            with waiting():
                reference = train(rank, gloo, layers, buckets, prepare)
            assert mine.isfinite().all()
            assert not torch.equal(mine, torch.cat([p.flatten() for p in model_of(layers).parameters()]))
            if size == 2:
                assert torch.equal(mine, reference), (mine - reference).abs().max()
            else:
                torch.testing.assert_close(mine, reference, rtol=1e-3, atol=1e-4)
            dist.barrier()

        for size in (2, 3):
            with self.subTest(size=size):
                run_ranks(size, body)

    def test_power_sgd(self):
        for rank, warm_start, layers, buckets in (
            # Without the warm start, torch's hook can train only one bucket.
            (1, True, 3, 3), (1, False, 8, 1), (2, True, 16, 8), (2, True, 30, 30),
        ):
            with self.subTest(rank=rank, warm_start=warm_start, buckets=buckets):
                self.check(power_sgd(rank, warm_start), layers, buckets)

    def test_halves(self):
        self.check(with_hook(default_hooks.fp16_compress_hook))
        self.check(with_hook(default_hooks.bf16_compress_hook))

    def test_post_local_sgd(self):
        self.check(post_local_sgd)

    def test_zero_with_overlap(self):
        if torch.__version__.startswith("2.7."):
            self.skipTest("this torch refuses the overlap with any backend but nccl")
        self.check(zero_with_overlap)


class Order(unittest.TestCase):
    """Callbacks call collectives while the program calls collectives on the same group."""

    def test_callbacks_beside_the_program(self):
        def body(rank, size):
            def chain(number):
                tensor = torch.full((5,), float(rank), device="cpu")

                def again(future):
                    value = future.value()[0] + number
                    work = dist.all_reduce(value, async_op=True)
                    return work.get_future().wait()[0]

                future = dist.all_reduce(tensor, async_op=True).get_future()
                if number % 3 == rank:  # Some ranks attach callbacks to complete futures.
                    future.wait()
                return future.then(again).then(lambda f: f.value() * 2)

            for _ in range(20):
                futures = [chain(number) for number in range(10)]
                sums = [torch.full((5,), 1.0, device="cpu") for _ in range(10)]
                for tensor in sums:
                    dist.all_reduce(tensor)
                total = sum(range(size))
                for number, future in enumerate(futures):
                    expected = 2 * size * (total + number)
                    assert future.wait().tolist() == [expected] * 5, (number, future.value(), expected)
                assert all(tensor.tolist() == [size] * 5 for tensor in sums)

        run_ranks(3, body)

    def test_callbacks_of_callbacks(self):
        def body(rank, size):
            seen = threading.Event()
            result = []

            def after(depth):
                def callback(future):
                    value = future.value()[0]
                    if depth == 6:
                        result.append(value)
                        return seen.set()
                    dist.all_reduce(value, async_op=True).get_future().then(after(depth + 1))

                return callback

            ones = torch.ones(3, device="cpu")
            dist.all_reduce(ones, async_op=True).get_future().then(after(1))
            for _ in range(30):
                dist.all_reduce(torch.ones(1, device="cpu"))
            assert seen.wait(30)
            assert result[0].tolist() == [float(size) ** 6] * 3

        run_ranks(3, body)

    def test_kinds_of_calls_in_callbacks(self):
        def body(rank, size):
            def callback(future):
                flat = torch.zeros(size, device="cpu")
                dist.all_gather_into_tensor(flat, torch.tensor([float(rank)], device="cpu"))
                dist.broadcast(flat, src=1)
                dist.barrier()
                part = torch.zeros(1, device="cpu")
                dist.reduce_scatter_tensor(part, flat)
                if rank == 0:
                    dist.send(part, 1)
                elif rank == 1:
                    dist.recv(part, 0)
                return part

            futures = []
            for _ in range(10):
                work = dist.all_reduce(torch.ones(1, device="cpu"), async_op=True)
                futures.append(work.get_future().then(callback))
                dist.barrier()
            for future in futures:
                assert future.wait().item() == (0 if rank < 2 else rank * size)

        run_ranks(3, body)

    def test_records_tell_calls_in_callbacks_apart(self):
        def body(rank, size):
            import xylem

            futures = []
            for i in range(6):
                work = dist.all_reduce(torch.ones(2 + i, device="cpu"), async_op=True)
                if i % 2 == rank:
                    work.wait()
                futures.append(
                    work.get_future().then(lambda _: dist.all_reduce(torch.ones(1, device="cpu")))
                )
            for future in futures:
                future.wait()
            lines = {"0": [], "0/callbacks": []}
            for entry in xylem.record()["entries"]:
                line = lines[entry["process_group"][0]]
                line.append((entry["collective_seq_id"], entry["input_sizes"]))
            first = lines["0"][0][0]
            assert lines["0"] == [(first + i, [[2 + i]]) for i in range(6)], lines
            assert lines["0/callbacks"] == [(1 + i, [[1]]) for i in range(6)], lines

        run_ranks(2, body)

    def test_an_error_in_a_callback_ends_the_group(self):
        def body(rank, size):
            def callback(future):
                dist.all_reduce(torch.ones(2 + rank, device="cpu"))

            future = dist.all_reduce(torch.ones(1, device="cpu"), async_op=True).get_future()
            failed = future.then(callback)
            with raising(RuntimeError, "mismatch.*the companion of communicator 0"):
                failed.wait()
            with raising(dist.DistBackendError, "mismatch"):
                dist.barrier()

        run_ranks(2, body)

    def test_every_way_to_attach_a_callback(self):
        """Calls in callbacks of then() and add_done_callback(), and of futures that then() has
        returned.
        """

        def body(rank, size):
            def again(future):
                value = future.value()
                value = (value[0] if isinstance(value, list) else value) + 1
                dist.all_reduce(value)
                return value

            for turn in range(20):
                done, added = threading.Event(), []

                def add(future):
                    added.append(again(future))
                    done.set()

                work = dist.all_reduce(torch.ones(3, device="cpu"), async_op=True)
                if turn % size == rank:
                    work.wait()  # All callbacks then run when they are attached, on this thread.
                first = work.get_future().then(again)
                second = first.then(again)
                dist.all_reduce(torch.zeros(1 + turn, device="cpu"))
                assert second.wait().tolist() == [(size**2 + size) * size + size] * 3, second.value()
                work = dist.all_reduce(torch.ones(3, device="cpu"), async_op=True)
                if turn % size == rank:
                    work.wait()
                work.get_future().add_done_callback(add)
                dist.all_reduce(torch.zeros(1 + turn, device="cpu"))
                assert done.wait(20)
                assert added[0].tolist() == [size**2 + size] * 3, added

        run_ranks(3, body)


if __name__ == "__main__":
    if DEVICE != "cpu":
        raise SystemExit("hooks_test.py trains on the CPU: unset TEST_DEVICE")
    unittest.main(verbosity=2)
