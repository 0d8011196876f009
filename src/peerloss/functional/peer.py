"""Peer loss: the loss against the label minus α times the loss against a peer's label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss._validation import check_choice, check_finite
from peerloss.exceptions import InvalidInputError
from peerloss.functional._batch import (
    REDUCTIONS,
    Batch,
    check_prior,
    check_vector,
    fit_to_batch,
    make_batch,
    mean_divisor,
    reduce_rows,
    values_are_checkable,
    weighted_sum,
    without_autocast,
)
from peerloss.functional._cross_entropy import cross_entropy_rows, cross_entropy_sum
from peerloss.functional.base import DEFAULT_EPS, check_base, check_eps, loss_columns

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.functional.base import LossMatrix

PEERS = ("expected", "sampled")
CROSS_ENTROPIES = ("cross_entropy", "logistic")


def base_loss(
    logits: Tensor,
    target: Tensor,
    *,
    base: str | LossMatrix = "cross_entropy",
    eps: float = DEFAULT_EPS,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the plain loss ``L[n, ỹ_n]``: peer loss at α = 0.

    ``base``, ``eps``, ``weight``, ``ignore_index`` and ``reduction`` are those of :func:`peer_loss`.

    Examples
    --------
    >>> base_loss(torch.tensor([[0.0, 2.0]]), torch.tensor([0]), base="hinge")
    tensor(3.)
    """
    batch = make_batch(logits, target, ignore_index=ignore_index)
    with without_autocast(batch.logits):
        if weight is not None:
            weight = fit_to_batch(check_vector(weight, "weight"), "weight", batch)
        rows = _label_rows(batch, base, check_eps(eps))
        if weight is not None:
            rows = rows * weight[batch.target]
        return reduce_rows(rows, batch, weight=weight, reduction=reduction)


