"""Weights of rows by their noisy label: downsampling as one number per class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._validation import FloatArray, as_float_array, as_prior, check_in_range
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel, as_noise_model
from peerloss.theory._checks import binary_noise, informative_factor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def balancing_label_weights(noise: NoiseModel | ArrayLike, noisy_prior: ArrayLike) -> FloatArray:
    """Find weights w of the *noisy* labels under which the *clean* classes are equally frequent.

    ``w ∝ T⁻¹(1/π)``: then Σ_j w_j·P(Y = k, Ỹ = j) is the same for every k. Given the class, a weight does not
    depend on x, so the weighted rows are those of a world with the same P(x | y) and equally frequent
    classes. Accuracy there is *balanced* accuracy of the data as they come. Equally frequent *noisy* labels
    would not do this: they give π̃ = 1/K.

    Two classes: with ``sample_weight=w[y_noisy]`` peer loss at α = 1 meets the condition of Theorem 2 (p = ½)
    and its minimiser has the best balanced accuracy of the data as they come, as it has without weights. It
    is not in general the best in accuracy; that needs α* (:func:`optimal_alpha`).

    Three or more classes: the noise of the weighted rows is ``K·π_i·T[i, j]·w_j``. Even if T[i, j] = e_j,
    it has no such rates in general unless the classes are equally frequent already, so Lemma 2 and Theorem 2
    do not apply to the weighted rows. For balanced accuracy use :func:`balanced_decision`.

    Parameters
    ----------
    noise
        A NoiseModel or a transition matrix, invertible.
    noisy_prior
        P(Ỹ = 1), or a vector over classes.

    Returns
    -------
    numpy.ndarray, shape (K,)
        Positive weights whose mean over the rows is 1.

    Raises
    ------
    NotIdentifiableError
        If no positive weights do it: some label is given mostly to rows of other classes.

    Examples
    --------
    >>> noise = NoiseModel.binary(e_neg=0.1, e_pos=0.3)
    >>> w = balancing_label_weights(noise, noise.noisy_prior(0.3))
    >>> (w * noise.transition * [[0.7], [0.3]]).sum(axis=1).round(12)
    array([0.5, 0.5])
    """
    model = as_noise_model(noise)
    noisy = as_prior(noisy_prior, "noisy_prior", n_classes=model.n_classes)
    inverse = model.inverse()
    clean = noisy @ inverse
    if (clean <= 0).any():
        raise NotIdentifiableError(
            f"`noise` cannot have led to `noisy_prior` {noisy.round(4).tolist()}: the clean prior would be "
            f"{clean.round(4).tolist()}. Estimate the rates anew, or pass the frequencies of your labels."
        )
    weights = inverse @ (1.0 / clean)
    if (weights <= 0).any():
        raise NotIdentifiableError(
            f"no positive weights balance the clean classes under {model!r}: label "
            f"{int(weights.argmin())} is given mostly to rows of other classes. For accuracy use α* "
            "(`optimal_alpha_from_noisy_prior`), for balanced accuracy `balanced_decision`."
        )
    balanced: FloatArray = weights / (noisy @ weights)
    return balanced


def unbalancing_label_weights(noisy_prior: ArrayLike, difference: Any = 0.2) -> FloatArray:
    """Find weights of the noisy labels under which |δ_p̃| is at least ``difference`` (two classes).

    Where δ_p̃ is near 0 no α* exists, and the paper's remark before Theorem 4 is to downsample one class by
    its noisy labels. These weights do so without throwing rows away; the class that is rarer already counts
    less. Equal weights are returned if |δ_p̃| is large enough.

    Parameters
    ----------
    noisy_prior
        P(Ỹ = 1), or the vector of both probabilities.
    difference
        The least |δ_p̃| wanted, in (0, 1).

    Returns
    -------
    numpy.ndarray, shape (2,)
        Positive weights whose mean over the rows is 1.

    Examples
    --------
    >>> unbalancing_label_weights(0.5).round(12)
    array([1.2, 0.8])
    """
    wanted = check_in_range(difference, "difference", 0.0, 1.0, low_open=True, high_open=True)
    noisy = as_prior(noisy_prior, "noisy_prior", n_classes=2)
    if (noisy == 0).any():
        raise InvalidInputError(
            f"`noisy_prior` must give both labels a positive probability; got {noisy.tolist()}."
        )
    delta = noisy[1] - noisy[0]
    if abs(delta) >= wanted:
        return np.ones(2)
    target = wanted if delta > 0 else -wanted
    weights: FloatArray = np.array([1.0 - target, 1.0 + target]) / (2.0 * noisy)
    return weights


def optimal_alpha_of_weighted(
    noise: NoiseModel | ArrayLike, noisy_prior: ArrayLike, label_weights: ArrayLike
) -> float:
    """Find the α* of rows weighted by their noisy label, for accuracy on the *unweighted* clean data.

    Weighting turns the Bayes threshold (1 + d)/2 of the noisy posterior, d = e_neg − e_pos, into another,
    and peer loss reaches it at ``α = (w₁(1 + d) − w₀(1 − d)) / (w₁(1 + d) + w₀(1 − d)) / δ``, with δ that of
    the weighted labels. Equal weights give Theorem 4's α* back.

    Parameters
    ----------
    noise
        Binary noise with Σe < 1.
    noisy_prior
        P(Ỹ = 1) before weighting, or the vector of both probabilities.
    label_weights
        Positive weights of the labels, (2,), such as those of :func:`unbalancing_label_weights`.

    Returns
    -------
    float
        α*.

    Raises
    ------
    NotIdentifiableError
        If the weighted labels are balanced, or Σe ≥ 1.

    Examples
    --------
    >>> noise = NoiseModel.binary(0.1, 0.3)
    >>> round(optimal_alpha_of_weighted(noise, 0.28, [1.0, 1.0]), 4)
    0.4545
    >>> round(optimal_alpha_of_weighted(noise, 0.5, unbalancing_label_weights(0.5)), 4)
    1.9231
    """
    model = binary_noise(noise)
    informative_factor(model)
    noisy = as_prior(noisy_prior, "noisy_prior", n_classes=2)
    weights = as_float_array(label_weights, "label_weights", ndim=1)
    if weights.shape != (2,) or (weights <= 0).any():
        raise InvalidInputError(
            f"`label_weights` must be two positive numbers; got {np.asarray(label_weights).tolist()}."
        )
    weighted = noisy * weights / (noisy @ weights)
    delta = float(weighted[1] - weighted[0])
    if abs(delta) < 1e-9:
        raise NotIdentifiableError(
            "`label_weights` leave the labels balanced, and then no α* exists. Use "
            "`unbalancing_label_weights(noisy_prior)`."
        )
    difference = model.e_neg - model.e_pos
    above, below = weights[1] * (1.0 + difference), weights[0] * (1.0 - difference)
    return float((above - below) / (above + below) / delta)
