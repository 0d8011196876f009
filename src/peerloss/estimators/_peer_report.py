"""What PeerClassifier reports: its candidates, the estimated noise and the accuracy on clean labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.metrics import peer_score
from peerloss.posterior.decision import LEVEL

if TYPE_CHECKING:
    import pandas as pd

    from peerloss._classifier import FitInput
    from peerloss._validation import BoolArray, FloatArray
    from peerloss.estimators.portfolio import Portfolio
    from peerloss.posterior.decision import CleanMap

#: The message for labels that the noise model does not explain.
MISFIT = (
    "class-conditional noise at the estimated rates does not explain the labels. The noise depends on the "
    "row, or its rates cannot be estimated from these data. Do not rely on the estimates of noise and "
    "accuracy, and compare with plain training, alpha=0. A second label of some hundred rows shows whether "
    "the noise depends on the row: peerloss.posterior.check_row_noise."
)
#: If more than this share of the rows have the features of another row, the accuracy is hardly known.
MANY_REPEATED = 0.2
#: If the interval of a flip rate is wider than this, the rates are hardly known.
WIDE_INTERVAL = 0.25


@dataclass(frozen=True)
class PeerReport:
    """The candidates that PeerClassifier tried, its choice, and estimates of noise and clean accuracy."""

    candidates: pd.DataFrame
    """One row per candidate: weight, brier (noisy), behind (standard errors), peer_score (noisy)."""
    metric: str
    alpha: float
    noise: Any
    """The estimated :class:`~peerloss.NoiseModel`."""
    accuracy: float
    """Estimate of the metric on *clean* labels, from noisy labels alone."""
    accuracy_low: float
    accuracy_high: float
    """A 90 % interval, valid if the noise depends on the true class alone
    (``results/accuracy_peer_classifier.md`` has its measured coverage). It is widened to include the interval
    that takes the labels as clean if the noise model does not fit, or if many rows are repeated."""
    diverged: tuple[str, ...] = ()
    """Networks that were left out because their weights became NaN or infinite."""
    misfit: float = 0.0
    """Log-likelihood per noisy label, out of fold, that is lost if the estimated noise explains the labels;
    negative if the estimated noise predicts them better."""
    misfit_p_value: float = 1.0
    """P-value of the hypothesis that at most 1e-4 per label is lost (a paired, one-sided z-test)."""
    n_unlabelled: int = 0
    """Number of rows without a label."""
    noise_low: FloatArray | None = None
    """Lower ends of the 90 % intervals of the entries of T, shape (K, K)."""
    noise_high: FloatArray | None = None
    """Upper ends of these intervals."""
    repeated_rows: float = 0.0
    """Share of the rows that have the same features as another row. If equal rows have different labels, the
    data do not tell whether a label is wrong or the classes overlap."""
    nothing_learned: str = ""
    """Why the model is useless, if it predicts held-out labels no better than their frequencies do. Then
    ``accuracy`` is at most that of a constant prediction."""
    classes: tuple[str, ...] = ()
    """The labels in the order of T, as text."""

    @property
    def fits(self) -> bool:
        """Whether the estimated class-conditional noise explains the labels (``misfit_p_value`` ≥ .01).

        ``False`` means that the noise depends on the row, or that its rates cannot be estimated from these
        data. ``True`` is not a proof: whatever the noise, one label per row has the same distribution as
        correct labels of classes that overlap. With two labels per row,
        :func:`~peerloss.posterior.check_row_noise` tests the model.
        """
        return self.misfit_p_value >= LEVEL

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons why the estimates of noise and accuracy are uncertain; empty if there are none."""
        found = [f"{text[0].upper()}{text[1:]}." for text in (self.nothing_learned,) if text]
        found += [] if self.fits else [f"{MISFIT[0].upper()}{MISFIT[1:]}"]
        if self.repeated_rows > MANY_REPEATED:
            found.append(
                f"{self.repeated_rows:.0%} of the rows have the features of another row, so wrong labels "
                "cannot be told from classes that overlap."
            )
        if self.noise_low is not None and self.noise_high is not None:
            low, high = 1.0 - np.diag(self.noise_high), 1.0 - np.diag(self.noise_low)
            widest = int((high - low).argmax())
            if high[widest] - low[widest] > WIDE_INTERVAL:
                found.append(
                    f"The noise rates are uncertain: the 90 % interval of one class is {low[widest]:.2f} to "
                    f"{high[widest]:.2f}. More rows or some clean labels (`gold`) would help."
                )
        return tuple(found)

    def _repr_html_(self) -> str:
        """Return the view in a notebook."""
        from peerloss.estimators._report_view import report_card  # noqa: PLC0415 - only notebooks need it

        return report_card(self)

    def __str__(self) -> str:
        best = self.candidates["weight"].idxmax()
        chosen = int((self.candidates["weight"] > 0).sum())
        return (
            f"{chosen} of {len(self.candidates)} candidates are averaged; {best!r} has the largest weight "
            f"({self.candidates['weight'].max():.2f}). Estimated noise: {self.noise!r}"
            + ("" if np.isnan(self.alpha) else f"; alpha {self.alpha:.3g}")
            + f". Estimated {self.metric.replace('_', ' ')} on clean labels: "
            f"{self.accuracy:.3f} ({self.accuracy_low:.3f} to {self.accuracy_high:.3f}), if the noise "
            f"depends on the true class alone.{''.join(f' {doubt}' for doubt in self.doubts)}"
            + (f" Diverged and left out: {', '.join(self.diverged)}." if self.diverged else "")
            + (f" Rows without a label: {self.n_unlabelled:,}." if self.n_unlabelled else "")
        )


