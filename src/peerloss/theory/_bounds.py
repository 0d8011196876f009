"""How many noisy labels are enough: Theorem 5, appendix Lemma 3, Theorem 7, Rademacher complexities."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from peerloss._validation import check_count, check_finite, check_in_range, check_non_negative
from peerloss.exceptions import InvalidInputError
from peerloss.theory._optimal_alpha import informative_factor
from peerloss.theory._transforms import Transform, invert_transform

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.noise import NoiseModel

#: Larger numbers of labels are refused; their digits would mean nothing.
MAX_SAMPLES = 10**100


def excess_risk_bound(
    n_samples: int,
    noise: NoiseModel | ArrayLike,
    *,
    alpha: Any,
    confidence: float = 0.95,
    n_hypotheses: int = 1,
) -> float:
    """Bound the clean excess error of empirical α*-peer 0-1 minimisation (Theorem 5, corrected).

    ``R_D(f̂) − min_F R_D ≤ (1 + |α|)/(1 − Σe) · sqrt(2·log(2|F|/δ)/N)`` with probability 1 − δ. Two
    corrections of the printed theorem: |α| for α, since α* may be negative and the loss still spans
    1 + |α|; and log(2|F|/δ) for log(2/δ), since Hoeffding's step is for one fixed f.

    Parameters
    ----------
    n_samples
        N, the number of noisy labels.
    noise
        A NoiseModel or a transition matrix, with Σe < 1.
    alpha
        α*; at any other α the same number, times 1 − Σe, bounds the excess *peer* risk only.
    confidence
        1 − δ.
    n_hypotheses
        |F|, the number of classifiers compared.

    Returns
    -------
    The bound; above 1 it is vacuous.

    Raises
    ------
    NotIdentifiableError
        If no e_j exist or Σe ≥ 1.
    InvalidInputError
        If a number is out of range.

    Notes
    -----
    The summands must be independent: peers drawn afresh, or the expected peer term with π̃ known. Peers drawn
    from the same N rows share them, which the paper's proof ignores.

    Examples
    --------
    >>> from peerloss.noise import NoiseModel
    >>> round(excess_risk_bound(5000, NoiseModel.binary(0.2, 0.4), alpha=1.0), 4)
    0.1921
    """
    n = check_count(n_samples, "n_samples")
    return _excess_constant(noise, alpha, confidence, n_hypotheses) / math.sqrt(n)


def required_samples(
    excess: Any, noise: NoiseModel | ArrayLike, *, alpha: Any, confidence: float = 0.95, n_hypotheses: int = 1
) -> int:
    """Find the fewest noisy labels for which Theorem 5 promises an excess: its inverse in N.

    The smallest N with ``excess_risk_bound(N, …) ≤ excess``.

    Parameters
    ----------
    excess
        The largest acceptable excess error, above 0.
    noise, alpha, confidence, n_hypotheses
        As for :func:`excess_risk_bound`.

    Returns
    -------
    N.

    Raises
    ------
    NotIdentifiableError
        If no e_j exist or Σe ≥ 1.
    InvalidInputError
        If a number is out of range, or more than 10**100 labels would be needed.

    Examples
    --------
    >>> from peerloss.noise import NoiseModel
    >>> required_samples(0.05, NoiseModel.binary(0.2, 0.4), alpha=1.0)
    73778
    """
    target = check_non_negative(excess, "excess", positive=True)
    constant = _excess_constant(noise, alpha, confidence, n_hypotheses)
    if not math.isfinite(constant):
        raise InvalidInputError(
            f"`alpha` must give a finite bound; got {alpha:g}, for which the bound of every number of labels "
            "overflows. Use `optimal_alpha(noise, clean_prior)` or 1.0."
        )
    exact = Fraction(constant) ** 2 / Fraction(target) ** 2
    if exact > MAX_SAMPLES:
        raise InvalidInputError(
            f"`excess` must be at least {constant / math.sqrt(MAX_SAMPLES):.2g} for this noise and `alpha`; "
            f"got {target:g}, which needs more than {float(MAX_SAMPLES):.0e} labels. Pass a larger number."
        )
    low, high = 0, 2 * math.ceil(exact) + 1  # the bound exceeds the target at `low`, and not at `high`
    while high - low > 1:  # bisection, since consecutive integers above 2**53 may have the same root
        middle = (low + high) // 2
        low, high = (low, middle) if constant / math.sqrt(middle) <= target else (middle, high)
    return high


def deviation_bound(
    n_samples: int,
    *,
    alpha: Any,
    lipschitz: Any,
    rademacher: Any,
    loss_range: Any = 1.0,
    confidence: float = 0.95,
) -> float:
    """Bound how far empirical α-peer risks lie from their means (appendix Lemma 3, with |α|).

    ``max_F |R̂ − R| ≤ 2(1 + |α|)·L·ℜ(F) + sqrt(log(4/δ)/(2N))·(1 + (1 + |α|)·(ℓ̄ − ℓ̲))``.

    Parameters
    ----------
    n_samples
        N.
    alpha
        Weight of the peer term.
    lipschitz
        L, the Lipschitz constant of the base loss in the score.
    rademacher
        ℜ(F), for example from :func:`rademacher_linear`.
    loss_range
        ℓ̄ − ℓ̲, the span of the base loss.
    confidence
        1 − δ.

    Returns
    -------
    The bound.

    Raises
    ------
    InvalidInputError
        If a number is out of range.

    Notes
    -----
    What the printed proof assumes: (a) the lone "1" is the span of ℓ̃ = ℓ − α·Σ_k π̃_k ℓ(·, k), which can be
    as large as (1 + |α|)(ℓ̄ − ℓ̲); (b) its Hoeffding step over the random peers is for one f, though the
    maximum over F is claimed (with the expected peer loss this step falls away); (c) α ≥ 0, corrected by |α|.

    Examples
    --------
    >>> round(deviation_bound(10_000, alpha=1.0, lipschitz=1.0, rademacher=0.01), 4)
    0.0844
    """
    n = check_count(n_samples, "n_samples")
    spread = 1.0 + abs(check_finite(alpha, "alpha"))
    slope = check_non_negative(lipschitz, "lipschitz")
    complexity = check_non_negative(rademacher, "rademacher")
    span = check_non_negative(loss_range, "loss_range")
    tail = math.sqrt(math.log(4.0 / _miss(confidence)) / (2.0 * n))
    return 2.0 * spread * slope * complexity + tail * (1.0 + spread * span)


def generalization_bound(
    n_samples: int,
    noise: NoiseModel | ArrayLike,
    *,
    alpha: Any,
    lipschitz: Any,
    rademacher: Any,
    transform: Transform,
    loss_range: Any = 1.0,
    approximation_error: Any = 0.0,
    confidence: float = 0.95,
) -> float:
    """Bound the clean excess error of empirical α*-peer minimisation with a calibrated base (Theorem 7).

    ``R_D(f̂) − R* ≤ Ψ⁻¹(approximation error + 2·deviation bound)/(1 − Σe)``, at most 1, with the deviation
    of appendix Lemma 3: see :func:`deviation_bound` for what its proof assumes.

    Parameters
    ----------
    n_samples, alpha, lipschitz, rademacher, loss_range, confidence
        As for :func:`deviation_bound`; α must be α*.
    noise
        A NoiseModel or a transition matrix, with Σe < 1.
    transform
        Ψ of the peer loss, from :func:`peer_transform`.
    approximation_error
        min_F R − min R of the expected peer loss: what the class F cannot reach.

    Returns
    -------
    The bound; 1.0 if it is vacuous.

    Raises
    ------
    NotIdentifiableError
        If no e_j exist or Σe ≥ 1.
    InvalidInputError
        If a number is out of range.

    Examples
    --------
    >>> from peerloss.noise import NoiseModel
    >>> from peerloss.theory import calibration_transform, peer_transform
    >>> noise = NoiseModel.binary(0.1, 0.1)
    >>> psi = peer_transform(calibration_transform("sigmoid"), noise, alpha=1.0)
    >>> bound = generalization_bound(
    ...     1_000_000, noise, alpha=1.0, lipschitz=0.25, rademacher=0.01, transform=psi
    ... )
    >>> round(bound, 4)
    0.1444
    """
    factor = informative_factor(noise)
    missed = check_non_negative(approximation_error, "approximation_error")
    deviation = deviation_bound(
        n_samples,
        alpha=alpha,
        lipschitz=lipschitz,
        rademacher=rademacher,
        loss_range=loss_range,
        confidence=confidence,
    )
    return invert_transform(transform, missed + 2.0 * deviation, upper=factor) / factor


def rademacher_linear(n_samples: int, *, weight_norm: Any, input_norm: Any) -> float:
    """Bound the Rademacher complexity of linear scores w·x, for ℜ(F) in Theorem 7.

    ``ℜ = E sup_{‖w‖ ≤ B} (1/N) Σ σ_i w·x_i ≤ B·R/√N`` if ‖x_i‖₂ ≤ R: the supremum is (B/N)·‖Σ σ_i x_i‖,
    and Jensen's inequality bounds its mean.

    Parameters
    ----------
    n_samples
        N.
    weight_norm
        B, the bound on ‖w‖₂.
    input_norm
        R, the bound on ‖x‖₂.

    Returns
    -------
    B·R/√N.

    Raises
    ------
    InvalidInputError
        If ``n_samples`` is not a positive integer or a norm is negative.

    Examples
    --------
    >>> rademacher_linear(100, weight_norm=2.0, input_norm=5.0)
    1.0
    """
    n = check_count(n_samples, "n_samples")
    product = check_non_negative(weight_norm, "weight_norm") * check_non_negative(input_norm, "input_norm")
    return product / math.sqrt(n)


def rademacher_two_layer(n_samples: int, *, output_norm: Any, hidden_norm: Any, input_norm: Any) -> float:
    """Bound the Rademacher complexity of two-layer ReLU nets, for ℜ(F) in Theorem 7.

    Scores Σ_j a_j·relu(w_j·x) with ‖a‖₁ ≤ A, ‖w_j‖₂ ≤ B, ‖x‖₂ ≤ R and any width:
    ``ℜ ≤ 2·A·B·R/√N``. The supremum over a is A·sup_w |(1/N) Σ σ_i relu(w·x_i)|; the absolute value costs
    the 2 (w = 0 gives 0, and σ is symmetric), the 1-Lipschitz relu nothing (contraction), and the rest is
    :func:`rademacher_linear`.

    Parameters
    ----------
    n_samples
        N.
    output_norm
        A, the bound on the sum of absolute output weights.
    hidden_norm
        B, the bound on the Euclidean norm of each hidden unit's weights.
    input_norm
        R, the bound on ‖x‖₂.

    Returns
    -------
    2·A·B·R/√N.

    Raises
    ------
    InvalidInputError
        If ``n_samples`` is not a positive integer or a norm is negative.

    Examples
    --------
    >>> rademacher_two_layer(100, output_norm=1.0, hidden_norm=2.0, input_norm=5.0)
    2.0
    """
    outer = check_non_negative(output_norm, "output_norm")
    inner = check_non_negative(hidden_norm, "hidden_norm")
    return 2.0 * outer * rademacher_linear(n_samples, weight_norm=inner, input_norm=input_norm)


def _excess_constant(
    noise: NoiseModel | ArrayLike, alpha: Any, confidence: float, n_hypotheses: int
) -> float:
    factor = informative_factor(noise)
    spread = 1.0 + abs(check_finite(alpha, "alpha", advice="Use `optimal_alpha(noise, clean_prior)` or 1.0."))
    size = check_count(n_hypotheses, "n_hypotheses")
    return spread / factor * math.sqrt(2.0 * math.log(2.0 * size / _miss(confidence)))


def _miss(confidence: float) -> float:
    return 1.0 - check_in_range(confidence, "confidence", 0.0, 1.0, low_open=True, high_open=True)
