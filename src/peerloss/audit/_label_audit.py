"""The result of an audit: a table with the caller's index, the estimated noise, and the outlook."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._files import atomic_files
from peerloss._pages import counted
from peerloss.audit._confusable_classes import confusable_classes, describe_pairs
from peerloss.datasets.tables import write_table
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray
    from peerloss.audit._contradictions import Contradictions
    from peerloss.audit._evidence import Evidence
    from peerloss.audit._explanations import Explanation, Explanations
    from peerloss.audit._outlook import Outlook
    from peerloss.noise import NoiseModel
    from peerloss.posterior import RowNoiseCheck

#: Pairs of confusable classes in the summary.
SUMMARY_PAIRS = 10
#: Labels look clean if the probability that none is wrong is above this.
LOOKS_CLEAN = 0.5
#: What the three numbers of an audit mean; pages show it, and docs/glossary.md has the same text.
NUMBERS_EXPLAINED = (
    "Suspects are the flagged rows: flagging them is expected to find many wrong labels and to flag few "
    "right ones. The labels expected to be wrong are an estimate for the whole table, which does not say "
    "which rows they are. Only labels whose probability of being wrong is above ½ are changed automatically."
)


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """Labels that are probably wrong; created by :func:`find_label_issues`."""

    table: pd.DataFrame
    """One row per label, with the caller's index: ``given``, ``suggested`` (the most probable *other* class),
    ``p_error`` (the probability that the given label is wrong), ``p_suggested`` (that the suggestion is
    right), ``rank`` (1 is the most probable error), ``flagged``, and ``gain``: the expected gain of one more
    label of the row (:func:`~peerloss.audit.rank_next_labels`)."""
    classes: NDArray[Any]
    """(K,) the labels, in the order of the matrices."""
    noise: NoiseModel | None
    """The estimated T; ``None`` if it cannot be estimated. It is the estimate that :class:`PeerClassifier`
    reports, unless ``near_boundary`` is above ½."""
    noise_low: FloatArray | None
    noise_high: FloatArray | None
    """Ends of the 90 % intervals of each entry of T. If ``near_boundary`` is above .05, they also include
    that each label that differs from the likeliest one is wrong."""
    noisy_prior: FloatArray
    clean_prior: FloatArray
    """(K,) shares of the given and, as estimated, of the clean labels."""
    outlook: Outlook
    """Whether peer loss applies and what to expect from training."""
    reason: str = ""
    """Why the noise rates cannot be estimated, and rows are ranked by the model's confidence; empty if they
    can be estimated. No row is flagged then, unless ``target`` was ``"f1"``."""
    near_boundary: float = 0.0
    """The probability that labels flip near the boundary between two classes, and not by class. Above ½, the
    rates in ``noise`` are averages over rows."""
    no_noise: float = 0.0
    """The probability that no label is wrong. Nothing is flagged by default if it is large."""
    error_rate_interval: tuple[float, float] | None = None
    """Ends of the 90 % interval of the share of wrong labels; ``None`` if it is not known."""
    X: Any = field(default=None, repr=False)
    """The features given, if any."""
    label_name: str = "label"
    """Name of the label column."""
    evidence: Evidence | None = field(default=None, repr=False)
    """What the audit was computed from."""
    overlap: FloatArray | None = field(default=None, repr=False)
    """(K, K): the expected number of rows of class i that look like class j by their features, with the
    estimated noise undone; ``None`` if it is not known. ``confusable`` lists the largest."""
    contradictions: Contradictions | None = field(default=None, repr=False)
    """Duplicates and near duplicates with different labels; ``None`` without features to compare."""
    row_noise: RowNoiseCheck | None = field(default=None, repr=False)
    """Whether the noise depends on the row, tested if at least 100 rows have labels of two annotators and
    there are probabilities from features (:func:`~peerloss.posterior.check_row_noise`)."""
    suspect_proba: FloatArray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    """(m, K) the probabilities of the classes of the first suspects, in the order of ``suspects``; at most
    5,000 rows."""
    shown: pd.DataFrame | None = field(default=None, repr=False)
    """Columns that pages show instead of ``X``, for example if ``X`` holds features of images."""

    set_aside: dict[Any, int] = field(default_factory=dict)
    """Classes with too few rows to learn from → number of their rows, which the audit left out."""

    @property
    def expected_errors(self) -> float:
        """The expected number of wrong labels, n·Σ_i π_i(1 − T[i, i]).

        Of rows with a known label, the wrong ones are counted instead. With several annotators it is the sum
        of ``p_error``. So it is if T cannot be estimated, and then too large if classes overlap.
        """
        evidence = self.evidence
        if self.noise is None or (evidence is not None and evidence.annotations is not None):
            return float(self.table["p_error"].sum())
        gold = None if evidence is None else evidence.gold
        unknown = np.ones(len(self.table), dtype=bool) if gold is None else gold < 0
        known_errors = float(self.table["p_error"].to_numpy()[~unknown].sum())
        return known_errors + float(self.clean_prior @ self.noise.flip_rates) * float(unknown.sum())

    @property
    def expected_errors_interval(self) -> tuple[float, float] | None:
        """Ends of the 90 % interval of the number of wrong labels; ``None`` if it is not known."""
        if self.error_rate_interval is None:
            return None
        low, high = (rate * len(self.table) for rate in self.error_rate_interval)
        return min(low, self.expected_errors), max(high, self.expected_errors)

    @property
    def headline(self) -> str:
        """How many labels are suspect, and how many are expected to be wrong."""
        n_flagged = int(self.table["flagged"].sum())
        if self.reason:
            if self.evidence is not None and not self.evidence.rule.needs_noise:
                return (
                    f"{counted(n_flagged, 'label')} flagged by the model's confidence alone, because the "
                    f"noise rates cannot be estimated: {self.reason}."
                )
            if not n_flagged:
                return f"No label is flagged, because it is not known which are wrong: {self.reason}."
            known = (
                f"{counted(n_flagged, 'label')} that {'is' if n_flagged == 1 else 'are'} known to be wrong"
            )
            return f"Flagged: only {known}. It is not known which others are wrong: {self.reason}."
        rows, expected = len(self.table), self.expected_errors
        text = (
            f"{n_flagged:,} of {rows:,} labels are suspect; about {expected:,.0f} "
            f"({expected / rows:.1%}) are expected to be wrong"
        )
        if self.expected_errors_interval is not None:
            low, high = self.expected_errors_interval
            text += f" ({low:,.0f} to {high:,.0f} with 90 % probability)"
        if self.no_noise > LOOKS_CLEAN:
            text += f". The labels look clean: with probability {self.no_noise:.0%} none is wrong"
        return f"{text}."

    @property
    def suspects(self) -> pd.DataFrame:
        """The flagged rows, most probable errors first."""
        return self.table[self.table["flagged"]].sort_values("rank")

    @property
    def confusable(self) -> pd.DataFrame:
        """Pairs of classes that are hard to tell apart by the features, with the estimated noise undone.

        Columns: ``first``, ``second``, ``rows``, the expected number of rows of either class that look like
        the other, and ``share``, their share of the rows of both classes. The largest numbers come first.
        """
        return confusable_classes(self.overlap, self.classes)

    def update(self, gold: Any) -> LabelAudit:
        """Return the audit with more known labels, without training again.

        Parameters
        ----------
        gold
            As for :func:`find_label_issues`. Labels that were known before remain known.
        """
        from peerloss.audit._issues import update_audit  # noqa: PLC0415 - it imports this module

        return update_audit(self, gold)

    def explain(self, row: Any) -> Explanation:
        """Return why a row is suspect: probabilities, similar rows with their labels, unusual values.

        The first call takes a few seconds if there are many rows.

        Parameters
        ----------
        row
            Entry of the index of a suspect.

        Returns
        -------
        Explanation
            ``print`` shows it as text.

        Raises
        ------
        InvalidInputError
            If the row is not among the suspects, of which the first 5,000 are explained.
        """
        from peerloss.audit._explanations import explain_row  # noqa: PLC0415 - few users need it

        return explain_row(self, row)

    @cached_property
    def explanations(self) -> Explanations:
        """The explanations of the first 5,000 suspects as arrays, in the order of ``suspects``."""
        from peerloss.audit._explanations import explain_suspects  # noqa: PLC0415 - few users need it

        return explain_suspects(self)

    def relabel(self) -> tuple[Any, pd.Series]:
        """Return features and labels; labels that are more likely wrong than right become the suggestion.

        With more than two classes, a label stays if the suggestion is less probable than it is. Rows need not
        be flagged. The glossary compares flagged rows, expected errors and these labels. If there is a
        ``reason`` why the noise cannot be estimated, no label is changed.
        """
        wrong = is_replaceable(self.table) & (not self.reason)
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
            "expected_errors_interval": _numbers(self.expected_errors_interval),
            "no_noise": _number(self.no_noise),
            "more_likely_wrong_than_right": int((self.table["p_error"] > 0.5).sum()),
            "noise": _numbers(None if self.noise is None else self.noise.transition),
            "noise_low": _numbers(self.noise_low),
            "noise_high": _numbers(self.noise_high),
            "noisy_prior": _numbers(self.noisy_prior),
            "clean_prior": _numbers(self.clean_prior),
            "ranked_by": "confidence" if self.reason else "posterior",
            "reason": self.reason,
            "near_boundary": _number(self.near_boundary),
            "row_noise_p_value": None if self.row_noise is None else _number(self.row_noise.p_value),
            "row_noise": "" if self.row_noise is None else str(self.row_noise),
            "peer_loss_applies": self.outlook.applies,
            "why": self.outlook.why,
            "sum_of_rates": _number(self.outlook.sum_of_rates),
            "sign_is_identity": self.outlook.sign_is_identity,
            "alpha": _number(self.outlook.alpha),
            "excess_error_bound": _number(self.outlook.bound),
            "accuracy_as_labelled": _number(self.outlook.accuracy_as_labelled),
            "accuracy_corrected": _number(self.outlook.accuracy_corrected),
            "contradictions": None if self.contradictions is None else self.contradictions.summary(),
            "confusable": describe_pairs(self.confusable, SUMMARY_PAIRS),
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
        write_csv(table, path, spreadsheet_safe=spreadsheet_safe)

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet to ``path`` (needs the extra ``tables``)."""
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

    def plot(self, kind: str = "ranking", *, ax: Axes | None = None) -> Axes:
        """Draw a picture with matplotlib and return its ``Axes``.

        Parameters
        ----------
        kind
            ``"ranking"``: P(wrong) of the labels, most suspicious first, with the suspects and the expected
            number of wrong labels. ``"noise"``: the estimated noise, true class by given label.
        ax
            Axes to draw on; a new figure by default.

        Raises
        ------
        InvalidInputError
            If matplotlib is missing, or for ``"noise"`` if the noise rates cannot be estimated.
        """
        from peerloss.audit._audit_view import plot_audit  # noqa: PLC0415 - few users need pictures

        return plot_audit(self, kind, ax)

    def _repr_html_(self) -> str:
        """Return the view in a notebook."""
        from peerloss.audit._audit_view import audit_card  # noqa: PLC0415 - only notebooks need it

        return audit_card(self)

    def _exported(self) -> pd.DataFrame:
        table: pd.DataFrame = self.table.copy()
        table.index.names = [
            name if name is not None else f"row{level or ''}" for level, name in enumerate(table.index.names)
        ]
        return table

    def _findings(self) -> list[str]:
        """Return what was found besides suspects, as sentences."""
        found = [
            f"{counted(rows, 'row')} with the label {label!r} {'was' if rows == 1 else 'were'} left out."
            for label, rows in self.set_aside.items()
        ]
        found += [] if self.contradictions is None else [str(self.contradictions)]
        if self.row_noise is not None and self.row_noise.refused:
            found.append(str(self.row_noise))
        pairs = self.confusable
        if len(pairs) and len(self.classes) > 2:
            worst = pairs.head(1).to_dict("records")[0]  # a row as a Series would turn integers into floats
            found.append(
                f"The classes that are hardest to tell apart are {worst['first']} and {worst['second']}: "
                f"about {worst['rows']:,.0f} rows of these two classes ({worst['share']:.0%}) look more like "
                "the other class."
            )
        return [sentence for sentence in found if sentence]

    def __str__(self) -> str:
        return (
            f"{self.headline} "
            + ("The noise rates cannot be estimated. " if self.reason else "")
            + ("Errors lie near the boundary rather than in one class. " if self.near_boundary > 0.5 else "")
            + "".join(f"{sentence} " for sentence in self._findings())
            + str(self.outlook)
        )


