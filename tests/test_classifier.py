"""The base class of the classifiers: checks, encoding of labels, and failed fits."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from peerloss._classifier import NoisyLabelClassifier, all_or_nothing, is_mixed_table
from peerloss.exceptions import InvalidInputError

X = np.array([[0.0], [1.0], [2.0], [3.0]])


class Threshold(NoisyLabelClassifier):
    """Predicts class 1 above the weighted mean of the first column."""

    def __init__(self, *, fail=False):
        self.fail = fail

    def fit(self, X, y, sample_weight=None):
        """Fit, or fail after setting some attributes."""
        with all_or_nothing(self):
            data = self._check_fit(X, y, sample_weight)
            self.classes_ = data.classes
            self.mean_ = np.average(data.X[:, 0], weights=data.weight)
            if self.fail:
                raise RuntimeError("half-way")
        return self

    def predict_proba(self, X):
        """Return probability 1 for the class on this side of the mean."""
        above = self._check_predict(X)[:, 0] > self.mean_
        return np.column_stack([~above, above]).astype(float)


@pytest.mark.parametrize(
    "labels",
    [
        [0, 0, 1, 1],
        [-1, -1, 1, 1],
        ["no", "no", "yes", "yes"],
        [False, False, True, True],
        [2.0, 2.0, 7.0, 7.0],
    ],
    ids=str,
)
def test_predictions_have_the_dtype_of_the_labels(labels):
    """``predict`` returns the labels as given, in their dtype."""
    predicted = Threshold().fit(X, labels).predict(X)
    assert predicted.tolist() == labels
    assert predicted.dtype == np.asarray(labels).dtype


def test_object_labels_of_a_series_work():
    """A pandas Series of strings is accepted as labels."""
    labels = pd.Series(["b", "b", "a", "a"], index=[7, 5, 3, 1])
    assert Threshold().fit(X, labels).classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize("labels", [[0, "a", 1, "b"], ["a", 0, "b", 1], ["a", None, "b", "b"]], ids=str)
def test_labels_of_mixed_types_are_rejected(labels):
    """Labels that cannot be sorted raise an error that explains how to convert them."""
    with pytest.raises(InvalidInputError, match=r"labels of one type.*astype\(str\)"):
        Threshold().fit(X, np.array(labels, dtype=object))


def test_one_class_is_rejected_and_named():
    """A single class cannot be learned; the message names it."""
    with pytest.raises(InvalidInputError, match=r"at least two classes.*'cat'"):
        Threshold().fit(X, ["cat"] * 4)


def test_continuous_targets_are_rejected():
    """Real numbers are not class labels."""
    with pytest.raises(ValueError, match="continuous"):
        Threshold().fit(X, [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("weight", [[0, 0, 0, 0], [-1, 1, 1, 1], [1, 1, 1], [np.nan, 1, 1, 1]], ids=str)
def test_invalid_weights_are_rejected(weight):
    """Weights that are all zero, negative, missing or of another length raise a ValueError."""
    with pytest.raises(ValueError, match=r"(?i)sample.?weight"):
        Threshold().fit(X, [0, 0, 1, 1], sample_weight=weight)


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=str)
def test_features_must_be_finite(bad):
    """NaN and infinity in the features are rejected unless an estimator allows them."""
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        Threshold().fit([[bad], [1.0], [2.0], [3.0]], [0, 0, 1, 1])


def test_weights_reach_the_estimator():
    """A row of weight zero is ignored."""
    assert Threshold().fit(X, [0, 0, 1, 1], sample_weight=[1, 1, 0, 0]).mean_ == 0.5


def test_a_failed_first_fit_leaves_the_estimator_unfitted():
    """No attribute is left, and ``predict`` raises NotFittedError."""
    model = Threshold(fail=True)
    with pytest.raises(RuntimeError, match="half-way"):
        model.fit(X, [0, 0, 1, 1])
    assert vars(model) == {"fail": True}
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_failed_second_fit_keeps_the_first():
    """After a failed refit the estimator predicts as before, with the same features and classes."""
    model = Threshold().fit(X, ["a", "a", "b", "b"])
    before = dict(vars(model))
    model.fail = True
    with pytest.raises(RuntimeError, match="half-way"):
        model.fit(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1])
    assert vars(model) == before | {"fail": True}
    assert model.predict(X).tolist() == ["a", "a", "b", "b"]


def test_an_interrupted_fit_is_undone():
    """Ctrl-C in the middle of a fit also restores every attribute."""
    model = Threshold().fit(X, [0, 0, 1, 1])
    before = dict(vars(model))

    def interrupted():
        with all_or_nothing(model):
            model.mean_ = 99.0
            del model.classes_
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert vars(model) == before


def test_a_successful_block_keeps_its_changes():
    """Without an error all_or_nothing has no effect."""
    model = Threshold()
    with all_or_nothing(model):
        model.mean_ = 2.0
    assert model.mean_ == 2.0


def test_the_number_and_names_of_features_are_checked():
    """Predicting with columns that differ from those of the fit is an error."""
    frame = pd.DataFrame({"a": X[:, 0]})
    model = Threshold().fit(frame, [0, 0, 1, 1])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"a": "b"}))
    with pytest.raises(ValueError, match="expecting 1 features"):
        Threshold().fit(X, [0, 0, 1, 1]).predict(np.ones((2, 3)))


@pytest.mark.parametrize("size", [1e40, 1e300])
def test_features_of_overflowing_size_are_rejected_by_column(size):
    """The error, in fit and in predict, names the column, the value and the remedy."""
    frame = pd.DataFrame({"a": X[:, 0], "price": [1.0, size, 2.0, 3.0]})
    with pytest.raises(InvalidInputError, match=r"in column 'price', row 1\. Measure it in a larger unit"):
        Threshold().fit(frame, [0, 0, 1, 1])
    with pytest.raises(InvalidInputError, match="in column 1, row 1"):
        Threshold().fit(frame.to_numpy(), [0, 0, 1, 1])
    fitted = Threshold().fit(frame.assign(price=X[:, 0]), [0, 0, 1, 1])
    with pytest.raises(InvalidInputError, match="in column 'price', row 1"):
        fitted.predict(frame)


def test_features_without_variation_are_rejected():
    """A constant column is accepted, a table of constant columns is not."""
    assert Threshold().fit(np.c_[X, np.ones(4)], [0, 0, 1, 1]).mean_ == 1.5
    with pytest.raises(InvalidInputError, match="each of its 2 columns has the same value in every row"):
        Threshold().fit(np.ones((4, 2)), [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [[10**400], [1], [2], [3]]}, "`X` and `y` must contain numbers that fit float64"),
        ({"sample_weight": [10**400, 1, 1, 1]}, "`sample_weight` must contain numbers that fit float64"),
        ({"sample_weight": [1e308] * 4}, r"`sample_weight` must hold numbers with .* Divide all weights"),
    ],
    ids=["features", "weights", "large weights"],
)
def test_numbers_that_overflow_are_named(change, message):
    """The error is an InvalidInputError, not an OverflowError or a failed decomposition."""
    arguments = {"X": X, "y": [0, 0, 1, 1]} | change
    with pytest.raises(InvalidInputError, match=message):
        Threshold().fit(**arguments)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (np.array([[1.0, np.nan]]), False),
        (pd.DataFrame({"a": [1, 2], "b": [True, False]}), False),
        (pd.DataFrame({"a": [1, 2]}, dtype=object), False),
        (pd.DataFrame({"a": [1.0, np.nan]}), True),
        (pd.DataFrame({"a": ["x", "y"]}), True),
        (pd.DataFrame({"a": pd.Categorical([1, 2])}), True),
    ],
    ids=["array", "numbers", "numbers as objects", "gap", "text", "category"],
)
def test_mixed_tables_are_recognised(table, expected):
    """DataFrames with text, categories or gaps are mixed; arrays and tables of numbers are not."""
    assert is_mixed_table(table) is expected
