"""The searches of RobustMLPClassifier on held-out noisy labels."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from peerloss import NoiseModel, flip_labels
from peerloss.estimators import PeerPlugInClassifier
from peerloss.estimators._mlp_settings import ALPHA_GRID, assign_folds, hold_out, search_alpha
from peerloss.exceptions import DivergenceError
from peerloss.posterior.decision import NEAR_BALANCE
from peerloss.theory import optimal_alpha
from tests.estimators.mlp_task import data, fast


def test_alpha_is_searched_on_noisy_labels():
    """alpha="auto" tries the grid, which includes 0, and reports the score of each candidate."""
    X, _, noisy = data(300, noise=NoiseModel.binary(0.1, 0.3))
    model = fast(alpha="auto", max_steps=60).fit(X, noisy)
    assert 0.0 in ALPHA_GRID
    assert tuple(model.report_["alpha_scores"]) == ALPHA_GRID
    best = max(model.report_["alpha_scores"].values())
    assert model.report_["alpha_scores"][model.alpha_] == best
    assert model.report_["alpha"] == model.alpha_


def test_candidates_are_compared_at_one_scoring_alpha():
    """The best peer score at the scoring α wins; ties go to the nearest α, and NaN is never chosen."""
    y = np.array([0, 0, 0, 1] * 5)
    folds = [(np.arange(10, 20), np.arange(10)), (np.arange(10), np.arange(10, 20))]
    diverged = np.full((20, 2), np.nan)
    alpha, scores = search_alpha(
        np.stack([np.eye(2)[0 * y], np.eye(2)[y], np.eye(2)[y], diverged]),
        1.0,
        y=y,
        weight=None,
        folds=folds,
        grid=(0.0, 1.0, 2.0, 3.0),
    )
    assert alpha == 1.0
    assert scores[3] == -np.inf
    tied, _ = search_alpha(np.eye(2)[np.stack([y, y])], 1.9, y=y, weight=None, folds=folds, grid=(1.0, 2.0))
    assert tied == 2.0
    with pytest.raises(DivergenceError, match="every candidate"):
        search_alpha(diverged[None], 1.0, y=y, weight=None, folds=folds, grid=(3.0,))


def test_the_scoring_alpha_is_estimated():
    """By default the scoring α is α* at the rates estimated from out-of-fold probabilities of plain nets."""
    X, y, noisy = data(1500, noise=NoiseModel.binary(0.05, 0.4))
    keep = (y == 1) | (np.arange(len(y)) % 3 == 0)  # classes of unequal size, so that α* is not 1
    model = fast(alpha="auto", max_steps=150).fit(X[keep], noisy[keep])
    right = optimal_alpha(NoiseModel.binary(0.05, 0.4), y[keep].mean())
    assert abs(model.report_["scoring_alpha"] - right) < abs(1.0 - right)


def test_balanced_noisy_labels_are_weighted():
    """With δ_p̃ = 0 and unequal rates no α* exists; with weighted labels it exists and improves accuracy.

    The plug-in then reaches the Bayes threshold; the networks choose α from a grid and gain less.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = (X[:, 0] + 0.7 * rng.normal(size=3000) > -0.61).astype(int)  # two thirds are 1
    noisy = flip_labels(y, NoiseModel.binary(0.05, 0.3), exact=True, random_state=1)
    noisy_delta = 2 * noisy.mean() - 1
    assert abs(noisy_delta) < NEAR_BALANCE
    model = fast(alpha="auto").fit(X, noisy)
    plain = fast(alpha=0).fit(X, noisy)
    assert model.report_["scoring_alpha"] > 1
    assert model.score(X, y) > plain.score(X, y) + 0.01
    plug_in = PeerPlugInClassifier(LogisticRegression(), alpha="auto").fit(X, noisy)
    fixed = PeerPlugInClassifier(LogisticRegression(), alpha=1.0).fit(X, noisy)
    assert plug_in.score(X, y) > fixed.score(X, y) + 0.04


def test_folds_and_held_out_rows_keep_the_classes():
    """Folds spread every class evenly; the held-out part has the classes in proportion."""
    y = np.repeat([0, 1, 2], [50, 30, 20])
    folds = assign_folds(y, 5, 3)
    for k, per_fold in enumerate((10, 6, 4)):
        assert np.bincount(folds[y == k]).tolist() == [per_fold] * 5
    train, held_out = hold_out(y, 0.2, 3)
    assert np.bincount(y[held_out]).tolist() == [10, 6, 4]
    assert sorted([*train, *held_out]) == list(range(100))
