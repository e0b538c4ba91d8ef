# SPDX-License-Identifier: Apache-2.0
"""Prints docs/conformance.md from the results of distributed_suite.py and repository_suite.py.

    python conformance_page.py RESULTS.json ... > docs/conformance.md

Requires results of a single version of torch: from distributed_suite.py one file for each backend and
number of processes, and one of "--also-as mpi '*all_to_all*'" for xylem; from repository_suite.py one file
for each backend.
"""

from __future__ import annotations

import collections
import json
import sys
import textwrap

HEAD = """# Conformance: PyTorch's own tests

This page shows how many of PyTorch's own tests of torch.distributed pass on xylem, and why the others are
skipped. The tests are part of torch (`_DistTestBase` in
`torch.testing._internal.distributed.distributed_test`). PyTorch's developers run them on gloo, nccl and
mpi; here, the same driver runs them on xylem and on gloo. There are {count} tests of collectives, messages,
groups, objects, DistributedDataParallel and its hooks, joins, and profiling. They ran with {sizes}
processes and torch {torch}:

    python tests/torch/distributed_suite.py --backend xylem --world-size 2 --also-as gloo
    python tests/torch/distributed_suite.py --backend gloo --world-size 2
    python tests/torch/distributed_suite.py --backend xylem --world-size 3 --also-as mpi '*all_to_all*'

Many tests run only on the backends that they name. With `--also-as gloo`, xylem also runs the tests for
gloo. With `--also-as mpi`, it runs the tests of all_to_all on CPU tensors, which do not run on gloo.

The lists below give a reason for each skipped test. If the test skips itself, the reason is its own text,
which may be no more than the address of an issue of PyTorch. Other reasons are written in the scripts that
run the tests.

`tests/torch/conformance_page.py` writes this page. `tests/torch/check` runs the tests with the newest
torch and with the oldest supported one.
"""

REPOSITORY = """
## Tests of PyTorch's repository

`test_c10d_gloo.py`, `test_c10d_common.py` and `test_c10d_object_collectives.py` are not in torch's wheels.
They were run by hand, from files of PyTorch's repository of about the same version (commits 005a6a0b9ec2,
00eb953ba8db and 107beeaf289c). Wherever they use gloo, including objects of ProcessGroupGloo, xylem is used
instead. Each test uses two to four processes, as it chooses. Where a test expects an error with a certain
text, xylem must report an error, but its text may differ.

    python tests/torch/repository_suite.py --sources PYTORCH/test/distributed --backend xylem \\
        test_c10d_object_collectives test_c10d_gloo test_c10d_common

Functional collectives (eager, compiled, with gradients), meshes, DTensor, tensor parallelism, fully_shard
and checkpoints are tested by `tests/torch/functional_test.py`. Most tests of PyTorch's repository about these
run on a backend of threads in one process, or need GPUs. Of those that do not, these were run on 27 November
2026 (torch 2.15.0), each file by a command like the one above. Executed, passed, failed, skipped:

| file below test/distributed, commit | gloo | xylem |
| --- | --- | --- |
| _composable/test_replicate, a0a7d4cbec33 | 6, 6, 0, 3 | 6, 6, 0, 3 |
| _composable/fsdp/test_fully_shard_training, 001df7b5cd51 | 24, 23, 1, 0 | 24, 23, 1, 0 |
| checkpoint/test_file_system_checkpoint_cpu, 02dee1ad31d0 | 10, 10, 0, 0 | 10, 10, 0, 0 |
| checkpoint/test_pg_transport, 03deb364e634 | 3, 3, 0, 0 | 3, 3, 0, 0 |
| tensor/test_api, 06476167521d | 8, 8, 0, 0 | 8, 8, 0, 0 |
| tensor/test_init, 0f65ff5b4dd0 | 7, 7, 0, 0 | 7, 7, 0, 0 |
| tensor/test_dtensor, 0117a27494c0 | 33, 32, 1, 0 | 33, 32, 1, 0 |
| tensor/test_redistribute (of an unknown commit) | 23, 21, 2, 0 | 23, 21, 2, 0 |
| tensor/test_embedding_ops, 02e09d1d39b0 | 5, 4, 1, 0 | 5, 4, 1, 0 |
| tensor/parallel/test_tp_style, 02dd4ff18a6e | 11, 11, 0, 11 | 11, 11, 0, 11 |
| tensor/parallel/test_tp_examples, 4362e82b588d | 5, 5, 0, 0 | 5, 5, 0, 0 |

The five tests that fail do so on both with the same errors, since files and torch are of different versions.
Of some files only the tests with processes were taken. Torch's helpers skip all tests of FSDP2 without GPUs,
also those that are marked for CPUs; `repository_suite.py` lifts that. The pipelining tests need GPUs.

The three files named first:

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
    print("\nFailed tests:\n")
    failed = [
        f"- {run['backend']}, {run['world_size']} processes: `{name.removeprefix('Suite.')}`"
        for run in runs
        for name, test in run["tests"].items()
        if test["outcome"] == "failed"
    ]
    print("\n".join(failed) or "None.")
    largest = {
        run["backend"]: run for run in whole if run["world_size"] == sizes[-1]
    }
    if {"xylem", "gloo"} <= largest.keys():
        print(f"\nTests that run on gloo and not on xylem, with {sizes[-1]} processes:\n")
        print_differences(largest["xylem"]["tests"], largest["gloo"]["tests"])
    print(f"\nNumber of tests that were skipped on xylem, by reason, with {sizes[-1]} processes:\n")
    print_reasons(largest["xylem"]["tests"])
    print_repository([run for run in everything if "world_size" not in run])
    return 0


def print_item(text: str) -> None:
    """Prints an item of a list, with limited line lengths."""
    lines = textwrap.wrap(text, 116, break_long_words=False, break_on_hyphens=False)
    print("- " + "\n  ".join(lines))


def print_differences(tests: dict[str, dict], gloo: dict[str, dict]) -> None:
    """Lists, for each reason, the tests that are skipped although gloo runs them."""
    names = collections.defaultdict(list)
    for name, test in tests.items():
        if test["outcome"] == "skipped" and gloo.get(name, test)["outcome"] != "skipped":
            names[test["why"]].append(name.removeprefix("Suite."))
    for reason, of_reason in names.items():
        print_item(f"{reason}:")
        for name in of_reason:
            print(f"  - `{name}`")


def print_reasons(tests: dict[str, dict]) -> None:
    """Lists the number of skipped tests for each reason."""
    reasons = collections.Counter(test["why"] for test in tests.values() if test["outcome"] == "skipped")
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        print_item(f"{count}: {reason}")


def print_repository(runs: list[dict]) -> None:
    """Prints the results of repository_suite.py for each backend, and the skipped tests."""
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
    print("\nFailed tests:\n")
    print("\n".join(failed) or "None.")
    print("\nTests that run on gloo and not on xylem:\n")
    print_differences(tests.get("xylem", {}), tests.get("gloo", {}))
    print("\nNumber of tests that were skipped on xylem, by reason:\n")
    print_reasons(tests["xylem"])


if __name__ == "__main__":
    sys.exit(main())
