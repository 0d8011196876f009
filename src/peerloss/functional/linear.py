"""Peer loss of a linear layer with very many classes, without storing the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 (torch's own convention)

from peerloss._validation import check_choice, check_count
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import DEFAULT_EPS, as_base, check_eps, check_prior, needs_operations
from peerloss.functional.batch import (
    REDUCTIONS,
    Batch,
    check_ignore_index,
    fit_prior_to_batch,
    label_frequencies,
    mean_divisor,
    split_ignored,
)
from peerloss.functional.kernels import triton_gpu
from peerloss.functional.kernels.dispatch import PeerResult, PeerSettings, compute_peer_loss
from peerloss.functional.kernels.fused_linear import Layer, Terms, default_chunk, has_kernel, linear_loss
from peerloss.functional.kernels.reference import shared_coefficients
from peerloss.functional.peer import NO_COUNTS, check_alpha

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

REMEDY = "use peer_loss(torch.nn.functional.linear(hidden, weight, bias), target), which stores the logits."


@torch.compiler.disable  # type: ignore[untyped-decorator]
def linear_peer_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    alpha: float | Tensor = 1.0,
    noisy_prior: Tensor | ArrayLike | None = None,
    eps: float = DEFAULT_EPS,
    ignore_index: int = -100,
    reduction: str = "mean",
    chunk_rows: int | None = None,
) -> Tensor:
    """Return the peer loss of a linear layer's logits ``hidden @ weight.T + bias`` without storing them.

    It equals ``peer_loss(torch.nn.functional.linear(hidden, weight, bias), target)``, cross entropy with
    expected peers, up to rounding. The logits of some rows at a time are computed, replaced by their gradient
    and freed. Use it for tens of thousands of classes, such as tokens. On an NVIDIA GPU one Triton kernel
    computes the losses and the gradient of these rows.

    Gradients flow into ``hidden``, ``weight`` and ``bias``. They are computed in the forward pass, or, with
    ``reduction="none"``, in the backward pass, which then computes the logits a second time. Products are
    computed in the dtype of ``hidden`` or of autocast; losses, and gradients summed over chunks, are at least
    float32.

    The logits of all rows are stored if a second derivative is computed, under ``torch.func``, in forward
    mode and under ``torch.export``. ``torch.compile`` runs this function uncompiled.

    Parameters
    ----------
    hidden
        Inputs of the layer, (n, d), or (N, T, d) for tokens: every position is a row.
    weight
        (K, d), as in ``torch.nn.Linear``; for example the embedding that a language model shares with its
        output layer. (In ``peer_loss``, ``weight`` are class weights, which this function does not have.)
    target
        Noisy labels, of the shape of ``hidden`` without its last dimension: integers in 0..K-1 or
        ``ignore_index``. Soft targets are not supported.
    bias
        (K,), or ``None``.
    alpha, noisy_prior, eps, ignore_index, reduction
        As in :func:`peer_loss`. No gradient flows into ``alpha`` and ``noisy_prior``.
    chunk_rows
        Number of rows whose logits are in memory at a time. By default d, rounded up to a power of two
        between 256 and 4096: from d = 128 on, their logits take at most twice the memory of the weight.

    Returns
    -------
    A scalar, or with ``reduction="none"`` a tensor of the shape of ``target``.

    Raises
    ------
    InvalidInputError
        For invalid shapes and dtypes and, on the CPU, invalid values.

    Examples
    --------
    >>> hidden, weight = torch.eye(2), torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> linear_peer_loss(hidden, weight, torch.tensor([0, 1]))
    tensor(-0.7500)
    """
    settings = linear_settings(alpha, eps, ignore_index, reduction)
    prior = None if noisy_prior is None else check_prior(noisy_prior)
    return compute_linear_loss(
        hidden, weight, bias, target, settings, prior, NO_COUNTS, chunk_rows=chunk_rows
    ).loss


def linear_settings(alpha: float | Tensor, eps: float, ignore_index: int, reduction: str) -> PeerSettings:
    """Return the checked settings of :func:`linear_peer_loss`."""
    alpha, eps, base = check_alpha(alpha), check_eps(eps), as_base("cross_entropy")
    check_choice(reduction, "reduction", REDUCTIONS)
    return PeerSettings(base, alpha, "expected", None, eps, None, ignore_index, reduction, None)


def compute_linear_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    settings: PeerSettings,
    noisy_prior: Tensor | None,
    label_counts: Tensor | None,
    *,
    prior_of: Callable[[Batch], Tensor] = Batch.counted_prior,
    chunk_rows: int | None = None,
) -> PeerResult:
    """Compute the loss for the function and the module.

    ``noisy_prior``, ``label_counts`` and ``prior_of`` are those of ``compute_peer_loss``. The logits of the
    returned batch are a stand-in: one row of zeros, with the number of classes, the dtype and the device of
    the logits that are not stored.
    """
    for name, value in (("alpha", settings.alpha), ("noisy_prior", noisy_prior)):
        if isinstance(value, Tensor) and value.requires_grad:
            raise InvalidInputError(f"`{name}` must not require a gradient. To learn it, {REMEDY}")
    shape, k = _check_shapes(hidden, weight, bias, target), weight.shape[0]
    layer = Layer(hidden.flatten(0, -2), weight, bias)
    labels = target.flatten().long().contiguous()
    if torch.compiler.is_compiling() or any(part is not None and needs_operations(part) for part in layer):
        logits = F.linear(*layer)
        stored = compute_peer_loss(logits, labels, settings, noisy_prior, None, prior_of=prior_of)
        return stored._replace(loss=stored.loss.view(shape)) if settings.reduction == "none" else stored
    has_peers = isinstance(settings.alpha, Tensor) or settings.alpha != 0
    chunk = default_chunk(layer) if chunk_rows is None else check_count(chunk_rows, "chunk_rows")
    ignore_index, dtype = check_ignore_index(settings.ignore_index), _product_dtype(layer)
    # One operation for the number of labels that are not ignored and for the stand-in.
    count, zero = hidden.new_zeros((2, 1), dtype=torch.promote_types(dtype, torch.float32)).unbind()
    batch = Batch(zero.expand(1, k), labels, None, shape=None if target.ndim == 1 else shape)
    in_kernel = labels.shape[0] > 0 and has_kernel(layer, dtype)
    counts = _usable_counts(label_counts, labels, k) if in_kernel and noisy_prior is None else None
    prior, labelled = noisy_prior, None
    if in_kernel and not (prior is None and counts is None):
        labelled = count if settings.reduction == "mean" else None
        if labelled is not None or counts is not None:
            triton_gpu.add_labels(triton_gpu.kernels_for(dtype), labels, counts, count, ignore_index)
        if counts is not None and has_peers:
            prior = label_frequencies(counts, zero.dtype)
    else:
        y, valid = split_ignored(labels, k, ignore_index)
        batch = batch._replace(target=y, valid=valid)
        prior = prior_of(batch) if prior is None else prior
    shared = None
    if prior is not None:
        prior = fit_prior_to_batch(prior, batch)
        shared = shared_coefficients(settings.alpha, prior, None, None).detach() if has_peers else None
    terms = Terms(labels, shared, labelled, ignore_index, settings.eps, dtype, chunk)
    loss, largest = linear_loss(layer, terms, total=settings.reduction != "none")
    if settings.reduction == "none":
        loss = loss.view(shape)
    elif settings.reduction == "mean" and labelled is None:
        loss = loss / mean_divisor(batch, None)
    return PeerResult(loss, batch._replace(largest=largest), None, counts)


def _usable_counts(counts: Tensor | None, labels: Tensor, k: int) -> Tensor | None:
    """Return counts (K,) to which a kernel may add ``labels``, zeros if none were counted, or ``None``."""
    if counts is None:
        return None
    if counts.shape[0] == 0:
        return labels.new_zeros(k)
    is_usable = counts.shape == (k,) and counts.dtype == torch.int64 and counts.device == labels.device
    return counts if is_usable and counts.is_contiguous() else None


def _product_dtype(layer: Layer) -> torch.dtype:
    """Return the dtype in which torch would compute the logits: that of autocast, or of the inputs."""
    kind = layer.hidden.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind) and layer.hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    for name, part in layer._asdict().items():
        if part is not None and part.dtype != layer.hidden.dtype:
            raise InvalidInputError(
                f"`{name}` must have the dtype of `hidden` ({layer.hidden.dtype}) outside autocast; got "
                f"{part.dtype}. Use `{name}.to(hidden.dtype)` or torch.autocast."
            )
    return layer.hidden.dtype


def _check_shapes(hidden: Any, weight: Any, bias: Any, target: Any) -> torch.Size:
    """Check types, shapes and devices; return the shape of the targets."""
    given = {"hidden": hidden, "weight": weight} | ({} if bias is None else {"bias": bias})
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InvalidInputError(f"`{name}` must be a floating-point tensor; got {got}.")
    if weight.ndim != 2 or len(weight) < 2:
        raise InvalidInputError(
            f"`weight` must have shape (K, d), with one row for each of at least 2 classes; got "
            f"{tuple(weight.shape)}. Use the weight of an nn.Linear(d, K)."
        )
    k, d = weight.shape
    if hidden.ndim < 2 or hidden.shape[-1] != d:
        raise InvalidInputError(
            f"`hidden` must have shape (n, {d}) or (N, T, {d}) to go with a weight of shape ({k}, {d}); got "
            f"{tuple(hidden.shape)}. Pass the inputs of the last layer, not its logits."
        )
    if bias is not None and bias.shape != (k,):
        raise InvalidInputError(f"`bias` must have shape ({k},), one per class; got {tuple(bias.shape)}.")
    _check_target(target, hidden)
    for name, tensor in {**given, "target": target}.items():
        if tensor.device != hidden.device:
            raise InvalidInputError(
                f"`{name}` must be on the device of `hidden` ({hidden.device}); got {tensor.device}. Use "
                f"`{name}.to(hidden.device)`."
            )
    shape: torch.Size = target.shape
    return shape


def _check_target(target: Any, hidden: Tensor) -> None:
    is_tensor = isinstance(target, Tensor)
    if not is_tensor or target.is_floating_point() or target.is_complex():
        got = target.dtype if is_tensor else type(target).__name__
        raise InvalidInputError(
            f"`target` must be an integer tensor of class codes 0..K-1; got {got}. For soft targets {REMEDY}"
        )
    if target.shape != hidden.shape[:-1]:
        raise InvalidInputError(
            f"`target` must have shape {tuple(hidden.shape[:-1])} to go with `hidden` of shape "
            f"{tuple(hidden.shape)}; got {tuple(target.shape)}."
        )
