"""Labels that PeerBoostingClassifier cannot be trained on give messages that name ``y``."""

import numpy as np
import pandas as pd
import pytest

from peerloss.boosting import PeerBoostingClassifier
from peerloss.exceptions import InvalidInputError

pytest.importorskip("lightgbm")

X = np.random.default_rng(0).normal(size=(12, 2))


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_as_many_classes_as_rows_are_refused():
    """No row can be held out if each class has one row."""
    with pytest.raises(
        InvalidInputError, match=r"`y` must have at least two rows .* each of the 12 classes has"
    ):
        PeerBoostingClassifier().fit(X, np.arange(12))


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        ([None] * 12, 12),
        (["a", "b", None] * 4, 4),
        (pd.Series(["a", "b", None] * 4), 4),
        (pd.to_datetime(["2020-01-01", "2020-01-02", None] * 4), 4),
        (pd.array([0, 1, None] * 4, dtype="Int64"), 4),
    ],
    ids=["all", "list", "series", "dates", "nullable"],
)
def test_missing_labels_are_refused(labels, missing):
    """The message counts them and names a classifier that accepts them."""
    message = f"missing labels .* is {missing} of 12. Leave these rows out, or use PeerClassifier"
    with pytest.raises(InvalidInputError, match=message):
        PeerBoostingClassifier().fit(X, labels)
