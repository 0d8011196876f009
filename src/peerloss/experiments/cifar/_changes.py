"""Settings that differ from a spec, as ``--set name=value`` gives them."""

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

    from peerloss.experiments.cifar._spec import CifarRun

#: Settings of a run that may be changed; all others are those of its recipe.
_OF_THE_RUN = ("architecture", "width", "holdout", "held_out_images", "rows")
_KINDS = {
    bool: "True or False",
    int: "an integer",
    float: "a number",
    str: "a 'quoted' name",
    tuple: "a tuple",
    NoneType: "None",
}


def changed(run: CifarRun, change: str) -> CifarRun:
    """Apply one ``name=value``; names of the recipe need no prefix."""
    path, _, text = change.partition("=")
    try:
        value = as_plain(ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InvalidInputError(
            f"`set` must be name=value, the value a number, True, False, None, a tuple or a 'quoted' name; "
            f"got {change!r}."
        ) from None
    names = path.strip().split(".")
    if names in (["seed"], ["random_state"]):
        raise InvalidInputError(
            f"`set` cannot change the seed, as every run has its own; got {change!r}. Choose the first one "
            "with `--seed` and how many with `--seeds` (in Python `first_seed` and `seeds`)."
        )
    if names[0] in _OF_THE_RUN:
        return _set(run, names, value)  # type: ignore[no-any-return]
    return replace(run, recipe=_set(run.recipe, names, value))


def _set(record: Any, path: Sequence[str], value: Any) -> Any:
    head, *rest = path
    if isinstance(record, Sieve) and head == "renew":
        warn_renamed("sieve.renew", "sieve.refresh_every")
        head = "refresh_every"
    known = [f.name for f in fields(record)]
    if head not in known:
        raise InvalidInputError(
            f"`set`: there is no setting {head!r}; {type(record).__name__} has {', '.join(known)}."
        )
    hint = get_type_hints(type(record), localns={"Sieve": Sieve})[head]
    kinds = (hint,) if get_origin(hint) is tuple else get_args(hint) or (hint,)
    inner = next((kind for kind in kinds if is_dataclass(kind)), None)
    if rest and inner is None:
        raise InvalidInputError(f"`set`: {head!r} has no settings of its own, such as {rest[0]!r}.")
    if rest:
        present = getattr(record, head)
        filled = _set(Sieve() if present is None else present, rest, value)
        # sieve.rounds=3 says nothing about methods without a sieve, but it has to make sense.
        return record if present is None else replace(record, **{head: filled})
    if not any(_is_of(value, kind) for kind in kinds):
        expected = [_KINDS[get_origin(kind) or kind] for kind in kinds if kind is not inner]
        if inner is not None:
            expected.append(f"changed by its own settings, such as {head}.{fields(inner)[0].name}=VALUE")
        raise InvalidInputError(f"`set`: `{head}` must be {' or '.join(expected)}; got {value!r}.")
    return replace(record, **{head: value})


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of that kind; True and False are no numbers, whole numbers are."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else get_origin(kind) or kind)
