# SPDX-License-Identifier: Apache-2.0
"""Runs tests of PyTorch's repository, which are not in its wheels, on a backend in place of gloo.

    python repository_suite.py --sources PYTORCH/test/distributed --backend xylem --json out.json \\
        test_c10d_gloo test_c10d_common test_c10d_object_collectives

The version of the files in PYTORCH should be close to the installed version of torch. The backend replaces
gloo in groups that the tests make by name, and in objects of ProcessGroupGloo. Exits with 1 if a test failed.
With --backend gloo, the same command runs the tests on gloo.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import importlib.util
import inspect
import itertools
import os
import re
import sys
import tempfile
import unittest
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist

from suite_results import Results


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", required=True, help="the folder of the test files")
    parser.add_argument("--backend", default="xylem", choices=("xylem", "gloo"))
    parser.add_argument("--json", help="file for what each test came to")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of CLASS.test, with * and ?")
    parser.add_argument("modules", nargs="+", help="paths of the files below that folder, without .py")
    return parser.parse_args()


# Tests that use no backend.
LEFT_OUT = {
    "ThreadLocalSafetyLintTest.*": "the test reads the C++ sources of torch",
    "*WithLocalTensor.*": "one process simulates all ranks",
}
# Tests of gloo itself, with the reason for which xylem does not run them.
SEVERAL = (
    "the test passes several tensors of one rank, which no function of torch.distributed does; "
    "nccl refuses them, too"
)
EXCUSED = {
    **{
        f"ProcessGroupGloo*Test.{test}": SEVERAL
        for test in (
            "test_allgather_basics",
            "test_allgather_inference_mode",
            "test_allgather_noncontiguous_input",
            "test_allreduce_basics",
            "test_broadcast_basics",
            "test_sparse_allreduce_basics",
        )
    },
    "ProcessGroupGloo*Test.test_allgather_checks": (
        "the test expects that uneven all_gathers fail; xylem supports them, as nccl does"
    ),
    "ProcessGroupGloo*Test.test_set_gloo_pg_timeout": "the test reads options of gloo's class",
    "*.test_init_process_group_for_all_backends": "torch names every backend that is not part of it 'custom'",
}


def put_in_place_of_gloo() -> None:
    """Makes torch use xylem wherever gloo is requested."""
    import xylem

    def renamed(backend):
        return re.sub(r"\bgloo\b", "xylem", backend) if isinstance(backend, str) else backend

    def wrapped(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            if "backend" in bound.arguments:
                bound.arguments["backend"] = renamed(bound.arguments["backend"])
            return function(*bound.args, **bound.kwargs)

        return call

    for name in ("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration"):
        function = wrapped(getattr(dist, name))
        setattr(dist, name, function)
        setattr(dist.distributed_c10d, name, function)

    class ProcessGroupGloo:
        """Replaces the class ProcessGroupGloo: a test that constructs it gets a group of xylem."""

        numbers = itertools.count()

        def __new__(cls, store, rank, size, options=None, *, timeout=None, **_):
            timeout = timeout or getattr(options, "_timeout", 30.0)
            if not isinstance(timeout, timedelta):
                timeout = timedelta(seconds=timeout)
            return xylem._version.native.create(
                store=store,
                rank=rank,
                size=size,
                timeout=timeout,
                name=f"by_hand_{next(cls.numbers)}",
                global_ranks=list(range(size)),
            )

        _Options = SimpleNamespace

    # Gloo needs an interface as argument. xylem finds an interface itself.
    for backend in (ProcessGroupGloo, torch._C._distributed_c10d.Backend):
        backend.create_device = staticmethod(lambda **_: None)
    dist.ProcessGroupGloo = ProcessGroupGloo
    dist.distributed_c10d.ProcessGroupGloo = ProcessGroupGloo


def fork_continuous(common) -> None:
    """Makes classes that run several tests in the same processes fork these processes, too."""
    case = common.MultiProcContinuousTest
    spawn = case._spawn_processes.__func__
    context = torch.multiprocessing.get_context("fork")

    def forked(cls, world_size):
        names = ("Process", "Queue", "set_start_method")
        before = {name: getattr(torch.multiprocessing, name) for name in names}
        after = {"Process": context.Process, "Queue": context.Queue, "set_start_method": lambda _: None}
        for name, value in after.items():
            setattr(torch.multiprocessing, name, value)
        try:
            spawn(cls, world_size)
        finally:
            for name, value in before.items():
                setattr(torch.multiprocessing, name, value)

    case._spawn_processes = classmethod(forked)


def run_on_cpus() -> None:
    """Makes tests run on CPUs that torch's helpers reserve for accelerators.

    FSDPTest of torch 2.15 skips all tests if there are fewer accelerators than processes, also those that
    are marked to run on CPUs (``skip_if_lt_x_gpu(2, allow_cpu=True)``). Files that instantiate their
    classes for all devices but the CPU keep these classes as they are: DTensorTestBase uses the CPU if
    there is no accelerator.
    """
    import torch.testing._internal.common_device_type as common_device_type
    import torch.testing._internal.common_fsdp as common_fsdp

    if torch.accelerator.is_available():
        return
    count = torch.accelerator.device_count
    for case in (common_fsdp.FSDPTest, common_fsdp.FSDPTestContinuous):
        name = "_run" if case is common_fsdp.FSDPTest else "_init_pg"
        function = getattr(case, name).__func__

        def counted(cls, *args, _function=function, **kwargs):
            torch.accelerator.device_count = lambda: 64
            try:
                return _function(cls, *args, **kwargs)
            finally:
                torch.accelerator.device_count = count

        setattr(case, name, classmethod(counted))
    instantiate = common_device_type.instantiate_device_type_tests

    def instantiated(case, scope, except_for=None, **kwargs):
        if "cpu" not in (except_for or ()):
            instantiate(case, scope, except_for=except_for, **kwargs)

    common_device_type.instantiate_device_type_tests = instantiated


def accept_other_words(case: type) -> None:
    """Accepts any error text, since each backend has different texts."""

    def assert_raises(self, error, _pattern, *args, **kwargs):
        return self.assertRaises((RuntimeError, ValueError, TypeError), *args, **kwargs)

    case.assertRaisesRegex = assert_raises


def imported(folder: str, name: str):
    """Imports the module at the path NAME (without .py) below the directory. It may import files
    next to it.
    """
    path = os.path.join(os.path.abspath(folder), f"{name}.py")
    full_name = name.replace("/", "_")
    if full_name in sys.modules:
        return sys.modules[full_name]
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(full_name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def cases_of(module, pattern: str, backend: str):
    for name, case in sorted(vars(module).items()):
        is_own = inspect.isclass(case) and case.__module__ == module.__name__
        if not is_own or not issubclass(case, unittest.TestCase):
            continue
        for test in unittest.TestLoader().getTestCaseNames(case):
            whole = f"{name}.{test}"
            if not fnmatch.fnmatch(whole, pattern):
                continue
            excuses = {**LEFT_OUT, **(EXCUSED if backend == "xylem" else {})}
            excuse = next((why for p, why in excuses.items() if fnmatch.fnmatch(whole, p)), None)
            if excuse:
                # Marks the test as unittest.skip does.
                skipped = unittest.skip(excuse)(getattr(case, test))
                setattr(case, test, skipped)
            yield case(test)


def main() -> int:
    arguments = parse()
    import torch.testing._internal.common_distributed as common

    fork = torch.multiprocessing.get_context("fork").Process
    # In these tests, forked processes behave like spawned ones. They need not import torch, which
    # takes seconds.
    common.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(fork)
    fork_continuous(common)
    run_on_cpus()
    if arguments.backend == "xylem":
        put_in_place_of_gloo()
    suite = unittest.TestSuite()
    for name in arguments.modules:
        module = imported(arguments.sources, name)
        if arguments.backend == "xylem" and hasattr(module, "ProcessGroupGlooTest"):
            accept_other_words(module.ProcessGroupGlooTest)
        suite.addTests(cases_of(module, arguments.only, arguments.backend))
    with tempfile.TemporaryDirectory() as directory:
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(directory, "calls_")
        results = unittest.TextTestRunner(verbosity=2, resultclass=Results).run(suite)
    print(f"{arguments.backend} in place of gloo, torch {torch.__version__}: {results.counts()}")
    if arguments.json:
        results.write(arguments.json, backend=arguments.backend, torch=torch.__version__)
    return 0 if results.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
