"""The result of an audit: a table with the caller's index, the estimated noise, and exports."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._files import atomic_files
from peerloss.datasets.tables import write_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray
    from peerloss.audit._outlook import Outlook
    from peerloss.noise import NoiseModel


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """Labels that are probably wrong; created by :func:`find_label_issues`."""

    table: pd.DataFrame
    """One row per label, with the caller's index: ``given``, ``suggested`` (the most probable class, which
    may be the given one), ``p_error``, ``rank`` (1 is the most probable error), ``flagged``."""
    classes: NDArray[Any]
    """(K,) the labels, in the order of the matrices."""
    noise: NoiseModel | None
    """The estimated T, the same that :class:`PeerClassifier` reports; ``None`` if it cannot be estimated."""
    noise_low: FloatArray | None
    noise_high: FloatArray | None
    """Ends of the 90 % intervals of each entry of T."""
    noisy_prior: FloatArray
    clean_prior: FloatArray
    """(K,) shares of the given and, as estimated, of the clean labels."""
    outlook: Outlook
    """Whether peer loss applies and what to expect from training."""
    reason: str = ""
    """Why the noise rates cannot be estimated and rows are ranked by the model's confidence; empty if they
    can be estimated."""
    near_boundary: float = 0.0
    """The probability that labels flip near the boundary between two classes, and not by class. Above ½, the
    rates in ``noise`` are averages over rows."""
    X: Any = field(default=None, repr=False)
    """The features given, if any."""
    label_name: str = "label"
    """Name of the label column."""

    @property
    def expected_errors(self) -> float:
        """The expected number of wrong labels, n·Σ_i π_i(1 − T[i, i]).

        If T cannot be estimated it is the sum of ``p_error``, which is rather too large if classes overlap.
        """
        if self.noise is None:
            return float(self.table["p_error"].sum())
        return float(self.clean_prior @ self.noise.flip_rates) * len(self.table)

    @property
    def suspects(self) -> pd.DataFrame:
        """The flagged rows, most probable errors first."""
        return self.table[self.table["flagged"]].sort_values("rank")

    def relabel(self) -> tuple[Any, pd.Series]:
        """Return features and labels, with the suggested label if the given one is more likely wrong."""
        wrong = self.table["p_error"] > 0.5
        labels = self.table["given"].where(~wrong, self.table["suggested"]).rename(self.label_name)
        return self.X, labels

    def drop(self) -> tuple[Any, pd.Series]:
        """Return features and labels without the flagged rows."""
        kept = ~self.table["flagged"].to_numpy()
        labels = self.table.loc[kept, "given"].rename(self.label_name)
        return (None if self.X is None else self.X[kept]), labels

    def summary(self) -> dict[str, Any]:
        """Return the results for the whole table as plain numbers, text and lists."""
        rows = len(self.table)
        return {
            "rows": rows,
            "classes": [str(label) for label in self.classes],
            "flagged": int(self.table["flagged"].sum()),
            "expected_errors": round(self.expected_errors, 3),
            "expected_error_rate": round(self.expected_errors / rows, 5),
            "more_likely_wrong_than_right": int((self.table["p_error"] > 0.5).sum()),
            "noise": _numbers(None if self.noise is None else self.noise.transition),
            "noise_low": _numbers(self.noise_low),
            "noise_high": _numbers(self.noise_high),
            "noisy_prior": _numbers(self.noisy_prior),
            "clean_prior": _numbers(self.clean_prior),
            "ranked_by": "confidence" if self.reason else "posterior",
            "reason": self.reason,
            "near_boundary": _number(self.near_boundary),
            "peer_loss_applies": self.outlook.applies,
            "why": self.outlook.why,
            "sum_of_rates": _number(self.outlook.sum_of_rates),
            "sign_is_identity": self.outlook.sign_is_identity,
            "alpha": _number(self.outlook.alpha),
            "excess_error_bound": _number(self.outlook.bound),
            "accuracy_as_labelled": _number(self.outlook.accuracy_as_labelled),
            "accuracy_corrected": _number(self.outlook.accuracy_corrected),
        }

    def to_csv(self, path: str | Path, *, spreadsheet_safe: bool = False) -> None:
        """Write the table as CSV to ``path``, its index first.

        With ``spreadsheet_safe``, texts that a spreadsheet would take for a formula (they begin with ``=``,
        ``+``, ``-``, ``@``, a tab or a line end) or that begin with an apostrophe get an apostrophe in front.
        """
        table = self._exported()
        levels = range(table.index.nlevels)
        index = pd.DataFrame({level: table.index.get_level_values(level) for level in levels})
        index = index.set_axis(table.index.names, axis=1)
        table = pd.concat([index, table.reset_index(drop=True)], axis=1)
        with (
            atomic_files(_with_suffix(path, ".csv")) as (file,),
            file.open("x", encoding="utf-8", newline="") as stream,
        ):
            write_table(stream, table, spreadsheet_safe=spreadsheet_safe)

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet to ``path`` (needs pyarrow: ``pip install peerloss[tables]``)."""
        with atomic_files(_with_suffix(path, ".parquet", ".pq")) as (file,):
            self._exported().to_parquet(file)

    def to_html(self, path: str | Path, *, title: str = "Label audit") -> None:
        """Write one self-contained page to ``path``: results, confusion, suspects with their features.

        Its heading is ``title``.
        """
        from peerloss.audit._audit_page import audit_page  # noqa: PLC0415 - few users need pages

        page = audit_page(self, title=title)
        with atomic_files(_with_suffix(path, ".html", ".htm")) as (file,):
            file.write_text(page, encoding="utf-8")

    def _exported(self) -> pd.DataFrame:
        table: pd.DataFrame = self.table.copy()
        table.index.names = [
            name if name is not None else f"row{level or ''}" for level, name in enumerate(table.index.names)
        ]
        return table

    def __str__(self) -> str:
        flagged = int(self.table["flagged"].sum())
        return (
            f"{flagged:,} of {len(self.table):,} labels are suspect; about {self.expected_errors:,.0f} "
            f"({self.expected_errors / len(self.table):.1%}) are expected to be wrong. "
            + (f"The noise rates cannot be estimated ({self.reason}). " if self.reason else "")
            + ("They lie near the boundary rather than in one class. " if self.near_boundary > 0.5 else "")
            + str(self.outlook)
        )


def _with_suffix(path: str | Path, *suffixes: str) -> Path:
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise InvalidInputError(f"`path` must end in {' or '.join(suffixes)}; got {path}.")
    return path


def _numbers(values: FloatArray | None) -> Any:
    return None if values is None else np.round(values, 6).tolist()


def _number(value: float | None) -> float | None:
    return None if value is None else round(float(value), 6)
