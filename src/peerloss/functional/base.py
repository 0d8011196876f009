"""The loss matrix: logits (n, K) → losses (n, K), whose column k is the loss had the label been k.

Each base loss is one short function of that shape. With p = softmax(z) and the log-odds margin
m_k = z_k − logsumexp_{j≠k} z_j, so that p_k = σ(m_k), the table in the documentation is this file read
from top to bottom. All other losses of this package are linear algebra on the matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from peerloss._validation import check_in_range
from peerloss.exceptions import InvalidInputError
from peerloss.functional._batch import as_columns, without_autocast

LossMatrix: TypeAlias = Callable[[Tensor], Tensor]

#: What is added to probabilities inside the logarithm of cross entropy, unless the caller says otherwise.
DEFAULT_EPS = 1e-5


def cross_entropy_matrix(logits: Tensor, *, eps: float = DEFAULT_EPS) -> Tensor:
    """−log(p_k + eps). With ``eps = 0`` the exact log-softmax is taken."""
    if eps == 0:
        return -torch.log_softmax(logits, dim=1)
    return -torch.log(torch.softmax(logits, dim=1) + eps)


def logistic_matrix(logits: Tensor) -> Tensor:
    """log(1 + e^{−m_k}), which is cross entropy without the clip."""
    return cross_entropy_matrix(logits, eps=0.0)


def sigmoid_matrix(logits: Tensor) -> Tensor:
    """σ(−m_k) = 1 − p_k."""
    return 1.0 - torch.softmax(logits, dim=1)


def mae_matrix(logits: Tensor) -> Tensor:
    """Σ_j |p_j − 1[j = k]| = 2(1 − p_k)."""
    return 2.0 * sigmoid_matrix(logits)


def gce_matrix(logits: Tensor, *, q: float = 0.7) -> Tensor:
    """(1 − p_k^q)/q: generalised cross entropy, between cross entropy (q → 0) and 1 − p (q = 1)."""
    check_in_range(q, "q", 0.0, 1.0, low_open=True)
    return -torch.expm1(q * torch.log_softmax(logits, dim=1)) / q


def unhinged_matrix(logits: Tensor) -> Tensor:
    """1 − m_k."""
    return 1.0 - margins(logits)


def ramp_matrix(logits: Tensor) -> Tensor:
    """clip((1 − m_k)/2, 0, 1)."""
    return ((1.0 - margins(logits)) / 2.0).clamp(0.0, 1.0)


def hinge_matrix(logits: Tensor) -> Tensor:
    """max(0, 1 − m_k)."""
    return (1.0 - margins(logits)).clamp(min=0.0)


def squared_matrix(logits: Tensor) -> Tensor:
    """Σ_j (p_j − 1[j = k])² = Σ_j p_j² − 2p_k + 1."""
    p = torch.softmax(logits, dim=1)
    return p.square().sum(dim=1, keepdim=True) - 2.0 * p + 1.0


def zero_one_matrix(logits: Tensor) -> Tensor:
    """1[argmax z ≠ k]; has no gradient, serves evaluation and the theory."""
    return (~_is_top(logits)).to(logits.dtype)


#: Name → function (n, K) → (n, K). A new base loss is one function and one line here.
BASES: dict[str, LossMatrix] = {
    "cross_entropy": cross_entropy_matrix,
    "logistic": logistic_matrix,
    "sigmoid": sigmoid_matrix,
    "mae": mae_matrix,
    "gce": gce_matrix,
    "unhinged": unhinged_matrix,
    "ramp": ramp_matrix,
    "hinge": hinge_matrix,
    "squared": squared_matrix,
    "zero_one": zero_one_matrix,
}


def margins(logits: Tensor) -> Tensor:
    """Return the log-odds m_k = z_k − logsumexp_{j≠k} z_j of every class, shape (n, K)."""
    if logits.shape[1] == 2:
        return logits - logits.flip(1)
    # 1 − p_k is exact enough for every class but the likeliest, whose rivals are summed directly.
    is_top = _is_top(logits)
    log_p = torch.log_softmax(logits, dim=1)
    rivals_of_top = torch.logsumexp(log_p.masked_fill(is_top, -torch.inf), dim=1, keepdim=True)
    rivals = torch.log1p(-log_p.masked_fill(is_top, -torch.inf).exp())
    return log_p - torch.where(is_top, rivals_of_top, rivals)


def _is_top(logits: Tensor) -> Tensor:
    """Return 1[argmax z = k], (n, K)."""
    classes = torch.arange(logits.shape[1], device=logits.device)
    return classes == logits.argmax(dim=1, keepdim=True)


def check_base(base: str | LossMatrix) -> str | LossMatrix:
    """Return ``base`` if it is a known name or a callable."""
    if callable(base) or (isinstance(base, str) and base in BASES):
        return base
    raise InvalidInputError(
        f"`base` must be one of {', '.join(sorted(BASES))}, or a callable from logits (n, K) to losses "
        f"(n, K); got {base!r}."
    )


def check_eps(eps: float) -> float:
    """Return ``eps`` if it can be added to a probability."""
    return check_in_range(eps, "eps", 0.0, 1.0)


def loss_columns(z: Tensor, base: str | LossMatrix, eps: float) -> Tensor:
    """Evaluate a base loss on logits that are in form already (the unchecked twin of `loss_matrix`)."""
    check_base(base)
    if base == "cross_entropy":
        return cross_entropy_matrix(z, eps=eps)
    if isinstance(base, str):
        return BASES[base](z)
    losses = base(z)
    if not isinstance(losses, Tensor) or losses.shape != z.shape:
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InvalidInputError(
            f"`base` must return a tensor of shape {tuple(z.shape)}, the loss for every label; got {got}. "
            "Do not pick the target's column or reduce: that happens afterwards."
        )
    return losses


def loss_matrix(
    logits: Tensor, base: str | LossMatrix = "cross_entropy", *, eps: float = DEFAULT_EPS
) -> Tensor:
    """Return the loss for every possible label.

    Parameters
    ----------
    logits
        (n, K); (n,) or (n, 1) for two classes, meaning the columns (0, z).
    base
        A name in :data:`BASES` or a callable from logits (n, K) to losses (n, K).
    eps
        Added to probabilities inside the logarithm of ``"cross_entropy"``; other bases do not use it.

    Returns
    -------
    Losses (n, K): column k is the loss had the label been k.

    Examples
    --------
    >>> loss_matrix(torch.tensor([0.0, 2.0]), "hinge")
    tensor([[1., 1.],
            [3., 0.]])
    """
    z = as_columns(logits)
    with without_autocast(z):
        return loss_columns(z, base, check_eps(eps))
