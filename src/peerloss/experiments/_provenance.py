"""Where results were computed: versions and the kind of machine, but not its name."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

#: Packages that can change results.
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
    """Return the commit of the sources, or ``PEERLOSS_COMMIT`` if git does not know it."""
    git = shutil.which("git")
    folder = str(Path(__file__).parent)

    def call_git(*arguments: str) -> str:
        if git is None:
            return ""
        run = subprocess.run([git, "-C", folder, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 (fixed words)
        return run.stdout.strip() if run.returncode == 0 else ""

    if not call_git("ls-files", "--", __file__):  # an installed package may be inside another repository
        return os.environ.get("PEERLOSS_COMMIT", "unknown")
    found = call_git("rev-parse", "--short", "HEAD")
    return f"{found} with changes" if call_git("status", "--porcelain", "--", ":/src") else found
