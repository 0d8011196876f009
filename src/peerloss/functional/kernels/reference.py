"""The formula of the peer loss, in plain torch operations.

With the loss matrix L, noisy labels ỹ, the noisy prior π̃ and the weight α of the peer term:

    expected peers   L[n, ỹ_n] − α·Σ_k π̃_k L[n, k]
    sampled peers    L[n, ỹ_n] − α·L[n₁, ỹ_{n₂}],  n₁ ≠ n₂ drawn for each n

Class weights w multiply the columns of L. The score matrix M of correlated agreement replaces L by L·M.
Without M the expected form is ``own_n·L[n, ỹ_n] + Σ_k shared_k·L[n, k]`` with own = w[ỹ_n], shared = −α·w·π̃.
Peer loss is linear in the label. So a soft target q_n, probabilities of the classes, replaces L[n, ỹ_n] by
Σ_k q[n, k] L[n, k] (and the peer's L[n₁, ỹ_{n₂}] by the same sum with q_{n₂}); π̃ is then the mean target.

For L = −log(p + eps) the row is −Σ_k c_k log(p_k + eps) with coefficients c = own·1[ỹ] + shared, or
c = w·q + shared for a soft target. Its gradient
with respect to the logits is (Σ_k c_k r_k)·p − c·r, where r = p/(p + eps). Without a clip (eps = 0) r is 1,
and peer loss has the gradient (1 − α)·p − 1[ỹ] + α·π̃. `blocked`, `numba_cpu` and `triton_gpu` compute these
two formulas faster; their tests compare them with this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import values_are_checkable

if TYPE_CHECKING:
    from peerloss.functional.batch import Batch


class Formula(NamedTuple):
    """The numbers that turn logits, labels and a prior into an expected peer cross entropy."""

    alpha: float
    eps: float
    ignore_index: int
    mean: bool
    """Whether the loss is the mean over the rows that are not ignored; otherwise it is their sum."""


def shared_coefficients(
    alpha: float | Tensor, prior: Tensor, weight: Tensor | None, score_matrix: Tensor | None
) -> Tensor:
    """Return −α·w·π̃ (K,), the coefficients of the columns of L; −α·M·π̃ with a (weighted) score matrix.

    A prior (L, 2), of L binary labels, gives coefficients (L, 2).
    """
    shared = -alpha * prior
    if score_matrix is not None:
        return shared @ score_matrix.T
    return shared if weight is None else shared * weight


def expected_rows(
    losses: Tensor, shared: Tensor, weight: Tensor | None, score_matrix: Tensor | None, batch: Batch
) -> Tensor:
    """Return the peer loss of each row with expected peers, from any loss matrix, shape (n,).

    ``shared`` is (K,), or (n, K) if the coefficients differ between rows.
    """
    own = _against_labels(losses, batch.target, weight, score_matrix, batch)
    if batch.may_be_masked:
        losses = losses.masked_fill(shared == 0, 0.0)  # the infinite loss of a masked class times 0 is 0
    return own + combine_columns(losses, shared)


def sampled_rows(
    losses: Tensor,
    alpha: float | Tensor,
    peers: tuple[Tensor, Tensor],
    weight: Tensor | None,
    score_matrix: Tensor | None,
    batch: Batch,
) -> Tensor:
    """Return the peer loss of each row against the ``peers`` (n₁, n₂) drawn for it, shape (n,)."""
    (first, second), y = peers, batch.target
    own = _against_labels(losses, y, weight, score_matrix, batch)
    if score_matrix is not None or batch.is_soft:
        peer = _against_labels(losses[first], y[second], weight, score_matrix, batch)
    else:  # selects n entries instead of copying n rows
        peer = losses[first, y[second]]
        peer = peer if weight is None else peer * weight[y[second]]
    return own - alpha * peer


def draw_peers(batch: Batch, *, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw for each row two *different* rows n₁ ≠ n₂, uniformly among the rows that are not ignored.

    With L binary labels, the peers of a label are drawn among the examples' values of the same label. Returns
    two index vectors (n,). Nothing waits for the device.
    """
    y, n_labels = batch.target, batch.n_labels or 1
    n = y.shape[0] // n_labels
    valid = None if batch.valid is None else batch.valid.view(n, n_labels)
    if n < 2 or (valid is not None and values_are_checkable(y) and int(valid.sum(dim=0).min()) < 2):
        raise InvalidInputError(
            f"`target` must hold at least 2 labelled rows for sampled peers; got a batch of {n}"
            f"{'' if valid is None else f' with {int(valid.sum(dim=0).min())} not ignored'}. Use a larger "
            "batch (DataLoader(drop_last=True) avoids a last batch of one) or peers='expected'."
        )
    # Modulo of 62 random bits: integers on every device, bias under 2^-40.
    bits = torch.randint(1 << 62, (2, n, n_labels), generator=generator, device=y.device)
    if valid is None:
        first = bits[0] % n
        peers = first, (first + 1 + bits[1] % (n - 1)) % n
    else:
        count = valid.sum(dim=0)
        labelled_first = torch.argsort(valid, dim=0, descending=True, stable=True)
        first = bits[0] % count.clamp(min=1)
        second = (first + 1 + bits[1] % (count - 1).clamp(min=1)) % count.clamp(min=1)
        peers = labelled_first.gather(0, first), labelled_first.gather(0, second)
    label = torch.arange(n_labels, device=y.device)
    return (peers[0] * n_labels + label).view(-1), (peers[1] * n_labels + label).view(-1)


