"""Commands that install missing packages, the same in every message, and imports of optional packages.

They name the packages themselves, not an extra of peerloss, so they work in any folder, whether peerloss was
installed from an index, a wheel or a clone.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.requirements import Requirement


def requirements(extra: str | None) -> list[Requirement]:
    """Return the requirements of the core (``None``), or those that an extra adds."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - slow to import

    needed = [Requirement(text) for text in metadata.requires("peerloss") or []]
    if extra is None:
        return [r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [
        r for r in needed if r.marker and "extra" in str(r.marker) and r.marker.evaluate({"extra": extra})
    ]


def pip_install(packages: Iterable[Requirement]) -> str:
    """Return the command that installs packages with their bounds."""
    return "pip install " + " ".join(f'"{r.name}{r.specifier}"' for r in packages)


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    >>> install_command("fast")
    'pip install "numba>=0.60"'
    """
    try:
        needed = requirements(extra)
    except metadata.PackageNotFoundError:  # only the source files are there
        needed = []
    return pip_install(needed) if needed else f'pip install ".[{extra}]" in the folder of peerloss'


def import_extra(module: str, extra: str, what: str, *, advice: str = "") -> Any:
    """Import a module of an optional package; the error says which command installs it.

    ``what`` needs the module, and ``advice`` ends the message.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidInputError(
            f"{what} need a package that cannot be imported ({error}): {install_command(extra)}."
            + (f" {advice}" if advice else "")
        ) from error
