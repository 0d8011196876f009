"""LinearPeerLoss: peer loss of a linear layer with very many classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from peerloss._validation import check_count
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import DEFAULT_EPS, values_are_readable
from peerloss.functional.linear import compute_linear_loss, linear_settings
from peerloss.losses._common import AlphaLoss

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class LinearPeerLoss(AlphaLoss):
    """Peer loss of a linear layer; module twin of :func:`peerloss.functional.linear_peer_loss`.

    ``LinearPeerLoss()(hidden, layer, target)`` equals ``PeerLoss()(layer(hidden), target)`` up to rounding,
    without storing the logits of all rows. Use it for the last layer of a network with tens of thousands of
    classes, such as tokens. The layer stays in the model; the loss only reads its parameters.

    The noisy prior is counted as in :class:`PeerLoss`. Both modules have the same state, so the checkpoint of
    one can be loaded into the other.

    Parameters
    ----------
    alpha, noisy_prior, eps, ignore_index, reduction
        As in :class:`PeerLoss`. The base is cross entropy and peers are expected.
    chunk_rows
        Number of rows whose logits are in memory at a time; ``None`` chooses it as described in
        :func:`~peerloss.functional.linear_peer_loss`.

    Raises
    ------
    InvalidInputError
        For invalid arguments, shapes and dtypes and, on the CPU, invalid values.
    DivergenceError
        If the loss is not finite (on CUDA some steps later, because nothing waits for the device).

    Warns
    -----
    DivergenceWarning
        On the CPU, if a logit exceeds 10⁴ in absolute value while α ≥ 1. On CUDA the logits are not read.

    Examples
    --------
    >>> layer, loss = torch.nn.Linear(4, 1000), LinearPeerLoss()
    >>> hidden = torch.randn(8, 4, requires_grad=True)
    >>> loss(hidden, layer, torch.arange(8)).backward()
    >>> layer.weight.grad.shape
    torch.Size([1000, 4])
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        noisy_prior: Tensor | ArrayLike | None = None,
        eps: float = DEFAULT_EPS,
        ignore_index: int = -100,
        reduction: str = "mean",
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha, eps=eps, noisy_prior=noisy_prior, ignore_index=ignore_index, reduction=reduction
        )
        self.chunk_rows = None if chunk_rows is None else check_count(chunk_rows, "chunk_rows")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, hidden: Tensor, layer: nn.Linear | Tensor, target: Tensor) -> Tensor:
        """Return the loss of ``layer``, an ``nn.Linear`` or its weight (K, d), for its inputs ``hidden``.

        Shapes of ``hidden`` and of the noisy labels are those of ``linear_peer_loss``.
        """
        if not (isinstance(layer, Tensor) or _is_only_linear(layer)):
            raise InvalidInputError(
                "`layer` must be an nn.Linear without a `forward` or forward hooks of its own, or its "
                f"weight, a tensor (K, d); got {type(layer).__name__}. For other layers use "
                "PeerLoss()(layer(hidden), target)."
            )
        weight, bias = (layer, None) if isinstance(layer, Tensor) else (layer.weight, layer.bias)
        settings = linear_settings(self._alpha, self.eps, self.ignore_index, self.reduction)
        counts = self.label_counts if self.noisy_prior is None and self._kernels_may_count() else None
        result = compute_linear_loss(
            hidden, weight, bias, target, settings, self.noisy_prior, counts,
            prior_of=self._prior, chunk_rows=self.chunk_rows,
        )  # fmt: skip
        if result.label_counts is not None and result.label_counts is not counts:
            self.label_counts = result.label_counts
        if values_are_readable():
            self._watch(result.batch, result.loss, self._alpha, frames=1)  # of torch.compiler.disable
        return result.loss

    def extra_repr(self) -> str:
        """Show α and the options."""
        chunk = "" if self.chunk_rows is None else f", chunk_rows={self.chunk_rows}"
        return f"alpha={self._alpha:g}, eps={self.eps:g}, {super().extra_repr()}{chunk}"


def _is_only_linear(layer: object) -> bool:
    """Whether a layer computes what its weight and bias say, and these are up to date without a call.

    An adapter has a ``forward`` of its own. Hooks may compute the weight in each call, as those of
    ``torch.nn.utils.spectral_norm`` do, or change the output.
    """
    if not isinstance(layer, nn.Linear) or getattr(layer.forward, "__func__", None) is not nn.Linear.forward:
        return False
    return not (layer._forward_pre_hooks or layer._forward_hooks)  # noqa: SLF001 (there is no public name)
