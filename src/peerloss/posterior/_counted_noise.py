"""More than two classes: T from the confident joint, shrunk towards uniform noise.

Counts are small if rows are few. So each row of T is shrunk towards noise that is the same for all classes,
as if s rows of every class had shown that noise. The counts themselves show how uniform the noise is: T is
averaged over s in proportion to the likelihood of the counts given s.

Shrinkage improved the decisions of ``PeerClassifier``: on six tables with 3 to 15 classes, each with uniform
noise (.2, .4) and pair flips (.3), clean accuracy was .718 with it and .707 without, balanced accuracy .725
both times, and the root mean square error of T .079 instead of .088.

The model's own mistakes in regions where classes overlap count as noise too, so T tends to be too noisy.
(EM rounds that correct this ranked and flagged worse on development sets.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln

from peerloss.noise.confident import confident_joint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

#: Candidates for s, the number of rows per class that the prior "all classes have the same noise" counts for.
PRIOR_ROWS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0)
#: A confident row carries less information about T than one of known class: its share in the choice of s.
EVIDENCE = 0.5


@dataclass(frozen=True, eq=False)
class CountedNoise:
    """T with the number of rows behind each of its rows."""

    transition: FloatArray
    rows: FloatArray
    """(K,) number of rows that are confidently of each class."""

    def interval(self, z: float = 1.645) -> tuple[FloatArray, FloatArray]:
        """Return Wilson's interval (90 %) of each entry; it covers counting errors, not a wrong model."""
        n = np.maximum(self.rows, 1.0)[:, None]
        centre = (self.transition + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * np.sqrt(self.transition * (1 - self.transition) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def count_noise(proba: NDArray[Any], codes: IntArray) -> CountedNoise:
    """Estimate T from out-of-fold probabilities of the noisy labels."""
    joint, scaled = confident_joint(proba, codes)
    return CountedNoise(_shrink_to_uniform(scaled, joint), joint.sum(axis=1))


def _shrink_to_uniform(scaled: FloatArray, joint: FloatArray) -> FloatArray:
    """Divide counts by their row sums, each row together with s rows of uniform noise."""
    k = len(scaled)
    everything = scaled.sum()
    rate = max(1.0 - np.trace(scaled) / everything, 1e-3) if everything > 0 else 1e-3
    weights = _weigh_strengths(EVIDENCE * joint, rate)
    totals = scaled.sum(axis=1, keepdims=True)
    transition = np.zeros((k, k))
    for weight, s in zip(weights, PRIOR_ROWS, strict=True):
        if weight > 0.0:
            part = scaled + s * rate / (k - 1)
            part[np.diag_indices(k)] += s * (1.0 - rate - rate / (k - 1))
            transition += weight * part / (totals + s)
    return transition


def _weigh_strengths(counts: FloatArray, rate: float) -> FloatArray:
    """Return the probability of each s: the counts of a row are Dirichlet-multinomial about uniform noise."""
    row, column = np.nonzero(counts)
    seen, totals = counts[row, column], counts.sum(axis=1)
    uniform = np.where(row == column, 1.0 - rate, rate / (len(counts) - 1))
    evidence = np.array(
        [
            (gammaln(s * uniform + seen) - gammaln(s * uniform)).sum()
            + (gammaln(s) - gammaln(s + totals)).sum()
            for s in PRIOR_ROWS
        ]
    )
    weights: FloatArray = np.exp(evidence - evidence.max())
    weights[weights < 1e-6] = 0.0
    weights /= weights.sum()
    return weights
