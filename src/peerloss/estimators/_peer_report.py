"""The report of PeerClassifier: what was tried, what was chosen, and how good it is on clean labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.metrics import peer_score
from peerloss.posterior.decision import LEVEL

if TYPE_CHECKING:
    import pandas as pd

    from peerloss._classifier import FitInput
    from peerloss._validation import BoolArray
    from peerloss.estimators.portfolio import Portfolio
    from peerloss.posterior.decision import CleanMap

#: The message for labels that the noise model does not explain.
MISFIT = (
    "class-conditional noise at the estimated rates does not explain the labels. The noise depends on the "
    "row, or its rates cannot be estimated from these data. Do not rely on the estimates of noise and "
    "accuracy, and compare with plain training, alpha=0."
)


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
    """A 90 % interval, valid if the noise depends on the true class alone. If the score itself levels off,
    the interval is too narrow: ``results/accuracy_peer_classifier.md`` has its measured coverage. If the
    noise model does not fit, the interval is widened to include the one that takes the labels as clean."""
    diverged: tuple[str, ...] = ()
    """Networks that were left out because their numbers became NaN or infinite."""
    misfit: float = 0.0
    """Loss of log-likelihood per noisy label, out of fold, from explaining the labels by the estimated noise;
    negative if nothing is lost."""
    misfit_p_value: float = 1.0
    """P-value of the hypothesis that nothing is lost (a paired, one-sided z-test)."""

    @property
    def fits(self) -> bool:
        """Whether the estimated class-conditional noise explains the labels (``misfit_p_value`` of .01).

        ``False`` means that the noise depends on the row, or that its rates cannot be estimated from these
        data. ``True`` is not a proof: noise that follows the features closely looks like clean labels.
        """
        return self.misfit_p_value >= LEVEL

    def __str__(self) -> str:
        best = self.candidates["weight"].idxmax()
        chosen = int((self.candidates["weight"] > 0).sum())
        return (
            f"{chosen} of {len(self.candidates)} candidates are averaged; {best!r} has the largest weight "
            f"({self.candidates['weight'].max():.2f}). Estimated noise: {self.noise!r}"
            + ("" if np.isnan(self.alpha) else f"; alpha {self.alpha:.3g}")
            + f". Estimated {self.metric.replace('_', ' ')} on clean labels: "
            f"{self.accuracy:.3f} ({self.accuracy_low:.3f} to {self.accuracy_high:.3f}), if the noise "
            f"depends on the true class alone.{'' if self.fits else f' But {MISFIT}'}"
            + (f" Diverged and left out: {', '.join(self.diverged)}." if self.diverged else "")
        )


def make_report(
    data: FitInput, portfolio: Portfolio, clean_map: CleanMap, *, seed: int, verified: BoolArray | None
) -> PeerReport:
    """Score every candidate under one α and estimate the clean accuracy of their average.

    Parameters
    ----------
    data
        Checked input of ``fit``.
    portfolio
        The fitted candidates.
    clean_map
        The decision and the estimated noise.
    seed
        Seed of the interval.
    verified
        Rows whose labels are known to be clean, (n,); they are excluded from the test of the noise model.
    """
    implied = clean_map.implied_alpha()
    alpha = implied if np.isfinite(implied) else 1.0
    scores = [
        peer_score(
            data.codes,
            (p - alpha * clean_map.noisy_prior).argmax(axis=1),
            alpha=alpha,
            sample_weight=data.weight,
        )
        for p in portfolio.candidate_proba
    ]
    held_out = portfolio.oof_proba[data.weight > 0]
    accuracy = clean_map.accuracy(held_out, seed=seed)
    noisy_weight = data.weight if verified is None else np.where(verified, 0.0, data.weight)
    loss, p_value = clean_map.misfit(portfolio.oof_proba, data.codes, noisy_weight)
    candidates = portfolio.candidates.assign(peer_score=scores)
    report = PeerReport(
        candidates, clean_map.metric, implied, clean_map.noise, *accuracy, portfolio.diverged, loss, p_value
    )
    if report.fits:
        return report
    _, low, high = clean_map.accuracy(held_out, seed=seed, as_labelled=True)
    return replace(
        report, accuracy_low=min(report.accuracy_low, low), accuracy_high=max(report.accuracy_high, high)
    )
