"""The result of an audit: a table with the caller's index, the estimated noise, and the outlook."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from peerloss._files import atomic_files
from peerloss.datasets.tables import write_table
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.theory import excess_risk_bound, is_categorical, optimal_alpha_from_noisy_prior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray
    from peerloss.noise import NoiseModel
    from peerloss.posterior.label_posterior import LabelPosterior

#: The bound is for the best of this many classifiers, about as many as a search compares.
N_CLASSIFIERS = 100
CONFIDENCE = 0.95
#: The confidence of the intervals of T, entry by entry.
ENTRY_CONFIDENCE = 0.9
#: Labels look clean if the probability that none is wrong is above this.
LOOKS_CLEAN = 0.5
#: Entries of T that differ by less than this are equal.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Outlook:
    """Whether peer loss applies to the labels, and what to expect from training on them."""

    applies: bool
    """For more than two classes: whether the conditions hold within the uncertainty of the estimated noise.
    With few rows this is weak evidence."""
    why: str
    sum_of_rates: float | None
    """Σ_j e_j. If T has no such rates (more than two classes), e_j is the mean of column j off the
    diagonal."""
    sign_is_identity: bool | None
    """Whether Sgn(Δ) = I: each label is positively correlated with its own class only. For two classes this
    is Σe < 1. For more it is not sufficient for peer loss to apply."""
    alpha: float | None
    """α* at the estimated noise (with more than two classes within its uncertainty); ``None`` if no α*
    exists."""
    bound: float | None
    """With 95 % probability, the best of 100 classifiers by α*-peer loss is worse than the truly best of them
    by at most this (Theorem 5); ``None`` if the theorem does not apply."""
    accuracy_as_labelled: float
    """Expected clean accuracy of a model that takes the labels as they are."""
    accuracy_corrected: float
    """Expected clean accuracy of a model that accounts for the noise."""

    def __str__(self) -> str:
        gain = 100 * (self.accuracy_corrected - self.accuracy_as_labelled)
        text = (
            f"{self.why} Expected accuracy {self.accuracy_as_labelled:.1%} as labelled, "
            f"{self.accuracy_corrected:.1%} with the noise accounted for ({gain:+.1f} points)."
        )
        if self.bound is not None and self.bound < 1.0:
            text += f" Excess error at most {self.bound:.1%} (95 %, best of {N_CLASSIFIERS} classifiers)."
        return text


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """Labels that are probably wrong; created by :func:`find_label_issues`."""

    table: pd.DataFrame
    """One row per label, with the caller's index: ``given``, ``suggested`` (the most probable class, which
    may be the given one), ``p_error``, ``rank`` (1 is the most probable error), ``flagged``."""
    classes: NDArray[Any]
    """(K,) the labels, in the order of the matrices."""
    noise: NoiseModel | None
    """The estimated T; ``None`` if it cannot be estimated. It is the estimate that :class:`PeerClassifier`
    reports, unless ``near_boundary`` is above ½."""
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
    no_noise: float = 0.0
    """The probability that no label is wrong. Nothing is flagged if it is large."""
    error_rate_interval: tuple[float, float] | None = None
    """Ends of the 90 % interval of the share of wrong labels; ``None`` if it is not known."""
    X: Any = field(default=None, repr=False)
    """The features given, if any."""
    label_name: str = "label"
    """Name of the label column."""
    shown: pd.DataFrame | None = field(default=None, repr=False)
    """Columns that pages show instead of ``X``, for example if ``X`` holds features of images."""

    @property
    def expected_errors(self) -> float:
        """The expected number of wrong labels, n·Σ_i π_i(1 − T[i, i]).

        If T cannot be estimated, it is the sum of ``p_error``, which is too large if classes overlap.
        """
        if self.noise is None:
            return float(self.table["p_error"].sum())
        return float(self.clean_prior @ self.noise.flip_rates) * len(self.table)

    @property
    def expected_errors_interval(self) -> tuple[float, float] | None:
        """Ends of the 90 % interval of the number of wrong labels; ``None`` if it is not known."""
        if self.error_rate_interval is None:
            return None
        low, high = (rate * len(self.table) for rate in self.error_rate_interval)
        return min(low, self.expected_errors), max(high, self.expected_errors)

    @property
    def headline(self) -> str:
        """How many labels are suspect, and how many are probably wrong."""
        rows, expected = len(self.table), self.expected_errors
        text = (
            f"{int(self.table['flagged'].sum()):,} of {rows:,} labels are suspect; about {expected:,.0f} "
            f"({expected / rows:.1%}) are expected to be wrong"
        )
        if self.expected_errors_interval is not None:
            low, high = self.expected_errors_interval
            text += f", with 90 % probability {low:,.0f} to {high:,.0f}"
        if self.no_noise > LOOKS_CLEAN:
            text += f". The labels look clean: with probability {self.no_noise:.0%} none is wrong"
        return f"{text}."

    @property
    def suspects(self) -> pd.DataFrame:
        """The flagged rows, most probable errors first."""
        return self.table[self.table["flagged"]].sort_values("rank")

    def relabel(self) -> tuple[Any, pd.Series]:
        """Return features and labels; labels that are more likely wrong than right become the suggestion."""
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
        write_csv(table, path, spreadsheet_safe=spreadsheet_safe)

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
        return (
            f"{self.headline} "
            + (f"The noise rates cannot be estimated ({self.reason}). " if self.reason else "")
            + ("Errors lie near the boundary rather than in one class. " if self.near_boundary > 0.5 else "")
            + str(self.outlook)
        )


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


def assess_training(posterior: LabelPosterior, noisy_prior: FloatArray, n_rows: int) -> Outlook:
    """Check the paper's conditions on the estimated noise.

    Two classes need Σe < 1. More classes also need T[i, j] = e_j for i ≠ j and an α* that makes e_j − α·π̃_j
    the same for all j (α* = 1 for equally frequent classes, 0 for equal rates). Both must hold within the
    uncertainty of T. Sgn(Δ) = I is not sufficient.
    """
    noise, accuracies = posterior.noise, (posterior.accuracy_as_labelled, posterior.accuracy_corrected)
    if noise is None:
        why = "Whether peer loss applies is unknown: the noise rates cannot be estimated."
        return Outlook(False, why, None, None, None, None, *accuracies)
    total = float((noise.transition.sum() - np.trace(noise.transition)) / (noise.n_classes - 1))
    joint = posterior.clean_prior[:, None] * noise.transition
    categorical = bool(is_categorical(joint / joint.sum()))
    if noise.n_classes == 2:
        alpha, has_rates, applies = _alpha(noise, noisy_prior), True, total < 1.0
    else:
        has_rates, alpha = _rates_and_alpha(posterior, noise, noisy_prior)
        alpha = alpha if total < 1.0 else None
        applies = alpha is not None
    why = _why(noise.n_classes, total, alpha, has_rates=has_rates)
    bound = None
    if alpha is not None and noise.column_rates is not None:
        worst = excess_risk_bound(
            n_rows, noise, alpha=alpha, confidence=CONFIDENCE, n_hypotheses=N_CLASSIFIERS
        )
        bound = min(1.0, worst)
    return Outlook(applies, why, total, categorical, alpha, bound, *accuracies)


def _alpha(noise: NoiseModel, noisy_prior: FloatArray) -> float | None:
    try:
        return float(optimal_alpha_from_noisy_prior(noise, noisy_prior))
    except NotIdentifiableError:
        return None


def _rates_and_alpha(
    posterior: LabelPosterior, noise: NoiseModel, noisy_prior: FloatArray
) -> tuple[bool, float | None]:
    """Return whether T[i, j] = e_j, and the α* at which e_j = c + α·π̃_j, within the uncertainty of T.

    The 90 % intervals of the K(K − 1) entries off the diagonal are widened so that they hold jointly
    (Bonferroni's correction).
    """
    off_diagonal = ~np.eye(noise.n_classes, dtype=bool)
    width = np.full(off_diagonal.shape, ROUNDING)
    if posterior.noise_low is not None and posterior.noise_high is not None:
        joint_tail = (1.0 - CONFIDENCE) / (2.0 * off_diagonal.sum())
        widen = norm.isf(joint_tail) / norm.isf((1.0 - ENTRY_CONFIDENCE) / 2.0)
        width = np.maximum(widen * (posterior.noise_high - posterior.noise_low) / 2.0, ROUNDING)
    weight = off_diagonal / width**2
    column_weight = weight.sum(axis=0)
    rates: FloatArray = (weight * noise.transition).sum(axis=0) / column_weight

    def fits(column_rates: FloatArray) -> bool:
        return bool((np.abs(noise.transition - column_rates) <= width)[off_diagonal].all())

    prior = noisy_prior - np.average(noisy_prior, weights=column_weight)
    spread = float(column_weight @ prior**2)
    slope = float(column_weight @ (prior * rates)) / spread if spread > 0.0 else 0.0
    # Nearly balanced labels do not determine α: a value between 0 and 1 is preferred if it fits.
    for alpha in (float(np.clip(slope, 0.0, 1.0)), slope):
        if fits(np.average(rates, weights=column_weight) + alpha * prior):
            return True, alpha
    return fits(rates), None


def _why(n_classes: int, total: float, alpha: float | None, *, has_rates: bool) -> str:
    if total >= 1.0:
        return f"Peer loss does not apply: Σe = {total:.2f} is not below 1, labels are no better than chance."
    if n_classes == 2:
        return f"Peer loss applies: Σe = {total:.2f} < 1."
    if alpha is not None:
        return (
            f"Peer loss applies: Σe = {total:.2f} < 1 and, within the uncertainty of the estimate, a wrong "
            f"label is equally probable from every class (T[i, j] = e_j); α* = {alpha:.2f}."
        )
    if has_rates:
        return (
            f"Peer loss does not apply to accuracy: Σe = {total:.2f} and T[i, j] = e_j within the "
            "uncertainty of the estimate, but no α orders classifiers as accuracy does (e_j − α·π̃_j differs "
            "between classes). Correct with T (forward or backward correction)."
        )
    return (
        f"Peer loss does not apply as it is: Σe = {total:.2f}, but some wrong labels are more probable from "
        "one class than from another (T[i, j] ≠ e_j). Merge classes that are confused, or correct with T "
        "(forward or backward correction)."
    )
