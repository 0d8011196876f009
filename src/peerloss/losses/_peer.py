"""PeerLoss and PlainLoss: modules that replace ``nn.CrossEntropyLoss``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss._validation import check_choice
from peerloss.functional.base import DEFAULT_EPS, as_base, check_eps, values_are_readable
from peerloss.functional.kernels.dispatch import PeerResult, PeerSettings, compute_peer_loss
from peerloss.functional.kernels.triton_gpu import has_kernels
from peerloss.functional.peer import PEERS, check_score_matrix, plain_loss
from peerloss.losses._common import AlphaLoss, LabelLoss, show_base

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from peerloss.functional.base import LossMatrix
    from peerloss.functional.batch import Batch


class PlainLoss(LabelLoss):
    """The plain loss against the label; module twin of :func:`peerloss.functional.plain_loss`.

    Parameters
    ----------
    base
        A name in :data:`peerloss.functional.BASES`, ``"gce:0.5"`` (generalised cross entropy with q = 0.5),
        or a callable from logits (n, K) to losses (n, K).
    eps
        Clip of ``"cross_entropy"``, −log(p + eps).
    weight, ignore_index, reduction
        As in ``torch.nn.CrossEntropyLoss``, except that the mean of a batch without labels is 0, not NaN, and
        that the mean of weighted soft targets divides by their weights, as for class codes.

    Examples
    --------
    >>> PlainLoss("sigmoid")(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    tensor(0.6667)
    """

    def __init__(
        self,
        base: str | LossMatrix = "cross_entropy",
        *,
        eps: float = DEFAULT_EPS,
        weight: Tensor | ArrayLike | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        as_base(base)  # raises if it is unknown
        self.base = base
        self.eps = check_eps(eps)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against labels (n,), or of another shape of ``plain_loss``."""
        return plain_loss(
            logits,
            target,
            base=self.base,
            eps=self.eps,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Show base and options."""
        return f"{show_base(self.base)}, eps={self.eps:g}, {super().extra_repr()}"


class PeerLoss(AlphaLoss):
    """Peer loss, for training on noisy labels; module twin of :func:`peerloss.functional.peer_loss`.

    Use it in place of ``nn.CrossEntropyLoss()``. It keeps the *noisy prior* π̃. If none is given, labels are
    counted. In training mode with gradients enabled, the current batch is added (over all ranks of a process
    group) before the prior is used, so every rank has the same prior. In evaluation mode and under
    ``torch.no_grad()`` the counts stay as they are; a module that has counted nothing yet uses the labels of
    the current batch.

    Cross entropy with expected peers is computed by numba (``peerloss[fast]``) for small batches on the CPU,
    and by Triton kernels on an NVIDIA GPU, with the same results. The code is compiled once, in seconds, and
    cached on disk.

    Logits (N, K, d₁, …) with targets (N, d₁, …) have one label per position (token or pixel), as in
    ``nn.CrossEntropyLoss``. Logits and targets of the same shape (n, L) are L binary labels per example, as
    in ``nn.BCEWithLogitsLoss``. Then every label has its own prior, and the mean is over all n·L entries.

    Floating-point targets of the shape of the logits are soft: probabilities of the classes in each row, such
    as shares of votes, or mixed or smoothed labels. The dtype decides: binary labels are integers. The
    counted prior is the mean target. Rows sum to one, or are NaN if they have no label; on CUDA, where values
    are not read, a row with another sum has the loss NaN.

    Parameters
    ----------
    base
        A name in :data:`peerloss.functional.BASES`, ``"gce:0.5"`` (generalised cross entropy with q = 0.5),
        or a callable from logits (n, K) to losses (n, K).
    alpha
        Weight of the peer term, any finite number. It can be set later; :class:`AlphaSchedule` does so.
    peers
        ``"expected"`` (no second pass, no sampling variance) or ``"sampled"`` from the batch.
    noisy_prior
        π̃ (K,), (L, 2) for L binary labels, or ``None`` to count it.
    score_matrix
        M[prediction, label] = Sgn(Δ) of correlated agreement, (K, K): the same loss on ``L @ M``. ``None`` is
        the identity, which gives peer loss. For binary labels it is (2, 2), the same for all labels.
    eps
        Clip of ``"cross_entropy"``, −log(p + eps). With 0 the loss is unbounded below for α ≥ 1.
    weight
        ``weight[k]`` multiplies column k of the loss matrix, so it enters both terms. For binary labels it
        has two entries, the same for all labels.
    ignore_index
        Rows with this target are excluded: from the loss, from the peers and from the prior. With positions
        or binary labels, single entries of the target are excluded. Soft targets exclude rows of NaN instead.
    reduction
        ``"mean"`` (divided by the sum of the targets' weights, Σ_k w_k q[n, k] for soft targets), ``"sum"``
        or ``"none"``.
    generator
        Source of sampled peers, on the device of the logits.

    Raises
    ------
    InvalidInputError
        For invalid arguments, shapes and dtypes and, on the CPU, invalid values.
    DivergenceError
        If the loss is not finite (on CUDA some steps later, because nothing waits for the device).

    Warns
    -----
    DivergenceWarning
        If a logit exceeds 10⁴ in absolute value while α ≥ 1.

    Examples
    --------
    >>> loss = PeerLoss(alpha=1.0)
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> loss(logits, torch.tensor([0, 1])).backward()
    >>> loss.current_prior()
    tensor([0.5000, 0.5000])
    >>> tags = PeerLoss()  # two binary labels per example
    >>> logits = torch.zeros(4, 2, requires_grad=True)
    >>> tags(logits, torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1]])).backward()
    >>> tags.current_prior()
    tensor([[0.2500, 0.7500],
            [0.7500, 0.2500]])
    """

    score_matrix: Tensor | None

    def __init__(
        self,
        base: str | LossMatrix = "cross_entropy",
        *,
        alpha: float = 1.0,
        peers: str = "expected",
        noisy_prior: Tensor | ArrayLike | None = None,
        score_matrix: Tensor | ArrayLike | None = None,
        eps: float = DEFAULT_EPS,
        weight: Tensor | ArrayLike | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        generator: torch.Generator | None = None,
    ) -> None:
        options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}
        super().__init__(alpha=alpha, eps=eps, noisy_prior=noisy_prior, **options)
        as_base(base)  # raises if it is unknown
        self.base = base
        self.peers = check_choice(peers, "peers", PEERS)
        self.generator = generator
        matrix = None if score_matrix is None else check_score_matrix(score_matrix).detach().clone()
        self.register_buffer("score_matrix", matrix)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against noisy labels (n,), or another shape of ``peer_loss``."""
        result = self._compute(logits, target)
        if result.value is not None or values_are_readable():  # compiled graphs leave out the watch
            self._watch(result.batch, result.loss, self._alpha, value=result.value)
        return result.loss

    def has_kernels(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether batches go through Triton kernels, which ``torch.compile`` cannot improve on.

        ``device`` and ``dtype`` are those of the logits; there are kernels for float32 and bfloat16.
        """
        has_prior = self.noisy_prior is not None or self._kernels_may_count()
        is_common = has_prior and self._prepare() is None and self._settings().has_fast_path()
        return is_common and has_kernels(device, dtype)

    def _compute(self, logits: Tensor, target: Tensor) -> PeerResult:
        noisy_prior, prepare = self.noisy_prior, self._prepare()
        counts = self.label_counts if noisy_prior is None and self._kernels_may_count() else None
        result = compute_peer_loss(
            logits, target, self._settings(), noisy_prior, counts, prior_of=self._prior, prepare=prepare
        )
        if result.label_counts is not None and result.label_counts is not counts:
            self.label_counts = result.label_counts
        return result

    def _settings(self) -> PeerSettings:
        # As an input of compiled graphs α is a tensor, so that another α needs no new graph.
        alpha = self._alpha_input if torch.compiler.is_compiling() else self._alpha
        base, matrix, weight = as_base(self.base), self.score_matrix, self.weight
        rest = self.ignore_index, self.reduction, self.generator
        return PeerSettings(base, alpha, self.peers, matrix, self.eps, weight, *rest)

    def _prepare(self) -> Callable[[Tensor, Tensor], Batch] | None:
        """Return the method ``batch`` if a subclass overrides it."""
        return None if type(self).batch is LabelLoss.batch else self.batch

    def extra_repr(self) -> str:
        """Show base, α and options."""
        matrix = "" if self.score_matrix is None else "score_matrix given, "
        head = f"{show_base(self.base)}, alpha={self._alpha:g}, peers={self.peers!r}, {matrix}"
        return f"{head}eps={self.eps:g}, {super().extra_repr()}"
