"""Labels of the training functions: class codes, missing labels, soft labels."""

import numpy as np
import pytest

from peerloss._validation import read_labels
from peerloss.exceptions import InvalidInputError


def test_class_codes_and_missing_labels():
    """−1 marks a row without a label; the given array stays as it is."""
    y = np.array([0, -1, 2, 1])
    labels = read_labels(y, "y")
    assert labels.codes.tolist() == [0, -1, 2, 1]
    assert labels.is_known.tolist() == [True, False, True, True]
    assert labels.shares is None
    assert y.tolist() == [0, -1, 2, 1]


def test_soft_labels():
    """Floats in two dimensions; a row of NaN has no label, and entries may be negative."""
    y = np.array([[0.2, 0.8], [np.nan, np.nan], [1.1, -0.1]], dtype=np.float32)
    labels = read_labels(y, "y", n_classes=2)
    assert labels.codes.tolist() == [1, -1, 0]
    np.testing.assert_array_equal(labels.shares, y)
    assert labels.shares.dtype == np.float64


def test_rows_in_half_precision_sum_to_one():
    """They are rounded, and losses that compute in single precision would refuse their sums."""
    y = np.random.default_rng(0).dirichlet(np.ones(10), size=50).astype(np.float16)
    assert abs(y.astype(float).sum(axis=1) - 1.0).max() > 1e-4
    np.testing.assert_allclose(read_labels(y, "y").shares.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(read_labels(y.astype(float), "y", eps=0.01).shares, read_labels(y, "y").shares)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.6]], r"`y` must hold class probabilities.*row 1 sums to 1\.1"),
        ([[0.5, 0.5], [0.0, 0.0]], "row 1 sums to 0"),
        ([[np.nan, 1.0], [0.5, 0.5]], "row 0 is not finite"),
        ([[np.inf, -np.inf], [0.5, 0.5]], "row 0 is not finite"),
        ([[np.nan, np.nan]] * 3, "all 3 rows of soft labels are missing"),
        ([[1.0], [1.0]], "a column for each class.*Class codes are one-dimensional"),
        ([[1, 0], [0, 1]], "`y` must be one-dimensional"),
        ([0, -2], "or -1 for rows without a label; found -2"),
        ([-1, 1, -1], "more than one class.*encode them as 0 and 1"),
    ],
)
def test_wrong_labels_are_refused(y, message):
    """The message names the row, what was expected and what to do."""
    with pytest.raises(InvalidInputError, match=message):
        read_labels(np.array(y), "y")


def test_the_number_of_columns_is_that_of_the_classes():
    """Soft labels of another number of classes are refused."""
    with pytest.raises(InvalidInputError, match=r"must have 3 columns, one per class.*got shape \(1, 2\)"):
        read_labels(np.array([[0.5, 0.5]]), "y", n_classes=3)
