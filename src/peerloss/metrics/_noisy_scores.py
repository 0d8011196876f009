"""Scores of classifiers from noisy labels: the peer score, and balanced accuracy on clean labels given T."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import make_scorer

from peerloss._validation import as_labels, as_shares, check_finite, check_same_length
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: A clean prior this close to 0 counts as 0.
ROUNDING = 1e-12


def peer_score(
    y_noisy: ArrayLike, y_pred: ArrayLike, *, alpha: float = 1.0, sample_weight: ArrayLike | None = None
) -> float:
    """Return ``P(f = ỹ) − α Σ_k P(f = k) P(ỹ = k)``, the negative α-peer 0-1 risk up to a constant.

    At α = 1 noise with T[i, j] = e_j multiplies it by 1 − Σe (Lemma 2), so it orders classifiers as clean
    labels would. For two classes that is the order of balanced accuracy (Lemma 3). For three or more it is
    not: the best rule at α = 1 is argmax(η − π), balanced accuracy needs argmax(η/π) and an estimate of the
    noise (:func:`peerloss.metrics.clean_balanced_accuracy`). At α = α* it is (1 − Σe)·accuracy plus a
    constant (Proposition 1); :func:`peerloss.theory.optimal_alpha` describes when α* exists. Compare all
    candidates at the *same* α.

    Parameters
    ----------
    y_noisy, y_pred
        Noisy labels and predictions, shape (n,), of any one dtype.
    alpha
        Weight of the peer term; see :func:`peerloss.theory.optimal_alpha`.
    sample_weight
        Weights of the rows.

    Examples
    --------
    >>> peer_score([0, 0, 1, 1], [0, 0, 1, 1])
    0.5
    >>> peer_score([0, 0, 1, 1], [1, 1, 1, 1])
    0.0
    """
    labels, predictions = np.asarray(y_noisy), np.asarray(y_pred)
    if labels.ndim != 1 or labels.shape != predictions.shape or labels.size == 0:
        raise InvalidInputError(
            "`y_noisy` and `y_pred` must be one-dimensional, equally long and not empty; got shapes "
            f"{labels.shape} and {predictions.shape}."
        )
    weight = as_shares(sample_weight, len(labels))
    strength = check_finite(alpha, "alpha")
    classes, codes = np.unique(np.concatenate([labels, predictions]), return_inverse=True)
    given, predicted = codes[: len(labels)], codes[len(labels) :]
    shares = [np.bincount(each, weight, minlength=len(classes)) for each in (given, predicted)]
    return float(weight[given == predicted].sum() - strength * shares[0] @ shares[1])


def make_peer_scorer(alpha: float = 1.0) -> Any:
    """Return a scikit-learn scorer of :func:`peer_score` at ``alpha``, for ``GridSearchCV(scoring=...)``."""
    return make_scorer(peer_score, alpha=check_finite(alpha, "alpha"))


#: The scorer at α = 1. For two classes it orders classifiers by balanced accuracy on clean labels.
peer_scorer = make_peer_scorer(1.0)


@dataclass(frozen=True)
class CleanEstimate:
    """A score on clean labels, estimated from noisy ones."""

    value: float
    standard_error: float
    """Sampling error over the rows, with the noise taken as known."""


def clean_balanced_accuracy(
    y_noisy: ArrayLike,
    y_pred: ArrayLike,
    noise: NoiseModel | ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> CleanEstimate:
    """Estimate balanced accuracy on *clean* labels from noisy labels and the noise T, for K classes.

    With J[k, j] = P(f = k, Ỹ = j) and class-conditional noise, J T⁻¹ is the joint of prediction and clean
    label. Its diagonal divided by the clean prior π̃ T⁻¹ is the recall of each class. The mean over the
    classes that occur (clean prior above 0) is returned. For two classes :func:`peerloss.peer_score` at α = 1
    orders classifiers in the same way without T. For three or more it does not, and no score of noisy labels
    alone does (:func:`peerloss.theory.balanced_decision`).

    Parameters
    ----------
    y_noisy, y_pred
        Noisy labels and predictions of held-out rows, codes 0..K-1, shape (n,).
    noise
        A NoiseModel or a transition matrix, invertible.
    sample_weight
        Non-negative weights of the rows.

    Returns
    -------
    ``value``, clipped to [0, 1], and its ``standard_error`` (delta method).

    Raises
    ------
    NotIdentifiableError
        If T cannot be inverted, or the clean prior π̃ T⁻¹ of a class is negative, which sampling error alone
        can cause for a rare class.
    InvalidInputError
        If the arrays differ in length or contain anything but class codes of ``noise``.

    Examples
    --------
    Nine of ten rows are of class 0; a constant prediction has balanced accuracy one half:

    >>> clean_balanced_accuracy([0] * 9 + [1], [0] * 10, NoiseModel.binary(0.0, 0.2)).value
    0.5
    """
    model = as_noise_model(noise)
    labels = as_labels(y_noisy, "y_noisy", n_classes=model.n_classes)
    predicted = as_labels(y_pred, "y_pred", n_classes=model.n_classes)
    check_same_length(y_noisy=labels, y_pred=predicted)
    weight = as_shares(sample_weight, len(labels))
    clean = model.inverse()[labels]  # (n, K): for each row, an unbiased estimate of 1[Y = k]
    prior = weight @ clean
    if (prior < -ROUNDING).any():
        raise NotIdentifiableError(
            f"`noise` and these labels imply a negative clean prior, {prior.round(4).tolist()}: a class is "
            "too rare for this number of rows, or the rates are too high. Use more rows, merge rare classes, "
            "or lower the rates."
        )
    classes = np.flatnonzero(prior > ROUNDING)
    clean, prior = clean[:, classes], prior[classes]
    hit = predicted[:, None] == classes
    recall = weight @ (clean * hit) / prior
    influence = (clean * (hit - recall) / prior).mean(axis=1)
    error = np.sqrt(np.square(weight * influence).sum())
    return CleanEstimate(float(np.clip(recall.mean(), 0.0, 1.0)), float(error))
