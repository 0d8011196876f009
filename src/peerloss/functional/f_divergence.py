"""f-divergence peers: how far predictions and labels of one row are from those of different rows.

With r_k = p_k / π̃_k, the ratio of the predicted probability of label k to its frequency among peers, the
variational form of an f-divergence between "own label" and "peer's label" is

    E[g(r_ỹ)] − E Σ_k π̃_k f*(g(r_k)),    g = f′ if the divergence is smooth,

which is at most the divergence, for every p. The losses are its negative:

- Jensen–Shannon: g = log(2r/(1 + r)), f*(g) = log((1 + r)/2). It is largest, and equals the divergence,
  if p is the posterior η̃ of the noisy label.
- Total variation: g = f*(g) = ½·(r − 1)/(r + 1), a smooth approximation of ½·sign(r − 1). This is expected
  peer loss (α = 1) with the bounded loss matrix −g. It is *not* largest at the posterior. A maximiser has
  p_k = 0 for every class with η̃_k ≤ π̃_k, so for two classes it is the decision η̃ > π̃ of peer loss at α = 1.
  For equal π̃_k its most probable class is that of the posterior.

Under noise with T[i, j] = e_j for i ≠ j, total variation is (1 − Σe) times its clean value for every p if r
uses one prior for both. If r uses the prior of the given labels, this holds if the noise leaves that prior
unchanged (e_j = π_j·Σe, for example equal rates and equal π_j). Otherwise the ratio depends on p.
In all cases the same classes have η̃_k > π̃_k, hence the decision for two classes stays the same.

(Kullback–Leibler gives g = 1 + log r, f*(g) = r: cross entropy up to a constant.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from peerloss._validation import check_choice
from peerloss.functional.batch import (
    Batch,
    check_prior,
    fit_to_batch,
    make_batch,
    reduce_rows,
    without_autocast,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

DIVERGENCES = ("total_variation", "jensen_shannon")
#: Replaces the prior 0 of a class without labels, whose ratio has weight 0.
_SMALLEST_PRIOR = 1e-6


def f_divergence_loss(
    logits: Tensor,
    target: Tensor,
    *,
    divergence: str = "total_variation",
    noisy_prior: Tensor | ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Return the negative variational f-divergence between own and peers' labels.

    Parameters
    ----------
    logits, target, ignore_index, reduction
        As in :func:`~peerloss.functional.peer_loss`.
    divergence
        ``"total_variation"`` (bounded in [−1, 1]; approaches the decisions of peer loss at α = 1) or
        ``"jensen_shannon"`` (approaches the posterior of the noisy label).
    noisy_prior
        π̃ (K,); counted in this batch if not given.

    Returns
    -------
    A scalar, or (n,) with ``reduction="none"``; 0 for a model that always predicts π̃.

    Examples
    --------
    >>> confident = torch.tensor([[0.0, 99.0], [99.0, 0.0]])
    >>> f_divergence_loss(confident, torch.tensor([1, 0]))
    tensor(-0.3333)

    References
    ----------
    Wei and Liu, *When Optimizing f-Divergence is Robust with Label Noise*, ICLR 2021.
    """
    batch = make_batch(logits, target, ignore_index=ignore_index)
    check_choice(divergence, "divergence", DIVERGENCES)
    prior = None if noisy_prior is None else check_prior(noisy_prior, "noisy_prior")
    with without_autocast(batch.logits):
        return batch_divergence_loss(batch, divergence=divergence, noisy_prior=prior, reduction=reduction)


def batch_divergence_loss(
    batch: Batch, *, divergence: str, noisy_prior: Tensor | None, reduction: str
) -> Tensor:
    """Compute :func:`f_divergence_loss` from checked arguments (shared with the module)."""
    prior = batch.counted_prior() if noisy_prior is None else fit_to_batch(noisy_prior, "noisy_prior", batch)
    log_ratio = torch.log_softmax(batch.logits, dim=1) - prior.clamp(min=_SMALLEST_PRIOR).log()
    if divergence == "total_variation":
        own = peers = 0.5 * torch.tanh(0.5 * log_ratio)
    else:
        log_two = torch.log(log_ratio.new_tensor(2.0))
        own = log_two - torch.nn.functional.softplus(-log_ratio)
        peers = torch.nn.functional.softplus(log_ratio) - log_two
    rows = peers @ prior - own.gather(1, batch.target[:, None]).squeeze(1)
    return reduce_rows(rows, batch, weight=None, reduction=reduction)
