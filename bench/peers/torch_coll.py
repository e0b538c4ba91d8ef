# SPDX-License-Identifier: Apache-2.0
"""Times torch.distributed over Gloo in the way mpi_coll times MPI, for bench/compare.

  torch_coll.py RANKS [--in-place] OPERATION SIZE...

Starts its own ranks, each with one thread for arithmetic, which use TCP on the loopback interface.
torch's all_reduce, reduce and broadcast have one buffer, so they are in place with and without
--in-place; the input of a broadcast is the root's buffer. all_gather takes a list of outputs, which
are views of one tensor here. Sizes, samples and rows are those of mpi_coll.
"""

import os
import sys
import tempfile
import time
from datetime import timedelta

FEWEST_CALLS, MOST_CALLS = 5, 20000
ROW_SECONDS = 0.2


class Rank:
    """One rank. Only ranks import torch: the process that forks them must have no other threads."""

    def __init__(self, rank, ranks, in_place, store):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        import torch
        import torch.distributed
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.ranks, self.in_place = rank, ranks, in_place
        torch.set_num_threads(1)
        self.dist.init_process_group("gloo", store=self.dist.FileStore(store, ranks), rank=rank,
                                     world_size=ranks, timeout=timedelta(seconds=60))

    def value(self, source, count):
        """Small whole numbers, so that sums over ranks are exact in float32 in any order."""
        bits = self.torch.arange(count, dtype=self.torch.int64).mul_(2654435761)
        bits.bitwise_and_(0xffffffff).bitwise_xor_((source + 1) * 2246822519 & 0xffffffff)
        return bits.bitwise_xor_(bits >> 15).remainder_(61).float()

    def call_of(self, operation):
        dist, source, out = self.dist, self.source, self.out
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        parts = list(out.chunk(self.ranks))
        given = parts[self.rank] if operation == "all_gather" and self.in_place else source

        def send_recv():
            received, sent = dist.irecv(out, before), dist.isend(source, after)
            received.wait()
            sent.wait()

        return {"all_reduce": lambda: dist.all_reduce(out),
                "reduce": lambda: dist.reduce(out, 0),
                "broadcast": lambda: dist.broadcast(out, 0),
                "all_gather": lambda: dist.all_gather(parts, given),
                "send_recv": send_recv}[operation]

    def right(self, operation):
        """The right output; None on ranks that have no output."""
        ranks, count = self.ranks, len(self.source)
        if operation == "all_gather":
            return self.torch.cat([self.value(source, count) for source in range(ranks)])
        if operation == "broadcast":
            return self.value(0, count)
        if operation == "send_recv":
            return self.value((self.rank - 1) % ranks, count)
        if operation == "reduce" and self.rank != 0:
            return None
        return sum(self.value(source, count) for source in range(ranks))

    def prepare(self, operation):
        """Fills the buffers for a checked call."""
        self.source.copy_(self.value(self.rank, len(self.source)))
        self.out.fill_(-1)  # Never a right value.
        if operation == "all_gather" and self.in_place:
            self.out.chunk(self.ranks)[self.rank].copy_(self.source)
        elif operation in ("all_reduce", "reduce") or operation == "broadcast" and self.rank == 0:
            self.out.copy_(self.source)

    def check(self, operation, call):
        """Makes one checked call. Returns the number of wrong elements on all ranks."""
        self.prepare(operation)
        call()
        expected = self.right(operation)
        wrong = 0 if expected is None else int((self.out != expected).sum())
        wrong = self.torch.tensor([wrong], dtype=self.torch.int64)
        self.dist.all_reduce(wrong)
        return int(wrong)

    def time(self, call):
        """Makes calls in growing batches until rank 0 stops. Returns the slowest rank's samples."""
        samples, batch, start = [], 1, time.perf_counter()
        while batch > 0:
            for _ in range(batch):
                self.dist.barrier()
                before = time.perf_counter()
                call()
                samples.append((time.perf_counter() - before) * 1e6)
            done = len(samples)
            batch = min(done, MOST_CALLS - done)
            if time.perf_counter() - start > ROW_SECONDS:
                batch = max(0, FEWEST_CALLS - done)
            said = self.torch.tensor([batch], dtype=self.torch.int64)
            self.dist.broadcast(said, 0)
            batch = int(said)
        slowest = self.torch.tensor(samples, dtype=self.torch.float64)
        self.dist.all_reduce(slowest, self.dist.ReduceOp.MAX)
        return sorted(slowest.tolist())

    def measure(self, operation, size):
        shares = self.ranks if operation == "all_gather" else 1
        count = max(size // 4 // shares, 1)
        self.source = self.torch.zeros(count)
        self.out = self.torch.zeros(count * shares)
        call = self.call_of(operation)
        wrong = self.check(operation, call)
        for _ in range(20 if size <= 64 * 1024 else 3):
            call()
        samples = self.time(call)
        wrong += self.check(operation, call)
        if self.rank == 0:
            done = len(samples)
            p50 = (samples[done // 2] + samples[(done - 1) // 2]) / 2
            print(f"{operation} {count * shares * 4} {done} {samples[0]:.3f} {p50:.3f} "
                  f"{samples[(done * 99 + 99) // 100 - 1]:.3f} {wrong}", flush=True)


def run_rank(rank, ranks, in_place, store, operation, sizes):
    try:
        place = Rank(rank, ranks, in_place, store)
        for size in sizes:
            place.measure(operation, size)
        place.dist.destroy_process_group()
        return 0
    except BaseException as error:  # No exception of a child may reach the parent's code.
        print(f"torch_coll: rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
        return 4


def main(arguments):
    in_place = "--in-place" in arguments[1:2]
    rest = arguments[2 if in_place else 1:]
    if len(rest) < 2 or not all(text.isdigit() for text in [arguments[0], *rest[1:]]):
        print("usage: torch_coll.py RANKS [--in-place] OPERATION SIZE...", file=sys.stderr)
        return 2
    ranks, operation, sizes = int(arguments[0]), rest[0], [int(text) for text in rest[1:]]
    if operation not in ("all_reduce", "reduce", "broadcast", "all_gather", "send_recv"):
        return 3
    worst = 0
    with tempfile.TemporaryDirectory(prefix="torch_coll-") as directory:
        store = os.path.join(directory, "store")
        for rank in range(ranks):
            if os.fork() == 0:
                os._exit(run_rank(rank, ranks, in_place, store, operation, sizes))
        for _ in range(ranks):
            worst = max(worst, abs(os.waitstatus_to_exitcode(os.wait()[1])))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
