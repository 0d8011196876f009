"""The audit as one HTML page that needs nothing but itself; everything that came from outside is escaped."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from peerloss._version import __version__

if TYPE_CHECKING:
    from peerloss.audit._label_audit import LabelAudit

#: Suspects on the page; all are in the table.
SHOWN_SUSPECTS = 1000
#: Columns of features beside each suspect.
SHOWN_FEATURES = 12
#: Larger matrices are shown as a list of their commonest confusions.
SHOWN_CLASSES = 15
SHOWN_CONFUSIONS = 20
#: Longer cells are cut, with the whole text in their title.
LONGEST_CELL = 80
BINS = 20


def audit_page(audit: LabelAudit, *, title: str, features: pd.DataFrame | None = None) -> str:
    """Return the page.

    Parameters
    ----------
    audit
        What was found.
    title
        Heading of the page.
    features
        What to show beside each suspect, with the index of the audit's table; by default the features that
        the audit was made from.
    """
    shown = audit.suspects.head(SHOWN_SUSPECTS)
    beside = _features(audit, features).loc[shown["rank"].to_numpy()]
    return render(
        "audit.html",
        title=title,
        version=__version__,
        summary=audit.summary(),
        outlook=audit.outlook,
        matrix=_matrix(audit),
        confusions=_confusions(audit),
        priors=_priors(audit),
        bars=_bars(audit.table["p_error"].to_numpy()),
        columns=[
            {"name": str(name), "text": not pd.api.types.is_numeric_dtype(beside.iloc[:, place])}
            for place, name in enumerate(beside)
        ],
        suspects=_rows(shown, beside),
        n_suspects=int(audit.table["flagged"].sum()),
    )


def render(template: str, **values: Any) -> str:
    """Fill in a template of this package."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("peerloss.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = "{:.1%}".format
    environment.filters["count"] = "{:,}".format
    environment.filters["script_json"] = script_json
    return environment


def script_json(value: Any) -> str:
    """Return JSON that may stand inside a script element, whatever its texts hold."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2

    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def asset(name: str) -> str:
    """Return the text of a style sheet or script of this package."""
    return resources.files("peerloss.audit").joinpath("templates", name).read_text(encoding="utf-8")


def cell_text(value: Any) -> str:
    """Return what a cell shows: numbers in short, nothing for what is missing."""
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
    """What the column is sorted by."""
    whole: str = ""
    """The whole text where it was cut."""


def _cell(value: Any) -> Cell:
    text = cell_text(value)
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if len(text) > LONGEST_CELL:
        return Cell(text[:LONGEST_CELL] + "…", text[:LONGEST_CELL], text)
    return Cell(text, repr(float(value)) if number and text else text)


def _features(audit: LabelAudit, features: pd.DataFrame | None) -> pd.DataFrame:
    """Return the features by rank, since an index may repeat."""
    found = audit.X if features is None else features
    ranks = audit.table["rank"].to_numpy()
    if found is None:
        return pd.DataFrame(index=ranks)
    table = found if isinstance(found, pd.DataFrame) else pd.DataFrame(np.asarray(found))
    return table.iloc[:, :SHOWN_FEATURES].set_axis(ranks, axis=0)


def _rows(shown: pd.DataFrame, beside: pd.DataFrame) -> list[dict[str, Any]]:
    found = []
    for number, (name, row) in enumerate(shown.iterrows()):
        found.append(
            {
                "name": _cell(name),
                "given": _cell(row["given"]),
                "suggested": _cell(row["suggested"]),
                "changed": row["given"] != row["suggested"],
                "p_error": float(row["p_error"]),
                "rank": int(row["rank"]),
                "features": [_cell(value) for value in beside.iloc[number]],
            }
        )
    return found


def _matrix(audit: LabelAudit) -> list[dict[str, Any]] | None:
    """Return T with intervals, row by row, unless it is unknown or too large to look at."""
    if audit.noise is None or audit.noise_low is None or audit.noise_high is None:
        return None
    if len(audit.classes) > SHOWN_CLASSES:
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
    """Count which label should be which among the suspects, commonest first."""
    found = audit.suspects
    found = found[found["given"] != found["suggested"]]
    counts = Counter(zip(found["given"].astype(str), found["suggested"].astype(str), strict=True))
    return [
        {"given": given, "suggested": suggested, "rows": rows}
        for (given, suggested), rows in counts.most_common(SHOWN_CONFUSIONS)
    ]


def _priors(audit: LabelAudit) -> list[dict[str, Any]]:
    order = np.argsort(-audit.noisy_prior, kind="stable")[:SHOWN_CLASSES]
    return [
        {
            "name": str(audit.classes[k]),
            "given": float(audit.noisy_prior[k]),
            "clean": float(audit.clean_prior[k]),
        }
        for k in order
    ]


def _bars(p_error: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return the histogram; heights are square roots, so that few suspects are seen beside many rows."""
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
