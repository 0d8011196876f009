"""The audit as one self-contained HTML page."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._pages import counted, label_text, render, row_text
from peerloss.audit._label_audit import NUMBERS_EXPLAINED
from peerloss.audit._picture_files import small_picture

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss.audit._label_audit import LabelAudit
    from peerloss.datasets.tables import RowNumbers

#: Suspects on the page; labels.csv has all of them.
MAX_SUSPECTS = 1000
#: Feature columns next to each suspect.
MAX_FEATURES = 12
#: With more classes, the page lists the most frequent confusions instead of the matrix.
MAX_CLASSES = 25
MAX_CONFUSIONS = 20
#: Suspects whose picture is on the page; the review shows all.
MAX_PICTURES = 50
#: Longer cells are truncated, and those of long text; the full text is in their title.
MAX_CELL, MAX_LONG_CELL = 80, 600
#: A column is long text, shown first, if its cells have at least this many words and characters on average.
LONG_WORDS, LONG_CHARACTERS = 5, 40
BINS = 20


@dataclass(frozen=True, eq=False)
class PageContext:
    """What the page of an audit folder shows besides the audit."""

    folder: str
    """The folder, for the commands on the page."""
    rows: np.ndarray[Any, Any]
    """The position in the data of each row of the audit."""
    row_numbers: RowNumbers
    """The numbers of the rows of the data, as a spreadsheet shows them."""
    pictures: list[Path] | None = None
    """The picture of each row of the data."""
    described: str = ""
    """How the table was read: the text of its summary."""


def audit_page(audit: LabelAudit, *, title: str, context: PageContext | None = None) -> str:
    """Return the page with the heading ``title``.

    Without ``context``, rows have the names in the index, and the commands have a placeholder for the folder.
    """
    suspects = audit.suspects.head(MAX_SUSPECTS)
    features = _features(audit).loc[suspects["rank"].to_numpy()]
    long = long_columns(features)
    places = _places(audit)[: len(suspects)]
    return render(
        "peerloss.audit",
        "audit.html",
        script="suspects.js",
        filters={"percent": "{:.1%}".format, "count": "{:,}".format, "counted": counted, "label": label_text},
        title=title,
        summary=audit.summary(),
        explained=NUMBERS_EXPLAINED,
        outlook=audit.outlook,
        row_noise=audit.row_noise,
        folder=shlex.quote(context.folder) if context else "FOLDER",
        first_row=None if context is None else context.row_numbers[0],
        described="" if context is None else context.described,
        matrix=_matrix(audit),
        confusions=_confusions(audit.suspects),
        priors=_priors(audit),
        bars=_bars(audit.table["p_error"].to_numpy()),
        columns=[
            {
                "name": str(name),
                "text": not pd.api.types.is_numeric_dtype(features.iloc[:, place]),
                "long": place in long,
            }
            for place, name in enumerate(features)
        ],
        suspects=_rows(audit, suspects, features, places, context),
        pictured=context is not None and context.pictures is not None,
        max_pictures=MAX_PICTURES,
        classes=[label_text(label) for label in audit.classes],
        n_suspects=int(audit.table["flagged"].sum()),
    )


def printable(name: str) -> str:
    r"""Return the name of a file with escapes for bytes that are not UTF-8, which cannot be written as text.

    >>> printable("é.csv"), printable("\udcff.csv")
    ('é.csv', '\\xff.csv')
    """
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def cell_text(value: Any) -> str:
    """Return the text of a cell: floats with six digits, an empty text for missing values."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):  # lists are never missing
        return ""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def long_columns(features: pd.DataFrame) -> set[int]:
    """Return the places of columns of long text."""
    found = set()
    for place in range(features.shape[1]):
        column = features.iloc[:, place].dropna()
        if not len(column) or pd.api.types.is_numeric_dtype(column):
            continue
        texts = [str(value) for value in column.iloc[:200]]
        words = float(np.mean([len(text.split()) for text in texts]))
        if words >= LONG_WORDS and float(np.mean([len(text) for text in texts])) >= LONG_CHARACTERS:
            found.add(place)
    return found


def _cell(value: Any, limit: int = MAX_CELL) -> dict[str, str]:
    """Return the text, the sort key and, if the text was truncated, the full text."""
    text = cell_text(value)
    if len(text) > limit:
        return {"text": text[:limit] + "…", "value": text[:MAX_CELL], "full": text}
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return {"text": text, "value": repr(float(value)) if number and text else text, "full": ""}


def _label_cell(label: Any) -> dict[str, str]:
    """Return the cell of a label; quotes show spaces around it, but are not part of its value."""
    cell = _cell(label)
    text = label_text(label)
    return cell if cell["full"] or text == cell["text"] else cell | {"text": text, "full": str(label)}


def _features(audit: LabelAudit) -> pd.DataFrame:
    """Return the features indexed by rank, since the index of the data may repeat; long text is first."""
    ranks = audit.table["rank"].to_numpy()
    shown = audit.X if audit.shown is None else audit.shown
    if shown is None:
        return pd.DataFrame(index=ranks)
    table = shown if isinstance(shown, pd.DataFrame) else pd.DataFrame(np.asarray(shown))
    long = long_columns(table)
    order = sorted(range(table.shape[1]), key=lambda place: place not in long)
    return table.iloc[:, order[:MAX_FEATURES]].set_axis(ranks, axis=0)


