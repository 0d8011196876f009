"""Settings that differ from the experiment file, each in the form ``name=value``."""

from __future__ import annotations

import ast
from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from peerloss._deprecation import warn_renamed
from peerloss._validation import as_plain
from peerloss.exceptions import InvalidInputError
from peerloss.training import Sieve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss.experiments.cifar._cifar_experiment import CifarRun

#: Settings of the run itself that may be changed; all others belong to its recipe.
_RUN_SETTINGS = ("architecture", "width", "members", "holdout", "held_out_images", "rows")
_KINDS = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "a 'quoted' name",
    tuple: "a tuple",
    NoneType: "None",
}


def changed(run: CifarRun, change: str) -> CifarRun:
    """Apply one ``name=value``; settings of the recipe need no prefix."""
    path, _, text = change.partition("=")
    try:
        value = as_plain(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InvalidInputError(
            "`changes` must be name=value, with a number, True, False, None, a tuple or a 'quoted' name as "
            f"value; got {change!r}."
        ) from None
    names = path.strip().split(".")
    if names in (["seed"], ["random_state"]):
        raise InvalidInputError(
            f"`changes` cannot set the seed, because every run has its own; got {change!r}. Choose other "
            "seeds with `first_seed`."
        )
    if names[0] in _RUN_SETTINGS:
        return _set(run, names, value)  # type: ignore[no-any-return]
    return replace(run, recipe=_set(run.recipe, names, value))


def _set(settings: Any, path: Sequence[str], value: Any) -> Any:
    head, *rest = path
    if isinstance(settings, Sieve) and head == "renew":
        warn_renamed("sieve.renew", "sieve.refresh_every")
        head = "refresh_every"
    known = [f.name for f in fields(settings)]
    if head not in known:
        raise InvalidInputError(
            f"`changes`: unknown setting {head!r}; {type(settings).__name__} has {', '.join(known)}."
        )
    hint = get_type_hints(type(settings), localns={"Sieve": Sieve})[head]
    kinds = (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
    inner: Any = next((kind for kind in kinds if is_dataclass(kind)), None)
    if rest and inner is None:
        raise InvalidInputError(f"`changes`: {head!r} has no settings of its own, such as {rest[0]!r}.")
    if rest:
        present = getattr(settings, head)
        filled = _set(inner() if present is None else present, rest, value)
        # sieve.rounds=3 does not apply to methods without a sieve, but its value is checked for them too.
        return settings if present is None else replace(settings, **{head: filled})
    if not any(_is_of(value, kind) for kind in kinds):
        expected = [_KINDS[get_origin(kind) or kind] for kind in kinds if kind is not inner]
        if inner is not None:
            expected.append(f"changed by its own settings, such as {head}.{fields(inner)[0].name}=VALUE")
        raise InvalidInputError(f"`changes`: `{head}` must be {' or '.join(expected)}; got {value!r}.")
    return replace(settings, **{head: value})


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value has this type; True and False are not numbers, integers are floats."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else get_origin(kind) or kind)
