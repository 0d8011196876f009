"""More than two classes: clean posteriors fitted through T, and T from the confident joint.

:class:`CalibratedPosterior` gives the probabilities of an audit. η̃ T⁻¹ needs calibrated probabilities. Those
of a forest are not, and even with the true T they made the mean of ``p_error`` .02 to .03 too small on well
separated classes. So the clean posterior of each candidate for T is fitted to the noisy labels.

T is counted only if there are more than 100 classes (:mod:`peerloss.posterior.transition_matrix` has the
estimate for fewer). With few rows the counts are small. So each row of T is shrunk towards noise that is the
same for all classes, as if s more rows of every class had that noise. The counts themselves show how uniform
the noise is: T is averaged over s in proportion to the likelihood of the counts given s.

The model's own mistakes in regions where classes overlap count as noise too, so T tends to be too noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, softmax

from peerloss._probabilities import label_frequencies, normalise_rows
from peerloss.noise import NoiseModel
from peerloss.noise.estimate import confident_joint
from peerloss.posterior.noise_posterior import stable_noise
from peerloss.theory import balanced_posterior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.posterior.noise_posterior import NoisePosterior

#: Candidates for s, the number of rows per class that the prior "all classes have the same noise" counts for.
PRIOR_ROWS = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 10_000.0)
#: A confident row carries less information about T than one of known class: its share in the choice of s.
COUNT_EVIDENCE = 0.5
#: Probabilities are kept above this, divided by K, before logarithms are taken.
SMOOTHING = 0.01
#: Shares of the estimated noise that the curves assume, and how much a row counts as evidence for a curve:
#: less than 1, because every curve is an approximation.
SHARES, EVIDENCE = (0.0, 0.25, 0.5, 0.75, 1.0), 0.25
#: Weight of the penalty ½·log(slope)²: about one row.
SLOPE_PENALTY = 1.0
#: Weights of the penalty ½·|bias|²: with one label per row, and with several reports. With few rows, the
#: biases follow the noise of single labels.
BIAS_PENALTY, BIAS_PENALTY_OF_REPORTS = 20.0, 0.01
#: Estimates of accuracy use about this many probabilities, and at least this many rows.
FIT_CELLS, FIT_ROWS = 200_000, 500


def count_noise(proba: NDArray[Any], codes: IntArray) -> tuple[NoiseModel, FloatArray, FloatArray, list[int]]:
    """Count T from confident rows; also return the ends of Wilson's 90 % interval of each entry.

    The intervals cover counting errors, not a wrong model. The last result lists the classes without a
    confident row. Their rows of T are uniform noise at the average rate.
    """
    joint, scaled = confident_joint(proba, codes)
    T = shrink_to_uniform(scaled, joint)
    low, high = wilson_interval(T, np.maximum(joint.sum(axis=1), 1.0)[:, None])
    uncounted = np.flatnonzero(joint.sum(axis=1) == 0).tolist()
    return NoiseModel(T), low, high, uncounted


def wilson_interval(share: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ends of Wilson's 90 % interval of shares that were counted among ``n`` rows."""
    z = 1.645
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def shrink_to_uniform(scaled: FloatArray, joint: FloatArray) -> FloatArray:
    """Divide scaled counts by their row sums, each row together with s rows of uniform noise."""
    k = len(scaled)
    everything = scaled.sum()
    rate = max(1.0 - np.trace(scaled) / everything, 1e-3) if everything > 0 else 1e-3
    uniform = np.full((k, k), rate / (k - 1))
    np.fill_diagonal(uniform, 1.0 - rate)
    counts = COUNT_EVIDENCE * joint
    seen, totals = counts > 0, counts.sum(axis=1)
    # The counts of a row are Dirichlet-multinomial about uniform noise.
    evidence = np.array(
        [
            (gammaln(s * uniform[seen] + counts[seen]) - gammaln(s * uniform[seen])).sum()
            + (gammaln(s) - gammaln(s + totals)).sum()
            for s in PRIOR_ROWS
        ]
    )
    weights = np.exp(evidence - evidence.max())
    weights[weights < 1e-6] = 0.0
    transition = np.zeros((k, k))
    for weight, s in zip(weights / weights.sum(), PRIOR_ROWS, strict=True):
        if weight > 0.0:
            part = scaled + s * rate / (k - 1)
            part[np.diag_indices(k)] += s * (1.0 - rate - rate / (k - 1))
            transition += weight * part / (scaled.sum(axis=1, keepdims=True) + s)
    return transition


@dataclass(frozen=True)
class CleanCurve:
    """Maps noisy to clean probabilities under one T, ``η = softmax(slope · score(η̃) + bias)``.

    The score is log(η̃ T⁻¹) or log(η̃/t), with t the mean row of T. Slope and biases maximise the likelihood of
    the noisy labels under η T. The first score is exact for exact probabilities above .01/K. The second is
    stable if an estimated η̃ T⁻¹ leaves the simplex, as it often does for rare classes. The score with the
    higher likelihood is used.
    """

    noise: NoiseModel
    inverted: bool
    slope: float
    bias: FloatArray

    @classmethod
    def fit(
        cls,
        proba: FloatArray,
        codes: IntArray,
        weight: FloatArray,
        noise: NoiseModel,
        *,
        likelihood: FloatArray | None = None,
    ) -> tuple[CleanCurve, float]:
        """Fit to out-of-fold noisy probabilities and noisy labels; also return the penalised loss.

        ``likelihood`` is P(reports on the row | clean = k), (n, K), if several annotators reported: the
        reports are then fitted instead of the labels.
        """
        given = noise.transition[:, codes].T if likelihood is None else likelihood
        penalty = BIAS_PENALTY if likelihood is None else BIAS_PENALTY_OF_REPORTS
        fits = [
            (_minimise(_scores(proba, noise, inverted=inverted), given, weight, penalty), inverted)
            for inverted in (True, False)
        ]
        (theta, loss), inverted = min(fits, key=lambda fit: fit[0][1])
        return cls(noise, inverted, float(np.exp(theta[0])), theta[1:]), loss

    def transform(self, proba: FloatArray) -> FloatArray:
        """Return clean probabilities, (n, K)."""
        scores = _scores(proba, self.noise, inverted=self.inverted)
        return np.asarray(softmax(self.slope * scores + self.bias, axis=1))


