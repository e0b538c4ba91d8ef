# SPDX-License-Identifier: Apache-2.0
"""The last calls of this process, in the form of torch's flight recorder."""

from __future__ import annotations

import pickle
import signal
from typing import Any

from ._version import native


def record() -> dict[str, Any]:
    """The last 2000 calls (TORCH_FR_BUFFER_SIZE) on all of this process' groups.

    A dictionary as torch's flight recorder makes it: under "entries" one for each call, oldest
    first, with "profiling_name", "process_group" (name, description), "collective_seq_id",
    "input_sizes", "input_dtypes", "output_sizes", "output_dtypes" (of the first tensor), "state"
    ("started", "completed" or "failed"), "time_created_ns" and "time_discovered_completed_ns" (of
    the wall clock) and "timeout_ms"; under "pg_config" the groups and their ranks.
    """
    return pickle.loads(native.record())


def dump() -> str:
    """Writes the same, pickled, to a file for this process and returns its path.

    The file is TORCH_FR_DUMP_TEMP_FILE, by default /tmp/xylem_trace_rank_, and the rank in the
    world. The first time-out of a process does so, too. torch.distributed.flight_recorder.fr_trace
    reads a folder of these files.

    Raises:
        torch.distributed.DistBackendError: the file cannot be written.
    """
    return native.dump()


def dump_on_signal(number: int = signal.SIGUSR2) -> None:
    """Makes the process dump() whenever it gets the signal, whatever its threads are doing.

    Installs a handler for the signal, which nothing else may use; Python's own handlers do not run
    while a thread waits for a call.

    Raises:
        ValueError: there is no such signal, or it cannot be caught.
    """
    native.dump_on_signal(int(number))
