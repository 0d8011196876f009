"""Deprecated names that still work and warn with the new name."""

from __future__ import annotations

import functools
import inspect
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class RenamedWarning(DeprecationWarning):
    """A deprecated name was used. The command line prints these warnings, which Python hides by default."""


_Function = TypeVar("_Function", bound="Callable[..., Any]")
_Class = TypeVar("_Class", bound=type)

#: Modules that call ``__init__`` of a dataclass for the user: ``dataclasses.replace``, ``copy.replace``.
_CALLERS_OF_INIT = ("dataclasses", "copy")


def renamed(
    module: str, names: Mapping[str, str], *, otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that had these names.

    The new home is imported when an old name is used, so a package may point to one above it.

    Parameters
    ----------
    module
        ``__name__`` of the module.
    names
        Old name → full new one, such as ``"split_budget": "peerloss.crowd.untruthful_split"``.
    otherwise
        The ``__getattr__`` for all other names; by default they raise ``AttributeError``.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 - the name that Python looks for
        if name not in names:
            if otherwise is not None:
                return otherwise(name)
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = names[name].rpartition(".")
        warn_renamed(f"{module}.{name}", names[name])
        return getattr(import_module(home), new)

    return __getattr__


def renamed_parameters(**names: str) -> Callable[[_Function], _Function]:
    """Let a function accept keywords under their deprecated names; ``names`` maps old to new.

    The signature stays that of the function, so :func:`inspect.signature` and ``get_params`` of scikit-learn
    see new names only. For an estimator decorate ``__init__``.
    """
    return functools.partial(_accept_old_names, names=names, both=False)


def renamed_fields(**names: str) -> Callable[[_Class], _Class]:
    """Let a dataclass accept and return fields under their deprecated names; ``names`` maps old to new.

    If both names are given, the value of the old one is used: :func:`dataclasses.replace` passes all fields
    under their new names as well.
    """

    def decorate(cls: _Class) -> _Class:
        cls.__init__ = _accept_old_names(cls.__init__, names=names, both=True)  # type: ignore[misc]
        for old, new in names.items():
            setattr(cls, old, renamed_attribute(old, new))
        return cls

    return decorate


def renamed_attribute(old: str, new: str) -> property:
    """Return a read-only property that gives the attribute ``new`` under its deprecated name."""
    return property(functools.partial(_read_old_name, old, new), doc=f"Deprecated name of ``{new}``.")


def _accept_old_names(function: _Function, *, names: Mapping[str, str], both: bool) -> _Function:
    @functools.wraps(function)
    def accept_old_names(*args: Any, **kwargs: Any) -> Any:
        for old in names.keys() & kwargs.keys():
            if names[old] in kwargs and not both:
                raise TypeError(
                    f"{function.__qualname__}() got both `{names[old]}` and its deprecated name `{old}`."
                )
            warn_renamed(old, names[old])
            kwargs[names[old]] = kwargs.pop(old)
        return function(*args, **kwargs)

    return accept_old_names  # type: ignore[return-value]


def _read_old_name(old: str, new: str, owner: Any) -> Any:
    warn_renamed(old, new)
    return getattr(owner, new)


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that ``old`` is deprecated in favour of ``new``.

    ``stacklevel`` counts the frames up to the caller. If that is :func:`dataclasses.replace`, the warning
    points at the line that called it.
    """
    frame = inspect.currentframe()
    for _ in range(stacklevel - 1):
        frame = None if frame is None else frame.f_back
    while frame is not None and frame.f_globals.get("__name__") in _CALLERS_OF_INIT:
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(
        f"`{old}` is deprecated and will be removed in the next release. Use `{new}`.",
        RenamedWarning,
        stacklevel=stacklevel,
    )