@dataclass(frozen=True)
class CleanCurves:
    """Curves for noise between none and the estimated T, weighted by how well they explain the labels.

    The last one, for T as estimated, decides. All of them together estimate how accurate the decisions are:
    counts of confident rows include the overlap of classes, so the estimated T is often too noisy, and the
    accuracy that it implies too high.
    """

    curves: list[CleanCurve]
    weights: FloatArray
    prior: FloatArray
    """Mean clean probability, by the last curve, of the rows it was fitted to, (K,)."""

    @classmethod
    def fit(cls, proba: FloatArray, codes: IntArray, weight: FloatArray, noise: NoiseModel) -> CleanCurves:
        """Fit to out-of-fold noisy probabilities and noisy labels."""
        noisy_prior = label_frequencies(codes, noise.n_classes, weight)
        full = stable_noise(noise, noisy_prior).transition
        identity = np.eye(noise.n_classes)
        mixed = [NoiseModel((1.0 - share) * identity + share * full) for share in SHARES]
        curves, losses = zip(*[CleanCurve.fit(proba, codes, weight, model) for model in mixed], strict=True)
        weights = softmax(-EVIDENCE * np.array(losses))
        return cls(list(curves), weights, weight @ curves[-1].transform(proba) / weight.sum())

    def balanced(self, proba: FloatArray) -> FloatArray:
        """Return clean probabilities of equally frequent classes by the last curve, (n, K)."""
        return balanced_posterior(self.curves[-1].transform(proba), self.prior)


@dataclass(frozen=True, eq=False)
class CalibratedPosterior:
    """Candidates for T, each with a clean posterior that is fitted to the noisy labels."""

    weights: FloatArray
    """Posterior probabilities of the candidates, (S,)."""
    curves: list[CleanCurve]

    @classmethod
    def fit(cls, posterior: NoisePosterior, proba: NDArray[Any], codes: IntArray) -> CalibratedPosterior:
        """Fit one curve per candidate to out-of-fold noisy probabilities and noisy labels, or to some."""
        some = sample_rows(*proba.shape)
        rows, labels = np.asarray(proba[some], dtype=np.float64), codes[some]
        every_row = np.ones(len(labels))
        curves = [CleanCurve.fit(rows, labels, every_row, noise)[0] for _, noise in posterior.candidates()]
        return cls(posterior.weights, curves)

    def transform(self, proba: NDArray[Any]) -> FloatArray:
        """Return clean probabilities, averaged over the candidates, (n, K)."""
        return self._average(proba, None)

    def given_label(self, proba: NDArray[Any], codes: IntArray) -> FloatArray:
        """Return P(clean = k | x, label), (n, K), of rows with these noisy probabilities and labels."""
        return normalise_rows(self._average(proba, codes))

    def _average(self, proba: NDArray[Any], codes: IntArray | None) -> FloatArray:
        """Average P(clean = k | x), or P(clean = k, label | x), over the candidates."""
        total = np.zeros(proba.shape)
        for weight, curve in zip(self.weights, self.curves, strict=True):
            clean = curve.transform(proba)
            total += weight * (clean if codes is None else clean * curve.noise.transition.T[codes])
        return total


def _scores(proba: FloatArray, noise: NoiseModel, *, inverted: bool) -> FloatArray:
    floor = SMOOTHING / noise.n_classes
    if inverted:
        return np.asarray(np.log(np.maximum(proba @ noise.inverse(), floor)))
    return np.asarray(np.log((proba + floor) / (noise.transition.mean(axis=0) + floor)))


def _minimise(
    scores: FloatArray, given: FloatArray, weight: FloatArray, bias_penalty: float
) -> tuple[FloatArray, float]:
    """Minimise the negative log-likelihood over log slope and biases; ``given`` is P(label | clean = k)."""

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        slope, bias = np.exp(theta[0]), theta[1:]
        clean = softmax(slope * scores + bias, axis=1)
        likelihood = np.maximum((clean * given).sum(axis=1), 1e-300)
        error = weight[:, None] * clean * (1.0 - given / likelihood[:, None])
        gradient = np.r_[slope * (error * scores).sum(), error.sum(axis=0)]
        gradient += np.r_[SLOPE_PENALTY * theta[0], bias_penalty * bias]
        penalty = SLOPE_PENALTY * theta[0] ** 2 + bias_penalty * bias @ bias
        return float(penalty / 2.0 - weight @ np.log(likelihood)), gradient

    start = np.zeros(1 + scores.shape[1])
    limits = [(-3.0, 3.0), *[(-20.0, 20.0)] * scores.shape[1]]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits)
    return np.asarray(found.x, dtype=np.float64), float(found.fun)


def sample_rows(n_rows: int, n_classes: int) -> slice:
    """Return evenly spaced rows, enough to estimate an accuracy."""
    return slice(None, None, max(1, n_rows // max(FIT_ROWS, FIT_CELLS // n_classes)))
