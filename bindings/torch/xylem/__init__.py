# SPDX-License-Identifier: Apache-2.0
"""Xylem for PyTorch: ``torch.distributed.init_process_group("xylem")``.

Importing the package registers the backend. Versions of torch that look for backends by entry point
(``torch.distributed.backends``) find it without the import.
"""

from __future__ import annotations

import os

# More hardware queues, so that the calls of more groups may wait on the GPU at a time (docs/gpu.md). CUDA reads the
# variable when it starts, which is usually later.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

from ._backend import NAME, register, register_device
from ._record import configure, dump, dump_on_signal, record, record_stacks
from ._version import __version__

configure()
register()

__all__ = [
    "NAME",
    "__version__",
    "dump",
    "dump_on_signal",
    "record",
    "record_stacks",
    "register",
    "register_device",
]
