# SPDX-License-Identifier: Apache-2.0
"""The version of the library that the package was built from."""

from __future__ import annotations

from importlib import import_module

import torch  # noqa: F401  Loads torch's libraries, which the extension needs.


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _load():
    try:
        native = import_module("xylem._C")
    except ImportError as error:
        raise ImportError(
            f"xylem: its extension cannot be loaded ({error}). If a system library is missing: "
            "apt-get install libucx0 libhwloc15 libfmt9 libhwy1 libpugixml1v5 libsodium23. "
            f"If torch has changed since the installation (it is {torch.__version__} now): "
            "pip install --force-reinstall --no-deps xylem from its sources."
        ) from error
    if _minor(native.torch_version) != _minor(torch.__version__):
        raise ImportError(
            f"xylem: built against torch {native.torch_version}, and this is torch "
            f"{torch.__version__}, whose C++ interface may differ: install xylem again from its "
            "sources (pip install --force-reinstall --no-deps ...)"
        )
    return native


native = _load()
__version__: str = native.__version__