def make_report(
    data: FitInput,
    portfolio: Portfolio,
    clean_map: CleanMap,
    *,
    seed: int,
    verified: BoolArray | None,
    unlabelled: int,
    repeated: float,
    useless: str,
) -> PeerReport:
    """Score every candidate under one α and estimate the clean accuracy of their average."""
    implied = clean_map.implied_alpha()
    alpha = implied if np.isfinite(implied) else 1.0
    decisions = [(p - alpha * clean_map.noisy_prior).argmax(axis=1) for p in portfolio.candidate_proba]
    scores = [peer_score(data.codes, d, alpha=alpha, sample_weight=data.weight) for d in decisions]
    used = data.weight > 0
    held_out = portfolio.oof_proba[used], data.codes[used], data.weight[used]
    accuracy = clean_map.accuracy(*held_out, seed=seed)
    noisy_weight = data.weight if verified is None else np.where(verified, 0.0, data.weight)
    loss, p_value = clean_map.misfit(portfolio.oof_proba, data.codes, noisy_weight)
    candidates = portfolio.candidates.assign(peer_score=scores)
    report = PeerReport(
        candidates,
        clean_map.metric,
        implied,
        clean_map.noise,
        *accuracy,
        portfolio.diverged,
        loss,
        p_value,
        unlabelled,
        *clean_map.noise_posterior.interval(),
        repeated,
        useless,
        tuple(map(str, data.classes)),
    )
    if useless:
        return _as_constant(report, clean_map.noisy_prior)
    if report.fits and repeated <= MANY_REPEATED:
        return report
    _, low, high = clean_map.accuracy(*held_out, seed=seed, as_labelled=True)
    return replace(
        report, accuracy_low=min(report.accuracy_low, low), accuracy_high=max(report.accuracy_high, high)
    )


def _as_constant(report: PeerReport, noisy_prior: FloatArray) -> PeerReport:
    """Limit the estimate to that of a constant prediction; its interval says that nothing is known.

    Even a model that has learned something can look useless: the more labels are wrong, the less of what it
    has learned shows in the labels.
    """
    limit = float(noisy_prior.max()) if report.metric == "accuracy" else 1.0 / len(noisy_prior)
    return replace(report, accuracy=min(report.accuracy, limit), accuracy_low=0.0, accuracy_high=1.0)
