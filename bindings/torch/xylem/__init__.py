# SPDX-License-Identifier: Apache-2.0
"""Xylem for PyTorch: ``torch.distributed.init_process_group("xylem")``.

Importing the package registers the backend. Where torch asks for backends by their entry point
(``torch.distributed.backends``) it is found without the import.
"""

from __future__ import annotations

from ._backend import NAME, register
from ._record import configure, dump, dump_on_signal, record
from ._version import __version__

configure()
register()

__all__ = ["NAME", "__version__", "dump", "dump_on_signal", "record", "register"]
