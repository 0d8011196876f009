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


class Partial(Threshold):
    """A classifier that accepts missing and soft labels; it only keeps the checked input."""

    _accepts_partial_labels = True

    def fit(self, X, y, sample_weight=None):
        """Keep the checked input."""
        self.data_ = self._check_fit(X, y, sample_weight)
        return self


SIX = np.arange(6.0)[:, None]


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        ([0.0, 1.0, np.nan, 1.0, 0.0, np.nan], [0.0, 1.0], [0, 1, -1, 1, 0, -1]),
        ([0, 1, None, 1, 0, None], [0, 1], [0, 1, -1, 1, 0, -1]),
        (["b", "a", None, "a", float("nan"), "b"], ["a", "b"], [1, 0, -1, 0, -1, 1]),
        ([True, False, None, True, True, False], [False, True], [1, 0, -1, 1, 1, 0]),
        (pd.Series([3, 1, pd.NA, 1, 3, 3], dtype="Int64"), [1, 3], [1, 0, -1, 0, 1, 1]),
        (pd.Series(["b", "a", pd.NA, "a", "b", "b"], dtype="string"), ["a", "b"], [1, 0, -1, 0, 1, 1]),
        (pd.Categorical(["b", "a", None, "a", "b", "b"]), ["a", "b"], [1, 0, -1, 0, 1, 1]),
        ([0, 1, 2, -1, 2, 1], [0, 1, 2], [0, 1, 2, -1, 2, 1]),
        ([5, 7, -1, -1, 7, 5], [5, 7], [0, 1, -1, -1, 1, 0]),
        ([0.0, 2.0, -1.0, 1.0, np.nan, 1.0], [0.0, 1.0, 2.0], [0, 2, -1, 1, -1, 1]),
        ([-1, 1, None, 1, -1, 1], [-1, 1], [0, 1, -1, 1, 0, 1]),
        ([-1, 1, -1, 1, -1, 1], [-1, 1], [0, 1, 0, 1, 0, 1]),
        ([-2, -1, 0, 1, -1, 1], [-2, -1, 0, 1], [0, 1, 2, 3, 1, 3]),
        (["-1", "0", "1", "0", "1", "-1"], ["-1", "0", "1"], [0, 1, 2, 1, 2, 0]),
    ],
    ids=str,
)
def test_missing_labels_are_found(labels, classes, codes):
    """NaN, None and NA are missing; -1 is too beside non-negative integers, but -1 and 1 are two classes."""
    data = Partial().fit(SIX, labels).data_
    assert data.classes.tolist() == classes
    assert data.codes.tolist() == codes
    assert data.is_used.tolist() == [code >= 0 for code in codes]


def test_minus_one_beside_zero_and_one_warns():
    """Labels -1, 0 and 1 may be three classes; the warning says how to write each meaning."""
    with pytest.warns(UserWarning, match=r"-1 is taken as a missing label.*astype\(str\).*NaN"):
        data = Partial().fit(SIX, [0, 1, -1, 1, 0, -1]).data_
    assert data.classes.tolist() == [0, 1]


@pytest.mark.parametrize("labels", [[np.nan] * 6, [None] * 6, [-1] * 6, np.full((6, 2), np.nan)], ids=str)
def test_labels_that_are_all_missing_are_rejected(labels):
    """Without any label nothing can be learned; the message says what counts as missing."""
    with pytest.raises(InvalidInputError, match=r"must have a label in some rows; all 6 .*missing \(NaN"):
        Partial().fit(SIX, labels)


@pytest.mark.parametrize(
    "labels", [[3, None, 3, 3, None, 3], [3, -1, 3, 3, -1, 3], pd.DataFrame({2: [0.0] * 6, 3: [1.0] * 6})]
)
def test_one_class_besides_missing_labels_is_rejected(labels):
    """The message names the class."""
    with pytest.raises(InvalidInputError, match=r"at least two classes; every label is class 3"):
        Partial().fit(SIX, labels)


def test_weights_of_all_labelled_rows_must_not_be_zero():
    """Weights of rows without a label do not help."""
    with pytest.raises(InvalidInputError, match="must not be zero for all rows that have a label"):
        Partial().fit(SIX, [0, 1, None, 1, 0, 1], sample_weight=[0, 0, 1, 0, 0, 0])


def test_other_classifiers_refuse_missing_and_soft_labels():
    """Only classifiers that know what to do with them accept them."""
    with pytest.raises(ValueError, match="NaN"):
        Threshold().fit(SIX, [0.0, 1.0, np.nan, 1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="1d array"):
        Threshold().fit(SIX, np.full((6, 2), 0.5))
    assert Threshold().fit(SIX, [0, 1, 2, -1, 2, 1]).classes_.tolist() == [-1, 0, 1, 2]


SOFT = np.array([[0.2, 0.8], [1.0, 0.0], [0.5, 0.5], [np.nan, np.nan], [0.0, 1.0], [1 / 3, 2 / 3]])


def test_soft_labels_have_shares_and_the_classes_of_their_columns():
    """Columns of a DataFrame name the classes, which are sorted; an array has classes 0..K-1."""
    data = Partial().fit(SIX, SOFT).data_
    assert data.classes.tolist() == [0, 1]
    np.testing.assert_allclose(data.shares, np.nan_to_num(SOFT))
    assert data.codes[3] == -1
    assert data.weighted
    named = Partial().fit(SIX, pd.DataFrame(SOFT, columns=["dog", "cat"])).data_
    assert named.classes.tolist() == ["cat", "dog"]
    np.testing.assert_allclose(named.shares, data.shares[:, ::-1])
    assert np.isnan(SOFT[3]).all()  # the caller's array is unchanged


def test_soft_labels_of_one_class_each_are_ordinary_labels():
    """A one-hot table is encoded like the labels themselves, without weights."""
    data = Partial().fit(SIX, np.eye(3)[[0, 2, 1, 1, 2, 0]]).data_
    assert data.codes.tolist() == [0, 2, 1, 1, 2, 0]
    assert data.shares is None
    assert not data.weighted


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            [0.7, 0.5],
            r"`y` must hold probabilities that sum to 1 in each row; found a sum of 1\.2 in row 4\. Divide",
        ),
        ([3, 4], r"found a sum of 7 in row 4\. Divide the votes on each row by their number"),
        ([0, 0], r"found a sum of 0 in row 4\..*Use NaN in the whole row if there are none"),
        ([1.5, -0.5], r"found -0\.5 in row 4"),
        ([np.nan, 1.0], r"found a missing or infinite value in row 4"),
    ],
    ids=str,
)
def test_soft_labels_that_are_not_probabilities_are_rejected(row, message):
    """The message has the argument, the row, its sum and the remedy."""
    soft = SOFT.copy()
    soft[4] = row
    with pytest.raises(InvalidInputError, match=message):
        Partial().fit(SIX, soft)


def test_soft_labels_of_text_or_with_repeated_columns_are_rejected():
    """A table of names is not a table of shares, and each class has one column."""
    with pytest.raises(InvalidInputError, match=r"`y` must be one label per row.*got shape \(6, 2\)"):
        Partial().fit(SIX, np.full((6, 2), "cat"))
    with pytest.raises(InvalidInputError, match="unique column names"):
        Partial().fit(SIX, pd.DataFrame(SOFT, columns=["cat", "cat"]))


def test_soft_labels_must_be_as_long_as_the_features():
    """Tables of different length raise an error."""
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Partial().fit(SIX[:5], SOFT)


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
