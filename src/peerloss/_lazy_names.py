"""Public names of a package that are imported when they are first used (PEP 562).

A command that only reads files then needs neither torch nor scikit-learn. For type checkers, each package
also imports its names in an ``if TYPE_CHECKING`` block; a test compares the two.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def lazy_names(
    package: str, names: Mapping[str, str], *, modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports its public names when they are used.

    ``dir()`` lists ``__all__`` of the package and ``modules``.

    Parameters
    ----------
    package
        ``__name__`` of the package.
    names
        Module of the package → the names that it provides, separated by spaces.
    modules
        Modules of the package that are attributes without having been imported.

    Examples
    --------
    >>> get, names = lazy_names("peerloss", {"exceptions": "PeerLossError"})
    >>> get("PeerLossError").__name__
    'PeerLossError'
    """
    homes = {name: f"{package}.{module}" for module, text in names.items() for name in text.split()}
    submodules = frozenset(modules)

    def __getattr__(name: str) -> Any:  # noqa: N807 - the name that Python looks for
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        elif name in submodules:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    def __dir__() -> list[str]:  # noqa: N807 - the name that Python looks for
        return sorted({*sys.modules[package].__all__, *submodules})

    return __getattr__, __dir__
