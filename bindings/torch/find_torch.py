# SPDX-License-Identifier: Apache-2.0
"""Prints facts about torch that CMake needs, separated by semicolons: its version, its directory,
and the preprocessor definitions that its headers need."""

import os
import site
import sys
import sysconfig

OLDEST = (2, 7)


def main() -> int:
    # pip builds in isolation, so the packages of the environment are not on the path yet.
    for path in (sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]):
        if path not in sys.path:
            sys.path.append(path)
    if site.ENABLE_USER_SITE and site.getusersitepackages() not in sys.path:
        sys.path.append(site.getusersitepackages())
    try:
        import torch
    except ImportError as error:
        print(
            f"cannot import torch with {sys.executable} ({error}); the backend is built against "
            "the torch that it will serve: pip install 'torch>=2.7' first",
            file=sys.stderr,
        )
        return 1
    version = torch.__version__.split("+")[0]
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        print(
            f"torch {version} is too old: the wheels before 2.7 use the old C++ ABI of strings; "
            "pip install 'torch>=2.7'",
            file=sys.stderr,
        )
        return 1
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        print(
            f"torch {version} was built with the old C++ ABI of strings, and Xylem with the new "
            "one: pip install a wheel of torch 2.7 or newer from PyPI",
            file=sys.stderr,
        )
        return 1
    found = [version, os.path.dirname(os.path.abspath(torch.__file__))]
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, f"_PYBIND11_{name}", None)
        if value is not None:
            found.append(f'PYBIND11_{name}="{value}"')
    print(";".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