def peer_loss(
    logits: Tensor,
    target: Tensor,
    *,
    base: str | LossMatrix = "cross_entropy",
    alpha: float | Tensor = 1.0,
    peers: str = "expected",
    noisy_prior: Tensor | ArrayLike | None = None,
    score_matrix: Tensor | ArrayLike | None = None,
    eps: float = DEFAULT_EPS,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Return the α-weighted peer loss (the paper's ℓ_α-peer).

    ``"expected"``: ``L[n, ỹ_n] − α·Σ_k π̃_k L[n, k]`` (appendix Lemma 3's ℓ̃). ``"sampled"``:
    ``L[n, ỹ_n] − α·L[n₁, ỹ_{n₂}]`` with n₁ ≠ n₂ drawn from the batch for each n. Expected peers need no
    second pass and have no sampling variance.

    Over random batches of independent rows, the mean of sampled peers has the expectation A − α·B. Here A is
    the expected loss against a row's own label and B that against the label of another row. Expected peers
    have the same expectation if π̃ is the true distribution of the noisy labels. A prior counted over N labels
    that include the row's own gives (1 − α/N)·A − α·(1 − 1/N)·B instead; at α = 1 this is (1 − 1/N)·(A − B).
    Here N is the number of labels in the batch. In :class:`~peerloss.PeerLoss` it is the number of labels
    counted so far, so the difference vanishes during training.

    Parameters
    ----------
    logits
        (n, K); (n,) or (n, 1) for two classes, meaning the columns (0, z).
    target
        Noisy labels (n,), integers in 0..K-1 or ``ignore_index``.
    base
        A name in :data:`peerloss.functional.BASES` or a callable from logits (n, K) to losses (n, K).
    alpha
        Weight of the peer term, any finite number; 0 is the plain loss.
    peers
        ``"expected"`` or ``"sampled"``.
    noisy_prior
        π̃, the distribution of the noisy labels; counted in this batch if not given. Expected peers only.
    score_matrix
        M[prediction, label] = Sgn(Δ) of correlated agreement: the same loss on ``L @ M``. The identity
        (default) is peer loss.
    eps
        Clip of ``"cross_entropy"``: −log(p + eps). With 0 the loss is not bounded below for α ≥ 1.
    weight
        ``weight[k]`` multiplies column k of the loss matrix, so both terms see it.
    ignore_index
        Targets with this value count nowhere: not as rows, not as peers, not in the prior.
    reduction
        ``"mean"`` (divided by the sum of the targets' weights), ``"sum"`` or ``"none"``.
    generator
        Source of the sampled peers, on the device of the logits.

    Returns
    -------
    A scalar, or (n,) with ``reduction="none"``. It is often negative: what counts is its gradient.

    Raises
    ------
    InvalidInputError
        For shapes, dtypes and (on the CPU) values that do not fit.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> peer_loss(logits, torch.tensor([0, 1]), base="zero_one")
    tensor(-0.5000)

    References
    ----------
    Liu and Guo, *Peer Loss Functions*, ICML 2020, equation (4) and section 4.4.
    """
    batch = make_batch(logits, target, ignore_index=ignore_index)
    with without_autocast(batch.logits):
        return batch_peer_loss(
            batch,
            base=check_base(base),
            alpha=check_alpha(alpha),
            peers=check_choice(peers, "peers", PEERS),
            noisy_prior=None if noisy_prior is None else check_prior(noisy_prior, "noisy_prior"),
            score_matrix=None if score_matrix is None else check_score_matrix(score_matrix),
            eps=check_eps(eps),
            weight=None if weight is None else check_vector(weight, "weight"),
            reduction=reduction,
            generator=generator,
        )


def batch_peer_loss(
    batch: Batch,
    *,
    base: str | LossMatrix,
    alpha: float | Tensor,
    peers: str,
    noisy_prior: Tensor | None,
    score_matrix: Tensor | None,
    eps: float,
    weight: Tensor | None,
    reduction: str,
    generator: torch.Generator | None,
) -> Tensor:
    """Compute :func:`peer_loss` from checked arguments (shared with the module, which counts the prior)."""
    check_choice(reduction, "reduction", REDUCTIONS)
    z, y = batch.logits, batch.target
    if weight is not None:
        weight = fit_to_batch(weight, "weight", batch)
    if score_matrix is not None:
        score_matrix = fit_to_batch(score_matrix, "score_matrix", batch)
        score_matrix = score_matrix if weight is None else weight[:, None] * score_matrix
    if peers == "sampled":
        losses = loss_columns(z, base, eps)
        first, second = draw_peers(batch, generator=generator)
        own = _against_labels(losses, y, weight, score_matrix, batch)
        if score_matrix is not None:
            peer = _against_labels(losses[first], y[second], weight, score_matrix, batch)
        else:  # picks n entries instead of copying n rows
            peer = losses[first, y[second]]
            peer = peer if weight is None else peer * weight[y[second]]
        rows = own - alpha * peer
        return reduce_rows(rows, batch, weight=weight, reduction=reduction)
    prior = batch.counted_prior() if noisy_prior is None else fit_to_batch(noisy_prior, "noisy_prior", batch)
    shared = -alpha * prior
    if score_matrix is not None:
        shared = score_matrix @ shared
    elif weight is not None:
        shared = shared * weight
    if score_matrix is None and base in CROSS_ENTROPIES:
        factor, clip = None if weight is None else weight[y], eps if base == "cross_entropy" else 0.0
        if reduction != "none" and batch.valid is None:
            total = cross_entropy_sum(z, y, factor, shared, clip, masked=batch.may_be_masked)
            return total if reduction == "sum" else total / mean_divisor(batch, weight)
        rows = cross_entropy_rows(z, y, factor, shared, clip, masked=batch.may_be_masked)
    else:
        losses = loss_columns(z, base, eps)
        own = _against_labels(losses, y, weight, score_matrix, batch)
        rows = own + _against_prior(losses, shared, batch)
    return reduce_rows(rows, batch, weight=weight, reduction=reduction)


def draw_peers(batch: Batch, *, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw for each row two *different* rows n₁ ≠ n₂, uniformly among those whose target counts.

    Returns
    -------
    Two index vectors (n,). Ignored rows are never drawn; nothing synchronises with the device.
    """
    y, valid = batch.target, batch.valid
    n = y.shape[0]
    if n < 2 or (valid is not None and values_are_checkable(y) and int(valid.sum()) < 2):
        raise InvalidInputError(
            f"`target` must hold at least 2 labelled rows for sampled peers; got a batch of {n}"
            f"{'' if valid is None else f' with {int(valid.sum())} not ignored'}. Use a larger batch "
            "(DataLoader(drop_last=True) avoids a last batch of one) or peers='expected'."
        )
    # Modulo of 62 random bits: integers on every device, bias under 2^-40.
    bits = torch.randint(1 << 62, (2, n), generator=generator, device=y.device)
    if valid is None:
        first = bits[0] % n
        return first, (first + 1 + bits[1] % (n - 1)) % n
    count = valid.sum()
    labelled_first = torch.argsort(valid, descending=True, stable=True)
    first = bits[0] % count.clamp(min=1)
    second = (first + 1 + bits[1] % (count - 1).clamp(min=1)) % count.clamp(min=1)
    return labelled_first[first], labelled_first[second]


def check_alpha(alpha: float | Tensor) -> float | Tensor:
    """Return ``alpha`` if it is one finite number (a tensor may be 0-dimensional)."""
    if isinstance(alpha, Tensor) and alpha.ndim == 0 and not values_are_checkable(alpha):
        return alpha
    advice = "Use theory.optimal_alpha(noise, clean_prior) or a number such as 1.0."
    number = check_finite(alpha, "alpha", advice=advice)
    return alpha if isinstance(alpha, Tensor) else number


def check_score_matrix(value: Tensor | ArrayLike) -> Tensor:
    """Return M as a finite square tensor."""
    matrix = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise InvalidInputError(
            f"`score_matrix` must have shape (K, K), M[prediction, label]; got {tuple(matrix.shape)}."
        )
    if values_are_checkable(matrix) and not torch.isfinite(matrix).all():
        raise InvalidInputError(
            "`score_matrix` must be finite; found NaN or infinity. Use theory.sign_matrix(delta)."
        )
    return matrix


def _against_labels(
    losses: Tensor, labels: Tensor, weight: Tensor | None, score_matrix: Tensor | None, batch: Batch
) -> Tensor:
    """Weighted loss of each row against its label; the weights are in the score matrix where there is one."""
    if score_matrix is not None:
        return weighted_sum(score_matrix.T[labels], losses, batch)
    picked = _pick(losses, labels)
    return picked if weight is None else picked * weight[labels]


def _against_prior(losses: Tensor, shared: Tensor, batch: Batch) -> Tensor:
    """Σ_k shared_k·L[n, k]. An infinite loss (of a masked class) times 0 is 0."""
    if batch.may_be_masked:
        losses = losses.masked_fill(shared == 0, 0.0)
    return losses @ shared


def _label_rows(batch: Batch, base: str | LossMatrix, eps: float) -> Tensor:
    """L[n, y_n]; for cross entropy without the other columns."""
    if base not in CROSS_ENTROPIES:
        return _pick(loss_columns(batch.logits, base, eps), batch.target)
    exact = torch.nn.functional.cross_entropy(batch.logits, batch.target, reduction="none")
    return exact if base == "logistic" or eps == 0 else -torch.log(torch.exp(-exact) + eps)


def _pick(losses: Tensor, y: Tensor) -> Tensor:
    return losses.gather(1, y[:, None]).squeeze(1)
