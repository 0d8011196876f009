"""Fits that give every row a probability from models that have not seen its label."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import log_loss

from peerloss._classifier import FitInput
from peerloss.estimators.portfolio import _candidates
from peerloss.estimators.portfolio._candidates import FoldBooster, _boosting, has_lightgbm
from peerloss.estimators.portfolio._held_out_fits import (
    ROUNDS,
    SHRINKAGES,
    common_rounds,
    fit_fold,
    fit_out_of_bag,
    fit_rounds,
    keep_rounds,
    shrink,
    shrunk_values,
)
from tests.estimators.binary_task import task

FORESTS = [
    RandomForestClassifier(12, min_samples_leaf=3, random_state=0),
    ExtraTreesClassifier(12, min_samples_leaf=3, bootstrap=True, random_state=0),
    RandomForestClassifier(12, max_samples=20, random_state=0),
]


def table(n, weight=None):
    """Return a task of two classes as the input of a fit."""
    X, _, noisy = task(n)
    return FitInput(X, noisy.astype(np.int64), np.ones(n) if weight is None else weight, np.arange(2))


@pytest.mark.parametrize("forest", FORESTS, ids=["forest", "extra trees", "samples of 20 rows"])
def test_out_of_bag_probabilities_use_trees_that_did_not_see_the_row(forest):
    """They are the mean over the trees whose bootstrap sample does not contain the row, computed by hand."""
    data = table(60)
    model, (proba, *_) = fit_out_of_bag(forest, data)
    for row in range(60):
        trees = [
            tree
            for tree, sample in zip(model.estimators_, model.estimators_samples_, strict=True)
            if row not in sample
        ]
        if trees:
            expected = np.mean([tree.predict_proba(data.X[[row]])[0] for tree in trees], axis=0)
        else:
            expected = np.bincount(data.codes) / 60
        np.testing.assert_allclose(proba[row], expected, atol=1e-12)


def test_rows_in_every_sample_get_the_frequencies():
    """One tree has no probability for two thirds of the rows; no warning is shown."""
    data = table(60)
    model, (proba, *_) = fit_out_of_bag(RandomForestClassifier(1, random_state=0), data)
    inside = np.unique(model.estimators_samples_[0])
    np.testing.assert_allclose(proba[inside], np.tile(np.bincount(data.codes) / 60, (len(inside), 1)))


def test_rows_of_weight_zero_are_excluded():
    """The trees are those of a fit without these rows, which get the weighted frequencies."""
    weight = np.where(np.arange(80) < 60, 1.0 + np.arange(80) % 3, 0.0)
    data = table(80, weight)
    part = FitInput(data.X[:60], data.codes[:60], weight[:60], data.classes)
    model, (*_, proba) = fit_out_of_bag(FORESTS[0], data)
    expected_model, (*_, expected) = fit_out_of_bag(FORESTS[0], part)
    np.testing.assert_array_equal(proba[:60], expected)
    np.testing.assert_array_equal(model.predict_proba(data.X), expected_model.predict_proba(data.X))
    frequencies = np.bincount(data.codes, weights=weight) / weight.sum()
    np.testing.assert_allclose(proba[60:], np.tile(frequencies, (20, 1)))


def slow_shrinkage(tree, penalty):
    """Return shrunk class frequencies of all nodes, by recursion from the root."""
    found = np.empty((tree.node_count, tree.value.shape[2]))

    def visit(node, parent, value):
        if parent is not None:
            step = tree.value[node, 0] - tree.value[parent, 0]
            value = value + step / (1.0 + penalty / tree.n_node_samples[parent])
        found[node] = value
        if tree.children_left[node] >= 0:
            visit(tree.children_left[node], node, value)
            visit(tree.children_right[node], node, value)

    visit(0, None, tree.value[0, 0])
    return found


@pytest.mark.parametrize("forest", FORESTS[:2], ids=["forest", "extra trees"])
def test_shrinkage_draws_nodes_to_their_ancestors(forest):
    """Values equal those of a recursion and remain frequencies; a huge penalty gives those of the root."""
    data = table(100)
    tree = forest.fit(data.X, data.codes).estimators_[0].tree_
    penalties = (0.0, 5.0, 1e9)
    values = shrunk_values(tree, penalties)
    for penalty, found in zip(penalties, values, strict=True):
        np.testing.assert_allclose(found, slow_shrinkage(tree, penalty), atol=1e-12)
    np.testing.assert_allclose(values.sum(axis=2), 1.0)
    np.testing.assert_allclose(values[2], np.tile(tree.value[0, 0], (tree.node_count, 1)), atol=1e-6)


def test_a_shrunk_forest_predicts_its_held_out_probabilities():
    """The copy for new rows gives what the fold's held-out rows have; the forest itself is unchanged."""
    data = table(120)
    train, test = np.arange(80), np.arange(80, 120)
    forest, found = fit_fold(FORESTS[0], data, train, test)
    before = forest.predict_proba(data.X)
    for penalty, proba in zip(SHRINKAGES, found, strict=True):
        np.testing.assert_allclose(shrink(forest, penalty).predict_proba(data.X[test]), proba, atol=1e-12)
    np.testing.assert_array_equal(forest.predict_proba(data.X), before)
    assert shrink(forest, 0.0) is forest


