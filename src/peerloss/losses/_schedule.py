"""Change α during training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._validation import check_finite, short_repr
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss.losses._peer import PeerLoss


class AlphaSchedule:
    """Set ``loss.alpha`` along a piecewise linear curve, once per step (an optimiser step or an epoch).

    Before the first and after the last knot α stays constant. The schedule is used like a learning-rate
    scheduler.

    Parameters
    ----------
    loss
        The :class:`PeerLoss` whose α is set; it gets the value of step 0 immediately.
    knots
        Pairs (step, α) with increasing steps.

    Examples
    --------
    >>> from peerloss import PeerLoss
    >>> loss = PeerLoss()
    >>> schedule = AlphaSchedule(loss, [(0, 0.0), (10, 0.0), (40, 2.0)])
    >>> for epoch in range(25):
    ...     schedule.step()
    >>> loss.alpha
    1.0
    """

    def __init__(self, loss: PeerLoss, knots: Sequence[tuple[float, float]]) -> None:
        if isinstance(loss, type) or not hasattr(loss, "alpha"):
            got = f"the class {loss.__name__}" if isinstance(loss, type) else type(loss).__name__
            raise InvalidInputError(
                f"`loss` must have an attribute `alpha`; got {got}. Pass a loss such as PeerLoss()."
            )
        is_listed = isinstance(knots, list | tuple) and all(isinstance(knot, list | tuple) for knot in knots)
        pairs = [tuple(knot) for knot in knots] if is_listed else []
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise InvalidInputError(
                f"`knots` must be pairs (step, alpha), at least one; got {short_repr(knots)}. "
                "For example [(0, 0.0), (10, 0.0), (40, 2.0)]."
            )
        self.steps = [check_finite(step, "knots") for step, _ in pairs]
        self.alphas = [check_finite(alpha, "knots") for _, alpha in pairs]
        if any(later <= earlier for earlier, later in zip(self.steps, self.steps[1:], strict=False)):
            raise InvalidInputError(f"`knots` must have increasing steps; got steps {self.steps}.")
        self.loss = loss
        self.last_step = 0
        self._set()

    def step(self) -> None:
        """Advance by one step and set α."""
        self.last_step += 1
        self._set()

    def alpha_at(self, step: float) -> float:
        """Return α at a step, without setting it."""
        return float(np.interp(step, self.steps, self.alphas))

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"last_step": self.last_step, "steps": list(self.steps), "alphas": list(self.alphas)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the ``state`` of a checkpoint and set α accordingly."""
        self.steps, self.alphas = list(state["steps"]), list(state["alphas"])
        self.last_step = int(state["last_step"])
        self._set()

    def _set(self) -> None:
        self.loss.alpha = self.alpha_at(self.last_step)
