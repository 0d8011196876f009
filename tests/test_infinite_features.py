"""Infinite numbers among features: one rule for arrays, sparse matrices and tables."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array, csc_array, csr_array
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from peerloss import PeerBoostingClassifier, PeerClassifier, PeerPlugInClassifier, RobustMLPClassifier
from peerloss._infinite_features import check_no_infinity
from peerloss.audit import find_label_issues
from peerloss.exceptions import InvalidInputError

ROWS = 40


class TakesAnything(HistGradientBoostingClassifier):
    """A classifier that accepts infinity, as LightGBM does."""

    def fit(self, X, y):
        """Fit to finite numbers."""
        return super().fit(np.nan_to_num(X), y)

    def predict_proba(self, X):
        """Predict from finite numbers."""
        return super().predict_proba(np.nan_to_num(X))


def features(kind, *, infinite):
    """Return features of a kind, with infinity in two rows of the column 1, price."""
    X = np.random.default_rng(0).normal(size=(ROWS, 2))
    if infinite:
        X[7, 1], X[9, 1] = np.inf, -np.inf
    table = pd.DataFrame(X, columns=["size", "price"])
    wide = np.hstack([X, np.random.default_rng(1).random((ROWS, 300)) < 0.1])
    gap = X.copy()
    gap[3, 0] = np.nan
    return {
        "array": X,
        "array with a gap": gap,
        "list": X.tolist(),
        "few sparse columns": csr_array(X),
        "many sparse columns": csr_array(wide),
        "numbers": table,
        "objects": table.astype(object),
        "numbers with a gap": table.assign(size=gap[:, 0]),
        "nullable": table.astype("Float64"),
        "text": table.assign(colour=["red", "blue"] * (ROWS // 2)),
    }[kind]


KINDS = [
    "array",
    "array with a gap",
    "list",
    "few sparse columns",
    "many sparse columns",
    "numbers",
    "objects",
    "numbers with a gap",
    "nullable",
    "text",
]
MESSAGE = (
    r"`X` must not hold infinite numbers; column (1|'price') has infinity in 2 of 40 rows, "
    r"the first is row 7\. Replace it with NaN if .* `--na-values inf --na-values -inf`\), or with a"
    r" finite number"
)
Y = np.tile([0, 1], ROWS // 2)
MODELS = {
    "network": lambda: RobustMLPClassifier(max_steps=3, random_state=0),
    "plug-in": lambda: PeerPlugInClassifier(LogisticRegression(), cv=2),
    "plug-in that accepts infinity": lambda: PeerPlugInClassifier(TakesAnything(max_iter=2), cv=2),
    "boosting": lambda: PeerBoostingClassifier(n_estimators=2, n_folds=2, min_child_samples=2),
}


@pytest.mark.filterwarnings("ignore")  # the labels do not depend on the features
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_classifier_has_the_same_rule_for_every_kind_of_features(name, kind):
    """The message names the column, the number of rows and what to do, in fit and in predict."""
    if name == "boosting":
        pytest.importorskip("lightgbm")
    with pytest.raises(InvalidInputError, match=MESSAGE):
        MODELS[name]().fit(features(kind, infinite=True), Y)
    model = MODELS[name]().fit(features(kind, infinite=False), Y)
    with pytest.raises(InvalidInputError, match=MESSAGE):
        model.predict(features(kind, infinite=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_portfolio_and_audits_have_the_rule_too(kind):
    """The error comes before any model is fitted."""
    if kind != "list":  # an audit needs an array
        with pytest.raises(InvalidInputError, match=MESSAGE):
            find_label_issues(features(kind, infinite=True), Y)
        with pytest.raises(InvalidInputError, match=MESSAGE):
            find_label_issues(features(kind, infinite=True), Y, estimator=TakesAnything())
    with pytest.raises(InvalidInputError, match=MESSAGE):
        PeerClassifier().fit(features(kind, infinite=True), Y)


def test_a_second_round_has_the_rule_too():
    """With given probabilities only the second round learns from the features."""
    proba = np.full((ROWS, 2), 0.5)
    X = features("array", infinite=True)
    with pytest.raises(InvalidInputError, match=MESSAGE):
        find_label_issues(X, Y, pred_proba=proba, refit=True, estimator=HistGradientBoostingClassifier())


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_may_replace_infinity():
    """It prepares its features itself."""
    pipeline = make_pipeline(FunctionTransformer(lambda X: np.clip(X, -9.0, 9.0)), LogisticRegression())
    X = features("array", infinite=True)
    assert np.isfinite(PeerPlugInClassifier(pipeline, cv=2).fit(X, Y).predict_proba(X)).all()
    assert len(find_label_issues(X, Y, estimator=pipeline).table) == ROWS
    with pytest.raises(ValueError, match="infinity"):  # of scikit-learn, if no step replaces it
        PeerPlugInClassifier(make_pipeline(LogisticRegression()), cv=2).fit(X, Y)


def test_columns_that_a_table_leaves_out_are_checked_as_in_an_array():
    """A constant column is not used, but an array has no such columns, and the rule does not differ."""
    table = features("text", infinite=False).assign(constant=np.inf)
    with pytest.raises(InvalidInputError, match="column 'constant' has infinity in 40 of 40 rows"):
        PeerClassifier().fit(table, Y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_columns_that_a_model_does_not_use_are_not_checked_in_predict(name):
    """A column that was left out in fit, and one that fit did not have."""
    if name == "boosting":
        pytest.importorskip("lightgbm")
    table = features("text", infinite=False).assign(constant=1.0)
    model = MODELS[name]().fit(table, Y)
    expected = model.predict_proba(table)
    np.testing.assert_array_equal(model.predict_proba(table.assign(constant=np.inf, more=np.inf)), expected)


@pytest.mark.parametrize("kind", [csr_array, csc_array, coo_array])
def test_sparse_matrices_are_counted_by_column(kind):
    """The first column with infinity is named; a stored zero or NaN is not infinity."""
    X = np.zeros((5, 4))
    X[4, 3] = X[2, 1] = X[1, 1] = np.inf
    X[0, 0] = np.nan
    with pytest.raises(
        InvalidInputError, match=r"column 1 has infinity in 2 of 5 rows, the first is row 1\."
    ):
        check_no_infinity(kind(X))
    check_no_infinity(kind(np.nan_to_num(X)))


@pytest.mark.parametrize(
    "X", [[[1.0], [2.0, 3.0]], [["a", "b"]], np.zeros(3), None, BaseEstimator(), [[1, 2]], pd.DataFrame()]
)
def test_other_input_is_left_to_later_checks(X):
    """Ragged rows, text, one dimension, and objects of any type."""
    check_no_infinity(X)


def test_a_table_of_numbers_is_checked_without_a_copy():
    """As an array of the same numbers is: only the marks of infinity need memory."""
    table = pd.DataFrame(np.ones((20_000, 50), dtype=np.float32))
    tracemalloc.start()
    check_no_infinity(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * table.to_numpy().nbytes


def test_sparse_matrices_of_complex_numbers_are_left_to_later_checks():
    """scikit-learn says that they are not supported; infinity is not what is wrong."""
    check_no_infinity(csr_array(np.array([[1.0, complex(np.inf, 0.0)]])))
