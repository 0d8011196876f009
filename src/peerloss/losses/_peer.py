"""PeerLoss and BaseLoss: the modules people put where ``nn.CrossEntropyLoss`` stood."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss._validation import check_choice
from peerloss.functional._batch import Batch, without_autocast
from peerloss.functional._compiled import compiled_peer_loss, is_compilable
from peerloss.functional._fused import fused_peer_loss, has_kernels, is_fusable
from peerloss.functional._ready import Formula, Ready
from peerloss.functional._tracing import values_are_readable
from peerloss.functional.base import DEFAULT_EPS, check_base, check_eps
from peerloss.functional.peer import (
    CROSS_ENTROPIES,
    PEERS,
    base_loss,
    batch_peer_loss,
    check_alpha,
    check_score_matrix,
)
from peerloss.losses._common import LabelLoss, as_buffer
from peerloss.losses._divergence import DivergenceWatch
from peerloss.losses._prior import PriorLoss, count_ranks

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss.functional.base import LossMatrix


class BaseLoss(LabelLoss):
    """The plain loss against the given label; module twin of :func:`peerloss.functional.base_loss`.

    Parameters
    ----------
    base
        A name in :data:`peerloss.functional.BASES` or a callable from logits (n, K) to losses (n, K).
    eps
        Clip of ``"cross_entropy"``.
    weight, ignore_index, reduction
        As in ``torch.nn.CrossEntropyLoss``.

    Examples
    --------
    >>> BaseLoss("sigmoid")(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
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
        self.base = check_base(base)
        self.eps = check_eps(eps)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against labels (n,)."""
        return base_loss(
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
        return f"{self.base!r}, eps={self.eps:g}, {super().extra_repr()}"


class PeerLoss(PriorLoss):
    """Peer loss, for training on noisy labels; module twin of :func:`peerloss.functional.peer_loss`.

    Use it in place of ``nn.CrossEntropyLoss()``. It keeps the *noisy prior* π̃. If none is given, labels are
    counted. In training mode with gradients enabled, the current batch is added (over all ranks of a process
    group) before the prior is used, so every rank has the same prior. In evaluation mode and under
    ``torch.no_grad()`` the counts stay as they are; a module that has counted nothing yet uses the labels of
    the batch at hand.

    With numba (``peerloss[fast]``) cross entropy with expected peers trains on small CPU batches in compiled
    loops, and on an NVIDIA GPU in kernels of its own, with the same numbers. They are compiled once, in
    seconds, and kept on the disk.

    Parameters
    ----------
    base
        A name in :data:`peerloss.functional.BASES` or a callable from logits (n, K) to losses (n, K).
    alpha
        Weight of the peer term, any finite number. An attribute; :class:`AlphaSchedule` moves it.
    peers
        ``"expected"`` (no second pass, no sampling variance) or ``"sampled"`` inside the batch.
    noisy_prior
        π̃ (K,), or ``None`` to count it.
    score_matrix
        M = Sgn(Δ) of correlated agreement, (K, K); ``None`` is the identity, peer loss proper.
    eps
        Clip of ``"cross_entropy"``, −log(p + eps). With 0 the loss is unbounded below for α ≥ 1.
    weight
        ``weight[k]`` multiplies column k of the loss matrix, so both terms see it.
    ignore_index
        Targets with this value count nowhere: not as rows, not as peers, not in the prior.
    reduction
        ``"mean"`` (divided by the sum of the targets' weights), ``"sum"`` or ``"none"``.
    generator
        Source of sampled peers, on the device of the logits.

    Raises
    ------
    InvalidInputError
        For arguments, shapes, dtypes and (on the CPU) values that do not fit.
    DivergenceError
        When the loss is not finite (on CUDA some steps later, because nothing waits for the device).

    Warns
    -----
    DivergenceWarning
        When logits pass 10⁴ while α ≥ 1.

    Examples
    --------
    >>> loss = PeerLoss(alpha=1.0)
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> loss(logits, torch.tensor([0, 1])).backward()
    >>> loss.current_prior()
    tensor([0.5000, 0.5000])
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
        super().__init__(
            noisy_prior=noisy_prior, weight=weight, ignore_index=ignore_index, reduction=reduction
        )
        self.base = check_base(base)
        self._alpha_input = torch.zeros((), dtype=torch.float64)  # stays on the CPU
        self.alpha = alpha
        self.peers = check_choice(peers, "peers", PEERS)
        self.eps = check_eps(eps)
        self.generator = generator
        matrix = None if score_matrix is None else as_buffer(check_score_matrix(score_matrix))
        self.register_buffer("score_matrix", matrix)
        self._watch = DivergenceWatch()

    @property
    def alpha(self) -> float:
        """Weight of the peer term."""
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._alpha = float(check_alpha(value))
        if self._alpha_input.is_inference():  # built under torch.inference_mode()
            self._alpha_input = self._alpha_input.clone()
        self._alpha_input.fill_(self._alpha)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (n, K) against noisy labels (n,)."""
        ready = self._at_once(logits, target)
        if ready is not None:
            if ready.value is None:
                self._watch(Batch(logits, target, None), ready.loss, self._alpha)
            else:
                self._watch.judge(finite=math.isfinite(ready.value), largest=ready.largest, alpha=self._alpha)
            return ready.loss
        batch = self.batch(logits, target)
        # Graphs of torch.compile take α as a tensor and leave out the watch: moving α recompiles nothing.
        with without_autocast(batch.logits):
            loss = batch_peer_loss(
                batch,
                base=self.base,
                alpha=self._alpha_input if torch.compiler.is_compiling() else self._alpha,
                peers=self.peers,
                noisy_prior=self._prior(batch) if self.peers == "expected" else None,
                score_matrix=self.score_matrix,
                eps=self.eps,
                weight=self.weight,
                reduction=self.reduction,
                generator=self.generator,
            )
        if values_are_readable():
            self._watch(batch, loss, self._alpha)
        return loss

    def has_kernels(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether batches go through kernels of their own, which ``torch.compile`` would not better.

        Parameters
        ----------
        device
            Where the logits are.
        dtype
            Their type; there are kernels for float32 and bfloat16.
        """
        return self._is_common() and has_kernels(device, dtype)

    def _is_common(self) -> bool:
        """Whether the settings are those for which there are compiled loops and kernels."""
        return (
            self.base in CROSS_ENTROPIES
            and self.peers == "expected"
            and self.weight is None
            and self.score_matrix is None
            and self.reduction in ("mean", "sum")
            and type(self).batch is LabelLoss.batch  # nobody prepares batches in another way
            and (self.noisy_prior is not None or (self._counts_labels() and count_ranks() <= 1))
        )

    def _at_once(self, logits: Tensor, target: Tensor) -> Ready | None:
        """Compute the common case by compiled loops: small batches on the CPU, any on a GPU."""
        if torch.compiler.is_compiling() or not self._is_common():
            return None
        on_gpu = is_fusable(logits, target)
        if not (on_gpu or is_compilable(logits, target)):
            return None
        noisy_prior, counts = self.noisy_prior, self.label_counts
        if noisy_prior is None and len(counts) == 0:  # the first batch goes the way of the later ones
            counts = torch.zeros(logits.shape[1], dtype=torch.int64, device=logits.device)
        eps = self.eps if self.base == "cross_entropy" else 0.0
        formula = Formula(self._alpha, eps, self.ignore_index, self.reduction == "mean")
        compute = fused_peer_loss if on_gpu else compiled_peer_loss
        ready = compute(logits, target, formula, noisy_prior, counts)
        if ready is not None and counts is not self.label_counts:
            self.label_counts = counts
        return ready

    def extra_repr(self) -> str:
        """Show base, α and options."""
        matrix = "" if self.score_matrix is None else "score_matrix given, "
        head = f"{self.base!r}, alpha={self._alpha:g}, peers={self.peers!r}, {matrix}"
        return f"{head}eps={self.eps:g}, {super().extra_repr()}"
