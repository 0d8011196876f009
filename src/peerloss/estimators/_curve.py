"""More than two classes: a clean posterior fitted through the estimated noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray

#: The most that undoing the noise may multiply errors by.
MAX_GAIN = 20.0
#: By T, at least this share of the rows with a label must be of its class on balance.
LEAST_SHARE = 0.1
#: Probabilities are kept above this, over K, before logarithms are taken.
SMOOTHING = 0.01
#: Weight of the penalties ½·log(slope)² and ½·|bias|²: about one row, and a hundredth of one.
SLOPE_PENALTY, BIAS_PENALTY = 1.0, 0.01


@dataclass(frozen=True)
class CleanCurve:
    """Maps noisy to clean probabilities, ``η = softmax(slope · score(η̃) + bias)``.

    The score is log(η̃ T⁻¹) or log(η̃/t), with t the mean row of T; slope and biases make the noisy labels
    likeliest under η T. The first score is exact for exact probabilities. The second is stable where an
    estimated η̃ T⁻¹ leaves the simplex, as it often does for rare classes. The likelier one is taken.
    """

    noise: NoiseModel
    inverted: bool
    slope: float
    bias: FloatArray
    prior: FloatArray
    """Mean clean probability of the rows it was fitted to, (K,)."""

    @classmethod
    def fit(cls, proba: FloatArray, codes: IntArray, weight: FloatArray, noise: NoiseModel) -> CleanCurve:
        """Fit to out-of-fold noisy probabilities and noisy labels."""
        noisy_prior = np.bincount(codes, weight, minlength=noise.n_classes) / weight.sum()
        stable = stable_noise(noise, noisy_prior)
        fits = []
        for inverted in (True, False):
            parameters, loss = _fit(_scores(proba, stable, inverted=inverted), codes, weight, stable)
            fits.append((loss, inverted, parameters))
        _, inverted, parameters = min(fits, key=lambda fit: fit[0])
        curve = cls(stable, inverted, float(np.exp(parameters[0])), parameters[1:], noisy_prior)
        prior = weight @ curve.transform(proba) / weight.sum()
        return cls(stable, inverted, curve.slope, curve.bias, prior)

    def transform(self, proba: FloatArray) -> FloatArray:
        """Return clean probabilities, (n, K)."""
        scores = _scores(proba, self.noise, inverted=self.inverted)
        clean: FloatArray = softmax(self.slope * scores + self.bias, axis=1)
        return clean


def stable_noise(noise: NoiseModel, noisy_prior: FloatArray | None = None) -> NoiseModel:
    """Draw T towards the identity as far as its inverse needs it.

    An estimated T that is nearly singular would multiply the error of η̃ instead of undoing the noise. With
    ``noisy_prior`` the clean prior π̃ T⁻¹ must also be at least a tenth of π̃ in every class: an estimate by
    which a class hardly exists says more about the estimate than about the class.
    """
    identity = np.eye(noise.n_classes)
    for share in np.linspace(0.0, 1.0, 21):
        matrix = (1.0 - share) * noise.transition + share * identity
        if np.linalg.cond(matrix) > MAX_GAIN:
            continue
        if noisy_prior is None or (noisy_prior @ np.linalg.inv(matrix) >= LEAST_SHARE * noisy_prior).all():
            break
    return NoiseModel(matrix)


def _scores(proba: FloatArray, noise: NoiseModel, *, inverted: bool) -> FloatArray:
    floor = SMOOTHING / noise.n_classes
    if inverted:
        scores: FloatArray = np.log(np.maximum(proba @ noise.inverse(), floor))
        return scores
    centred: FloatArray = np.log((proba + floor) / (noise.transition.mean(axis=0) + floor))
    return centred


def _fit(
    scores: FloatArray, codes: IntArray, weight: FloatArray, noise: NoiseModel
) -> tuple[FloatArray, float]:
    """Minimise the negative log-likelihood of the noisy labels over log slope and biases."""
    given = noise.transition[:, codes].T  # (n, K): P(label of the row | clean = k)

    def loss(theta: FloatArray) -> tuple[float, FloatArray]:
        slope, bias = np.exp(theta[0]), theta[1:]
        clean = softmax(slope * scores + bias, axis=1)
        likelihood = np.maximum((clean * given).sum(axis=1), 1e-300)
        error = weight[:, None] * clean * (1.0 - given / likelihood[:, None])
        gradient = np.r_[slope * (error * scores).sum(), error.sum(axis=0)]
        gradient += np.r_[SLOPE_PENALTY * theta[0], BIAS_PENALTY * bias]
        penalty = SLOPE_PENALTY * theta[0] ** 2 + BIAS_PENALTY * bias @ bias
        return float(penalty / 2.0 - weight @ np.log(likelihood)), gradient

    start = np.zeros(1 + scores.shape[1])
    limits = [(-3.0, 3.0), *[(-20.0, 20.0)] * scores.shape[1]]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits)
    return np.asarray(found.x, dtype=np.float64), float(found.fun)
