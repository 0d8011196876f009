"""How many of the most suspicious rows an audit flags."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from peerloss._validation import FLAG_TARGETS, check_choice, check_in_range

if TYPE_CHECKING:
    from peerloss._validation import BoolArray, FloatArray, IntArray

AUTO, F1, PRECISION = FLAG_TARGETS


class FlagRule(NamedTuple):
    """Which rows are flagged: the ``target`` and ``level`` of :func:`~peerloss.find_label_issues`."""

    target: str = AUTO
    level: float = 0.8

    @classmethod
    def checked(cls, target: str, level: float) -> FlagRule:
        """Return the rule if both are valid; ``level`` only matters for the target ``"precision"``."""
        check_choice(target, "target", FLAG_TARGETS)
        if target != PRECISION:
            return cls(target)
        return cls(target, check_in_range(level, "level", 0.0, 1.0, low_open=True))

    @property
    def needs_noise(self) -> bool:
        """Whether nothing is flagged if the noise rates cannot be estimated."""
        return self.target != F1


def suspicious_first(p_error: FloatArray) -> IntArray:
    """Return the positions of the rows, most probable errors first; ties keep the order of the rows."""
    return np.argsort(-p_error, kind="stable")


def flag_suspects(
    p_error: FloatArray, order: IntArray, rule: FlagRule | None = None, *, no_noise: float = 0.0
) -> BoolArray:
    """Flag the first rows in ``order``, as many as the rule says (by default, ``FlagRule()``).

    If some labels are wrong, flagging the m most probable errors has expected F1 close to 2·Σ_{i ≤ m} p_i /
    (m + Σ p), where p is ``p_error`` divided by the probability that some are. A threshold of ½ would flag
    too few rows if errors are many and hard to detect. The target ``"f1"`` maximises it.

    The target ``"auto"`` does the same, but if no label is wrong, which has probability ``no_noise``, the F1
    is 1 without flags and 0 with any. So nothing is flagged unless noise is probable.

    For ``"precision"`` the number of flags is the largest whose expected share of errors is at least
    ``rule.level``.
    """
    rule = FlagRule() if rule is None else rule
    count = np.arange(1, len(p_error) + 1)
    found = np.cumsum(p_error[order])
    n_flags = 0
    if rule.target == PRECISION:
        n_flags = int((found >= rule.level * count).sum())  # the mean of the first m falls with m
    elif found[-1] > 0:
        some = max(1.0 - no_noise, 1e-300)
        f1 = np.minimum(2.0 * found / (some * count + found[-1]), 1.0)
        if rule.target == F1 or some * f1.max() > no_noise:
            n_flags = int(f1.argmax()) + 1
    flagged = np.zeros(len(p_error), dtype=bool)
    flagged[order[:n_flags]] = True
    return flagged