def test_the_rounds_of_scikit_learns_boosting():
    """Losses are those of separate fits, up to the first increase, and a model is cut to its rounds."""
    data = table(300)
    train, test = np.arange(200), np.arange(200, 300)
    boosting = HistGradientBoostingClassifier(early_stopping=False, warm_start=True, random_state=0)
    model, losses = fit_rounds(boosting, data, train, test)
    assert len(losses) == len(ROUNDS) or losses[-1] > min(losses)
    for entry, loss in enumerate(losses):
        other = HistGradientBoostingClassifier(max_iter=ROUNDS[entry], early_stopping=False, random_state=0)
        other.fit(data.X[train], data.codes[train])
        assert log_loss(data.codes[test], other.predict_proba(data.X[test])) == pytest.approx(loss)
    cut = keep_rounds(model, 0)
    assert cut.n_iter_ == cut.max_iter == ROUNDS[0]
    assert log_loss(data.codes[test], cut.predict_proba(data.X[test])) == pytest.approx(losses[0])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_rounds_of_lightgbm(n_classes):
    """The rounds of a booster, also those after the best one, have the loss that was recorded for them."""
    pytest.importorskip("lightgbm")
    data = table(300)
    codes = np.where(data.X[:, 2] > 1, n_classes - 1, data.codes)
    data = data._replace(codes=codes, classes=np.arange(n_classes))
    train, test = np.arange(200), np.arange(200, 300)
    model, losses = fit_rounds(_boosting(200, n_classes, 0), data, train, test)
    assert isinstance(model, FoldBooster)
    for entry in (0, len(losses) // 2, len(losses) - 1):
        proba = keep_rounds(model, entry).predict_proba(data.X[test])
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)
        assert log_loss(codes[test], proba) == pytest.approx(losses[entry])


def test_all_folds_have_the_same_number_of_rounds():
    """It has the smallest mean loss; a fold that stopped early counts with its last loss."""
    assert common_rounds([[3.0, 1.0, 2.0], [3.0, 2.5, 0.5]]) == 2
    assert common_rounds([[3.0, 1.0, 2.0], [2.0, 3.0]]) == 1
    assert common_rounds([[1.0]]) == 0


def test_boosting_without_lightgbm(monkeypatch):
    """scikit-learn's boosting replaces LightGBM if that cannot be imported."""

    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(_candidates, "import_module", fail)
    has_lightgbm.cache_clear()
    try:
        assert isinstance(_boosting(500, 2, 0), HistGradientBoostingClassifier)
    finally:
        has_lightgbm.cache_clear()