def _rows(
    audit: LabelAudit,
    suspects: pd.DataFrame,
    features: pd.DataFrame,
    places: np.ndarray[Any, Any],
    context: PageContext | None,
) -> list[dict[str, Any]]:
    """Return what the page shows of each suspect; ``places`` are their positions in the audit."""
    reasons = _reasons(audit, with_values=context is None or context.pictures is None)
    long = long_columns(features)
    limits = [MAX_LONG_CELL if place in long else MAX_CELL for place in range(features.shape[1])]
    names = pd.Index(audit.classes)
    given, suggested = (names.get_indexer(pd.Index(suspects[name])) for name in ("given", "suggested"))
    return [
        {
            "name": _row_name(name, int(places[number]), context),
            "given_code": int(given[number]),
            "suggested_code": int(suggested[number]),
            "given": _label_cell(row["given"]),
            "suggested": _label_cell(row["suggested"]),
            "p_error": float(row["p_error"]),
            "p_suggested": float(row["p_suggested"]),
            "rank": int(row["rank"]),
            "why": reasons[number] if number < len(reasons) else [],
            "picture": _thumbnail(int(places[number]), context) if number < MAX_PICTURES else "",
            "features": [_cell(*pair) for pair in zip(features.iloc[number], limits, strict=True)],
        }
        for number, (name, row) in enumerate(suspects.iterrows())
    ]


def _row_name(name: Any, place: int, context: PageContext | None) -> dict[str, str]:
    """Return the row's number in the file, and its name if it has another one than its position."""
    if context is None:
        return _cell(name)
    row = int(context.rows[place])
    return _cell(row_text(name, row, context.row_numbers[row]))


def reason_texts(audit: LabelAudit, *, with_values: bool) -> list[str]:
    """Return why rows of an audit are suspect; an empty text if a row is none, or not among the first."""
    texts = [""] * len(audit.table)
    for place, lines in zip(_places(audit), _reasons(audit, with_values=with_values), strict=False):
        texts[place] = "; ".join(lines)
    return texts


def _places(audit: LabelAudit) -> np.ndarray[Any, Any]:
    """Return the positions of the suspects in the audit, the first in rank first."""
    places = np.flatnonzero(audit.table["flagged"].to_numpy())
    return places[np.argsort(audit.table["rank"].to_numpy()[places])]


def _reasons(audit: LabelAudit, *, with_values: bool) -> list[list[str]]:
    """Return the labels of similar rows and the unusual values of suspects, as text."""
    found, given = audit.explanations, audit.table["given"].to_numpy()
    reasons = []
    for nearest, values in zip(found.nearest, found.unusual, strict=False):
        labels = [label_text(given[place]) for place in nearest if place >= 0]
        lines = [f"similar rows: {', '.join(labels)}"] if labels else []
        reasons.append(lines + [str(value) for value in values if with_values])
    return reasons


def _thumbnail(place: int, context: PageContext | None) -> str:
    """Return the picture of a row as a data URI, or an empty text if it cannot be shown."""
    if context is None or context.pictures is None:
        return ""
    row = int(context.rows[place])
    return small_picture(context.pictures[row]) if row < len(context.pictures) else ""


def _matrix(audit: LabelAudit) -> list[dict[str, Any]] | None:
    """Return T with intervals, row by row, unless it is unknown or too large to show."""
    low, high = audit.noise_low, audit.noise_high
    if audit.noise is None or low is None or high is None or len(audit.classes) > MAX_CLASSES:
        return None
    entries = np.stack([audit.noise.transition, low, high], axis=2).tolist()
    return [
        {
            "name": label_text(name),
            "cells": [
                {"rate": rate, "low": low, "high": high, "right": i == j}
                for j, (rate, low, high) in enumerate(entries[i])
            ],
        }
        for i, name in enumerate(audit.classes)
    ]


def _confusions(suspects: pd.DataFrame) -> list[dict[str, Any]]:
    """Count pairs of given and suggested labels among the suspects, most frequent first."""
    counts = Counter(zip(*(suspects[name].map(label_text) for name in ("given", "suggested")), strict=True))
    return [
        {"given": given, "suggested": suggested, "rows": rows}
        for (given, suggested), rows in counts.most_common(MAX_CONFUSIONS)
    ]


def _priors(audit: LabelAudit) -> list[dict[str, Any]]:
    order = np.argsort(-audit.noisy_prior, kind="stable")[:MAX_CLASSES]
    shares = zip(audit.classes[order], audit.noisy_prior[order], audit.clean_prior[order], strict=True)
    return [
        {"name": label_text(name), "given": float(given), "clean": float(clean)}
        for name, given, clean in shares
    ]


def _bars(p_error: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return the histogram; heights are square roots of the counts, so that small bars remain visible."""
    counts, edges = np.histogram(p_error, bins=BINS, range=(0.0, 1.0))
    heights = 100 * np.sqrt(counts) / np.sqrt(max(counts.max(), 1))
    return [
        {"low": float(low), "high": float(high), "rows": int(rows), "height": round(float(height), 2)}
        for rows, low, high, height in zip(counts, edges[:-1], edges[1:], heights, strict=True)
    ]
