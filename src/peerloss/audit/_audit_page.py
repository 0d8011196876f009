"""The audit as one self-contained HTML page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._pages import render

if TYPE_CHECKING:
    from peerloss.audit._label_audit import LabelAudit

#: Suspects on the page; labels.csv has all of them.
MAX_SUSPECTS = 1000
#: Feature columns next to each suspect.
MAX_FEATURES = 12
#: With more classes, the page lists the most frequent confusions instead of the matrix.
MAX_CLASSES = 15
MAX_CONFUSIONS = 20
#: Longer cells are truncated; the full text is in their title.
MAX_CELL = 80
BINS = 20


def audit_page(audit: LabelAudit, *, title: str, features: pd.DataFrame | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    audit
        The result of the audit.
    title
        Heading of the page.
    features
        Columns to show next to each suspect, with the index of the audit's table; by default the features
        that were audited.
    """
    suspects = audit.suspects.head(MAX_SUSPECTS)
    shown_features = _features(audit, features).loc[suspects["rank"].to_numpy()]
    return render(
        "peerloss.audit",
        "audit.html",
        filters={"percent": "{:.1%}".format, "count": "{:,}".format},
        title=title,
        summary=audit.summary(),
        outlook=audit.outlook,
        matrix=_matrix(audit),
        confusions=_confusions(audit),
        priors=_priors(audit),
        bars=_bars(audit.table["p_error"].to_numpy()),
        columns=[
            {"name": str(name), "text": not pd.api.types.is_numeric_dtype(shown_features.iloc[:, place])}
            for place, name in enumerate(shown_features)
        ],
        suspects=_rows(suspects, shown_features),
        n_suspects=int(audit.table["flagged"].sum()),
    )


def cell_text(value: Any) -> str:
    """Return the text of a cell: floats with six digits, an empty text for missing values."""
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}"
    return str(value)


@dataclass(frozen=True)
class Cell:
    """A cell of the table of suspects."""

    text: str
    value: str
    """The sort key."""
    full: str = ""
    """The full text, if it was truncated."""


def _cell(value: Any) -> Cell:
    text = cell_text(value)
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if len(text) > MAX_CELL:
        return Cell(text[:MAX_CELL] + "…", text[:MAX_CELL], text)
    return Cell(text, repr(float(value)) if number and text else text)


def _features(audit: LabelAudit, features: pd.DataFrame | None) -> pd.DataFrame:
    """Return the features indexed by rank, since the index of the data may repeat."""
    found = audit.X if features is None else features
    ranks = audit.table["rank"].to_numpy()
    if found is None:
        return pd.DataFrame(index=ranks)
    table = found if isinstance(found, pd.DataFrame) else pd.DataFrame(np.asarray(found))
    return table.iloc[:, :MAX_FEATURES].set_axis(ranks, axis=0)


def _rows(suspects: pd.DataFrame, features: pd.DataFrame) -> list[dict[str, Any]]:
    found = []
    for number, (name, row) in enumerate(suspects.iterrows()):
        found.append(
            {
                "name": _cell(name),
                "given": _cell(row["given"]),
                "suggested": _cell(row["suggested"]),
                "changed": row["given"] != row["suggested"],
                "p_error": float(row["p_error"]),
                "rank": int(row["rank"]),
                "features": [_cell(value) for value in features.iloc[number]],
            }
        )
    return found


def _matrix(audit: LabelAudit) -> list[dict[str, Any]] | None:
    """Return T with intervals, row by row, unless it is unknown or too large to show."""
    if audit.noise is None or audit.noise_low is None or audit.noise_high is None:
        return None
    if len(audit.classes) > MAX_CLASSES:
        return None
    return [
        {
            "name": str(name),
            "cells": [
                {"rate": float(rate), "low": float(low), "high": float(high), "right": i == j}
                for j, (rate, low, high) in enumerate(
                    zip(audit.noise.transition[i], audit.noise_low[i], audit.noise_high[i], strict=True)
                )
            ],
        }
        for i, name in enumerate(audit.classes)
    ]


def _confusions(audit: LabelAudit) -> list[dict[str, Any]]:
    """Count pairs of given and suggested labels among the suspects, most frequent first."""
    found = audit.suspects
    found = found[found["given"] != found["suggested"]]
    counts = Counter(zip(found["given"].astype(str), found["suggested"].astype(str), strict=True))
    return [
        {"given": given, "suggested": suggested, "rows": rows}
        for (given, suggested), rows in counts.most_common(MAX_CONFUSIONS)
    ]


def _priors(audit: LabelAudit) -> list[dict[str, Any]]:
    order = np.argsort(-audit.noisy_prior, kind="stable")[:MAX_CLASSES]
    return [
        {
            "name": str(audit.classes[k]),
            "given": float(audit.noisy_prior[k]),
            "clean": float(audit.clean_prior[k]),
        }
        for k in order
    ]


def _bars(p_error: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return the histogram; heights are square roots of the counts, so that small bars remain visible."""
    counts, edges = np.histogram(p_error, bins=BINS, range=(0.0, 1.0))
    top = float(np.sqrt(max(counts.max(), 1)))
    return [
        {
            "low": float(low),
            "high": float(high),
            "rows": int(rows),
            "height": round(100 * float(np.sqrt(rows)) / top, 2),
        }
        for rows, low, high in zip(counts, edges[:-1], edges[1:], strict=True)
    ]