def _against_labels(
    losses: Tensor, labels: Tensor, weight: Tensor | None, score_matrix: Tensor | None, batch: Batch
) -> Tensor:
    """Return the weighted loss of each row against its label. A score matrix already includes the weights."""
    if score_matrix is not None:
        return weighted_sum(rows_of_labels(score_matrix.T, batch, labels), losses, batch)
    if batch.is_soft:
        return weighted_sum(labels if weight is None else labels * weight, losses, batch)
    picked = label_entries(losses, labels)
    return picked if weight is None else picked * weight[labels]


def rows_of_labels(table: Tensor, batch: Batch, labels: Tensor | None = None) -> Tensor:
    """Return the row of ``table`` (K, …) of each label, or the mean of rows under each soft target.

    The ``labels`` are the targets of the batch, unless others of the same kind are given.
    """
    labels = batch.target if labels is None else labels
    return labels @ table if batch.is_soft else table[labels]


def weighted_sum(coefficients: Tensor, losses: Tensor, batch: Batch) -> Tensor:
    """Return Σ_k c[n, k]·L[n, k]. An infinite loss (of a masked class) times a coefficient of 0 is 0."""
    if batch.may_be_masked:
        losses = losses.masked_fill(coefficients == 0, 0.0)
    return (coefficients * losses).sum(dim=1)


def combine_columns(columns: Tensor, shared: Tensor) -> Tensor:
    """Return Σ_k shared_k·columns[n, k], shape (n,); ``shared`` is (K,), or (n, K) if it differs by row."""
    return columns @ shared if shared.ndim == 1 else (columns * shared).sum(dim=1)


def label_entries(losses: Tensor, labels: Tensor) -> Tensor:
    """Return ``losses[n, labels[n]]``, shape (n,)."""
    return losses.gather(1, labels[:, None]).squeeze(1)


def cross_entropy_rows(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool = True
) -> Tensor:
    """Return ``own_n · L[n, y_n] + Σ_k shared_k · L[n, k]`` for cross entropy, shape (n,).

    ``own`` (n,) is 1 if it is ``None``; ``shared`` is (K,), the same for every row, or (n, K); ``eps`` is
    the clip. ``y`` may be (n, K), soft targets times their weights: the first term is Σ_k y[n, k]·L[n, k]
    then, and ``own`` is ``None``. If logits may be −inf (``masked``), the infinite loss of such a class is
    left out if its factor is 0.
    """
    c, logs = _terms(z, y, own, shared, eps, masked=masked)
    return -(c * logs).sum(dim=1)


def cross_entropy_sum(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool = True
) -> Tensor:
    """Return the sum of :func:`cross_entropy_rows` as one product."""
    c, logs = _terms(z, y, own, shared, eps, masked=masked)
    return -torch.dot(c.reshape(-1), logs.reshape(-1))


def cross_entropy_gradient(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, grad: Tensor
) -> Tensor:
    """Return the gradient of Σ_n grad_n·rows_n with respect to z.

    It consists of torch operations, so that it can be differentiated again.
    """
    with torch.enable_grad():
        rows = cross_entropy_rows(z, y, own, shared, eps)
        (gradient,) = torch.autograd.grad(rows, z, grad, create_graph=True)
    return gradient


def _terms(
    z: Tensor, y: Tensor, own: Tensor | None, shared: Tensor, eps: float, *, masked: bool
) -> tuple[Tensor, Tensor]:
    """Return the coefficients c and log(p + eps), both (n, K)."""
    if y.ndim == 2:
        c = y + shared
    else:
        column = torch.ones_like(y, dtype=z.dtype) if own is None else own
        c = shared.expand(z.shape).scatter_add(1, y[:, None], column[:, None])
    if eps > 0:
        return c, torch.log(torch.softmax(z, dim=1) + eps)
    logs = torch.log_softmax(z, dim=1)
    return c, logs.masked_fill(c == 0, 0.0) if masked else logs
