"""Candidates for T with their probabilities, and clean probabilities averaged over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import normalise_rows, take
from peerloss.noise import NoiseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

#: Undoing the noise may multiply errors by at most this factor.
MAX_GAIN = 20.0
#: The clean prior of a class, computed through T, must be at least this share of its noisy prior.
LEAST_SHARE = 0.1
#: A known clean label is at least this probable, so that no single one excludes a candidate.
TINY = 1e-4
#: Ends of the 90 % intervals.
QUANTILES = (0.05, 0.95)


@dataclass(frozen=True)
class NoisePosterior:
    """Candidates for T, weighted by how well they explain the noisy labels.

    Created by :func:`~peerloss.posterior.estimate_class_noise`.
    """

    transitions: FloatArray
    """Candidate matrices, shape (S, K, K)."""
    weights: FloatArray
    """Their posterior probabilities, shape (S,)."""

    @property
    def noise(self) -> NoiseModel:
        """The posterior mean of T."""
        return NoiseModel(np.tensordot(self.weights, self.transitions, axes=1))

    @property
    def no_noise(self) -> float:
        """The probability that no label is wrong, T = I."""
        clean = (self.transitions == np.eye(self.transitions.shape[1])).all(axis=(1, 2))
        return float(self.weights[clean].sum())

    def interval(self) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends of the 90 % interval of each entry of T, two arrays (K, K)."""
        low, high = self._quantiles(self.transitions)
        mean = self.noise.transition
        return np.minimum(low, mean), np.maximum(high, mean)

    def error_rate_interval(self, noisy_prior: FloatArray) -> tuple[float, float]:
        """Return the ends of the 90 % interval of the share of wrong labels, Σ_i π_i(1 − T[i, i]).

        ``noisy_prior`` has the frequencies π̃ of the noisy labels, shape (K,).
        """
        rates = [float(unmix(noisy_prior[None], n)[0] @ n.flip_rates) for _, n in self.candidates()]
        low, high = self._quantiles(np.array(rates))
        return float(low), float(high)

    def _quantiles(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ends of the 90 % interval of values that belong to the candidates, shape (S, …)."""
        order = np.argsort(values, axis=0, kind="stable")
        ordered = np.take_along_axis(values, order, axis=0)
        reached = np.cumsum(self.weights[order], axis=0)
        last = len(values) - 1
        low, high = (
            np.take_along_axis(ordered, np.minimum((reached < q).sum(axis=0), last)[None], 0)[0]
            for q in QUANTILES
        )
        return low, high

    def transform(self, proba: NDArray[Any]) -> FloatArray:
        """Return clean probabilities η̃ T⁻¹, averaged over the candidates, shape (n, K).

        ``proba`` has the noisy probabilities η̃, shape (n, K).
        """
        total = np.zeros(proba.shape)
        for weight, noise in self.candidates():
            total += weight * unmix(proba, noise)
        return total

    def clean_prior(self, noisy_prior: FloatArray) -> FloatArray:
        """Return the frequencies of the clean classes, π̃ T⁻¹, averaged over the candidates, shape (K,).

        ``noisy_prior`` has the frequencies π̃ of the noisy labels, shape (K,).
        """
        return np.asarray(self.transform(noisy_prior[None])[0])

    def best_explained(self, proba: NDArray[Any], codes: IntArray, weight: FloatArray) -> FloatArray:
        """Return clean probabilities times T, of the candidate that explains the noisy labels best.

        ``proba`` has noisy probabilities, (n, K), ``codes`` the noisy labels, ``weight`` the weights of rows.
        """
        explained = (unmix(proba, noise) @ noise.transition for _, noise in self.candidates())
        return max(explained, key=lambda p: float(weight @ np.log(np.maximum(take(p, codes), 1e-9))))

    def accuracies(
        self, decided: IntArray, codes: IntArray, weight: FloatArray, *, balanced: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """Estimate the (balanced) accuracy of decisions on clean labels, and its sampling error, for each T.

        ``decided`` has the decisions, which must not depend on the row's own label, ``codes`` the noisy
        labels and ``weight`` the weights of the rows; ``balanced`` asks for balanced accuracy. T⁻¹[ỹ, d]
        has the expectation P(clean = d), so the estimate needs no probabilities, only T.
        """
        k = self.transitions.shape[1]
        share = weight / weight.sum()
        labels, chosen = np.eye(k)[codes], np.eye(k)[decided]
        levels, errors = [], []
        for _, noise in self.candidates():
            if balanced:
                clean = labels @ noise.inverse()  # unbiased one-hot clean labels
                mass = np.maximum(share @ clean, 1e-9)
                part = chosen * clean / mass / k - clean * ((share @ (chosen * clean)) / mass**2 / k)
                level = float(((share @ (chosen * clean)) / mass).mean())
                single = part.sum(axis=1) + level
            else:
                single = noise.inverse()[codes, decided]
                level = float(share @ single)
            levels.append(level)
            errors.append(float(np.sqrt(share**2 @ (single - level) ** 2)))
        return np.array(levels), np.array(errors)

    def given_label(self, proba: NDArray[Any], codes: IntArray) -> FloatArray:
        """Return P(clean = k | x, label), shape (n, K).

        ``proba`` has noisy probabilities, (n, K), and ``codes`` the given labels.
        """
        joint = np.zeros(proba.shape)
        for weight, noise in self.candidates():
            joint += weight * unmix(proba, noise) * noise.transition.T[codes]
        return normalise_rows(joint)

    def given_gold(self, proba: NDArray[Any], codes: IntArray, gold: IntArray) -> NoisePosterior:
        """Return the candidates weighted also by how well they explain known clean labels.

        A candidate is multiplied by P(clean | x, label) of each known row. The labels of these rows are part
        of its weight already, so rows may be selected by features and labels: of the most suspicious rows
        every candidate expects many to be wrong.

        Parameters
        ----------
        proba, codes, gold
            Noisy probabilities, (n, K), given labels and clean labels of the known rows.
        """
        log = np.empty(len(self.weights))
        for place, transition in enumerate(self.transitions):
            clean = NoisePosterior(transition[None], np.ones(1)).given_label(proba, codes)
            log[place] = np.log(np.maximum(take(clean, gold), TINY)).sum()
        return NoisePosterior(self.transitions, reweighted(self.weights, log))

    def thinned(self, size: int) -> NoisePosterior:
        """Return the posterior with at most ``size`` candidates; with one, it is the mean."""
        if size >= len(self.weights):
            return self
        if size <= 1:
            return NoisePosterior(self.noise.transition[None], np.ones(1))
        # "No noise" comes first (see `estimate_transitions`) and is not merged with other candidates.
        first, rest = np.split(np.arange(len(self.weights)), [1])
        parts = [first, *np.array_split(rest, size - 1)]
        weights = np.array([self.weights[part].sum() for part in parts])
        means = [np.tensordot(self.weights[p], self.transitions[p], axes=1) for p in parts]
        return NoisePosterior(np.array(means) / weights[:, None, None], weights)

    def candidates(self) -> Iterator[tuple[float, NoiseModel]]:
        """Yield the weight and the noise of each candidate, with a stable inverse (:func:`stable_noise`)."""
        yield from zip(map(float, self.weights), self._stable, strict=True)

    @cached_property
    def _stable(self) -> list[NoiseModel]:
        return [stable_noise(NoiseModel(transition)) for transition in self.transitions]


def reweighted(weights: FloatArray, log_likelihood: FloatArray) -> FloatArray:
    """Return probabilities of candidates, multiplied by likelihoods, shape (S,); none becomes 0."""
    log = np.log(np.maximum(weights, 1e-300)) + log_likelihood
    found = np.maximum(np.exp(log - log.max()), 1e-12)
    return np.asarray(found / found.sum())


def log_mean(weights: FloatArray, log_likelihood: FloatArray) -> float:
    """Return the logarithm of the mean likelihood of weighted candidates."""
    top = log_likelihood.max()
    return float(top + np.log(weights @ np.exp(log_likelihood - top)))


def stable_noise(noise: NoiseModel, noisy_prior: FloatArray | None = None) -> NoiseModel:
    """Shrink T towards the identity until its inverse is stable, so that errors of η̃ are not amplified.

    With ``noisy_prior`` the clean prior π̃ T⁻¹ must also be at least a tenth of π̃ in every class: if a class
    hardly exists under the estimate, the estimate is wrong rather than the class.
    """
    identity = np.eye(noise.n_classes)
    for share in np.linspace(0.0, 1.0, 21):
        matrix = (1.0 - share) * noise.transition + share * identity
        if np.linalg.cond(matrix) > MAX_GAIN:
            continue
        if noisy_prior is None or (noisy_prior @ np.linalg.inv(matrix) >= LEAST_SHARE * noisy_prior).all():
            break
    return NoiseModel(matrix)


def unmix(proba: FloatArray, noise: NoiseModel) -> FloatArray:
    """Return η = η̃ T⁻¹ as probabilities; T must be safe to invert (:func:`stable_noise`)."""
    clipped = np.clip(proba @ noise.inverse(), 1e-6, None)
    return np.asarray(clipped / clipped.sum(axis=1, keepdims=True))
