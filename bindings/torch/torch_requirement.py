# SPDX-License-Identifier: Apache-2.0
"""The package's requirement of torch, for scikit-build-core: a build works with one minor version of torch only."""

from __future__ import annotations

import os
import subprocess
import sys


def dynamic_metadata(field: str, settings: dict | None = None) -> list[str]:
    assert field == "dependencies" and not settings
    finder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "find_torch.py")
    found = subprocess.run([sys.executable, finder], text=True, capture_output=True, check=False)
    if found.returncode != 0:
        # There is no torch. A source distribution can be made without torch; a build fails in CMake, which prints the
        # reason.
        return ["torch>=2.7"]
    version = found.stdout.split(";")[0]
    return [f"torch=={'.'.join(version.split('.')[:2])}.*"]
