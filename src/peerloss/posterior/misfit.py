"""Whether the estimated class-conditional noise explains the noisy labels.

Out of fold, the portfolio predicts the noisy labels in two ways: directly, and through the noise model, as
clean probabilities times the estimated T. If the model holds, the second is as good. If it predicts the
labels clearly worse, T does not fit: the noise depends on the row, or its rates cannot be estimated from
these data.

On development tables class-conditional noise was not rejected, except for pair flips, whose rates were
estimated badly: ``docs/howto/covered-noise.md`` has the numbers. A model that fits proves nothing. Any noisy
posterior is explained by T = I, and noise that is a function of the features, such as keyword rules, looks
like clean labels of an easier task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import norm

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray

#: Below this p-value the noise model is rejected.
LEVEL = 0.01
#: Probabilities are kept this far from 0, so that no single row decides the test.
FLOOR = 1e-3


class Misfit(NamedTuple):
    """How much worse the noise model predicts the noisy labels than the portfolio does directly."""

    loss: float
    """Log-likelihood lost per label; negative if the noise model predicts better."""
    p_value: float
    """P-value of the hypothesis that nothing is lost, one-sided."""


def measure_misfit(
    direct: FloatArray,
    explained: FloatArray,
    codes: IntArray,
    weight: FloatArray,
    *,
    tolerance: float = 0.0,
) -> Misfit:
    """Compare two predictions of the noisy labels on held-out rows by a paired z-test.

    Parameters
    ----------
    direct, explained
        Out-of-fold probabilities of the noisy labels, (n, K): calibrated, and through the noise model.
    codes, weight
        Noisy labels 0..K-1 and weights of the rows; those of weight 0 are excluded.
    tolerance
        Loss per label that is accepted: the hypothesis is that no more is lost.
    """
    if not weight.any():  # every label is known to be right: no label needs an explanation
        return Misfit(0.0, 1.0)
    share = weight / weight.sum()
    lost = _log_likelihood(direct, codes) - _log_likelihood(explained, codes)
    mean = float(share @ lost)
    error = float(np.sqrt(share**2 @ (lost - mean) ** 2))
    if error == 0.0:
        return Misfit(mean, 1.0 if mean <= tolerance else 0.0)
    return Misfit(mean, float(norm.sf((mean - tolerance) / error)))


def _log_likelihood(proba: FloatArray, codes: IntArray) -> FloatArray:
    kept = np.maximum(proba, FLOOR)
    logs: FloatArray = np.log(kept[np.arange(len(codes)), codes] / kept.sum(axis=1))
    return logs
