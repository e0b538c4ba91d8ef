# SPDX-License-Identifier: Apache-2.0
"""Replaces gloo by the backend in FRAMEWORKS_BACKEND in programs that request gloo from
torch.distributed.

Python imports this module when it starts, if its directory is in PYTHONPATH. The module writes each process group,
and the test that has created it, to the file FRAMEWORKS_GROUPS. So a run shows which tests have used the backend.
"""

import functools
import importlib.abc
import importlib.util
import inspect
import os
import re
import sys

BACKEND, GROUPS = os.environ.get("FRAMEWORKS_BACKEND", ""), os.environ.get("FRAMEWORKS_GROUPS", "")
CHANGED = "torch.distributed.distributed_c10d"


def replace_gloo(module, function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments, **options):
        bound = signature.bind(*arguments, **options)
        asked = bound.arguments.get("backend")
        if isinstance(asked, str):
            bound.arguments["backend"] = re.sub(r"\bgloo\b", BACKEND, asked)
        elif asked is None and function.__name__ == "init_process_group":
            bound.arguments["backend"] = BACKEND
        result = function(*bound.args, **bound.kwargs)
        if GROUPS:
            group = result if function.__name__ == "new_group" else None
            # A process that is not a member of a new group gets another object.
            if group is None or isinstance(group, module.ProcessGroup):
                with open(GROUPS, "a", encoding="utf-8") as file:
                    test = re.sub(r" \(\w+\)$", "", os.environ.get("PYTEST_CURRENT_TEST", ""))
                    file.write(f"{module.get_backend(group)}\t{test}\n")
        return result

    return call


class Finder(importlib.abc.MetaPathFinder):
    """Changes the module torch.distributed when torch imports it."""

    def find_spec(self, fullname, path, target=None):
        if fullname != CHANGED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            for name in ("init_process_group", "new_group"):
                setattr(module, name, replace_gloo(module, getattr(module, name)))

        spec.loader.exec_module = execute_and_change
        return spec


if BACKEND:
    sys.meta_path.insert(0, Finder())
