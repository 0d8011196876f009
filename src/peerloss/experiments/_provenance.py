"""Where figures were made: versions and the kind of machine, nothing that names it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
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


@cache
def commit() -> str:
    """Return the commit of the sources, or where git cannot tell the variable ``PEERLOSS_COMMIT``."""
    git = shutil.which("git")
    folder = str(Path(__file__).parent)

    def ask(*question: str) -> str:
        if git is None:
            return ""
        run = subprocess.run([git, "-C", folder, *question], capture_output=True, text=True, check=False)  # noqa: S603 (fixed words)
        return run.stdout.strip() if run.returncode == 0 else ""

    if not ask("ls-files", "--", __file__):  # installed: a repository around it is somebody else's
        return os.environ.get("PEERLOSS_COMMIT", "unknown")
    found = ask("rev-parse", "--short", "HEAD")
    return f"{found} with changes" if ask("status", "--porcelain", "--", ":/src") else found
