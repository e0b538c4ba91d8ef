# SPDX-License-Identifier: Apache-2.0
"""Prints docs/conformance.md from what distributed_suite.py and repository_suite.py wrote.

    python conformance_page.py RESULTS.json ... > docs/conformance.md

Give the results of one version of torch: of distributed_suite.py for each backend and number of processes
one file, and of "--also-as mpi '*all_to_all*'" for xylem; of repository_suite.py one of each backend.
"""

from __future__ import annotations

import collections
import json
import sys

HEAD = """# Conformance: PyTorch's own tests

The tests of torch.distributed that ship with torch (`torch.testing._internal.distributed.distributed_test`,
`_DistTestBase`), which torch's developers run on gloo, nccl and mpi, run here on xylem and, by the same
driver, on gloo. They are {count} tests of collectives and messages, groups, objects, DistributedDataParallel and its
hooks, joins, and profiling, on {sizes} processes; torch {torch}.

    python tests/torch/distributed_suite.py --backend xylem --world-size 2 --also-as gloo
    python tests/torch/distributed_suite.py --backend gloo --world-size 2
    python tests/torch/distributed_suite.py --backend xylem --world-size 3 --also-as mpi '*all_to_all*'

Many tests name the backends that they are for. `--also-as gloo` lets the suite take xylem for gloo, so
that xylem runs what is for gloo alone as well; `--also-as mpi` does so for the tests of all_to_all on
CPU tensors, which gloo's name excludes. This page is written by `tests/torch/conformance_page.py`;
`tests/torch/check` runs the suite with the newest torch and with the oldest that is supported.
"""

REPOSITORY = """
## Tests of PyTorch's repository

`test_c10d_gloo.py`, `test_c10d_common.py` and `test_c10d_object_collectives.py` are not in torch's wheels.
They were run by hand, from the repository's files of about that version (commits 005a6a0b9ec2, 00eb953ba8db
and 107beeaf289c), with xylem wherever they take gloo, also where they make a ProcessGroupGloo by hand; two
to four processes each, as they choose. What they ask of the texts of errors is not asked of xylem, but an
error is.

    python tests/torch/repository_suite.py --sources PYTORCH/test/distributed --backend xylem \\
        test_c10d_object_collectives test_c10d_gloo test_c10d_common

Functional collectives (eager, compiled, with gradients), meshes, DTensor, tensor parallelism, fully_shard and
checkpoints have tests of ours, `tests/torch/functional_test.py`: those of the repository run on a backend
of threads in one process, or need GPUs.

| backend | in place of gloo | executed | passed | failed | skipped |
| --- | --- | ---: | ---: | ---: | ---: |"""


def main() -> int:
    everything = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            everything.append(json.load(file))
    runs = [run for run in everything if "world_size" in run]
    if not runs:
        print(__doc__, file=sys.stderr)
        return 2
    versions = {run["torch"] for run in everything}
    if len(versions) != 1:
        print(f"conformance_page.py: results of several versions of torch: {versions}", file=sys.stderr)
        return 2
    whole = [run for run in runs if run["also_as"] != "mpi"]
    sizes = sorted({run["world_size"] for run in whole})
    texts = ", ".join(map(str, sizes[:-1])) + f" and {sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
    print(HEAD.format(count=len(whole[0]["tests"]), sizes=texts, torch=versions.pop()))
    print("| backend | taken for | processes | executed | passed | failed | skipped |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for run in sorted(runs, key=lambda run: (run["also_as"] == "mpi", run["world_size"], run["backend"])):
        counts = collections.Counter(test["outcome"] for test in run["tests"].values())
        print(
            f"| {run['backend']} | {run['also_as'] or ''} | {run['world_size']} "
            f"| {counts['passed'] + counts['failed']} | {counts['passed']} | {counts['failed']} "
            f"| {counts['skipped']} |"
        )
    print("\nFailed:")
    failed = [
        f"- {run['backend']}, {run['world_size']} processes: `{name.removeprefix('Suite.')}`"
        for run in runs
        for name, test in run["tests"].items()
        if test["outcome"] == "failed"
    ]
    print("\n".join(failed) or "none.")
    largest = {
        run["backend"]: run for run in whole if run["world_size"] == sizes[-1]
    }
    if {"xylem", "gloo"} <= largest.keys():
        print(f"\nRun on gloo and not on xylem, {sizes[-1]} processes:\n")
        for name, test in largest["xylem"]["tests"].items():
            if test["outcome"] == "skipped" and largest["gloo"]["tests"][name]["outcome"] != "skipped":
                print(f"- `{name.removeprefix('Suite.')}`: {test['why']}")
    print(f"\nWhy tests were skipped on xylem, {sizes[-1]} processes:\n")
    print_reasons(largest["xylem"]["tests"])
    print_repository([run for run in everything if "world_size" not in run])
    return 0


def print_reasons(tests: dict[str, dict]) -> None:
    """How many were skipped for each reason."""
    print("| tests | reason |\n| ---: | --- |")
    reasons = collections.Counter(test["why"] for test in tests.values() if test["outcome"] == "skipped")
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        print(f"| {count} | {reason} |")


def print_repository(runs: list[dict]) -> None:
    """Of repository_suite.py, what each backend's tests came to, and what they skipped."""
    if not runs:
        return
    print(REPOSITORY)
    tests: dict[str, dict] = {}
    for run in runs:
        tests.setdefault(run["backend"], {}).update(run["tests"])
    for backend, results in sorted(tests.items()):
        counts = collections.Counter(test["outcome"] for test in results.values())
        print(
            f"| {backend} | {'yes' if backend != 'gloo' else ''} | {counts['passed'] + counts['failed']} "
            f"| {counts['passed']} | {counts['failed']} | {counts['skipped']} |"
        )
    failed = [
        f"- {backend}: `{name}`"
        for backend, results in sorted(tests.items())
        for name, test in results.items()
        if test["outcome"] == "failed"
    ]
    print("\nFailed:")
    print("\n".join(failed) or "none.")
    print("\nRun on gloo and not on xylem:\n")
    for name, test in tests.get("xylem", {}).items():
        if test["outcome"] == "skipped" and tests.get("gloo", {}).get(name, test)["outcome"] != "skipped":
            print(f"- `{name}`: {test['why']}")
    print("\nWhy tests were skipped on xylem:\n")
    print_reasons(tests["xylem"])


if __name__ == "__main__":
    sys.exit(main())
