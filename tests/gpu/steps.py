# SPDX-License-Identifier: Apache-2.0
"""The tests, measurements and questions for a machine with a GPU, as two plans. The steps of a plan
are in the order of importance.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Callable, Iterator, Optional

from runner import Missing, Runner, Trouble

PARTS = MACHINE, CONFORMANCE, QUESTIONS, RATES, TORCH, SANITIZER = (
    "machine", "conformance", "questions", "benchmarks", "torch", "sanitizer")
PLANS = DECIDE, CONFIRM, ALL = ("decide", "confirm", "all")
FORMATS = {"json": "json", "tree": "txt", "matrix": "txt", "xml": "xml", "nccl": "xml"}
OPERATIONS, OPERATIONS_ON_STREAM = 15, 13
KIB, MIB = 1 << 10, 1 << 20
# Targets of the figures.
KERNEL_SHARE, ALL_REDUCE_SHARE, MESSAGE_SHARE, SMALL_CALL_US, FUSED_CALL_US = 90, 80, 85, 15, 10


@dataclass(frozen=True)
class Sizes:
    """The sizes of the runs. With the stand-in, they are small, and only show that the steps work.
    """

    large: int  # Bytes of a large call.
    larger: list[int]  # Bytes of large calls of ranks that are threads.
    small: list[int]  # Bytes of small calls.
    turn: int  # Calls of small size in a turn.
    large_turn: int
    cpu: str  # Sizes of calls between CPUs.
    ranks_on_cpu: int
    training: list[str]  # Options of bench/torch/steps.py.
    training_ranks: int
    flags: list[str]  # Options of xylem bench.
    kernels: str  # The tests of kernels, as a filter of GoogleTest.
    calls: str  # The tests of calls, as a filter of GoogleTest.
    suite: list[str]  # PyTorch's own tests.
    patience: float = 1  # Factor for all deadlines.


ON_GPU = Sizes(
    large=256 * MIB, larger=[MIB, 16 * MIB, 256 * MIB], small=[8, 512, 4 * KIB, 64 * KIB], turn=200, large_turn=3,
    cpu="8,64K,1M,64M", ranks_on_cpu=min(16, os.cpu_count() or 1),
    training=["--threads", "2", "--batch", "8", "--rounds", "15", "--ways", "ddp,ddp_view,fsdp2"],
    training_ranks=max(2, min(8, (os.cpu_count() or 1) // 2)), flags=[], kernels="*", calls="*",
    suite=["test_all_gather*", "test_all_reduce_sum*", "test_all_reduce_max*", "test_all_to_all*",
           "test_reduce_sum*", "test_broadcast*", "test_send_recv*", "test_isend", "test_irecv",
           "test_barrier_full_group", "test_get_future"])
ON_STAND_IN = Sizes(
    large=64 * KIB, larger=[64 * KIB], small=[8, 4 * KIB], turn=3, large_turn=2, cpu="8", ranks_on_cpu=2,
    training=["--rounds", "1", "--ways", "ddp"], training_ranks=2,
    flags=["--iters", "2", "--warmup", "1"], kernels="*float16*:*uint8*:-*AllPairs*",
    calls="*/all_reduce*",
    suite=["test_all_reduce_sum", "test_get_future"], patience=2)

# For ranks that are threads: their streams share the hardware queues of one GPU. Two streams of
# each of the five ranks wait. With 32 queues, 12 streams can wait on an H200 (README.md). With 13
# queues, 12 streams can wait on the stand-in.
MANY_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", "FAKE_CUDA_QUEUES": "13"}
# Small calls of bound devices are one kernel, as if each rank had a GPU of its own.
FUSED = {"TEST_FUSED": "1"}


class Steps:
    """All steps. `place` is the unpacked directory that check --prepare has made."""

    def __init__(self, runner: Runner, place: str, sizes: Sizes, stand_in: Optional[str],
                 python: Optional[str]):
        self.runner, self.place, self.sizes = runner, place, sizes
        self.stand_in, self.python = stand_in, python
        self.copied: Optional[float] = None  # GB/s that a copy within the device reads and writes.
        self.suffix = ""  # Suffix for the names of steps that run under MPS.

    def program(self, name: str) -> str:
        return os.path.join(self.place, "bin", name)

    def step(self, group: str, name: str, seconds: float, act: Callable[[], None]) -> None:
        self.runner.step(group, name, seconds * self.sizes.patience, act)

    def only_on_gpu(self, what: str) -> None:
        if self.stand_in:
            raise Missing(f"{what} needs a GPU")

    def run(self, plan: str) -> None:
        if plan in (DECIDE, ALL):
            self.decide()
        if plan in (CONFIRM, ALL):
            self.confirm()

    def decide(self) -> None:
        """What the design of calls on devices depends on: where their time goes."""
        step = self.step
        step(MACHINE, "the driver and the GPU", 30, self.describe_gpu)
        step(QUESTIONS, "attributes", 10, lambda: self.ask("attributes"))
        step(RATES, "copies within the device", 20, self.measure_copies)
        step(RATES, "large all_reduce, 4 ranks as threads", 60, self.measure_large_threads)
        step(RATES, "small all_reduce, 2 ranks as threads", 40, self.measure_small_threads)
        step(RATES, "small all_reduce by one kernel, 2 ranks as threads", 40,
             self.measure_fused_threads)
        step(RATES, "calls of the driver, and words that streams wait for", 30,
             self.measure_latencies)
        self.measure_under_mps()
        self.measure_processes()
        step(RATES, "reduction kernels", 30, self.measure_kernels)
        step(TORCH, "streams, futures, errors, DDP and FSDP", 120,
             lambda: self.torch("device_test.py"))

    def confirm(self) -> None:
        """Whether results are right, and whether the driver behaves as it did."""
        step = self.step
        step(MACHINE, "the driver and the GPU", 30, self.describe_gpu)
        step(MACHINE, "captured topology", 30, self.capture_topology)
        for name in ("cuda_memory_test", "cuda_streams_test", "cuda_direct_test",
                     "cuda_agreement_test", "cuda_mesh_streams_test", "cuda_mesh_direct_test"):
            step(CONFORMANCE, name, 60, lambda name=name: self.run_tests(name))
        for name in ("cuda_mesh_streams_test", "cuda_mesh_direct_test"):
            step(CONFORMANCE, name + ", by one kernel", 60,
                 lambda name=name: self.run_tests(name, environment=FUSED))
        step(SANITIZER, "memcheck of the kernels", 60,
             lambda: self.sanitize("memcheck", "cuda_kernels_test", "*bfloat16*:*uint8*:*Scale*"))
        # Only kernels of meshes use memory that the threads of a block share.
        step(SANITIZER, "racecheck of the kernels of meshes", 40,
             lambda: self.sanitize("racecheck", "cuda_mesh_direct_test", "*"))
        step(SANITIZER, "memcheck of a conformance run", 40,
             lambda: self.sanitize("memcheck", "cuda_direct_test", "*/1:*/2"))
        step(CONFORMANCE, "device kernels against the CPU's, bit for bit", 120, self.test_kernels)
        step(CONFORMANCE, "the C interface, two processes", 30, self.test_c)
        step(CONFORMANCE, "every operation, processes", 60, self.bench_operations)
        step(CONFORMANCE, "every operation on streams, processes", 60, self.bench_on_streams)
        step(CONFORMANCE, "every algorithm, ranks as threads", 180,
             lambda: self.run_tests("cuda_test", self.sizes.calls))
        step(CONFORMANCE, "every algorithm of bound devices, ranks as threads", 90,
             lambda: self.run_tests("cuda_mesh_test", self.sizes.calls))
        step(TORCH, "all operations", 90, lambda: self.torch("collectives_test.py"))
        step(TORCH, "PyTorch's own tests", 120, self.test_suite)
        for question, seconds in [("progress", 60), ("calls", 60), ("threads", 30), ("queues", 30),
                                  ("behind", 20), ("room", 30), ("exporter", 90)]:
            step(QUESTIONS, question, seconds, lambda question=question: self.ask(question))
        one_queue = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "FAKE_CUDA_QUEUES": "1"}
        step(QUESTIONS, "progress, with CUDA_DEVICE_MAX_CONNECTIONS=1", 60,
             lambda: self.ask("progress", one_queue))
        step(RATES, "training between CPUs, beside Gloo", 90, self.measure_training)
        step(RATES, "all_reduce between CPUs, beside Gloo", 120, self.compare_on_cpu)
        for name in ("float16", "bfloat16"):
            step(CONFORMANCE, f"kernels: all pairs of {name}", 120,
                 lambda name=name: self.test_all_pairs(name))

    # --- machine -------------------------------------------------------------------------------

    def describe_gpu(self) -> None:
        facts = self.runner.facts
        if self.stand_in:
            facts["GPU"] = "none; a stand-in for the driver, so no figure means anything"
            facts["driver"] = "the stand-in"
            self.runner.command([self.program("gpu_questions"), "room"])
            return
        if not shutil.which("nvidia-smi"):
            raise Trouble("there is no nvidia-smi, so nothing tells the GPU's name")
        line = self.runner.command(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                                    "--format=csv,noheader"]).strip()
        facts["GPU"] = "; ".join(",".join(row.split(",")[::2]) for row in line.splitlines())
        facts["driver"] = line.splitlines()[0].split(",")[1].strip()
        self.runner.keep("nvidia-smi.txt", self.runner.command(["nvidia-smi", "-q"]))

    def capture_topology(self) -> None:
        texts = []
        for name, extension in FORMATS.items():
            text = self.runner.command([self.program("xylem"), "topo", "--format", name])
            if name in ("json", "xml"):
                self.runner.keep(f"topology.{extension}", text)
            else:
                texts.append(f"=== {name}\n{text}")
        if shutil.which("nvidia-smi") and not self.stand_in:
            with contextlib.suppress(Trouble):
                texts.append("=== nvidia-smi topo -m\n"
                             + self.runner.command(["nvidia-smi", "topo", "-m"]))
        self.runner.keep("topology.txt", "\n".join(texts))

    # --- conformance ---------------------------------------------------------------------------

    def run_tests(self, name: str, tests: str = "*", environment: Optional[dict] = None,
                  before: Optional[list[str]] = None) -> None:
        """Runs a program of GoogleTest, and records how many of its tests ran and were skipped."""
        text = self.runner.command([*(before or []), self.program(name), f"--gtest_filter={tests}"],
                                   environment={**MANY_QUEUES, **(environment or {})}, name=name)
        passed = re.search(r"\[  PASSED  \] (\d+) test", text)
        skipped = re.search(r"\[  SKIPPED \] (\d+) test", text)
        if not passed or int(passed[1]) == 0:
            raise Trouble(f"{name} {tests}: no test ran")
        self.runner.note(f"{passed[1]} tests" + (f", {skipped[1]} skipped" if skipped else ""))

    def test_kernels(self) -> None:
        # The test checks numbers and not the order of work, so the stand-in need not delay its
        # streams.
        self.run_tests("cuda_kernels_test", self.sizes.kernels, {"FAKE_CUDA_DELAY_US": "0"})

    def test_all_pairs(self, name: str) -> None:
        self.only_on_gpu("this takes minutes over the stand-in and")
        self.run_tests("cuda_kernels_test", f"*AllPairs*/{name}", {"XYLEM_DEVICE_KERNELS_ALL": "1"})

    def test_c(self) -> None:
        self.runner.command([self.program("xylem"), "run", "-n", "2", "--",
                             self.program("c_cuda_ranks")])

    def bench(self, operation: str, *flags: str) -> list[dict]:
        """Returns the rows of a report. Fails if a row has wrong results."""
        report = self.runner.command([self.program("xylem"), "bench", operation, "--device", "cuda",
                                      "--json", "-", *flags], name="bench", accepts=(0, 1))
        rows = json.loads(report)["results"]
        wrong = [f"{row['op']} of {row['bytes']} B" for row in rows if row["wrong"]]
        if wrong:
            raise Trouble("wrong results: " + ", ".join(wrong))
        return rows

    def bench_all(self, expected: int, *flags: str) -> None:
        rows = self.bench("all", "-f", "32", "--iters", "4", "--warmup", "1", *flags)
        operations = {row["op"] for row in rows}
        if len(operations) != expected:
            raise Trouble(f"{len(operations)} operations ran, not {expected}: {operations}")
        self.runner.note(f"{len(operations)} operations, {len(rows)} rows, no wrong element")

    def bench_operations(self) -> None:
        self.bench_all(OPERATIONS, "-n", "3", "-b", "60", "-e", "64K")

    def bench_on_streams(self) -> None:
        flags = ("-n", "2", "-b", "64", "-e", "64K", "--stream")
        self.bench_all(OPERATIONS_ON_STREAM, *flags)
        self.bench_all(OPERATIONS_ON_STREAM, *flags, "--back-to-back")

    # --- sanitizer -----------------------------------------------------------------------------

    def find_sanitizer(self) -> str:
        carried = glob.glob(os.path.join(self.place, "sanitizer", "**", "compute-sanitizer"),
                            recursive=True)
        for path in [shutil.which("compute-sanitizer"),
                     "/usr/local/cuda/bin/compute-sanitizer", *carried]:
            if path and os.path.isfile(path):
                return path
        raise Missing("there is no compute-sanitizer in PATH or /usr/local/cuda/bin, and none was "
                      "carried here")

    def sanitize(self, tool: str, test: str, tests: str) -> None:
        self.only_on_gpu("compute-sanitizer")
        self.run_tests(test, tests, before=[self.find_sanitizer(), "--tool", tool,
                                            "--error-exitcode", "99", "--print-limit", "20"])

    # --- benchmarks ----------------------------------------------------------------------------

    def rates(self, keep: Callable[[dict], None], *arguments: object,
              environment: Optional[dict] = None) -> None:
        self.runner.rows([self.program("gpu_rates"), *map(str, arguments)], keep, environment)

    def measure_latencies(self) -> None:
        self.runner.rows([self.program("gpu_latencies")],
                         lambda row: self.runner.figure(row["what"], row["us"], "us"))

    def measure_copies(self) -> None:
        def keep(row: dict) -> None:
            self.copied = row["traffic_GBps"]
            self.runner.figure(f"copy of {row['bytes']} B, bytes read and written", self.copied,
                               "GB/s")

        self.rates(keep, "copies", self.sizes.large)

    def ceiling(self) -> float:
        if self.copied is None:
            raise Missing("copies within the device were not measured, so there is no ceiling")
        return self.copied

    def measure_kernels(self) -> None:
        ceiling = self.ceiling()
        self.rates(
            lambda row: self.runner.figure(
                f"{row['what']}, {row['bytes']} B: share of the copy's bandwidth",
                100 * row["traffic_GBps"] / ceiling, "%", KERNEL_SHARE),
            "kernels", self.sizes.large)

    def large_share(self, what: str, ranks: int, bytes_: int, microseconds: float) -> None:
        """Records the time of a call, and its share of the rate of copies: each rank's input is
        read, and its output written.
        """
        bound = 2 * ranks * bytes_ / (self.ceiling() * 1e3)
        self.runner.figure(f"{what}: {ranks} ranks, {bytes_} B", microseconds, "us")
        self.runner.figure(f"{what}: share of the bound by memory traffic",
                           100 * bound / microseconds, "%", ALL_REDUCE_SHARE)

    def measure_large_threads(self) -> None:
        self.ceiling()

        def keep(row: dict) -> None:
            self.large_share(row["manner"], 4, row["bytes"], row["us"])
            self.note_use(row)

        self.rates(keep, "calls", 4, self.sizes.large_turn, *self.sizes.larger)

    def note_use(self, row: dict) -> None:
        """Records the spread of a row of gpu_rates, and what one call does."""
        used = ", ".join(f"{name} {count:.4g}" for name, count in row["used"].items())
        self.runner.note(f"{row['manner']}, {row['bytes']} B: {row['least_us']:.1f} to "
                         f"{row['most_us']:.1f} us; a call: {used}")

    def measure_large_processes(self) -> None:
        self.ceiling()
        size = str(self.sizes.large)
        for flags in ([], ["--stream"]):
            (row,) = self.bench("all_reduce", "-n", "4", "-b", size, "-e", size, *flags,
                                *self.sizes.flags)
            self.large_share(" ".join(["processes", *flags]), 4, row["bytes"],
                             row["time_us"]["p50"])

    def measure_small_threads(self) -> None:
        def keep(row: dict) -> None:
            is_loop = "back to back" in row["manner"]
            self.runner.figure(f"{row['manner']}: {row['bytes']} B, a call", row["us"], "us",
                               SMALL_CALL_US if is_loop else None, is_upper_limit=True)
            self.note_use(row)

        self.rates(keep, "calls", 2, self.sizes.turn, *self.sizes.small)

    def measure_fused_threads(self) -> None:
        def keep(row: dict) -> None:
            if not row["manner"].startswith("calls of bound devices"):
                return
            self.runner.figure(f"{row['manner']}, by one kernel: {row['bytes']} B, a call",
                               row["us"], "us", FUSED_CALL_US, is_upper_limit=True)
            self.note_use(row)

        self.rates(keep, "calls", 2, self.sizes.turn, *self.sizes.small, environment=FUSED)

    def measure_small_processes(self) -> None:
        for size in self.sizes.small:
            for flags in (["--stream", "--back-to-back"], []):
                (row,) = self.bench("all_reduce", "-n", "2", "-b", str(size), "-e", str(size),
                                    *flags, *self.sizes.flags)
                self.runner.figure(" ".join(["processes", *flags]) + f": {size} B, a call",
                                   row["time_us"]["p50"], "us")

    def measure_messages(self) -> None:
        ceiling = self.ceiling()
        size = str(self.sizes.large)
        for flags in ([], ["--stream"]):
            (row,) = self.bench("ping_pong", "-n", "2", "-b", size, "-e", size, *flags,
                                *self.sizes.flags)
            # Each copied byte is read once and written once.
            share = 100 * 2 * row["algbw_GBps"] / ceiling
            self.runner.figure(" ".join(["message between processes", *flags])
                               + f", {size} B: share of a copy", share, "%", MESSAGE_SHARE)

    def measure_processes(self) -> None:
        step = self.step
        step(RATES, "messages between two processes" + self.suffix, 40, self.measure_messages)
        step(RATES, "large all_reduce, 4 processes" + self.suffix, 60, self.measure_large_processes)
        step(RATES, "small all_reduce, 2 processes" + self.suffix, 40, self.measure_small_processes)

    def measure_under_mps(self) -> None:
        """Repeats the measurements with processes that share the device by MPS, if MPS can be
        started.
        """
        try:
            self.only_on_gpu("MPS")
            with self.mps():
                self.suffix = ", under MPS"
                self.measure_processes()
                self.step(QUESTIONS, "progress, under MPS", 60, lambda: self.ask("progress"))
        except Missing as why:
            self.step(RATES, "processes under MPS", 5, lambda why=why: missing(str(why)))
        self.suffix = ""

    @contextlib.contextmanager
    def mps(self) -> Iterator[None]:
        """Starts a separate MPS control daemon. It ends with this program, and changes no setting
        of the device.
        """
        control = shutil.which("nvidia-cuda-mps-control")
        if not control:
            raise Missing("there is no nvidia-cuda-mps-control")
        environment = self.runner.environment
        with tempfile.TemporaryDirectory(prefix="xylem-mps-") as directory:
            places = {"CUDA_MPS_PIPE_DIRECTORY": directory, "CUDA_MPS_LOG_DIRECTORY": directory}
            self.runner.environment = {**environment, **places}
            try:
                started = subprocess.run([control, "-d"], env=self.runner.environment, timeout=20,
                                         capture_output=True, text=True, check=False)
                if started.returncode != 0:
                    raise Missing("MPS does not start: " + (started.stderr or started.stdout))
                yield
            except subprocess.TimeoutExpired:
                raise Missing("MPS does not start within 20 s") from None
            finally:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    subprocess.run([control], env=self.runner.environment, input="quit\n",
                                   timeout=20, capture_output=True, text=True, check=False)
                self.runner.environment = environment

    def compare_on_cpu(self) -> None:
        """bench/compare labels the rows of its peer with the version of torch in the Python that
        runs it.
        """
        ranks = self.sizes.ranks_on_cpu
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "compared.json")
            self.runner.command([
                self.python or sys.executable, os.path.join(self.place, "bench", "compare"),
                "--xylem", self.program("xylem"), "--ops", "all_reduce", "--ranks", str(ranks),
                "--sizes", self.sizes.cpu, "--reps", "1", "--peers", "torch", "--json", path])
            with open(path) as file:
                report = json.load(file)
        for row in report["results"]:
            for name, time in row["time_us"].items():
                if name != "limit":
                    self.runner.figure(f"{ranks} ranks on CPUs, {row['bytes']} B, {name}",
                                       time["median"], "us")
        skipped = report["environment"]["skipped"]
        if skipped:
            self.runner.note(f"left out: {skipped}")

    def measure_training(self) -> None:
        """Measures training steps of ranks on CPUs, with xylem and with gloo."""
        python, environment = self.python_with_package()
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "steps.json")
            self.runner.command(
                [python, "-W", "ignore", "-m", "torch.distributed.run", "--standalone",
                 "--nproc-per-node", str(self.sizes.training_ranks),
                 os.path.join(self.place, "bench", "torch", "steps.py"), *self.sizes.training,
                 "--json", path],
                # torchrun leaves a directory for the output of its ranks.
                environment={**environment, "OMP_NUM_THREADS": "1", "TMPDIR": directory},
                name="training")
            with open(path) as file:
                report = json.load(file)
        for row in report["rows"]:
            for backend in ("xylem", "gloo"):
                self.runner.figure(f"{report['ranks']} ranks on CPUs, {row['way']}, {backend}: "
                                   "cost of a step", row[backend]["cost_ms"], "ms")
            self.runner.note(f"{row['way']}: ratio of the costs {row['ratio']:.2f} "
                             f"[{row['low']:.2f}, {row['high']:.2f}]")

    # --- questions -----------------------------------------------------------------------------

    def ask(self, question: str, environment: Optional[dict] = None) -> None:
        self.runner.rows([self.program("gpu_questions"), question],
                         lambda row: self.runner.answer(row["subject"], row["answer"]), environment)

    # --- torch ---------------------------------------------------------------------------------

    def python_with_package(self) -> tuple[str, dict]:
        """Returns the Python that has torch, and the environment in which it finds the carried
        package.
        """
        package = os.path.join(self.place, "python")
        if not os.path.isdir(os.path.join(package, "xylem")):
            raise Missing("the package for torch was left out by --prepare")
        python = self.python or shutil.which("python3") or sys.executable
        path = [package]
        if self.stand_in:
            path.append(os.path.join(self.place, "torch_device"))
        own = {"PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1",
               "TEST_DEVICE": self.torch_device(), "TEST_MOST_RANKS": "3"}
        found = self.runner.command(
            [python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"],
            environment=own)
        self.runner.facts["torch"] = found.strip()
        return python, own

    def torch(self, script: str, *arguments: str) -> str:
        """Runs a script of tests/torch with the carried package."""
        python, environment = self.python_with_package()
        return self.runner.command([python, "-W", "ignore",
                                    os.path.join(self.place, "tests", "torch", script), *arguments],
                                   environment=environment, name=script.removesuffix(".py"))

    def torch_device(self) -> str:
        return "standin" if self.stand_in else "cuda"

    def test_suite(self) -> None:
        text = self.torch("distributed_suite.py", "--device", self.torch_device(), "--world-size",
                          "2", "--also-as", "gloo", *self.sizes.suite)
        self.runner.note(text.strip().splitlines()[-1])


def missing(why: str) -> None:
    raise Missing(why)
