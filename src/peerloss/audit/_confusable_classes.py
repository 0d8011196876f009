"""Classes that are hard to tell apart by the features, whatever their labels are.

The features of a row give P(clean = k | x), in which the estimated noise is undone. A pair of classes is
confusable if rows of one class look like the other: the expected number of rows of class i for which j is the
most probable class, and the reverse. Noise alone does not create such rows, and labels that are often
exchanged between classes that look different are not among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray

#: Pairs with fewer expected rows are not listed.
MIN_ROWS = 0.5
#: Largest number of pairs.
MAX_PAIRS = 100


def confusable_classes(overlap: FloatArray | None, classes: NDArray[Any]) -> pd.DataFrame:
    """Return pairs of classes, those that are confused most often first.

    Parameters
    ----------
    overlap
        ``[i, j]``: the expected number of rows of class i for which class j is the most probable, (K, K);
        ``None`` if it is unknown.
    classes
        The labels, (K,).

    Returns
    -------
    A frame with ``first``, ``second``, ``rows`` (the expected number of rows of either class that look like
    the other one) and ``share`` (of the rows of both classes).
    """
    if overlap is None:
        return pd.DataFrame({"first": [], "second": [], "rows": [], "share": []})
    both = np.triu(overlap + overlap.T, 1)
    first, second = np.nonzero(both >= MIN_ROWS)
    rows = both[first, second]
    kept = np.argsort(-rows, kind="stable")[:MAX_PAIRS]
    first, second, rows = first[kept], second[kept], rows[kept]
    size = overlap.sum(axis=1)
    return pd.DataFrame(
        {
            "first": classes[first],
            "second": classes[second],
            "rows": rows,
            "share": rows / np.maximum(size[first] + size[second], 1e-300),
        }
    )


def describe_pairs(pairs: pd.DataFrame, limit: int) -> list[dict[str, Any]]:
    """Return the first pairs as plain values."""
    return [
        {
            "first": str(pair["first"]),
            "second": str(pair["second"]),
            "rows": round(float(pair["rows"]), 3),
            "share": round(float(pair["share"]), 5),
        }
        for pair in pairs.head(limit).to_dict("records")
    ]
