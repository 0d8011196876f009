"""Estimators, folds and groups that cannot be used are refused before anything is trained."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from sklearn.utils.metaestimators import available_if

from peerloss import find_label_issues
from peerloss.audit import find_multilabel_issues
from peerloss.exceptions import InvalidInputError

N = 60


def task():
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    return rng.normal(size=(N, 2)) + 2 * y[:, None], y


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (LogisticRegression, r"got the class LogisticRegression. Pass LogisticRegression\(\)"),
        ("logistic", "classifier as in scikit-learn; 'logistic' has no 'fit'"),
        (StackingClassifier([("lr", LogisticRegression())]), "has no 'predict' .*needs a final_estimator"),
        (RidgeClassifier(), "have `predict_proba`; RidgeClassifier has none.*CalibratedClassifierCV"),
        (SVC(kernel="linear"), "have `predict_proba`; SVC has none"),
        (make_pipeline(SVC(kernel="linear")), "have `predict_proba`; Pipeline has none"),
    ],
)
def test_estimators_without_probabilities_are_refused(estimator, message, refit):
    """The message says what to pass instead."""
    X, y = task()
    with pytest.raises(InvalidInputError, match=f"`estimator` must.*{message}"):
        find_label_issues(X, y, estimator=estimator, refit=refit)
    with pytest.raises(InvalidInputError, match="`estimator` must"):
        find_multilabel_issues(X, np.column_stack([y, 1 - y]), estimator=estimator)


class Late(LogisticRegression):
    """A classifier that has `predict_proba` only after `fit`."""

    @available_if(lambda self: hasattr(self, "coef_"))
    def predict_proba(self, X):
        """Return what the base class returns."""
        return super().predict_proba(X)


def test_estimators_that_have_the_method_only_after_fit_are_used():
    """Whether `predict_proba` exists is decided after `fit`, as it is in cross_val_predict."""
    X, y = task()
    found = find_label_issues(X, y, estimator=Late())
    pd.testing.assert_frame_equal(found.table, find_label_issues(X, y, estimator=LogisticRegression()).table)


def test_errors_of_the_estimator_itself_are_raised_unchanged():
    """An AttributeError that is not about `predict_proba` is not replaced by another message."""

    class Broken(LogisticRegression):
        def fit(self, *_):
            raise AttributeError("no attribute 'coffee'")

    with pytest.raises(AttributeError, match="coffee"):
        find_label_issues(*task(), estimator=Broken())


@pytest.mark.parametrize("estimator", [LogisticRegression(), None])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": np.arange(50)}, r"`groups` must have one entry for each of 60 rows; got shape \(50,\)"),
        ({"groups": np.arange(70)}, r"`groups` must have one entry for each of 60 rows; got shape \(70,\)"),
        ({"groups": np.arange(N) % 3}, "as many groups as there are folds, 5; got 3. Use fewer folds"),
        ({"groups": ["a", "b"] * 30, "cv": None}, "as many groups as there are folds, 5; got 2"),
        ({"cv": GroupKFold(3)}, "`cv` must be a number of folds.*failed: The 'groups' parameter"),
        (
            {"cv": GroupKFold(4), "groups": np.arange(N) % 3},
            "failed: .*Use fewer folds than there are groups",
        ),
        ({"cv": ShuffleSplit(2, random_state=0)}, "`cv` must hold out each row exactly once"),
        ({"cv": [(np.arange(50), [90])]}, "`cv` must be a number of folds, .* index pairs for these 60 rows"),
        ({"cv": []}, "`cv` must hold out each row exactly once; 60 rows"),
        ({"cv": "five"}, "`cv` must be a number of folds, a splitter, .* got 'five'"),
        ({"cv": 1}, "`cv` must be an integer of at least 2; got 1"),
    ],
)
def test_folds_that_cannot_be_used_are_refused(options, message, estimator):
    """The message is the same with an estimator and with the portfolio, and names the argument."""
    with pytest.raises(InvalidInputError, match=message):
        find_label_issues(*task(), estimator=estimator, **options)


def test_groups_of_several_labels_are_checked():
    """`find_multilabel_issues` needs one group per row as well."""
    X, y = task()
    with pytest.raises(InvalidInputError, match="`groups` must have one entry for each of 60 rows"):
        find_multilabel_issues(
            X, np.column_stack([y, y]), groups=np.arange(9), estimator=LogisticRegression()
        )


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
@pytest.mark.parametrize("refit", [False, True])
def test_few_rows_of_a_class_make_fewer_folds(refit):
    """Two rows per class are enough for two folds, with a warning; one row is refused."""
    X, y = task()
    with pytest.warns(UserWarning, match="class 0 has only 2 rows; 2 folds are used"):
        audit = find_label_issues(X[:4], y[:4], estimator=LogisticRegression(), refit=refit)
    assert len(audit.table) == 4
    with pytest.raises(InvalidInputError, match="at least two rows, so that one can be held out; 1 has one"):
        find_label_issues(X[:3], y[:3], estimator=LogisticRegression(), refit=refit, min_class_rows=1)


@pytest.mark.parametrize("form", [np.asarray, list, pd.Series])
@pytest.mark.parametrize("cv", [3, GroupKFold(3)])
def test_valid_groups_and_folds_give_the_usual_result(form, cv):
    """Rows of one group stay together, and a generator of folds is read once."""
    X, y = task()
    found = find_label_issues(X, y, estimator=LogisticRegression(), cv=cv, groups=form(np.arange(N) // 4))
    assert len(found.table) == N
    pairs = KFold(3).split(X)
    by_pairs = find_label_issues(X, y, estimator=LogisticRegression(), cv=pairs)
    by_splitter = find_label_issues(X, y, estimator=LogisticRegression(), cv=KFold(3))
    pd.testing.assert_frame_equal(by_pairs.table, by_splitter.table)
