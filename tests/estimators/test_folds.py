"""Folds: every estimator with ``cv`` accepts what scikit-learn accepts."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from peerloss import (
    CostSensitiveSVC,
    MarginPerceptron,
    PeerClassifier,
    PeerPlugInClassifier,
    RobustMLPClassifier,
    find_label_issues,
)
from peerloss._classifier import FitInput
from peerloss.estimators import _mlp_settings
from peerloss.estimators.folds import held_out_folds
from peerloss.estimators.portfolio import _fit_portfolio
from peerloss.exceptions import InvalidInputError

ROWS = 60


class Recorder:
    """A splitter that records its groups and its folds."""

    def __init__(self, inner):
        self.inner, self.groups, self.folds = inner, [], []

    def split(self, X, y=None, groups=None):
        """Split as the inner splitter does."""
        self.groups.append(groups)
        self.folds.append(list(self.inner.split(X, y, groups)))
        return iter(self.folds[-1])

    def get_n_splits(self, X=None, y=None, groups=None):
        """Return the number of folds."""
        return self.inner.get_n_splits(X, y, groups)


class Rows(LogisticRegression):
    """A logistic regression that records the row numbers (the last feature) of its training rows."""

    seen = ()

    def fit(self, X, y, sample_weight=None):
        """Fit, and record the rows."""
        Rows.seen = (*Rows.seen, X[:, -1].astype(int).tolist())
        return super().fit(X[:, :-1], y, sample_weight)

    def predict_proba(self, X):
        """Ignore the row numbers."""
        return super().predict_proba(X[:, :-1])


@pytest.fixture
def numbered():
    """Features whose last column is the number of the row, labels, and twelve groups."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 3))
    y = (X[:, 0] + 0.3 * rng.normal(size=ROWS) > 0).astype(int)
    X[:, -1] = np.arange(ROWS)
    return X, y, np.arange(ROWS) % 12


@pytest.fixture
def folds_of_peer(monkeypatch):
    """Give PeerClassifier one fast candidate, and return a list that records its folds."""
    seen = []
    fit_fold = _fit_portfolio.fit_fold

    def spy(estimator, data, train, test):
        seen.append((train.tolist(), test.tolist()))
        return fit_fold(estimator, data, train, test)

    monkeypatch.setattr(_fit_portfolio, "fit_fold", spy)
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"only": LogisticRegression()})
    monkeypatch.setattr(_fit_portfolio, "fit_networks", lambda *_, **__: {})
    return seen


def as_lists(folds):
    """Return folds as lists, which can be compared."""
    return [(np.asarray(train).tolist(), np.asarray(test).tolist()) for train, test in folds]


def test_peer_classifier_uses_exactly_the_grouped_folds(numbered, folds_of_peer):
    """A splitter that needs groups receives them, and its folds are used for training."""
    X, y, groups = numbered
    splitter = Recorder(GroupKFold(3))
    PeerClassifier(cv=splitter, random_state=0).fit(X, y, groups=groups)
    assert len(splitter.folds) == 1
    np.testing.assert_array_equal(splitter.groups[0], groups)
    assert folds_of_peer == as_lists(splitter.folds[0])


def test_peer_classifier_accepts_splitters_and_pairs_without_groups(numbered, folds_of_peer):
    """KFold, a list of index pairs and a generator of them give the same folds."""
    X, y, _ = numbered
    pairs = list(KFold(4).split(X))
    for cv in (KFold(4), pairs, iter(pairs)):
        folds_of_peer.clear()
        PeerClassifier(cv=cv, random_state=0).fit(X, y)
        assert folds_of_peer == as_lists(pairs)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_numpy_integer_is_a_number_of_folds(numbered, folds_of_peer, grouped):
    """``np.int64(3)`` makes the folds that 3 makes, with groups and without."""
    X, y, groups = numbered
    options = {"groups": groups} if grouped else {}
    found = []
    for cv in (3, np.int64(3)):
        folds_of_peer.clear()
        PeerClassifier(cv=cv, random_state=0).fit(X, y, **options)
        found.append(list(folds_of_peer))
    assert found[0] == found[1]
    assert len(found[0]) == (3 if grouped else 6)  # few rows: folds without groups are drawn twice


def test_none_is_five_folds(numbered):
    """``cv=None`` is five folds, as in scikit-learn."""
    X, y, _ = numbered
    data = FitInput(X, y, np.ones(ROWS), np.arange(2))
    assert as_lists(held_out_folds(None, data, seed=1)) == as_lists(held_out_folds(5, data, seed=1))


def test_the_plug_in_uses_exactly_the_given_folds(numbered):
    """Its estimator trains on the training part of each fold, then on all rows."""
    X, y, groups = numbered
    splitter = Recorder(GroupKFold(3))
    Rows.seen = ()
    PeerPlugInClassifier(Rows(), cv=splitter).fit(X, y, groups=groups)
    expected = [train.tolist() for train, _ in splitter.folds[0]]
    assert list(Rows.seen) == [*expected, list(range(ROWS))]
    np.testing.assert_array_equal(splitter.groups[0], groups)


