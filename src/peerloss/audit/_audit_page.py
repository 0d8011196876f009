"""The audit as one self-contained HTML page."""

from __future__ import annotations

from collections import Counter
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


def audit_page(audit: LabelAudit, *, title: str) -> str:
    """Return the page with the heading ``title``."""
    suspects = audit.suspects.head(MAX_SUSPECTS)
    features = _features(audit).loc[suspects["rank"].to_numpy()]
    return render(
        "peerloss.audit",
        "audit.html",
        filters={"percent": "{:.1%}".format, "count": "{:,}".format},
        title=title,
        summary=audit.summary(),
        outlook=audit.outlook,
        matrix=_matrix(audit),
        confusions=_confusions(audit.suspects),
        priors=_priors(audit),
        bars=_bars(audit.table["p_error"].to_numpy()),
        columns=[
            {"name": str(name), "text": not pd.api.types.is_numeric_dtype(features.iloc[:, place])}
            for place, name in enumerate(features)
        ],
        suspects=_rows(suspects, features),
        n_suspects=int(audit.table["flagged"].sum()),
    )


def cell_text(value: Any) -> str:
    """Return the text of a cell: floats with six digits, an empty text for missing values."""
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _cell(value: Any) -> dict[str, str]:
    """Return the text, the sort key and, if the text was truncated, the full text."""
    text = cell_text(value)
    if len(text) > MAX_CELL:
        return {"text": text[:MAX_CELL] + "…", "value": text[:MAX_CELL], "full": text}
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return {"text": text, "value": repr(float(value)) if number and text else text, "full": ""}


def _features(audit: LabelAudit) -> pd.DataFrame:
    """Return the features indexed by rank, since the index of the data may repeat."""
    ranks = audit.table["rank"].to_numpy()
    shown = audit.X if audit.shown is None else audit.shown
    if shown is None:
        return pd.DataFrame(index=ranks)
    table = shown if isinstance(shown, pd.DataFrame) else pd.DataFrame(np.asarray(shown))
    return table.iloc[:, :MAX_FEATURES].set_axis(ranks, axis=0)


def _rows(suspects: pd.DataFrame, features: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            "name": _cell(name),
            "given": _cell(row["given"]),
            "suggested": _cell(row["suggested"]),
            "changed": row["given"] != row["suggested"],
            "p_error": float(row["p_error"]),
            "rank": int(row["rank"]),
            "features": [_cell(value) for value in features.iloc[number]],
        }
        for number, (name, row) in enumerate(suspects.iterrows())
    ]


def _matrix(audit: LabelAudit) -> list[dict[str, Any]] | None:
    """Return T with intervals, row by row, unless it is unknown or too large to show."""
    low, high = audit.noise_low, audit.noise_high
    if audit.noise is None or low is None or high is None or len(audit.classes) > MAX_CLASSES:
        return None
    entries = np.stack([audit.noise.transition, low, high], axis=2).tolist()
    return [
        {
            "name": str(name),
            "cells": [
                {"rate": rate, "low": low, "high": high, "right": i == j}
                for j, (rate, low, high) in enumerate(entries[i])
            ],
        }
        for i, name in enumerate(audit.classes)
    ]


def _confusions(suspects: pd.DataFrame) -> list[dict[str, Any]]:
    """Count pairs of given and suggested labels among the suspects, most frequent first."""
    wrong = suspects[suspects["given"] != suspects["suggested"]]
    counts = Counter(zip(wrong["given"].astype(str), wrong["suggested"].astype(str), strict=True))
    return [
        {"given": given, "suggested": suggested, "rows": rows}
        for (given, suggested), rows in counts.most_common(MAX_CONFUSIONS)
    ]


def _priors(audit: LabelAudit) -> list[dict[str, Any]]:
    order = np.argsort(-audit.noisy_prior, kind="stable")[:MAX_CLASSES]
    shares = zip(audit.classes[order], audit.noisy_prior[order], audit.clean_prior[order], strict=True)
    return [
        {"name": str(name), "given": float(given), "clean": float(clean)} for name, given, clean in shares
    ]


def _bars(p_error: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return the histogram; heights are square roots of the counts, so that small bars remain visible."""
    counts, edges = np.histogram(p_error, bins=BINS, range=(0.0, 1.0))
    heights = 100 * np.sqrt(counts) / np.sqrt(max(counts.max(), 1))
    return [
        {"low": float(low), "high": float(high), "rows": int(rows), "height": round(float(height), 2)}
        for rows, low, high, height in zip(counts, edges[:-1], edges[1:], heights, strict=True)
    ]
