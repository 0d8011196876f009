"""Rademacher complexities to put into appendix Lemma 3 and Theorem 7."""

from __future__ import annotations

import math
from typing import Any

from peerloss._validation import check_count
from peerloss.theory._checks import check_non_negative


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
    float
        B·R/√N.

    Raises
    ------
    InvalidInputError
        If ``n_samples`` is no positive integer or a norm is negative.

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
    float
        2·A·B·R/√N.

    Raises
    ------
    InvalidInputError
        If ``n_samples`` is no positive integer or a norm is negative.

    Examples
    --------
    >>> rademacher_two_layer(100, output_norm=1.0, hidden_norm=2.0, input_norm=5.0)
    2.0
    """
    outer = check_non_negative(output_norm, "output_norm")
    return 2.0 * outer * rademacher_linear(n_samples, weight_norm=_hidden(hidden_norm), input_norm=input_norm)


def _hidden(hidden_norm: Any) -> float:
    return check_non_negative(hidden_norm, "hidden_norm")
