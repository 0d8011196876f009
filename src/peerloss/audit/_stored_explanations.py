"""Explanations of suspects as JSON in an audit folder; on reading, nothing in the file is trusted.

The file is an object ``{"rows": [...]}``. Each entry has the row of the suspect, [class, probability] pairs,
similar rows, and [column, value, comparison] of unusual values. Rows are positions in the data, from 0, and
classes are positions in the list of classes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import IntArray
    from peerloss.audit._explanations import Explanations

#: Classes per suspect that are stored, most probable first.
MAX_CLASSES = 5
#: Longer texts are truncated.
MAX_TEXT = 300


@dataclass(frozen=True)
class StoredExplanation:
    """Why a row is suspect; rows are positions in the data."""

    probabilities: list[tuple[int, float]]
    """(class, probability), largest first."""
    nearest: list[int]
    given_examples: list[int]
    suggested_examples: list[int]
    unusual: list[tuple[str, str, str]]
    """(column, value, comparison)."""


def dump_explanations(found: Explanations, rows: IntArray, *, with_values: bool = True) -> str:
    """Return the JSON text.

    ``rows`` are the positions in the data of the rows of the audit. ``with_values`` includes unusual values,
    which mean nothing if the features are pixels or embeddings.
    """

    def positions(places: IntArray) -> list[int]:
        return [int(rows[place]) for place in places if place >= 0]

    entries = []
    for number, suspect in enumerate(found.suspects):
        proba = found.probabilities[number]
        best = np.argsort(-proba, kind="stable")[:MAX_CLASSES]
        entries.append(
            {
                "row": int(rows[suspect]),
                "probabilities": [[int(k), round(float(proba[k]), 6)] for k in best],
                "nearest": positions(found.nearest[number]),
                "given": positions(found.given_examples[number]),
                "suggested": positions(found.suggested_examples[number]),
                "unusual": [
                    [value.column[:MAX_TEXT], value.value[:MAX_TEXT], value.comparison[:MAX_TEXT]]
                    for value in found.unusual[number]
                    if with_values
                ],
            }
        )
    return json.dumps({"rows": entries}, ensure_ascii=True, allow_nan=False)


def load_explanations(text: str, *, n_rows: int, n_classes: int) -> dict[int, StoredExplanation]:
    """Return row → explanation; raise ``ValueError`` if the text is not what :func:`dump_explanations` wrote.

    Rows must be below ``n_rows`` and classes below ``n_classes``.
    """
    content = json.loads(text)

    def position(value: Any, end: int) -> int:
        if type(value) is not int or not 0 <= value < end:
            raise ValueError(f"{value!r} is not a position below {end}")
        return value

    def probability(value: Any) -> float:
        if type(value) not in {int, float} or not 0.0 <= value <= 1.0 + 1e-6:
            raise ValueError(f"{value!r} is not a probability")
        return float(value)

    def text_of(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is not a text")  # noqa: TRY004 - callers handle ValueError only
        return value

    def row(value: Any) -> int:
        return position(value, n_rows)

    found = {}
    for entry in _list(_get(content, "rows")):
        found[row(_get(entry, "row"))] = StoredExplanation(
            probabilities=[
                (position(k, n_classes), probability(p)) for k, p in _tuples(entry, "probabilities", 2)
            ],
            nearest=_each(entry, "nearest", row),
            given_examples=_each(entry, "given", row),
            suggested_examples=_each(entry, "suggested", row),
            unusual=[
                (text_of(column), text_of(value), text_of(words))
                for column, value, words in _tuples(entry, "unusual", 3)
            ],
        )
    return found


def _get(entry: Any, name: str) -> Any:
    if not isinstance(entry, dict) or name not in entry:
        raise ValueError(f"an entry has no {name!r}")
    return entry[name]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("not a list")  # noqa: TRY004 - callers handle ValueError only
    return value


def _each(entry: Any, name: str, check: Callable[[Any], int]) -> list[int]:
    return [check(value) for value in _list(_get(entry, name))]


def _tuples(entry: Any, name: str, size: int) -> list[list[Any]]:
    lists = [_list(value) for value in _list(_get(entry, name))]
    if any(len(values) != size for values in lists):
        raise ValueError(f"{name!r} must have lists of {size}")
    return lists
