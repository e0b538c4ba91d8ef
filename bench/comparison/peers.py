# SPDX-License-Identifier: Apache-2.0
"""The libraries to compare. The measure() of each makes one turn at one size."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple, Optional

PEERS = ["openmpi-ucx", "openmpi-shm", "openmpi-ring", "mpich", "gloo", "ucc", "torch"]
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peers")
# Without an InfiniBand device, Debian's Open MPI uses UCX only if all devices are allowed.
OVER_UCX = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any",
            "--mca", "opal_common_ucx_devices", "any"]
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1",
        "--mca", "coll_tuned_allreduce_algorithm", "4"]
OVER_SHARED_MEMORY = ["--mca", "pml", "ob1", "--mca", "btl", "vader,self"]


class Turn(NamedTuple):
    """The result of one turn of a peer."""

    time: float  # Microseconds, the median of its calls.
    wrong: int  # Number of wrong elements.
    limit: Optional[float] = None  # Least time for the memory traffic, in microseconds. Only xylem measures it.


class Skipped(Exception):
    """A peer that cannot take part, and why."""


def last_line(*texts):
    """The last line of the first text that is not blank; "nothing" if all are blank."""
    said = next((text.strip() for text in texts if text.strip()), "nothing")
    return said.splitlines()[-1]


def run(command, environment, timeout):
    """Runs a command and returns its standard output; raises Skipped if it fails."""
    # A process group of its own, so that a command that times out can be ended completely.
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          start_new_session=True) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        except BaseException as ending:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(ending, subprocess.TimeoutExpired):
                said = last_line(*reversed(process.communicate()))
                raise Skipped(f"did not end within {timeout} s; its last words: {said}") from None
            raise
    if process.returncode not in (0, 1):  # 1: a wrong result, which the rows report
        raise Skipped(f"exited with status {process.returncode}: {last_line(errors, out)}")
    return out


def turn_of(operation, text):
    """The turn described by the row that a timing program has printed."""
    for line in text.splitlines():
        if line.startswith(operation + " "):
            row = line.split()
            return Turn(float(row[4]), int(row[6]))
    raise Skipped("printed no row")


def environment_of_launchers():
    environment = dict(os.environ)
    if os.geteuid() == 0:
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return environment


def shares_cores(options):
    """Whether there are more ranks than cores, so that spinning ranks hinder the others."""
    return options.ranks > len(os.sched_getaffinity(0))


def openmpi_launcher(options):
    is_shared = shares_cores(options)
    bind = "core:overload-allowed" if is_shared and options.bind == "core" else options.bind
    return ["mpirun.openmpi", "--oversubscribe", "--bind-to", bind,
            "--mca", "mpi_yield_when_idle", "1" if is_shared else "0"]


class Xylem:
    """A build of Xylem: that of --xylem, or one of --builds."""

    def __init__(self, options, name="xylem", binary=None):
        self.name = name
        self.binary = os.path.abspath(binary or options.xylem)
        if not os.access(self.binary, os.X_OK):
            raise Skipped(f"no program at {self.binary}; build it, or name another")
        self.ranks = options.ranks
        self.in_place = ["--in-place"] if options.in_place else []
        self.is_bound = options.bind == "core"

    def bench(self, operation, size, environment, timeout, *flags):
        """The row that xylem bench reports."""
        command = [self.binary, "bench", operation, "-b", str(size), "-e", str(size),
                   "--json", "-", *self.in_place, *flags]
        if self.is_bound:
            text = self.run_bound(command, environment, timeout)
        else:
            text = run([*command, "-n", str(self.ranks)], environment, timeout)
        return json.loads(text)["results"][0]

    def run_bound(self, command, environment, timeout):
        """Starts the ranks, each bound to one core. If there are more ranks than cores, ranks share cores."""
        cores = sorted(os.sched_getaffinity(0))
        with tempfile.TemporaryDirectory(prefix="xylem-rendezvous-") as rendezvous:
            script = "".join(
                f"XYLEM_RANK={rank} taskset -c {cores[rank % len(cores)]} \"$@\" &\n"
                for rank in range(1, self.ranks))
            script += f"XYLEM_RANK=0 taskset -c {cores[0]} \"$@\"; status=$?; wait; exit $status"
            place = {"XYLEM_SIZE": str(self.ranks), "XYLEM_RENDEZVOUS": f"file://{rendezvous}"}
            return run(["sh", "-c", script, "sh", *command],
                       {**(environment or os.environ), **place}, timeout)

    def measure(self, operation, size, environment, timeout):
        row = self.bench(operation, size, environment, timeout)
        return Turn(row["time_us"]["p50"], row["wrong"], row["limit_us"])

    def algorithms(self, operation):
        """The algorithms that `xylem info` lists for the operation."""
        text = run([self.binary, "info"], None, 30)
        found, current = [], None
        for line in text.split("\nalgorithms\n", 1)[1].splitlines():
            row = re.match(r"  (\w+)? *(\w+) {2,}\S", line)
            if not row:
                break
            current = row[1] or current
            if current == operation:
                found.append(row[2])
        return found

    def describe(self):
        return run([self.binary, "--version"], None, 30).strip()


class Mpi:
    """An MPI library, timed by mpi_coll."""

    source = "mpi_coll"

    def __init__(self, name, compiler, launcher, options, build):
        self.name = name
        self.launch = [*launcher, "-n", str(options.ranks)]
        self.flags = ["--in-place"] if options.in_place else []
        self.launcher = launcher[0]
        if not shutil.which(compiler) or not shutil.which(launcher[0]):
            raise Skipped(f"{compiler} and {launcher[0]} are not installed")
        self.program = os.path.join(build, f"{self.source}.{compiler}")
        if not os.path.exists(self.program):
            self.build(compiler)

    def build(self, compiler, *flags):
        sources = [f"{name}.c" for name in (self.source, "coll_timing")]
        made = subprocess.run([compiler, "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-o",
                               self.program, *sources, *flags],
                              cwd=PROGRAMS, capture_output=True, text=True, check=False)
        if made.returncode:
            raise Skipped(f"{compiler} failed: {made.stderr.strip()}")

    def measure(self, operation, size, environment, timeout):
        text = run([*self.launch, self.program, *self.flags, operation, str(size)], environment,
                   timeout)
        return turn_of(operation, text)

    def describe(self):
        text = run([self.launcher, "--version"], None, 30)
        found = re.search(r"\d+\.\d+[\w.]*", text)
        return f"{self.launcher} {found[0] if found else '?'}"


def yield_library(build):
    """Builds a library that makes waiting ranks of MPICH yield their core (ucp_yield.c)."""
    library = os.path.join(build, "ucp_yield.so")
    made = subprocess.run(["cc", "-std=c11", "-O2", "-shared", "-fPIC", "-o", library,
                           os.path.join(PROGRAMS, "ucp_yield.c"), "-ldl"],
                          capture_output=True, text=True, check=False)
    if made.returncode:
        raise Skipped(f"cc failed: {made.stderr.strip()}")
    return library


class Ucc(Mpi):
    """UCC, timed by ucc_coll. Open MPI starts it and uses shared memory itself, not UCX."""

    source = "ucc_coll"
    operations = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                  "all_to_all", "barrier"]

    def __init__(self, name, options, build):
        super().__init__(name, "mpicc.openmpi", openmpi_launcher(options) + OVER_SHARED_MEMORY,
                         options, build)
        if shares_cores(options):
            self.flags.insert(0, "--yield")
        self.version = run([self.program, "--version"], None, 30).strip()

    def build(self, compiler, *flags):
        if os.environ.get("UCC_HOME"):
            home = os.path.abspath(os.environ["UCC_HOME"])
            flags = [f"-I{home}/include", f"-L{home}/lib", f"-Wl,-rpath,{home}/lib"]
        try:
            super().build(compiler, *flags, "-lucc")
        except Skipped:
            raise Skipped("does not compile; is UCC installed (UCC_HOME or the system's)?") \
                from None

    def measure(self, operation, size, environment, timeout):
        if operation not in self.operations:
            return None
        return super().measure(operation, size, environment, timeout)

    def describe(self):
        return f"ucc {self.version}"


class Gloo:
    """Gloo, timed by gloo_coll, which starts its own ranks."""

    operations = ["all_reduce", "all_gather", "broadcast", "send_recv"]

    def __init__(self, name, options, build):
        self.name = name
        self.ranks = options.ranks
        self.in_place = ["--in-place"] if options.in_place else []
        self.program = os.path.join(build, name)
        made = subprocess.run(["c++", "-std=c++17", "-O2", "-o", self.program,
                               os.path.join(PROGRAMS, "gloo_coll.cc"), "-lgloo", "-lpthread"],
                              capture_output=True, text=True, check=False)
        if made.returncode:
            raise Skipped("does not compile; is libgloo-dev installed?")

    def measure(self, operation, size, environment, timeout):
        if operation not in self.operations:
            return None
        text = run([self.program, str(self.ranks), *self.in_place, operation, str(size)],
                   environment, timeout)
        return turn_of(operation, text)

    def describe(self):
        found = run(["dpkg-query", "-W", "-f", "${Version}", "libgloo-dev"], None, 30) \
            if shutil.which("dpkg-query") else "?"
        return f"gloo {found.strip()}"


class Torch:
    """torch.distributed over Gloo, timed by torch_coll.py, which starts its own ranks."""

    operations = ["all_reduce", "all_gather", "broadcast", "send_recv", "reduce"]

    def __init__(self, name, options):
        self.name = name
        self.ranks = options.ranks
        self.in_place = ["--in-place"] if options.in_place else []
        for python in [sys.executable, "/usr/bin/python3"]:
            if not os.access(python, os.X_OK):
                continue
            asked = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                                   capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                self.python, self.version = python, asked.stdout.strip()
                return
        raise Skipped("no python3 here has torch")

    def measure(self, operation, size, environment, timeout):
        if operation not in self.operations:
            return None
        text = run([self.python, os.path.join(PROGRAMS, "torch_coll.py"), str(self.ranks),
                    *self.in_place, operation, str(size)], environment, timeout)
        return turn_of(operation, text)

    def describe(self):
        always = "" if self.in_place else " (all_reduce, reduce and broadcast in place)"
        return f"torch {self.version}{always}"


def make_peer(name, options, build):
    if name == "xylem":
        return Xylem(options)
    if name in options.builds:
        return Xylem(options, name, options.builds[name])
    if name == "openmpi-ucx":
        return Mpi(name, "mpicc.openmpi", openmpi_launcher(options) + OVER_UCX, options, build)
    if name == "openmpi-shm":
        return Mpi(name, "mpicc.openmpi", openmpi_launcher(options) + OVER_SHARED_MEMORY, options,
                   build)
    if name == "gloo":
        return Gloo(name, options, build)
    if name == "ucc":
        return Ucc(name, options, build)
    if name == "torch":
        return Torch(name, options)
    if name == "openmpi-ring":
        return Mpi(name, "mpicc.openmpi", openmpi_launcher(options) + OVER_SHARED_MEMORY + RING,
                   options, build)
    launcher = ["mpirun.mpich", "-bind-to", options.bind]
    if shares_cores(options):
        launcher += ["-env", "LD_PRELOAD", yield_library(build)]
    return Mpi(name, "mpicc.mpich", launcher, options, build)
