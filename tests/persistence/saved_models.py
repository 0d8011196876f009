"""Data for the tests of model folders, and a comparison of a model with its loaded copy."""

import re

import numpy as np
from sklearn.datasets import make_classification

X, CODES = make_classification(120, 5, n_informative=3, random_state=0)
LABELS = np.where(CODES == 1, "yes", "no")


def assert_same(model, loaded, features=X):
    """Compare predictions bit for bit, labels and parameters."""
    np.testing.assert_array_equal(loaded.predict_proba(features), model.predict_proba(features))
    np.testing.assert_array_equal(loaded.predict(features), model.predict(features))
    assert loaded.classes_.dtype == model.classes_.dtype
    address = re.compile("0x[0-9A-F]+")
    assert address.sub("", repr(loaded)) == address.sub("", repr(model))
