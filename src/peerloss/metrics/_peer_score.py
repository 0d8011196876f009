"""The peer score: compare classifiers on held-out *noisy* labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import make_scorer

from peerloss._validation import as_shares, check_finite
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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
    given_share = np.bincount(given, weight, minlength=len(classes))
    predicted_share = np.bincount(predicted, weight, minlength=len(classes))
    agreement = weight[given == predicted].sum()
    return float(agreement - strength * given_share @ predicted_share)


def make_peer_scorer(alpha: float = 1.0) -> Any:
    """Return a scikit-learn scorer of :func:`peer_score` at ``alpha``, for ``GridSearchCV(scoring=...)``."""
    return make_scorer(peer_score, alpha=check_finite(alpha, "alpha"))


#: The scorer at α = 1. For two classes it orders classifiers by balanced accuracy on clean labels.
peer_scorer = make_peer_scorer(1.0)
