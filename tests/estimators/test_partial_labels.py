"""Rows without a label and soft labels, in PeerClassifier and PeerPlugInClassifier."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from peerloss import load_model, save_model
from peerloss._classifier import FitInput
from peerloss.estimators import PeerClassifier, PeerPlugInClassifier
from peerloss.estimators.folds import folds_of_copies, held_out_folds, labelled_copies, merge_copies
from peerloss.estimators.portfolio import _fit_portfolio, _spread_labels
from peerloss.exceptions import InvalidInputError
from tests.estimators.binary_task import task
from tests.estimators.blobs import blobs

MODELS = {
    "portfolio": lambda **options: PeerClassifier(random_state=0, **options),
    "plug-in": lambda **options: PeerPlugInClassifier(LogisticRegression(), alpha="auto", **options),
}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def votes(y, n_classes, n_votes, right=0.7, seed=0):
    """Return the shares of independent votes on each row, shape (n, K)."""
    rng = np.random.default_rng(seed)
    wrong = (y[:, None] + rng.integers(1, n_classes, size=(len(y), n_votes))) % n_classes
    cast = np.where(rng.random((len(y), n_votes)) < right, y[:, None], wrong)
    return np.eye(n_classes)[cast].mean(axis=1)


@pytest.fixture
def with_forest(monkeypatch):
    """Replace the models of the portfolio by a linear one and a forest."""

    def two(n_rows, n_features, n_classes, *, seed):  # noqa: ARG001 (the signature of candidate_models)
        trees = ExtraTreesClassifier(20, min_samples_leaf=3, bootstrap=True, random_state=seed)
        return {"linear": LogisticRegression(C=0.1), "trees": trees}

    monkeypatch.setattr(_fit_portfolio, "candidate_models", two)


@models
@pytest.mark.parametrize("missing", [np.nan, None, -1], ids=str)
@pytest.mark.filterwarnings("ignore:`y` contains -1, 0 and 1")
def test_other_models_are_those_of_the_labelled_rows(make, missing, with_forest, monkeypatch):  # noqa: ARG001 (a fixture)
    """Without the candidate that spreads labels, and with the same scaling, nothing changes."""
    monkeypatch.setattr(_spread_labels, "MAX_GRAPH_ROWS", 0)
    X, _, noisy = task(200)
    y = np.array([*noisy.tolist(), *[missing] * 200], dtype=object)
    model = make().fit(np.r_[X, X], y)
    without = make().fit(X, noisy)
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_allclose(model.predict_proba(X), without.predict_proba(X), atol=1e-8)
    np.testing.assert_allclose(model.oof_proba_[:200], without.oof_proba_, atol=1e-8)
    np.testing.assert_allclose(model.oof_proba_[200:], model.predict_noisy_proba(X))


def test_the_report_counts_the_rows_without_a_label(small_portfolio, tmp_path):  # noqa: ARG001 (a fixture)
    """The number is in the report and in its text, also of a saved model."""
    X, _, noisy = task(300)
    y = np.where(np.arange(300) % 3 == 0, np.nan, noisy)
    model = PeerClassifier(random_state=0).fit(X, y)
    assert model.report_.n_unlabelled == 100
    assert "Rows without a label: 100." in str(model.report_)
    assert "without a label" not in str(PeerClassifier(random_state=0).fit(X, noisy).report_)
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").report_.n_unlabelled == 100


def test_rows_without_a_label_describe_the_features(small_portfolio):  # noqa: ARG001 (a fixture)
    """Their features count for the standardisation; a row of weight zero does not."""
    X, _, noisy = task(150)
    y = np.where(np.arange(150) < 50, noisy, np.nan)
    model = PeerClassifier(random_state=0).fit(X, y)
    np.testing.assert_allclose(model.scaler_.mean_, X.mean(axis=0))
    weighted = PeerClassifier(random_state=0).fit(X, y, sample_weight=(np.arange(150) < 100).astype(float))
    np.testing.assert_allclose(weighted.scaler_.mean_, X[:100].mean(axis=0))


@pytest.mark.parametrize(
    "cv",
    [
        KFold(3),
        StratifiedKFold(3),
        [(np.arange(60, 120), np.arange(60)), (np.arange(60), np.arange(60, 120))],
    ],
    ids=["splitter", "stratified", "pairs"],
)
def test_splitters_see_all_rows(cv):
    """Index pairs count all rows, also those without a label; each labelled row is held out once."""
    X, y = blobs(120)
    partial = np.where(np.arange(120) % 4 == 0, np.nan, y)
    model = PeerPlugInClassifier(LogisticRegression(), cv=cv).fit(X, partial)
    assert np.isfinite(model.oof_proba_).all()
    assert model.score(X, y) > 0.7


@models
def test_groups_with_rows_without_a_label(make, small_portfolio):  # noqa: ARG001 (a fixture)
    """Groups have an entry for each row, labelled or not."""
    X, y = blobs(120)
    partial = np.where(np.arange(120) % 4 == 0, None, y)
    groups = np.arange(120) // 6
    model = make(cv=3).fit(X, partial, groups=groups)
    assert model.oof_proba_.shape == (120, 2)
    assert make(cv=GroupKFold(3)).fit(X, partial, groups=groups).oof_proba_.shape == (120, 2)


def test_gold_labels_of_rows_without_a_noisy_label(small_portfolio):  # noqa: ARG001 (a fixture)
    """They train the model as clean labels, and no pair of labels is counted."""
    X, clean, noisy = task(200)
    known = np.arange(200) < 60
    y = np.where(known, np.nan, noisy)
    model = PeerClassifier(random_state=0).fit(X, y, gold=np.where(known, clean, np.nan))
    assert model.report_.n_unlabelled == 0
    assert model.score(X, clean) > 0.9
    with pytest.raises(InvalidInputError, match="`gold` marks the label of row 0 as correct, but `y` has no"):
        PeerClassifier().fit(X, y, gold=known)


@models
@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_hot_soft_labels_are_hard_labels(make, n_classes, with_forest):  # noqa: ARG001 (a fixture)
    """Predictions, out-of-fold probabilities and classes are equal, with and without names."""
    X, y = blobs(150, n_classes=n_classes)
    names = np.array(["ant", "bee", "cat"])[:n_classes]
    hard, soft = make().fit(X, y), make().fit(X, np.eye(n_classes)[y])
    table = pd.DataFrame(np.eye(n_classes)[y], columns=names)[names[::-1]]  # in another order
    named = make().fit(X, table)
    np.testing.assert_array_equal(soft.classes_, hard.classes_)
    np.testing.assert_array_equal(named.classes_, names)
    for model in (soft, named):
        np.testing.assert_array_equal(model.predict_proba(X), hard.predict_proba(X))
        np.testing.assert_array_equal(model.oof_proba_, hard.oof_proba_)


def test_soft_labels_are_weighted_copies():
    """The plug-in is that of one row per class with a positive share, if the copies share a fold."""
    X, y = blobs(90, n_classes=3)
    soft = votes(y, 3, 4)
    rows, codes = np.nonzero(soft)
    folds = list(KFold(3).split(X))
    copied = [tuple(np.flatnonzero(np.isin(rows, part)) for part in fold) for fold in folds]
    model = PeerPlugInClassifier(LogisticRegression(), cv=folds).fit(X, soft)
    by_hand = PeerPlugInClassifier(LogisticRegression(), cv=copied)
    by_hand.fit(X[rows], codes, sample_weight=soft[rows, codes])
    np.testing.assert_allclose(model.predict_proba(X), by_hand.predict_proba(X), atol=1e-12)
    np.testing.assert_allclose(model.noisy_prior_, soft.mean(axis=0))
    np.testing.assert_allclose(model.oof_proba_[rows], by_hand.oof_proba_, atol=1e-12)


def test_copies_of_a_row_stay_in_one_fold():
    """No row is trained on and held out at once, and every copy is held out once."""
    X, y = blobs(60, n_classes=3)
    soft = votes(y, 3, 5)
    soft[::7] = 0.0
    data = FitInput(X, np.where(np.arange(60) % 7, y, -1), np.ones(60), np.arange(3), True, soft)
    copies, rows = labelled_copies(data)
    folds = folds_of_copies(held_out_folds(4, data, seed=0), rows, 60)
    for train, test in folds:
        assert not set(rows[train]) & set(rows[test])
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(len(rows)))
    np.testing.assert_allclose(np.bincount(rows, copies.weight, minlength=60), (np.arange(60) % 7 > 0) * 1.0)
    merged = merge_copies(soft[rows], rows, 60)
    np.testing.assert_array_equal(merged[np.unique(rows)], soft[np.unique(rows)])


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_soft_labels_do_not_leak_into_held_out_probabilities(with_forest):  # noqa: ARG001 (a fixture)
    """Votes that are independent of the features are not predicted out of fold, also not by trees.

    A tree that has seen another copy of a row would favour the other class.
    """
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.integers(2, size=300)
    soft = votes(y, 2, 5, right=0.8)
    tree = PeerPlugInClassifier(DecisionTreeClassifier(min_samples_leaf=3, random_state=0)).fit(X, soft)
    portfolio = PeerClassifier(random_state=0).fit(X, soft)
    for model in (tree, portfolio):
        correlation = np.corrcoef(model.oof_proba_[:, 1], soft[:, 1])[0, 1]
        assert abs(correlation) < 3 / np.sqrt(300)  # three standard errors of no correlation


@models
@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_soft_labels_are_better_than_one_vote(make, small_portfolio):  # noqa: ARG001 (a fixture)
    """The shares of five votes on each row predict clean labels better than one vote on each row."""
    X, y = blobs(1200, n_classes=3, spread=1.0, seed=1)
    shares = (votes(y[:200], 3, n_votes, right=0.6) for n_votes in (1, 5))
    single, soft = (make().fit(X[:200], labels).score(X[200:], y[200:]) for labels in shares)
    assert soft > single


@models
def test_soft_labels_may_be_missing(make, small_portfolio):  # noqa: ARG001 (a fixture)
    """A row of NaN has no label; sample weights multiply the shares."""
    X, y = blobs(160)
    soft = votes(y, 2, 3)
    soft[:40] = np.nan
    model = make().fit(X, soft, sample_weight=np.r_[np.ones(100), np.full(60, 2.0)])
    assert model.oof_proba_.shape == (160, 2)
    assert np.isfinite(model.oof_proba_).all()
    expected = np.average(soft[40:], axis=0, weights=np.r_[np.ones(60), np.full(60, 2.0)])
    np.testing.assert_allclose(model.noisy_prior_, expected)


@models
def test_a_class_without_a_majority_is_learned(make, small_portfolio):  # noqa: ARG001 (a fixture)
    """A class that never has the largest share is in every training part of the folds."""
    X, y = blobs(120)
    soft = np.c_[votes(y, 2, 3), np.zeros(120)]
    soft[:6] = [0.4, 0.4, 0.2]
    assert make().fit(X, soft).predict_proba(X).shape == (120, 3)


@models
def test_a_class_without_votes_is_rejected(make):
    """The message names the class and says what to do."""
    X, y = blobs(60)
    with pytest.raises(InvalidInputError, match=r"at least two rows.*class 2 has 0\. Remove the class"):
        make().fit(X, np.c_[votes(y, 2, 3), np.zeros(60)])


def test_gold_labels_replace_votes(small_portfolio):  # noqa: ARG001 (a fixture)
    """A row with a gold label has no soft label any more."""
    X, y = blobs(160)
    soft = votes(y, 2, 3, right=0.6)
    gold = np.where(np.arange(160) < 100, y, np.nan)
    model = PeerClassifier(random_state=0).fit(X, soft, gold=gold)
    mixed = np.r_[np.eye(2)[y[:100]], soft[100:]]
    np.testing.assert_allclose(model.noisy_prior_, mixed.mean(axis=0))


def test_an_estimator_without_weights_cannot_learn_soft_labels():
    """The message says why weights are needed; one-hot labels need none."""
    X, y = blobs(60)
    model = PeerPlugInClassifier(KNeighborsClassifier())
    with pytest.raises(
        InvalidInputError, match=r"`y` has soft labels, but KNeighborsClassifier\.fit does not"
    ):
        model.fit(X, votes(y, 2, 3))
    assert model.fit(X, np.eye(2)[y]).score(X, y) > 0.7


@models
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full(40, np.nan), "`y` must have a label in some rows; all 40 labels are missing"),
        (
            np.r_[np.ones(20), np.full(20, np.nan)],
            "`y` must have at least two classes; every label is class 1",
        ),
        (np.full((40, 2), 0.6), r"found a sum of 1\.2 in row 0\. Divide the votes"),
    ],
    ids=["all missing", "one class", "sum"],
)
def test_bad_labels_are_named(make, labels, message):
    """The error says what is wrong with ``y``, and no fitted attribute is left."""
    model = make()
    with pytest.raises(InvalidInputError, match=message):
        model.fit(blobs(40)[0], labels)
    assert not [name for name in vars(model) if name.endswith("_")]
