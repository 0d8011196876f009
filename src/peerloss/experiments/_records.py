"""What a line of a store must hold to be read: files may come from anywhere, and may be damaged."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from peerloss._validation import FIRST_INEXACT
from peerloss.experiments._cells import cell_key

Record = dict[str, Any]

#: Deepest nesting of a record. Whoever walks through one need not fear Python's recursion limit.
MAX_DEPTH = 8
_TEXTS = ("experiment", "protocol", "data_set", "prior", "method", "spec", "choose", "finished")
_COUNTS = ("seed", "n_test", "chosen")


def parse_line(line: bytes) -> Record:
    """Return the JSON object of a line; raise ``ValueError`` for everything that no store has written.

    NaN, infinities, lone surrogates (which no file or terminal can take) and deep nesting are refused.
    """
    try:
        record = json.loads(line, parse_constant=_refuse)
    except RecursionError:
        record = None
    if not isinstance(record, dict) or not _is_shallow(record, MAX_DEPTH):
        raise ValueError("not a record")
    if b"\\ud" in line.lower():
        json.dumps(record, ensure_ascii=False).encode()
    return record


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _is_shallow(value: Any, depth: int) -> bool:
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(entry, depth - 1) for entry in inner)


def is_cell_record(record: Record) -> bool:
    """Whether a record has every field that is read, of the right kind; the fields are in ``Store``."""
    try:
        trials = record["trials"]
        accuracy, validation = (_numbers(trials[name]) for name in ("test_accuracy", "noisy_validation"))
        return (
            all(isinstance(record[name], str) for name in _TEXTS)
            and all(0 <= record[name] <= 1 for name in ("e_neg", "e_pos"))
            and all(type(record[name]) is int and 0 <= record[name] <= FIRST_INEXACT for name in _COUNTS)
            and record["n_test"] > 0
            and 0 <= record["seconds"] < math.inf
            and record["key"] == cell_key(record, record["spec"])
            and record["chosen"] < len(accuracy) == len(validation)
            and all(_is_list_of(values, len(accuracy)) for values in trials["settings"].values())
            and not bool(((accuracy < 0) | (accuracy > 1)).any())
            and (record["curve"] is None or _is_curve(record["curve"]))
            and (record["plane"] is None or _is_plane(record["plane"]))
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def _numbers(values: Any, *, gaps: bool = True) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a list of numbers as an array; ``None`` is a gap."""
    if not isinstance(values, list) or any(isinstance(value, str | bool) for value in values):
        raise TypeError(values)
    array = np.array([np.nan if value is None else float(value) for value in values])
    if np.isinf(array).any() or (not gaps and np.isnan(array).any()):
        raise ValueError(values)
    return array


def _is_list_of(values: Any, length: int) -> bool:
    """Whether these are the values of a setting, one per trial."""
    return isinstance(values, list) and len(values) == length


def _is_curve(curve: Record) -> bool:
    lengths = {len(_numbers(values, gaps=False)) for values in curve.values()}
    return "step" in curve and len(lengths) == 1


def _is_plane(plane: Record) -> bool:
    x, y = _numbers(plane["x"], gaps=False), _numbers(plane["y"], gaps=False)
    inside = np.stack([_numbers(line, gaps=False) for line in plane["probability"]])
    points = np.stack([_numbers(point, gaps=False) for point in plane["points"]])
    labels = _numbers(plane["noisy_labels"], gaps=False)
    return bool(
        inside.shape == (len(y), len(x)) and points.shape == (len(labels), 2) and min(inside.shape) > 1
    )
