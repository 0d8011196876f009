"""The α-weighted peer objective for boosting: gradient, bound of the Hessian, and both interfaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, softmax

from peerloss._probabilities import label_frequencies
from peerloss._validation import FloatArray, as_float_array, as_labels, as_prior, check_choice, check_finite
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import IntArray

BASES = ("logistic", "sigmoid")

#: The largest curvature of the logistic loss, and of the sigmoid loss (max |σ''| = 1/(6√3)).
_LOGISTIC_CURVATURE = 0.25
_SIGMOID_CURVATURE = 1.0 / (6.0 * np.sqrt(3.0))


def peer_gradient(
    raw_score: ArrayLike,
    y: ArrayLike,
    *,
    alpha: float = 1.0,
    noisy_prior: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    base: str = "logistic",
) -> tuple[FloatArray, FloatArray]:
    """Differentiate the expected α-peer loss ``L[n, ỹ_n] − α Σ_k π̃_k L[n, k]`` with respect to raw scores.

    With p = softmax(z): for ``"logistic"`` (cross entropy) the gradient is (1 − α)p − e_ỹ + απ̃; for
    ``"sigmoid"`` (L_k = 1 − p_k, bounded) it is p ⊙ (c − c·p) with c = απ̃ − e_ỹ.

    The second array is not the exact Hessian but a positive bound of it. The exact Hessian of cross entropy
    is (1 − α)·p(1 − p): zero at α = 1, where no tree would grow, and negative above. The bound is
    max(1 − α, 0)·p(1 − p) + max(α, 0)/4. It is exact at α = 0 (plain boosting), never below the exact value,
    and never below α/4, so for α > 0 the value of a leaf is at most 4·max(1, 1/α) before the learning rate:
    steps stay bounded although gradients do not vanish. For two classes and α ≥ ½ it bounds the curvature
    *everywhere*, so every round lowers the loss (for more classes the tests confirm this). For the sigmoid
    loss the bound is the constant range(c)/(6√3). For K > 2 both bounds are multiplied by K/(K − 1), as in
    LightGBM, because all columns of a row change together.

    Parameters
    ----------
    raw_score
        (n,) log-odds of class 1 for two classes, or (n, K).
    y
        Noisy class codes 0..K-1, shape (n,).
    alpha
        Weight of the peer term, any finite number; 0 is plain boosting.
    noisy_prior
        π̃: P(ỹ = 1), or a vector over classes. By default the (weighted) frequencies of ``y``.
    sample_weight
        Weights of the rows, which multiply both results.
    base
        ``"logistic"`` or ``"sigmoid"``.

    Returns
    -------
    gradient, hessian
        Both of the shape of ``raw_score``.

    Examples
    --------
    >>> gradient, hessian = peer_gradient([0.0, 0.0, 0.0, 0.0], [0, 0, 0, 1], alpha=1.0)
    >>> gradient.tolist(), hessian.tolist()
    ([0.25, 0.25, 0.25, -0.75], [0.25, 0.25, 0.25, 0.25])
    """
    check_choice(base, "base", BASES)
    raw = np.asarray(raw_score, dtype=np.float64)
    raw = as_float_array(raw, "raw_score", ndim=2 if raw.ndim == 2 else 1)
    n_classes = raw.shape[1] if raw.ndim == 2 else 2
    codes = as_labels(y, "y", n_classes=n_classes)
    if len(codes) != len(raw):
        raise InvalidInputError(
            f"`raw_score` and `y` must have the same length; got {len(raw)} and {len(codes)} rows."
        )
    weight = None if sample_weight is None else as_float_array(sample_weight, "sample_weight", ndim=1)
    if weight is not None and weight.shape != codes.shape:
        raise InvalidInputError(
            f"`sample_weight` must have one entry per row, {len(codes)}; got shape {weight.shape}."
        )
    prior = label_frequencies(codes, n_classes, weight) if noisy_prior is None else noisy_prior
    gradient, hessian = _gradient(
        raw, codes, check_finite(alpha, "alpha"), as_prior(prior, "noisy_prior", n_classes=n_classes), base
    )
    if weight is None:
        return gradient, hessian
    columns = weight if raw.ndim == 1 else weight[:, None]
    return gradient * columns, hessian * columns


def raw_to_proba(raw_score: FloatArray) -> FloatArray:
    """Turn raw scores, (n,) or (n, K), into probabilities (n, K)."""
    if raw_score.ndim == 2:
        return np.asarray(softmax(raw_score, axis=1))
    return np.column_stack([expit(-raw_score), expit(raw_score)])


def _gradient(
    raw: FloatArray, codes: IntArray, alpha: float, prior: FloatArray, base: str
) -> tuple[FloatArray, FloatArray]:
    if raw.ndim == 1:
        p = expit(raw)
        if base == "logistic":
            return (1.0 - alpha) * p - codes + alpha * prior[1], _logistic_bound(p, alpha)
        cost = alpha * (prior[1] - prior[0]) + 1.0 - 2.0 * codes
        return p * (1.0 - p) * cost, _SIGMOID_CURVATURE * np.abs(cost)
    p = softmax(raw, axis=1)
    rows = np.arange(len(codes))
    joint = raw.shape[1] / (raw.shape[1] - 1.0)
    if base == "logistic":
        gradient: FloatArray = (1.0 - alpha) * p + alpha * prior
        gradient[rows, codes] -= 1.0
        return gradient, joint * _logistic_bound(p, alpha)
    cost = np.tile(alpha * prior, (len(codes), 1))
    cost[rows, codes] -= 1.0
    gradient = p * (cost - (cost * p).sum(axis=1, keepdims=True))
    bound = joint * _SIGMOID_CURVATURE * np.ptp(cost, axis=1)
    return gradient, np.repeat(bound[:, None], raw.shape[1], axis=1)


def _logistic_bound(p: FloatArray, alpha: float) -> FloatArray:
    return max(1.0 - alpha, 0.0) * p * (1.0 - p) + max(alpha, 0.0) * _LOGISTIC_CURVATURE


@dataclass(frozen=True)
class PeerObjective:
    """A picklable boosting objective with its settings, callable from LightGBM and XGBoost.

    Their scikit-learn interfaces call ``objective(y_true, raw_score, sample_weight)``, their own ``train``
    functions ``objective(raw_score, data)``.
    """

    alpha: float = 1.0
    """Weight of the peer term."""
    noisy_prior: tuple[float, ...] | None = None
    """Frequencies of the noisy labels; ``None`` counts them in each call."""
    base: str = "logistic"
    """Base loss."""

    def __call__(
        self, y_true: Any, raw_score: Any, sample_weight: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        if hasattr(raw_score, "get_label"):  # native interface: (scores, data set)
            data, raw_score = raw_score, y_true
            y_true, sample_weight = data.get_label(), data.get_weight()
        if np.size(sample_weight) == 0:  # XGBoost passes an empty array for no weights
            sample_weight = None
        return peer_gradient(raw_score, y_true, sample_weight=sample_weight, **vars(self))


def lightgbm_peer_objective(
    alpha: float = 1.0, *, noisy_prior: ArrayLike | None = None, base: str = "logistic"
) -> PeerObjective:
    """Return the α-peer objective for LightGBM; it calls :func:`peer_gradient`.

    Pass it as ``LGBMClassifier(objective=...)`` or as ``params["objective"]`` of ``lightgbm.train`` (with
    ``num_class`` for more than two classes). LightGBM then returns raw scores even from ``predict_proba``:
    apply a sigmoid or softmax, or use :class:`PeerBoostingClassifier`, which does.

    Parameters
    ----------
    alpha
        Weight of the peer term, any finite number.
    noisy_prior
        π̃; by default the frequencies of the training labels.
    base
        ``"logistic"`` or the bounded ``"sigmoid"``.

    Examples
    --------
    >>> objective = lightgbm_peer_objective(0.5)
    >>> gradient, hessian = objective([0, 1], [0.0, 0.0])
    >>> gradient.tolist()
    [0.5, -0.5]
    """
    prior = None if noisy_prior is None else tuple(as_prior(noisy_prior, "noisy_prior").tolist())
    return PeerObjective(check_finite(alpha, "alpha"), prior, check_choice(base, "base", BASES))


def xgboost_peer_objective(
    alpha: float = 1.0, *, noisy_prior: ArrayLike | None = None, base: str = "logistic"
) -> PeerObjective:
    """Return the α-peer objective for XGBoost: the same object as :func:`lightgbm_peer_objective` returns.

    Pass it as ``XGBClassifier(objective=...)`` or as ``obj`` of ``xgboost.train`` (with ``num_class`` for
    more than two classes). For scores to start at 0, set ``base_score=0.5`` in ``XGBClassifier``, which
    interprets it as a probability, and ``base_score=0`` in ``train``. Get scores with ``output_margin=True``.

    Parameters
    ----------
    alpha, noisy_prior, base
        As in :func:`lightgbm_peer_objective`.

    Examples
    --------
    >>> gradient, hessian = xgboost_peer_objective(0.5)([0, 1], [0.0, 0.0])
    >>> hessian.tolist()
    [0.25, 0.25]
    """
    return lightgbm_peer_objective(alpha, noisy_prior=noisy_prior, base=base)
