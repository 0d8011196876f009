"""Fits that give every row a probability from models that have not seen its label."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import log_loss

from peerloss._classifier import FitInput
from peerloss.estimators.portfolio import _held_out_fits
from peerloss.estimators.portfolio._held_out_fits import fit_fold, fit_out_of_bag, sample_rows
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
    model, proba = fit_out_of_bag(forest, data)
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
    model, proba = fit_out_of_bag(RandomForestClassifier(1, random_state=0), data)
    inside = np.unique(model.estimators_samples_[0])
    np.testing.assert_allclose(proba[inside], np.tile(np.bincount(data.codes) / 60, (len(inside), 1)))


def test_rows_of_weight_zero_are_excluded():
    """The trees are those of a fit without these rows, which get the weighted frequencies."""
    weight = np.where(np.arange(80) < 60, 1.0 + np.arange(80) % 3, 0.0)
    data = table(80, weight)
    part = FitInput(data.X[:60], data.codes[:60], weight[:60], data.classes)
    model, proba = fit_out_of_bag(FORESTS[0], data)
    expected_model, expected = fit_out_of_bag(FORESTS[0], part)
    np.testing.assert_array_equal(proba[:60], expected)
    np.testing.assert_array_equal(model.predict_proba(data.X), expected_model.predict_proba(data.X))
    frequencies = np.bincount(data.codes, weights=weight) / weight.sum()
    np.testing.assert_allclose(proba[60:], np.tile(frequencies, (20, 1)))


def test_a_forest_does_not_keep_its_out_of_bag_arrays():
    """They are as large as the table and would be saved with the model."""
    model, _ = fit_out_of_bag(FORESTS[0], table(60))
    assert not [name for name in vars(model) if name.startswith("oob_") and name != "oob_score"]


def test_boosting_stops_when_the_held_out_loss_increases():
    """The number of rounds has the smallest loss of those tried, and the model has exactly these rounds."""
    data = table(300)
    train, test = np.arange(200), np.arange(200, 300)
    boosting = HistGradientBoostingClassifier(early_stopping=False, warm_start=True, random_state=0)
    model, proba = fit_fold(boosting, data, train, test)
    losses = {}
    for rounds in _held_out_fits.ROUNDS:
        other = HistGradientBoostingClassifier(max_iter=rounds, early_stopping=False, random_state=0)
        other.fit(data.X[train], data.codes[train])
        losses[rounds] = log_loss(data.codes[test], other.predict_proba(data.X[test]))
        if losses[rounds] > min(losses.values()):
            break
    assert model.n_iter_ == model.max_iter == min(losses, key=losses.__getitem__)
    np.testing.assert_allclose(proba, model.predict_proba(data.X[test]))
    assert log_loss(data.codes[test], proba) == pytest.approx(min(losses.values()))


def test_a_sample_has_every_class():
    """A class of one row is in every sample; small parts are used completely."""
    codes = np.zeros(1000, dtype=np.int64)
    codes[500] = 1
    train = np.arange(200, 900)
    for seed in range(20):
        sample = sample_rows(train, codes, 50, seed=seed)
        assert 500 in sample
        assert set(sample) <= set(train)
        assert len(set(sample)) == 50
    np.testing.assert_array_equal(sample_rows(train, codes, 700, seed=0), train)
