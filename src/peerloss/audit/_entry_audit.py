"""The ranking of labels and of examples that have several labels, shared by multi-label and token audits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss.audit._label_audit import write_csv
from peerloss.posterior.flags import flag_suspects, suspicious_first

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss._validation import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class EntryAudit:
    """Labels that are probably wrong, if an example has several; base of the two audits."""

    table: pd.DataFrame
    """One row per label, see the subclasses."""
    examples: pd.DataFrame
    """One row per example: ``labels`` (how many were audited), ``flagged``, ``expected_errors`` (the sum of
    ``p_error``), ``p_any_error`` (the probability that at least one of its labels is wrong, 1 − Π(1 − p)) and
    ``rank`` by it."""

    @property
    def suspects(self) -> pd.DataFrame:
        """The flagged labels, most probable errors first."""
        return self.table[self.table["flagged"]].sort_values("rank")

    @property
    def expected_errors(self) -> float:
        """The expected number of wrong labels, the sum of ``p_error``."""
        return float(self.table["p_error"].sum())

    def to_csv(self, path: str | Path, *, spreadsheet_safe: bool = False) -> None:
        """Write the table as CSV to ``path``; ``spreadsheet_safe`` is that of :meth:`LabelAudit.to_csv`."""
        write_csv(self.table, path, spreadsheet_safe=spreadsheet_safe)

    def __str__(self) -> str:
        flagged = int(self.table["flagged"].sum())
        return (
            f"{flagged:,} of {len(self.table):,} labels in {int((self.examples['flagged'] > 0).sum()):,} of "
            f"{len(self.examples):,} examples are suspect; about {self.expected_errors:,.0f} labels are "
            "expected to be wrong."
        )


def rank_entries(p_error: FloatArray, *, no_noise: float) -> tuple[IntArray, BoolArray]:
    """Return the rank of every label, 1 for the most probable error, and which labels are flagged.

    The flags of all labels together have the largest expected F1. ``no_noise`` is the probability that no
    label is wrong.
    """
    order = suspicious_first(p_error)
    rank = np.empty(len(p_error), dtype=np.int64)
    rank[order] = np.arange(1, len(p_error) + 1)
    return rank, flag_suspects(p_error, order, no_noise=no_noise)


def summarise_examples(
    place: IntArray, p_error: FloatArray, flagged: BoolArray, index: pd.Index
) -> pd.DataFrame:
    """Return one row per example; ``place`` is the position in ``index`` of the example of each label."""
    n = len(index)
    with np.errstate(divide="ignore"):
        log_right = np.bincount(place, np.log1p(-p_error), minlength=n)
    p_any = -np.expm1(log_right)
    # Long examples may have several probabilities that round to 1: their order is that of the sums.
    order = np.argsort(log_right, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(1, n + 1)
    return pd.DataFrame(
        {
            "labels": np.bincount(place, minlength=n),
            "flagged": np.bincount(place[flagged], minlength=n),
            "expected_errors": np.bincount(place, p_error, minlength=n).astype(np.float64),
            "p_any_error": p_any,
            "rank": rank,
        },
        index=index,
    )
