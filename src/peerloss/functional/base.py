"""Base losses as loss matrices: logits (n, K) → losses (n, K). Column k is the loss if the label is k.

Each base loss is one short function of that shape, with p = softmax(z) and the log-odds margin
m_k = z_k − logsumexp_{j≠k} z_j, so that p_k = σ(m_k). All other losses of this package are linear algebra on
the matrix. What the library knows about a base loss (does it clip, has it a gradient, …) is in its record in
:data:`BASES`. This file also holds the checks of arguments that several losses take, and the checks of what
torch is doing (tracing, transforms).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from peerloss._deprecation import renamed
from peerloss._validation import check_choice, check_in_range, short_repr
from peerloss.exceptions import InvalidInputError

LossMatrix: TypeAlias = Callable[[Tensor], Tensor]

#: Added to probabilities inside the logarithm of cross entropy, unless the caller passes another value.
DEFAULT_EPS = 1e-5
#: Exponent of generalised cross entropy, unless the caller passes another value (``"gce:0.5"``).
DEFAULT_GCE_Q = 0.7
#: Temperatures t1 and t2 of the bi-tempered loss, unless the caller passes other values.
DEFAULT_TEMPERATURES = (0.8, 1.2)
#: Newton steps of the tempered softmax, and how many of them autograd sees: with two, second derivatives are
#: exact.
NEWTON_STEPS, DIFFERENTIABLE_STEPS = 9, 2

# torch has no public functions for these. Looking them up once keeps the checks fast.
_is_jit_tracing = torch._C._is_tracing  # noqa: SLF001
_count_modes = torch._C._len_torch_dispatch_stack  # noqa: SLF001
#: Whether a transform of ``torch.func`` (``vmap``, ``grad``, ``jvp``, …) is active.
has_transforms: Callable[[], bool] = torch._C._are_functorch_transforms_active  # noqa: SLF001


def cross_entropy_matrix(logits: Tensor, *, eps: float = DEFAULT_EPS) -> Tensor:
    """−log(p_k + eps). With ``eps = 0`` this is the exact log-softmax."""
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


def gce_matrix(logits: Tensor, *, q: float = DEFAULT_GCE_Q) -> Tensor:
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
    """1[argmax z ≠ k]. It has no gradient and is meant for evaluation and theory."""
    return (~_is_top(logits)).to(logits.dtype)


def bi_tempered_matrix(
    logits: Tensor, *, t1: float = DEFAULT_TEMPERATURES[0], t2: float = DEFAULT_TEMPERATURES[1]
) -> Tensor:
    """−log_t1(p_k) − (1 − Σ_j p_j^(2−t1))/(2 − t1), with p the tempered softmax of t2 (Amid et al., 2019).

    The tempered logarithm is log_t(u) = (u^(1−t) − 1)/(1 − t), so the loss is bounded for t1 < 1. For t2 > 1
    p has heavy tails. t1 = t2 = 1 is cross entropy without the clip.
    """
    check_in_range(t1, "t1", 0.0, 1.0)
    log_p = tempered_log_softmax(logits, t2=t2)
    divergence = (1.0 - torch.exp((2.0 - t1) * log_p).sum(dim=1, keepdim=True)) / (2.0 - t1)
    tempered_log = log_p if t1 == 1.0 else torch.expm1((1.0 - t1) * log_p) / (1.0 - t1)
    return -tempered_log - divergence


def tempered_log_softmax(logits: Tensor, *, t2: float = DEFAULT_TEMPERATURES[1]) -> Tensor:
    """Return log p of p_k = (1 + (t2 − 1)(λ − z_k))^(−1/(t2 − 1)), where λ makes the p_k of a row sum to one.

    For t2 = 1 it is the log-softmax. λ is found by Newton's method for (Σ_k p_k)^(1−t2) = 1. The left side is
    concave and increasing in λ, and linear if all logits are equal, so steps from λ = max z never overshoot.
    """
    s = check_in_range(t2, "t2", 1.0, 5.0) - 1.0
    if s == 0.0:
        return torch.log_softmax(logits, dim=1)
    top = logits.detach().amax(dim=1, keepdim=True)
    below, fixed = top - logits, top - logits.detach()
    shift = torch.zeros_like(top)  # λ − max z
    for step in range(NEWTON_STEPS):
        distance = below if step >= NEWTON_STEPS - DIFFERENTIABLE_STEPS else fixed
        excess = s * (distance + shift)
        log_p = -torch.log1p(excess) / s
        total = torch.logsumexp(log_p, dim=1, keepdim=True)
        slope = (torch.exp(log_p - total) / (1.0 + excess)).sum(dim=1, keepdim=True)
        shift = shift + torch.expm1(s * total) / (s * slope)
    return -torch.log1p(s * (below + shift)) / s


@dataclass(frozen=True)
class Base:
    """A base loss and what the rest of the library needs to know about it. Calling it gives the loss matrix.

    Parameters
    ----------
    name
        Name under which losses accept it; ``None`` for a callable without a name.
    matrix
        Function from logits (n, K) to losses (n, K). If ``clips`` it also takes the keyword ``eps``.
    clips
        Whether ``eps`` is added to probabilities inside a logarithm. Other bases do not use ``eps``.
    log_loss
        Whether the loss is −log(p + eps), for which ``functional.kernels`` has fast paths.
    symmetric
        Whether the losses of the two labels add up to a constant if there are two classes.
    has_gradient
        Whether gradient descent can train with it.

    Examples
    --------
    >>> as_base("cross_entropy").clip(0.01), as_base("logistic").clip(0.01)
    (0.01, 0.0)
    >>> as_base("mae")
    Base('mae', mae_matrix, symmetric=True)
    """

    name: str | None
    matrix: Callable[..., Tensor]
    clips: bool = False
    log_loss: bool = False
    symmetric: bool = False
    has_gradient: bool = True

    def __repr__(self) -> str:
        # The name of the function, not its address: checkpoints compare the repr of a loss between processes.
        matrix = getattr(self.matrix, "__qualname__", type(self.matrix).__name__)
        changed = [
            f"{option.name}={getattr(self, option.name)}"
            for option in fields(self)[2:]
            if getattr(self, option.name) != option.default
        ]
        return f"Base({', '.join([repr(self.name), matrix, *changed])})"

    def __call__(self, logits: Tensor, **options: Any) -> Tensor:
        """Return the loss matrix (n, K) of ``logits``; ``options`` are those of the base, such as ``eps``."""
        return self.matrix(logits, **options)

    def clip(self, eps: float) -> float:
        """Return the number added to probabilities: ``eps``, or 0 if this base does not clip."""
        return eps if self.clips else 0.0

    def columns(self, z: Tensor, eps: float) -> Tensor:
        """Return the loss matrix of checked logits ``z`` (n, K), with ``eps`` if the base clips."""
        losses = self.matrix(z, eps=eps) if self.clips else self.matrix(z)
        if not isinstance(losses, Tensor) or losses.shape != z.shape:
            got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InvalidInputError(
                f"`base` must return a tensor of shape {tuple(z.shape)}, the loss for every label; got "
                f"{got}. Do not select the target's column or reduce: the losses do that afterwards."
            )
        return losses


_BUILT_IN = (
    Base("cross_entropy", cross_entropy_matrix, clips=True, log_loss=True),
    Base("logistic", logistic_matrix, log_loss=True),
    Base("sigmoid", sigmoid_matrix, symmetric=True),
    Base("mae", mae_matrix, symmetric=True),
    Base("gce", gce_matrix),
    Base("unhinged", unhinged_matrix, symmetric=True),
    Base("ramp", ramp_matrix, symmetric=True),
    Base("hinge", hinge_matrix),
    Base("squared", squared_matrix),
    Base("bi_tempered", bi_tempered_matrix),
    Base("zero_one", zero_one_matrix, symmetric=True, has_gradient=False),
)
#: Name → base loss. To register another one, add a function (n, K) → (n, K) or a :class:`Base`.
BASES: dict[str, LossMatrix] = {str(base.name): base for base in _BUILT_IN}


def as_base(base: str | LossMatrix) -> Base:
    """Return the record of a base loss, given as a name (``"gce:0.5"`` sets q), a callable or a record."""
    if isinstance(base, str) and base in BASES:
        found = BASES[base]
        return found if isinstance(found, Base) else Base(base, found)
    if isinstance(base, str) and base.startswith("gce:"):
        q = check_in_range(base.removeprefix("gce:"), "q in base='gce:q'", 0.0, 1.0, low_open=True)
        return replace(as_base("gce"), name=base, matrix=partial(gce_matrix, q=q))
    if callable(base):
        return base if isinstance(base, Base) else Base(None, base)
    raise InvalidInputError(
        f"`base` must be one of {', '.join(sorted(BASES))}, gce:q with 0 < q ≤ 1, or a callable from logits "
        f"(n, K) to losses (n, K); got {base!r}."
    )


def is_built_in(base: str | LossMatrix) -> bool:
    """Whether ``base`` is a base loss of this module, perhaps with options; its rows are independent."""
    matrix = as_base(base).matrix
    function = matrix.func if isinstance(matrix, partial) else matrix
    return any(function is known.matrix for known in _BUILT_IN)


def trainable_bases() -> tuple[str, ...]:
    """Return the names of the registered base losses that have a gradient."""
    return tuple(name for name in BASES if as_base(name).has_gradient)


def check_trainable_base(base: object, name: str) -> str:
    """Return ``base`` if it names a base loss that has a gradient; errors call the argument ``name``."""
    if isinstance(base, str) and base.startswith("gce:"):
        as_base(base)
        return base
    return check_choice(base, name, trainable_bases())


def margins(logits: Tensor) -> Tensor:
    """Return the log-odds m_k = z_k − logsumexp_{j≠k} z_j of every class, shape (n, K)."""
    if logits.shape[1] == 2:
        return logits - logits.flip(1)
    # 1 − p_k is exact enough for every class but the most probable one, whose rivals are summed directly.
    is_top = _is_top(logits)
    log_p = torch.log_softmax(logits, dim=1)
    others = log_p.masked_fill(is_top, -torch.inf)
    # If all other classes are masked, logsumexp is −inf and its gradient NaN. So it gets a constant instead.
    all_masked = torch.isneginf(others).all(dim=1, keepdim=True)
    rivals_of_top = torch.logsumexp(others.masked_fill(all_masked, 0.0), dim=1, keepdim=True)
    rivals_of_top = rivals_of_top.masked_fill(all_masked, -torch.inf)
    # Not `others` again: a shared tensor would add up its gradients in another order, which changes rounding.
    rivals = torch.log1p(-log_p.masked_fill(is_top, -torch.inf).exp())
    return log_p - torch.where(is_top, rivals_of_top, rivals)


def _is_top(logits: Tensor) -> Tensor:
    """Return 1[argmax z = k], (n, K)."""
    classes = torch.arange(logits.shape[1], device=logits.device)
    return classes == logits.argmax(dim=1, keepdim=True)


def check_eps(eps: float) -> float:
    """Return ``eps`` if it lies in [0, 1]."""
    return check_in_range(eps, "eps", 0.0, 1.0)


def as_numbers(value: Any, name: str) -> Tensor:
    """Return a tensor as it is, and anything else as a float64 tensor; only real numbers are accepted."""
    tensor = value
    if not isinstance(value, Tensor) and getattr(getattr(value, "dtype", None), "kind", "") != "c":
        with suppress(TypeError, ValueError, RuntimeError):  # text, or rows of different length
            tensor = torch.as_tensor(value, dtype=torch.float64)
    if not isinstance(tensor, Tensor) or tensor.is_complex():
        raise InvalidInputError(f"`{name}` must be an array of real numbers; got {short_repr(value)}.")
    return tensor


def check_vector(value: Any, name: str) -> Tensor:
    """Return class weights or similar as a non-negative, finite vector."""
    tensor = as_numbers(value, name)
    if tensor.ndim != 1:
        raise InvalidInputError(
            f"`{name}` must have shape (K,), one entry per class; got {tuple(tensor.shape)}."
        )
    if values_are_checkable(tensor) and not (torch.isfinite(tensor).all() and (tensor >= 0).all()):
        raise InvalidInputError(
            f"`{name}` must be finite and non-negative; got {tensor.tolist()[:8]}. Use 0 to exclude a class."
        )
    return tensor


def check_prior(value: Any) -> Tensor:
    """Return a noisy prior (K,), or (L, 2) for L binary labels, of probabilities that sum to one."""
    tensor = as_numbers(value, "noisy_prior")
    prior: Tensor
    if tensor.ndim == 2 and tensor.shape[1] == 2:
        prior = check_vector(tensor.reshape(-1), "noisy_prior").view(tensor.shape)
    else:
        prior = check_vector(tensor, "noisy_prior")
    if values_are_checkable(prior):
        totals = prior.detach().double().sum(dim=-1).reshape(-1)
        wrong = totals[(totals - 1.0).abs() > 1e-4]
        if len(wrong):
            raise InvalidInputError(
                f"`noisy_prior` must be probabilities that sum to 1; the sum is {float(wrong[0]):g}. Divide "
                "counts by the total."
            )
    return prior


def is_tracing() -> bool:
    """Whether torch is tracing: what numba or Triton computes would then become a constant.

    True for ``torch.compile``, ``torch.export``, ``torch.jit.trace`` and modes that intercept operations.
    """
    return torch.compiler.is_compiling() or _is_jit_tracing() or _count_modes() > 0


def values_are_readable() -> bool:
    """Whether Python may branch on the values of tensors."""
    return not (is_tracing() or has_transforms())


def values_are_checkable(tensor: Tensor) -> bool:
    """Whether values can be read without waiting for a device and without a graph break."""
    return tensor.is_cpu and values_are_readable()


def needs_operations(z: Tensor) -> bool:
    """Whether ``torch.func`` or forward mode is active: both need differentiable torch operations."""
    return has_transforms() or forward_ad.unpack_dual(z).tangent is not None


__getattr__ = renamed(
    __name__,
    {"loss_matrix": "peerloss.functional.loss_matrix", "check_base": "peerloss.functional.base.as_base"},
)
