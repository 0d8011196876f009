"""Noise that T does not describe: how far the ranking of an audit falls back to self-confidence.

If almost all rows have one label, T is poorly known: the other classes have few rows, and hardly any of them
are certain. Labels that are wrong near the boundary, or entities that a dictionary misses, then look like
noise that flips the rare classes, or like no noise at all. With a wrong T, rows are ranked in a wrong order;
with T = I, all rows are ranked equal.

So one more kind of noise is always a candidate: a share s of the labels was drawn from P(label | x) and says
nothing else about the clean class. Such labels are wrong with probability 1 − P(given label | x), which is
self-confidence. The labels themselves cannot reveal s, because it does not change P(label | x). It is a prior
that grows with the share of the most frequent label: 0 up to one half, .23 at .9, .40 at .98. Its form was
chosen on made data sets with 2 to 8 classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._probabilities import label_frequencies

if TYPE_CHECKING:
    from peerloss._validation import IntArray

#: The share is this times a power of how far the most frequent label exceeds one half.
MAX_SHARE, POWER = 0.45, 3


def unexplained_share(codes: IntArray, n_classes: int) -> float:
    """Return the prior share of labels that say nothing about the clean class beyond the features.

    ``codes`` are the given labels, 0..K-1.
    """
    most_frequent = float(label_frequencies(codes, n_classes).max())
    return MAX_SHARE * max(2.0 * most_frequent - 1.0, 0.0) ** POWER
