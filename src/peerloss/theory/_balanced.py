"""Balanced accuracy under class-conditional noise, and weights of rows by their noisy label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._validation import FloatArray, IntArray, as_float_array, as_prior, check_in_range
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel, as_noise_model
from peerloss.theory._optimal_alpha import binary_noise, informative_factor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def balanced_posterior(clean_posterior: ArrayLike, clean_prior: ArrayLike) -> FloatArray:
    """Return the clean posterior that equally frequent classes would have, ``η_k(x)/π_k`` normalised.

    Balanced accuracy is ``(1/K)·Σ_k P(f = k | Y = k) = (1/K)·Σ_x P(x)·η_{f(x)}(x)/π_{f(x)}``, so the decision
    that maximises it is the argmax of this posterior.

    Parameters
    ----------
    clean_posterior
        η, P(Y = k | x), one row per example and one column per class.
    clean_prior
        π, P(Y = 1) or a vector over classes. A class of prior 0 gets probability 0.

    Returns
    -------
    Probabilities, shape (n, K). A row without mass on the classes that occur is uniform over them.

    Raises
    ------
    InvalidInputError
        If shapes disagree or a posterior is negative.

    Examples
    --------
    >>> balanced_posterior([[0.8, 0.15, 0.05]], [0.8, 0.15, 0.05]).round(3).tolist()
    [[0.333, 0.333, 0.333]]
    """
    prior = as_prior(clean_prior, "clean_prior")
    posterior = _one_column_per_class(clean_posterior, "clean_posterior", prior)
    if (posterior < 0.0).any():
        raise InvalidInputError(
            f"`clean_posterior` must not be negative; got {posterior.min():g}. Clip it at 0."
        )
    occurs = prior > 0.0
    ratio = np.divide(posterior, prior, out=np.zeros_like(posterior), where=occurs)
    ratio[ratio.sum(axis=1) == 0.0] = occurs
    shares: FloatArray = ratio / ratio.sum(axis=1, keepdims=True)
    return shares


def balanced_decision(
    noisy_posterior: ArrayLike, noise: NoiseModel | ArrayLike, noisy_prior: ArrayLike
) -> IntArray:
    """Predict the label that is best for balanced accuracy on *clean* labels, from the noisy posterior.

    ``argmax_k η_k(x)/π_k`` with ``η = η̃ T⁻¹`` and ``π = π̃ T⁻¹`` (row vectors); ties go to the smaller
    label. If T[i, j] = e_j, it is ``argmax_k (η̃_k − e_k)/(π̃_k − e_k)``.

    Parameters
    ----------
    noisy_posterior
        P(Ỹ = k | x), one row per example and one column per class.
    noise
        A NoiseModel or a transition matrix, invertible. For two classes with Σe < 1 every noise that leaves
        both clean priors π̃ T⁻¹ positive gives the same decision.
    noisy_prior
        P(Ỹ = 1), or a vector over classes.

    Returns
    -------
    Predicted labels, shape (n,). A class whose clean prior π̃ T⁻¹ is zero or negative is never predicted:
    according to T, all its labels are mistakes.

    Raises
    ------
    NotIdentifiableError
        If T cannot be inverted.
    InvalidInputError
        If shapes disagree.

    Notes
    -----
    Two classes need no rates: η₁/π₁ > η₀/π₀ means η₁ > π₁, and with Σe < 1 that means η̃₁ > π̃₁, the decision
    of peer loss at α = 1 (:func:`peer_decision`). Menon et al. (2015) prove this threshold for balanced
    error.

    Three or more classes do need the noise: no rule that sees only η̃ and π̃ is right everywhere. Take two
    points x₁ and x₂ with P(x₁) = 0.2, η̃(x₁) = (.5, .31, .19) and η̃(x₂) = (.875, .11, .015). Then π̃ is
    (.8, .15, .05). If the labels are clean, the ratios η/π at x₁ are (.625, 2.07, 3.8) and class 2 is best.
    If e = (0, .1, 0), they are (.5/.8, .21/.05, .19/.05) = (.625, 4.2, 3.8) and class 1 is best. Both cases
    have the same η̃ and π̃. In particular α = 1, argmax(η̃ − π̃), is not the rule for balanced accuracy.

    References
    ----------
    Menon, van Rooyen, Ong, Williamson (2015), Learning from corrupted binary labels via class-probability
    estimation, ICML.

    Examples
    --------
    >>> import numpy as np
    >>> noisy_posterior, noisy_prior = [[0.5, 0.31, 0.19]], [0.8, 0.15, 0.05]
    >>> balanced_decision(noisy_posterior, np.eye(3), noisy_prior).tolist()
    [2]
    >>> e = np.array([0.0, 0.1, 0.0])
    >>> balanced_decision(noisy_posterior, (1 - e.sum()) * np.eye(3) + e, noisy_prior).tolist()
    [1]
    """
    model = as_noise_model(noise)
    clean_prior = model.clean_prior(as_prior(noisy_prior, "noisy_prior", n_classes=model.n_classes))
    noisy = _one_column_per_class(noisy_posterior, "noisy_posterior", clean_prior)
    clean = np.clip(noisy @ model.inverse(), 0.0, None)
    return np.asarray(balanced_posterior(clean, clean_prior).argmax(axis=1), dtype=np.int64)


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
    Positive weights whose mean over the rows is 1, shape (K,).

    Raises
    ------
    NotIdentifiableError
        If no such positive weights exist: some label is given mostly to rows of other classes.

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

    If δ_p̃ is near 0, no usable α* exists, and the paper (before Theorem 4) suggests downsampling one class by
    its noisy labels. These weights do so without dropping rows: the labels of the rarer class count less.
    Equal weights are returned if |δ_p̃| is large enough.

    Parameters
    ----------
    noisy_prior
        P(Ỹ = 1), or the vector of both probabilities.
    difference
        The least |δ_p̃| wanted, in (0, 1).

    Returns
    -------
    Positive weights whose mean over the rows is 1, shape (2,).

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


def _one_column_per_class(table: ArrayLike, name: str, prior: FloatArray) -> FloatArray:
    values = as_float_array(table, name, ndim=2)
    if values.shape[1] != prior.size:
        raise InvalidInputError(
            f"`{name}` must have one column for each of the {prior.size} classes; got shape {values.shape}. "
            "For two classes stack (1 − η, η)."
        )
    return values
