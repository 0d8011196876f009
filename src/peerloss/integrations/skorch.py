"""skorch: helpers for ``NeuralNetClassifier(module, criterion=PeerLoss, criterion__alpha=1.0)``.

skorch turns outputs into probabilities by ``predict_nonlinearity``, whose default covers torch's own losses
only: pass :func:`probabilities`. skorch creates the loss itself, so :class:`AlphaCallback` takes knots, not a
schedule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from peerloss.functional.batch import as_columns
from peerloss.integrations._training_loops import check_every, go_to, missing_extra
from peerloss.losses import AlphaSchedule

try:
    from skorch.callbacks import Callback
except ImportError as error:
    raise missing_extra(error, "skorch") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def probabilities(logits: Tensor) -> Tensor:
    """Return probabilities (n, K) of logits (n, K), or of (n,) and (n, 1) for two classes.

    Examples
    --------
    >>> probabilities(torch.tensor([0.0]))
    tensor([[0.5000, 0.5000]])
    """
    return torch.softmax(as_columns(logits), dim=1)


class AlphaCallback(Callback):
    """Sets α of the net's criterion per epoch or step, and records it in the history as ``alpha``.

    The step follows from the net's history, so ``partial_fit``, ``warm_start`` and ``LoadInitState`` continue
    the schedule.

    Parameters
    ----------
    knots
        Pairs (epoch or step, α), as :class:`~peerloss.AlphaSchedule` takes them.
    every
        ``"epoch"`` or ``"step"`` (one training batch): the unit of the knots.
    """

    def __init__(self, knots: Sequence[tuple[float, float]], every: str = "epoch") -> None:
        self.knots = knots  # checked when training begins, so that grid searches can set it
        self.every = every

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **_: Any) -> None:
        """Create the schedule of the criterion."""
        check_every(self.every)
        self.schedule_ = AlphaSchedule(net.criterion_, self.knots)

    def on_epoch_begin(self, net: Any, **_: Any) -> None:
        """Set α for the epoch; the history already has a row for it."""
        done = net.history[:-1]
        self.position_ = len(done) if self.every == "epoch" else sum(row["train_batch_count"] for row in done)
        go_to(self.schedule_, self.position_)

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **_: Any) -> None:
        """Set α for the next batch."""
        if training and self.every == "step":
            self.position_ += 1
            go_to(self.schedule_, self.position_)

    def on_epoch_end(self, net: Any, **_: Any) -> None:
        """Record α in the history."""
        net.history.record("alpha", net.criterion_.alpha)