@pytest.mark.parametrize(
    "model",
    [
        CostSensitiveSVC(class_weight_grid=[1.0], random_state=0),
        MarginPerceptron(margin_grid=[1.0], random_state=0),
        RobustMLPClassifier(alpha="auto", max_steps=2, random_state=0),
        RobustMLPClassifier("forward", noise="estimate", max_steps=20, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'loss', '')}",
)
@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_the_other_estimators_accept_grouped_splitters(numbered, model):
    """Every estimator with ``cv`` calls the splitter once, with the groups."""
    X, y, groups = numbered
    splitter = Recorder(GroupKFold(3))
    model.set_params(cv=splitter).fit(X, y, groups=groups)
    assert len(splitter.folds) == 1
    np.testing.assert_array_equal(splitter.groups[0], groups)


def test_the_search_of_networks_trains_on_exactly_the_given_folds(numbered):
    """Rows of weight zero are in no fold; the indices refer to the remaining rows."""
    X, y, groups = numbered
    weight = np.ones(ROWS)
    weight[:10] = 0
    data = FitInput(X, y, weight, np.arange(2))
    pairs = list(GroupKFold(3).split(X, y, groups))
    found = _mlp_settings.search_folds(GroupKFold(3), data, groups, seed=0)
    kept = np.arange(10, ROWS)
    for (train, test), (given_train, given_test) in zip(found, pairs, strict=True):
        assert kept[train].tolist() == [i for i in given_train if i >= 10]
        assert kept[test].tolist() == [i for i in given_test if i >= 10]


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")  # few rows
def test_label_issues_are_found_with_exactly_the_given_folds(numbered, folds_of_peer):
    """``find_label_issues`` uses the splitter with the groups, with and without an estimator."""
    X, y, groups = numbered
    expected = as_lists(GroupKFold(3).split(X, y, groups))
    find_label_issues(X, y, cv=Recorder(GroupKFold(3)), groups=groups)
    assert folds_of_peer == expected
    Rows.seen = ()
    find_label_issues(X, y, estimator=Rows(), cv=Recorder(GroupKFold(3)), groups=groups)
    assert list(Rows.seen) == [train for train, _ in expected]


@pytest.mark.parametrize(
    "cv",
    ["five", 2.5, True, 1, np.int64(0), object()],
    ids=["text", "fraction", "truth", "one", "zero", "object"],
)
@pytest.mark.parametrize(
    "model",
    [PeerClassifier(), PeerPlugInClassifier(LogisticRegression()), RobustMLPClassifier(alpha="auto")],
    ids=lambda model: type(model).__name__,
)
def test_other_kinds_of_cv_are_rejected(numbered, model, cv):
    """Text, fractions, booleans, too few folds and other objects raise an error that names ``cv``."""
    X, y, _ = numbered
    with pytest.raises(InvalidInputError, match="`cv` must be"):
        model.set_params(cv=cv).fit(X, y)


@pytest.mark.parametrize("cv", [1, True])
def test_too_few_folds_of_an_audit_are_rejected(numbered, cv):
    """An audit with an estimator raises the same errors."""
    X, y, _ = numbered
    with pytest.raises(InvalidInputError, match="`cv` must be"):
        find_label_issues(X, y, estimator=LogisticRegression(), cv=cv)


def test_splits_that_are_not_a_partition_are_rejected(numbered):
    """An empty list of folds, and rows that are never held out."""
    X, y, _ = numbered
    data = FitInput(X, y, np.ones(ROWS), np.arange(2))
    for cv in ([], list(StratifiedKFold(3).split(X, y))[:2]):
        with pytest.raises(InvalidInputError, match="`cv` must hold out each row exactly once"):
            held_out_folds(cv, data, seed=0)


@pytest.mark.parametrize(
    "model",
    [
        CostSensitiveSVC(class_weight_grid=[1.0]),
        MarginPerceptron(margin_grid=[1.0]),
        PeerClassifier(),
        PeerPlugInClassifier(LogisticRegression()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_fewer_folds_are_warned_of_once(numbered, model, folds_of_peer):  # noqa: ARG001 (a fixture)
    """A class with fewer rows than folds gives one warning, at the line that called ``fit``."""
    X, _, _ = numbered
    y = np.repeat(["a", "b"], [ROWS - 3, 3])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    found = [w for w in caught if "'b' has only 3 rows; 3 folds are used" in str(w.message)]
    assert [w.filename for w in found] == [__file__]


def test_training_on_held_out_rows_is_rejected(numbered):
    """Folds that train on their own test rows would give in-sample probabilities."""
    X, y, _ = numbered
    rows = np.arange(len(y))
    half = len(y) // 2
    cheat = [(rows, rows[:half]), (rows, rows[half:])]
    with pytest.raises(InvalidInputError, match="`cv` must not train on the rows that it holds out; fold 0"):
        PeerPlugInClassifier(LogisticRegression(), cv=cheat).fit(X, y)


def test_a_fold_without_weight_is_left_out_of_the_search():
    """A fold that holds out only rows of weight zero has no score; the other folds choose α."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    y = (X[:, 0] > 0).astype(int)
    weight = np.where(np.arange(100) < 80, 1.0, 0.0)
    model = RobustMLPClassifier(alpha="auto", cv=KFold(5), max_steps=20, random_state=0)
    assert model.fit(X, y, sample_weight=weight).score(X, y) > 0.5
