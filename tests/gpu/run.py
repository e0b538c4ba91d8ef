# SPDX-License-Identifier: Apache-2.0
"""The part of tests/gpu/check that runs on the machine with the GPU. It needs only Python 3.9.

    python3 run.py FOLDER RESULTS [--plan PLAN] [--seconds N] [--only PARTS] [--stand-in]
                   [--python PYTHON]
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import platform
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

sys.dont_write_bytecode = True

from runner import FAILED, PASSED, Runner, Trouble
from steps import ALL, CONFIRM, DECIDE, MACHINE, ON_GPU, ON_STAND_IN, PARTS, PLANS, Steps

# A lent machine may be had for 15 minutes, so both plans and one repetition must fit.
SECONDS = {DECIDE: 300, CONFIRM: 240, ALL: 540}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="what check --prepare has made")
    parser.add_argument("results", help="a folder for what was found; it is made")
    parser.add_argument("--plan", choices=PLANS, default=DECIDE,
                        help="decide: where time goes; confirm: whether results are right [decide]")
    parser.add_argument("--seconds", type=float, help="for all steps together "
                        f"[{SECONDS[DECIDE]}; {SECONDS[CONFIRM]} to confirm]")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas [all]")
    parser.add_argument("--stand-in", action="store_true",
                        help="use the carried stand-in for the driver, with small sizes")
    parser.add_argument("--python", help="the Python that has torch, if it is not this one")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    arguments.seconds = arguments.seconds or SECONDS[arguments.plan]
    unknown = set(arguments.only) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are "
                     + ", ".join(PARTS))
    return arguments


def unpack(folder: str, place: str) -> dict:
    """Unpacks the carried archive. Returns the facts that --prepare has stored in it."""
    with tarfile.open(os.path.join(folder, "carried.tar.gz")) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(place, filter="tar")
        else:
            archive.extractall(place)
    for wheel in glob.glob(os.path.join(place, "wheels", "*.whl")):
        is_sanitizer = "sanitizer" in os.path.basename(wheel)
        target = os.path.join(place, "sanitizer" if is_sanitizer else "python")
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            archive.extractall(target)
        # A wheel does not record which of its files are programs.
        for name in names if is_sanitizer else []:
            os.chmod(os.path.join(target, name), 0o755)
    with open(os.path.join(place, "prepared.json")) as file:
        return json.load(file)


def libraries(place: str) -> str:
    """Returns LD_LIBRARY_PATH with the carried libraries, and with those of the C++ compiler if
    necessary.
    """
    before = os.environ.get("LD_LIBRARY_PATH", "")
    carried = os.path.join(place, "lib")
    for also in ("", os.path.join(place, "lib", "compiler")):
        path = os.pathsep.join(part for part in (carried, also, before) if part)
        tried = subprocess.run([os.path.join(place, "bin", "xylem"), "--version"],
                               env={**os.environ, "LD_LIBRARY_PATH": path}, text=True,
                               capture_output=True, check=False)
        if tried.returncode == 0:
            return path
    raise Trouble(f"the carried programs do not start on this machine: {tried.stderr.strip()}; run "
                  "check --prepare on a machine whose C library is not newer than that here "
                  f"({' '.join(platform.libc_ver())})")


def environment(place: str, is_stand_in: bool) -> dict:
    path = libraries(place)
    variables = {"LD_LIBRARY_PATH": path}
    if is_stand_in:
        driver = os.path.join(place, "stand_in")
        variables |= {"LD_LIBRARY_PATH": driver + os.pathsep + path,
                      "FAKE_CUDA_KERNELS": os.path.join(driver, "libxylem_host_kernels.so"),
                      "FAKE_CUDA_DEVICES": "1", "FAKE_CUDA_DELAY_US": "20"}
    return variables


def main() -> int:
    arguments = parse()
    os.makedirs(arguments.results, exist_ok=True)
    # On SIGTERM, ends the running step, so that the summary is complete if the run is cut short.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="xylem-gpu-") as place:
        prepared = unpack(arguments.folder, place)
        facts = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                 "commit": prepared["commit"], "GPU": "unknown", "driver": "unknown",
                 "torch": "not asked", "cores": len(os.sched_getaffinity(0)),
                 "kernel": platform.release()}
        runner = Runner(arguments.results, arguments.seconds - (time.monotonic() - begin), facts,
                        judges=not arguments.stand_in, groups={MACHINE, *arguments.only})
        # Removes variables of the user that would change what is tested.
        for name in [name for name in runner.environment
                     if name.startswith("XYLEM_") or name == "CUDA_DEVICE_MAX_CONNECTIONS"]:
            del runner.environment[name]
        sizes = ON_STAND_IN if arguments.stand_in else ON_GPU
        stand_in = os.path.join(place, "stand_in") if arguments.stand_in else None
        steps = Steps(runner, place, sizes, stand_in, arguments.python)
        try:
            own = runner.environment
            runner.step(MACHINE, "the carried programs start", 30,
                        lambda: own.update(environment(place, arguments.stand_in)))
            if runner.outcomes[0].status == PASSED:
                steps.run(arguments.plan)
        finally:
            facts["seconds"] = round(time.monotonic() - begin)
            runner.write()
            runner.pack_logs()
    failed = [outcome.name for outcome in runner.outcomes if outcome.status == FAILED]
    print(f"{len(runner.outcomes)} steps in {facts['seconds']} s, {len(failed)} failed; see "
          f"{os.path.join(arguments.results, 'summary.md')}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
