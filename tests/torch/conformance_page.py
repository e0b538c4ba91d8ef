# SPDX-License-Identifier: Apache-2.0
"""Prints docs/conformance.md from what distributed_suite.py wrote.

    python conformance_page.py RESULTS.json ... > docs/conformance.md

Give the results of one version of torch: of each backend and number of processes one file, and of
"--also-as mpi '*all_to_all*'" for xylem.
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

What ships with torch is what is run: `test_c10d_common.py` and the tests of functional collectives are
not in its wheels.
"""


def main() -> int:
    runs = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
    if not runs:
        print(__doc__, file=sys.stderr)
        return 2
    versions = {run["torch"] for run in runs}
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
        f"- {run['backend']}, {run['world_size']} processes: `{name}`"
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
                print(f"- `{name}`: {test['why']}")
    print(f"\nWhy tests were skipped on xylem, {sizes[-1]} processes:\n")
    print("| tests | reason |\n| ---: | --- |")
    reasons = collections.Counter(
        test["why"] for test in largest["xylem"]["tests"].values() if test["outcome"] == "skipped"
    )
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        print(f"| {count} | {reason} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
