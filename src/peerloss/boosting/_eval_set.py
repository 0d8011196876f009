"""Check ``eval_set``, the rows whose metric ``PeerBoostingClassifier.fit`` records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from peerloss.boosting.libraries import Rows
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from peerloss._validation import FloatArray


def read_eval_set(eval_set: Any, classes: NDArray[Any], *, encode: Callable[[Any], FloatArray]) -> list[Rows]:
    """Return each pair (features, labels) as rows of weight one; ``encode`` checks and encodes features."""
    pairs = [] if eval_set is None else eval_set
    is_list = isinstance(pairs, list | tuple)
    if not is_list or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidInputError(
            f"`eval_set` must be a list of pairs (features, labels); got {type(eval_set).__name__}"
            f"{' with other entries' if is_list else ''}. Pass, for example, [(X_valid, y_valid)]."
        )
    return [_as_rows(encode(features), column_or_1d(labels), classes) for features, labels in pairs]


def _as_rows(features: FloatArray, labels: NDArray[Any], classes: NDArray[Any]) -> Rows:
    check_consistent_length(features, labels)
    unknown = ~np.isin(labels, classes)
    if unknown.any():
        raise InvalidInputError(
            f"`eval_set` must contain only labels that occur in `y`, {classes.tolist()}; got "
            f"{labels[unknown].tolist()[0]!r}. Remove these rows."
        )
    return Rows(features, np.searchsorted(classes, labels), np.ones(len(labels)))
