"""Peer loss: the loss against the label minus α times the loss against a peer's label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss._deprecation import renamed
from peerloss._validation import check_choice, check_finite
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import (
    DEFAULT_EPS,
    as_base,
    as_numbers,
    check_eps,
    check_prior,
    check_vector,
    values_are_checkable,
)
from peerloss.functional.batch import as_columns, fit_to_batch, make_batch, reduce_rows, without_autocast
from peerloss.functional.kernels.dispatch import PeerSettings, compute_peer_loss, cross_entropy
from peerloss.functional.kernels.reference import label_entries, weighted_sum

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.functional.base import LossMatrix

PEERS = ("expected", "sampled")
#: The prior of a single call is counted from zero.
NO_COUNTS = torch.zeros(0, dtype=torch.int64)


def loss_matrix(
    logits: Tensor, base: str | LossMatrix = "cross_entropy", *, eps: float = DEFAULT_EPS
) -> Tensor:
    """Return the loss for every possible label.

    Parameters
    ----------
    logits
        (n, K); (n,) or (n, 1) for two classes, meaning the columns (0, z).
    base
        A name in :data:`BASES`, ``"gce:q"``, or a callable from logits (n, K) to losses (n, K).
    eps
        Added to probabilities inside the logarithm of ``"cross_entropy"``; other bases do not use it.

    Returns
    -------
    Losses (n, K): column k is the loss if the label is k.

    Examples
    --------
    >>> loss_matrix(torch.tensor([0.0, 2.0]), "hinge")
    tensor([[1., 1.],
            [3., 0.]])
    """
    z = as_columns(logits)
    with without_autocast(z):
        return as_base(base).columns(z, check_eps(eps))


def plain_loss(
    logits: Tensor,
    target: Tensor,
    *,
    base: str | LossMatrix = "cross_entropy",
    eps: float = DEFAULT_EPS,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the plain loss ``L[n, ỹ_n]``, or ``Σ_k q[n, k]·L[n, k]`` of soft targets: peer loss at α = 0.

    ``logits``, ``target``, ``base``, ``eps``, ``weight``, ``ignore_index`` and ``reduction`` are those of
    :func:`peer_loss`.

    Examples
    --------
    >>> plain_loss(torch.tensor([[0.0, 2.0]]), torch.tensor([0]), base="hinge")
    tensor(3.)
    """
    batch = make_batch(logits, target, ignore_index=ignore_index, binary_labels=True)
    with without_autocast(batch.logits):
        if weight is not None:
            weight = fit_to_batch(check_vector(weight, "weight"), "weight", batch)
        record, z, y = as_base(base), batch.logits, batch.target
        clip = record.clip(check_eps(eps))
        if batch.is_soft:
            if record.log_loss:
                return cross_entropy(batch, z.new_zeros(z.shape[1]), clip, weight, reduction)
            rows = weighted_sum(y if weight is None else y * weight, record.columns(z, clip), batch)
            return reduce_rows(rows, batch, weight, reduction)
        if record.log_loss:  # without computing the other columns
            exact = torch.nn.functional.cross_entropy(z, y, reduction="none")
            rows = exact if clip == 0 else -torch.log(torch.exp(-exact) + clip)
        else:
            rows = label_entries(record.columns(z, clip), y)
        return reduce_rows(rows if weight is None else rows * weight[y], batch, weight, reduction)


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
        (n, K); (n,) or (n, 1) for two classes, meaning the columns (0, z). (N, K, d₁, …) for tokens or
        pixels, as in ``torch.nn.functional.cross_entropy``: every position is a row. (n, L) for L binary
        labels, as in ``binary_cross_entropy_with_logits``: each label is a two-class problem of its own.
    target
        Noisy labels (n,), integers in 0..K-1 or ``ignore_index``; (N, d₁, …) for positions; integers (n, L)
        of 0 and 1 for L binary labels.

        *Floating-point* targets of the shape of the logits, (n, K) or (N, K, d₁, …), are soft: each row holds
        the probabilities of the classes, such as shares of votes, mixed, smoothed or predicted labels. The
        row's loss is ``Σ_k q[n, k]·L[n, k] − α·Σ_k π̃_k L[n, k]``, and a counted π̃ is the mean target. Rows
        sum to one; entries may be negative (negative label smoothing). A row of NaN has no label. If soft
        targets require a gradient, a counted π̃ and the divisor of a mean with class weights are constants.
    alpha
        Weight of the peer term, any finite number; 0 is the plain loss.
    noisy_prior
        π̃, the distribution of the noisy labels; counted in this batch if not given. Expected peers only.
        For L binary labels it has shape (L, 2), P(0) and P(1) of each label.
    base, peers, score_matrix, eps, weight, ignore_index, reduction, generator
        As in :class:`~peerloss.PeerLoss`.

    Returns
    -------
    A scalar, or with ``reduction="none"`` a tensor of the shape of ``target``, without the dimension of the
    classes if targets are soft. It is often negative.

    Raises
    ------
    InvalidInputError
        For invalid shapes and dtypes and, on the CPU, invalid values.

    Examples
    --------
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> peer_loss(logits, torch.tensor([0, 1]), base="zero_one")
    tensor(-0.5000)
    >>> peer_loss(logits, torch.tensor([[0.8, 0.2], [0.4, 0.6]]), base="zero_one")
    tensor(-0.2000)

    References
    ----------
    Liu and Guo, *Peer Loss Functions*, ICML 2020, equation (4) and section 4.4.
    """
    settings = PeerSettings(
        base=as_base(base),
        alpha=check_alpha(alpha),
        peers=check_choice(peers, "peers", PEERS),
        score_matrix=None if score_matrix is None else check_score_matrix(score_matrix),
        eps=check_eps(eps),
        weight=None if weight is None else check_vector(weight, "weight"),
        ignore_index=ignore_index,
        reduction=reduction,
        generator=generator,
    )
    prior = None if noisy_prior is None else check_prior(noisy_prior)
    return compute_peer_loss(logits, target, settings, prior, NO_COUNTS).loss


def check_alpha(alpha: float | Tensor) -> float | Tensor:
    """Return ``alpha`` if it is one finite number (a tensor may be 0-dimensional)."""
    if isinstance(alpha, Tensor) and alpha.ndim == 0 and not values_are_checkable(alpha):
        return alpha
    advice = "Use theory.optimal_alpha(noise, clean_prior) or a number such as 1.0."
    number = check_finite(alpha.detach() if isinstance(alpha, Tensor) else alpha, "alpha", advice=advice)
    return alpha if isinstance(alpha, Tensor) else number


def check_score_matrix(value: Tensor | ArrayLike) -> Tensor:
    """Return M as a finite square tensor."""
    matrix = as_numbers(value, "score_matrix")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 2:
        raise InvalidInputError(
            f"`score_matrix` must have shape (K, K), M[prediction, label]; got {tuple(matrix.shape)}."
        )
    if values_are_checkable(matrix) and not torch.isfinite(matrix).all():
        raise InvalidInputError(
            "`score_matrix` must be finite; found NaN or infinity. Use theory.sign_matrix(delta)."
        )
    return matrix


__getattr__ = renamed(__name__, {"base_loss": "peerloss.functional.plain_loss"})
