"""Two classes: the figures of the whole set with the rates averaged over what the labels leave open.

The confident joint takes overlap of the classes for noise. Where labels over scores level off tells
rates from overlap (:func:`peerloss.noise.fit_clean_posterior`): with class-conditional noise on
development sets its share of wrong labels was off by .02 where the joint's was off by .06. It ranked
rows worse, though, where noise is not class-conditional, so rows are ranked by the joint and the set is
described by this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peerloss.noise import NoiseModel, fit_clean_posterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

#: Log-odds are taken of probabilities this far from 0 and 1.
CLIP = 1e-3
#: Ends of the 90 % intervals.
QUANTILES = (0.05, 0.95)


class SetFigures(NamedTuple):
    """What is said of the whole set; see :class:`~peerloss.audit._posterior.LabelPosterior`."""

    noise: NoiseModel
    noise_low: FloatArray
    noise_high: FloatArray
    clean_prior: FloatArray
    accuracy_as_labelled: float
    accuracy_corrected: float


def two_class_figures(proba: NDArray[Any], codes: IntArray) -> SetFigures | None:
    """Return the figures, or ``None`` where surer scores do not come with more labels."""
    positive = np.clip(np.asarray(proba[:, 1], dtype=np.float64), CLIP, 1.0 - CLIP)
    score = np.log(positive / (1.0 - positive))
    fitted = fit_clean_posterior(codes, score)
    if fitted.weights @ fitted.slopes <= 0:
        return None
    clean = fitted.transform(score)
    (neg_low, pos_low), (neg_high, pos_high) = (
        [_quantile(rates, fitted.weights, q) for rates in fitted.rates.T] for q in QUANTILES
    )
    return SetFigures(
        noise=fitted.noise,
        noise_low=np.array([[1.0 - neg_high, neg_low], [pos_low, 1.0 - pos_high]]),
        noise_high=np.array([[1.0 - neg_low, neg_high], [pos_high, 1.0 - pos_low]]),
        clean_prior=np.array([1.0 - clean.mean(), clean.mean()]),
        accuracy_as_labelled=float(np.where(positive > 0.5, clean, 1.0 - clean).mean()),
        accuracy_corrected=float(np.maximum(clean, 1.0 - clean).mean()),
    )


def _quantile(values: FloatArray, weights: FloatArray, quantile: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = int(np.searchsorted(np.cumsum(weights[order]), quantile))
    return float(values[order][min(reached, len(order) - 1)])
