"""The scores of annotators as a table that a notebook shows with its most important columns."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from peerloss._pages.notebook_cards import card, table

#: Number of workers shown.
MAX_WORKERS = 20


class AnnotatorScores(pd.DataFrame):
    """A frame of scores; what is computed from it is an ordinary frame."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        """Return the view in a notebook: suspects first, then by the number of tasks."""
        ordered = self.sort_values(["uninformative", "n_tasks"], ascending=False, kind="stable")
        paid = "payment" in self.columns
        headings = ["worker", "tasks", "accuracy", "score", "seems to guess", *(["payment"] if paid else [])]
        rows = [
            [
                name,
                f"{row['n_tasks']:,}",
                f"{row['accuracy']:.2f} ({row['accuracy_low']:.2f}–{row['accuracy_high']:.2f})",
                "–" if math.isnan(row["score"]) else f"{row['score']:.3f}",
                "yes" if row["uninformative"] else "",
                *([f"{row['payment']:.2f}"] if paid else []),
            ]
            for name, row in zip(
                ordered.index[:MAX_WORKERS], ordered.head(MAX_WORKERS).to_dict("records"), strict=True
            )
        ]
        more = len(self) - len(rows)
        guessing = int(self["uninformative"].sum())
        return card(
            f"{len(self):,} annotators",
            f"{guessing:,} seem{'s' if guessing == 1 else ''} to guess. The score is a basis for payment, "
            "not an accuracy.",
            table(headings, rows),
            f"{more:,} more not shown." if more else "",
        )
