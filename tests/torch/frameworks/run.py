# SPDX-License-Identifier: Apache-2.0
"""Runs frameworks on xylem and on gloo: their own tests that run on CPUs with several processes, and a small training
with each, whose parameters must have the same bits.

    python tests/torch/frameworks/run.py --brief              # a training with each framework, and some tests
    python tests/torch/frameworks/run.py [--lightning FOLDER] # all; FOLDER: the tests of Lightning's repository, whose
                                                              # packages on PyPI have none

Run it with a Python that has torch and xylem. The frameworks are installed in a separate environment (500 MB).
Exits with 1 if a test fails on xylem and passes on gloo.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import xml.etree.ElementTree
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
FIT, EACH_FORKED = os.path.join(HERE, "fit.py"), os.path.join(HERE, os.pardir, "each_forked.py")
DIGEST = re.compile(r"digest (\w+)")
VERSIONS = {"accelerate": "1.15.0", "transformers": "5.24.0", "lightning": "2.6.6"}
RAY = "ray[train]==2.60.0"  # 250 MB, so only for the complete run.
# Packages that the frameworks' tests need. Some of Lightning's tests are repeated automatically if
# they fail.
TOOLS = (
    "pytest==9.2.0", "pytest-timeout==2.4.0", "pytest-rerunfailures==16.7", "parameterized==0.9.0", "evaluate==0.4.6",
    "scikit-learn==1.9.1", "datasets==5.2.0", "jsonargparse==4.53.0", "rich==15.0.0", "tensorboard==2.21.0",
    "tensorboardX==2.6.5",
)
FITS = ("lightning", "lightning-fsdp", "fabric", "trainer", "accelerate")
# accelerate's own scripts for two processes. Its other scripts need data from a server, or GPUs. In
# the last script, the ranks make different calls, which accelerate supports only on GPUs: with gloo
# it hangs.
SCRIPTS = ("test_script", "test_ops", "test_sync", "test_distributed_data_loop")
BACKENDS = ("gloo", "xylem")
LIMIT = 300


@dataclass
class Count:
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: int = 0
    groups: int = 0  # Number of process groups of the backend.
    users: list[str] = field(default_factory=list)  # The tests that created groups, by name.


class Place:
    """The directory in which the frameworks are installed."""

    def __init__(self, folder: str):
        self.folder = folder
        self.python = os.path.join(folder, "venv", "bin", "python")

    def install(self) -> None:
        self.install_packages()
        models = os.path.join(self.folder, f"transformers-{VERSIONS['transformers']}", "tests")
        open(os.path.join(models, "__init__.py"), "a", encoding="utf-8").close()
        shutil.copy(os.path.join(HERE, "models.py"), os.path.join(models, "test_models.py"))
        shutil.copy(os.path.join(HERE, "distributed_testing_utils.py"), models)

    def install_packages(self) -> None:
        wanted = " ".join([*(f"{name}=={version}" for name, version in VERSIONS.items()), *TOOLS])
        stamp = os.path.join(self.folder, "installed")
        mark = os.path.join(self.folder, "made_by_run_py")
        if os.path.exists(stamp) and open(stamp, encoding="utf-8").read() == wanted:
            return
        if os.path.exists(mark):
            shutil.rmtree(self.folder)
        elif os.path.exists(self.folder) and os.listdir(self.folder):
            sys.exit(f"run.py: {self.folder} has files that run.py has not made; name another folder")
        os.makedirs(self.folder, exist_ok=True)
        open(mark, "w", encoding="utf-8").close()
        subprocess.run([sys.executable, "-m", "venv", os.path.join(self.folder, "venv")], check=True)
        # Torch and xylem are used from the Python that runs this script.
        packages = subprocess.run(
            [self.python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()
        with open(os.path.join(packages, "torch.pth"), "w", encoding="utf-8") as file:
            file.write(sysconfig.get_paths()["purelib"] + "\n")
        self.pip("install", "--no-cache-dir", *wanted.split())
        for name in ("accelerate", "transformers"):
            version = VERSIONS[name]
            self.pip("download", "--no-deps", "--no-binary", name, "--dest", self.folder, f"{name}=={version}")
            with tarfile.open(os.path.join(self.folder, f"{name}-{version}.tar.gz")) as archive:
                archive.extractall(self.folder, filter="data")
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(wanted)

    def pip(self, *arguments: str) -> None:
        subprocess.run([self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)

    def run(self, backend: str, name: str, command: list[str], cwd: str | None = None, limit: float = LIMIT, **variables):
        """Runs a command in which the backend replaces gloo. Returns its exit status and its
        output.
        """
        groups = os.path.join(self.folder, f"{name}.{backend}.groups")
        log = os.path.join(self.folder, f"{name}.{backend}.log")
        if os.path.exists(groups):
            os.remove(groups)
        environment = {
            **os.environ, "FRAMEWORKS_BACKEND": backend, "FRAMEWORKS_GROUPS": groups, "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1", "TORCH_FR_DUMP_TEMP_FILE": os.path.join(self.folder, "calls_"),
            "PYTHONPATH": os.pathsep.join([os.path.join(HERE, "swap"), os.environ.get("PYTHONPATH", "")]), **variables,
        }
        with open(log, "w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [self.python, "-W", "ignore", *command], cwd=cwd or self.folder, env=environment, stdout=file,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )
            try:
                status = process.wait(limit)
            except BaseException as error:
                status = -1
                self.end(process)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
        made = []
        if os.path.exists(groups):
            lines = (line.rstrip("\n").split("\t") for line in open(groups, encoding="utf-8"))
            made = [test for name, test in lines if backend in name]
        return status, open(log, encoding="utf-8", errors="replace").read(), made

    @staticmethod
    def end(process: subprocess.Popen) -> None:
        """Ends a command and the processes that it has started. torchrun's workers are in other
        sessions: torchrun ends them when it gets SIGTERM.
        """
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def fit(self, frameworks, backends) -> dict[tuple[str, str], str]:
        """Returns the digests of the parameters after successful trainings. The frameworks are
        asked for the backend by name; gloo is not replaced.
        """
        runs = [word for run in itertools.product(frameworks, backends) for word in ("--", *run)]
        imported = ",".join([*VERSIONS, "torch._dynamo"])  # The last one by DistributedDataParallel.
        command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", EACH_FORKED, "--import", imported, FIT, *runs]
        status, text = self.run_fit("all", command)
        failed = set(re.findall(r"^FAILED (\S+) (\S+)$", text, re.M))
        if status and not failed:
            return {}
        _, *parts = re.split(r"^RUN (\S+) (\S+)$", text, flags=re.M)
        digests = {}
        for framework, backend, printed in zip(parts[::3], parts[1::3], parts[2::3]):
            digest = DIGEST.search(printed)
            if digest and (framework, backend) not in failed:
                digests[framework, backend] = digest[1]
        return digests

    def fit_by_ray(self, backends) -> dict[tuple[str, str], str]:
        digests = {}
        for backend in backends:
            status, text = self.run_fit(f"ray-{backend}", [FIT, "ray", backend])
            digest = DIGEST.search(text)
            if digest and not status:
                digests["ray", backend] = digest[1]
        return digests

    def run_fit(self, name: str, command: list[str]) -> tuple[int, str]:
        path = os.environ.get("PYTHONPATH", "")
        status, text, _ = self.run("own", f"fit-{name}", command, FRAMEWORKS_BACKEND="", PYTHONPATH=path)
        return status, text

    def refuses(self, backend: str) -> bool:
        """True if accelerate refuses the name of the backend, as docs/pytorch.md says."""
        program = f"import accelerate, xylem; accelerate.PartialState(cpu=True, backend={backend!r})"
        ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        _, text, _ = self.run(backend, "refusal", ["-c", program], FRAMEWORKS_BACKEND="", **ranks)
        return f"Your assigned backend {backend} is not available, please use gloo" in text

    def scripts(self, backend: str, names) -> Count:
        count = Count()
        folder = subprocess.run(
            [self.python, "-c", "import accelerate.test_utils.scripts as s; print(s.__path__[0])"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()
        for name in names:
            command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", os.path.join(folder, name + ".py")]
            status, _, groups = self.run(backend, name, command, limit=150, ACCELERATE_USE_CPU="yes")
            (count.failed if status else count.passed).add(name)
            count.groups += len(groups)
        return count

    def pytest(self, backend: str, name: str, cwd: str, *arguments: str) -> Count:
        results = os.path.join(self.folder, f"{name}.{backend}.xml")
        if os.path.exists(results):
            os.remove(results)
        command = [
            "-m", "pytest", "-q", "--timeout", "200", "-p", "no:cacheprovider", "-W", "ignore", f"--junitxml={results}",
            "--rootdir", cwd,
            *arguments,
        ]
        _, _, groups = self.run(backend, name, command, cwd, limit=5400)
        count = Count(groups=len(groups), users=list(dict.fromkeys(groups)))
        if not os.path.exists(results):
            count.failed.add("(pytest wrote no results)")
            return count
        for case in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
            case_name = f"{case.get('classname')}::{case.get('name')}"
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                count.failed.add(case_name)
            elif "skipped" in kinds:
                count.skipped += 1
            else:
                count.passed.add(case_name)
        return count


def lightning(place: Place, folder: str, part: str):
    """Runs tests of Lightning. Most of them make no process group, so a first run with gloo finds
    those that do.
    """
    options = ("-o", "addopts=", "--timeout", "90")
    known = os.path.join(place.folder, f"{part}-{VERSIONS['lightning']}.users")

    def run(backend: str) -> Count:
        if not os.path.exists(known):
            count = place.pytest("gloo", f"{part}.all", folder, *options, *lightning_files(folder, part))
            executed = len(count.passed) + len(count.failed)
            print(f"lightning, {part}: {len(count.users)} of {executed} tests make a group", flush=True)
            if not count.passed or not count.users:
                return count
            with open(known, "w", encoding="utf-8") as file:
                file.writelines(f"{test}\n" for test in count.users)
        return place.pytest(backend, part, folder, *options, *open(known, encoding="utf-8").read().splitlines())

    return run


def lightning_files(folder: str, part: str) -> list[str]:
    """Returns the files whose tests start processes or choose backends."""
    found = []
    for where, _, names in os.walk(os.path.join(folder, part)):
        for name in sorted(names):
            path = os.path.join(where, name)
            if name.startswith("test_") and name.endswith(".py"):
                text = open(path, encoding="utf-8").read()
                if re.search(r"ddp|fsdp|gloo|init_process_group|num_processes|devices=2", text):
                    found.append(os.path.relpath(path, folder))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brief", action="store_true", help="a few minutes after the installation: for CI")
    parser.add_argument("--lightning", metavar="FOLDER", help="tests of Lightning's repository (its folder tests)")
    default = os.path.join(os.path.dirname(os.path.dirname(sys.executable)), "frameworks")
    parser.add_argument("--place", default=default, help="where the frameworks are installed [%(default)s]")
    options = parser.parse_args()
    place = Place(os.path.abspath(options.place))
    place.install()

    fits = list(FITS)
    found = place.fit(fits, BACKENDS)
    if not options.brief:
        place.pip("install", "--no-cache-dir", RAY)
        fits.append("ray")
        found |= place.fit_by_ray(BACKENDS)
    bad = False
    for framework in fits:
        digests = {backend: found.get((framework, backend), "none") for backend in BACKENDS}
        same = len(set(digests.values())) == 1 and "none" not in digests.values()
        bad = bad or not same
        print(f"training by {framework:15} {'the same bits' if same else f'DIFFERS: {digests}'}", flush=True)

    refused = place.refuses("xylem")
    bad = bad or not refused
    print(f"accelerate refuses xylem    {'yes' if refused else 'NO: change docs/pytorch.md'}", flush=True)

    transformers = os.path.join(place.folder, f"transformers-{VERSIONS['transformers']}")
    accelerate = os.path.join(place.folder, f"accelerate-{VERSIONS['accelerate']}")
    suites = {
        "accelerate, scripts": lambda backend: place.scripts(backend, ["test_sync"] if options.brief else SCRIPTS),
        "transformers": lambda backend: place.pytest(
            backend, "transformers", transformers, "tests/test_models.py", *(["-k", "llama"] if options.brief else [])
        ),
    }
    if not options.brief:
        suites["accelerate, tests"] = lambda backend: place.pytest(
            backend, "accelerate", accelerate,
            *(f"tests/test_{name}.py" for name in (
                "accelerator", "cpu", "data_loader", "grad_sync", "kwargs_handlers", "metrics", "multidevice", "optimizer",
                "scheduler",
            )),
        )
    if options.lightning:
        for part in ("tests_fabric", "tests_pytorch"):
            suites[f"lightning, {part}"] = lightning(place, os.path.abspath(options.lightning), part)
    for name, run in suites.items():
        begin = time.monotonic()
        counts = {backend: run(backend) for backend in BACKENDS}
        for backend, count in counts.items():
            print(
                f"{name:24} {backend:6} executed {len(count.passed) + len(count.failed):5}, passed {len(count.passed):5}, "
                f"failed {len(count.failed):3}, skipped {count.skipped:4}; {count.groups} groups", flush=True
            )
        worse = counts["gloo"].passed - counts["xylem"].passed
        for case in sorted(worse):
            print(f"  PASSED with gloo only: {case}")
        if not counts["gloo"].passed:
            print("  FAILED: nothing passed with gloo")
        for case in sorted(counts["xylem"].failed - worse):
            print(f"  failed with xylem, not passed with gloo: {case}")
        if counts["xylem"].groups == 0:
            print("  FAILED: no group of xylem was made")
        bad = bad or bool(worse) or not counts["gloo"].passed or counts["xylem"].groups == 0
        print(f"  {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
