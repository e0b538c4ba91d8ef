# SPDX-License-Identifier: Apache-2.0
"""The last calls of this process, in the form of torch's flight recorder."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from typing import Any

from ._version import native

ENTRIES, MOST = 2000, 1_000_000


def _variable(*names: str) -> str | None:
    """The value of the first of these environment variables that is set."""
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def configure() -> None:
    """Configures the recorder from the environment. Called for each new group."""
    entries = _variable("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    if entries is not None and not entries.isdecimal():
        warnings.warn(
            f"xylem: TORCH_FR_BUFFER_SIZE is '{entries}', which is not a number of calls; "
            f"taking {ENTRIES}",
            stacklevel=2,
        )
        entries = None
    prefix = _variable("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    kept = ENTRIES if entries is None else min(int(entries), MOST)
    native.configure_record(kept, prefix or "")


def record() -> dict[str, Any]:
    """Returns the last 2000 calls (TORCH_FR_BUFFER_SIZE) on all groups of this process.

    The result is a dictionary like that of torch's flight recorder. "entries" has one element for
    each call, oldest first, with "profiling_name", "process_group" (name, description),
    "collective_seq_id", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes" (of the
    first tensor), "state" ("started", "completed" or "failed"), "time_created_ns" and
    "time_discovered_completed_ns" (wall clock) and "timeout_ms". "pg_config" has the groups and
    their ranks.
    """
    return pickle.loads(native.record())


def record_stacks(are_recorded: bool = True) -> None:
    """Sets whether records of calls include the Python stack of the caller ("frames", innermost first).

    With the stack, each call takes about 20 us longer.
    """
    native.record_stacks(are_recorded)


def dump() -> str:
    """Writes the result of record(), pickled, to a file for this process and returns its path.

    The name of the file is TORCH_FR_DUMP_TEMP_FILE followed by the rank in the world. If this
    variable is not set, the file is /tmp/xylem_trace_JOB/rank_RANK, where JOB is a number that was drawn for the job.
    The first time-out or mismatch that a process detects causes a dump, too.
    torch.distributed.flight_recorder.fr_trace reads a folder of these files.

    Raises:
        torch.distributed.DistBackendError: the file cannot be written.
    """
    return native.dump()


def dump_on_signal(number: int = signal.SIGUSR2) -> None:
    """Makes the process dump() whenever it receives the signal, whatever its threads are doing.

    Installs a native handler for the signal, which must not be used for anything else. (Handlers
    written in Python do not run while the main thread waits for a call.)

    Raises:
        ValueError: there is no such signal, or it cannot be caught.
    """
    native.dump_on_signal(int(number))
