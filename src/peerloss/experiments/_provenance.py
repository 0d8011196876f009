"""Where figures were made: versions and the kind of machine, nothing that names it."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib import metadata
from typing import Any

#: Packages that decide figures.
PACKAGES = ("peerloss", "numpy", "scipy", "scikit-learn", "torch", "numba")


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def machine() -> dict[str, Any]:
    """Return system, architecture and number of cores."""
    return {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()}