def is_replaceable(table: pd.DataFrame) -> BoolArray:
    """Return which labels are more likely wrong than right, and less probable than the suggestion.

    Without a column ``p_suggested``, as in older audit folders, the second condition is not checked.
    """
    p_error = table["p_error"].to_numpy()
    wrong: BoolArray = (p_error > 0.5) & (table["given"] != table["suggested"]).to_numpy()
    if "p_suggested" in table:
        wrong &= table["p_suggested"].to_numpy() >= 1.0 - p_error
    return wrong


def write_csv(table: pd.DataFrame, path: str | Path, *, spreadsheet_safe: bool) -> None:
    """Write a table without its index, all or nothing; the options are those of ``LabelAudit.to_csv``."""
    with (
        atomic_files(_with_suffix(path, ".csv")) as (file,),
        file.open("x", encoding="utf-8", newline="") as stream,
    ):
        write_table(stream, table, spreadsheet_safe=spreadsheet_safe)


def _with_suffix(path: str | Path, *suffixes: str) -> Path:
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise InvalidInputError(f"`path` must end in {' or '.join(suffixes)}; got {path}.")
    return path


def _numbers(values: FloatArray | tuple[float, ...] | None) -> Any:
    return None if values is None else np.round(values, 6).tolist()


def _number(value: float | None) -> float | None:
    return None if value is None else round(float(value), 6)
