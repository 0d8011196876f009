"""The candidate that learns from rows without a label."""

import numpy as np
import pytest
from sklearn.datasets import make_moons

from peerloss import NoiseModel, flip_labels, load_model, save_model
from peerloss._classifier import FitInput
from peerloss.estimators import PeerClassifier
from peerloss.estimators.folds import held_out_folds
from peerloss.estimators.portfolio import _fit_portfolio, _spread_labels
from peerloss.estimators.portfolio._fit_portfolio import _last_clearly_helps
from peerloss.estimators.portfolio._held_out_fits import join_folds
from peerloss.estimators.portfolio._spread_labels import SPREAD_LABELS, fit_spread_labels


def moons(n_labelled, n_rows, seed=0):
    """Return standardised features, clean labels, and labels with noise for the first rows."""
    X, clean = make_moons(n_rows, noise=0.1, random_state=seed)
    noisy = flip_labels(clean[:n_labelled], NoiseModel.binary(0.1, 0.2), random_state=seed)
    return (X - X.mean(axis=0)) / X.std(axis=0), clean, noisy


def as_input(X, codes):
    return FitInput(X, codes, np.ones(len(codes)), np.unique(codes))


def clusters(n_labelled, n_rows, seed):
    """Return nine clusters, three for each class, and labels with uniform noise for the first rows."""
    rng = np.random.default_rng(seed)
    place = rng.integers(9, size=n_rows)
    X = 2.5 * rng.normal(size=(9, 4))[place] + rng.normal(size=(n_rows, 4))
    clean = place % 3
    noisy = flip_labels(clean[:n_labelled], NoiseModel.uniform(3, 0.2), random_state=seed)
    return (X - X.mean(axis=0)) / X.std(axis=0), clean, noisy


def test_it_helps_if_classes_are_clusters(small_portfolio, monkeypatch, tmp_path):  # noqa: ARG001 (a fixture)
    """With 200 labels of 1,000 rows the candidate has a weight, and accuracy rises; it can be saved."""
    monkeypatch.setattr(_fit_portfolio, "MIN_GAIN", 1.0)  # the gain is near the usual limit
    X, clean, noisy = clusters(200, 2000, seed=7)
    model = PeerClassifier(random_state=0).fit(X[:1000], np.r_[noisy, np.full(800, np.nan)])
    without = PeerClassifier(random_state=0).fit(X[:200], noisy)
    assert model.report_.candidates["weight"][SPREAD_LABELS] > 0.1
    assert SPREAD_LABELS not in without.report_.candidates.index
    assert model.score(X[1000:], clean[1000:]) > without.score(X[1000:], clean[1000:])
    save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_it_has_no_weight_if_the_features_say_nothing(small_portfolio):  # noqa: ARG001 (a fixture)
    """Labels that are independent of the features are not spread; the report lists the candidate."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), np.r_[rng.integers(2, size=100), np.full(200, np.nan)]
    model = PeerClassifier(random_state=0).fit(X, y)
    assert model.report_.candidates["weight"][SPREAD_LABELS] == 0.0
    assert model.report_.candidates["weight"].sum() == pytest.approx(1.0)


def test_a_candidate_must_improve_the_average_clearly():
    """One that knows the labels is kept; a repetition of another candidate is not."""
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=200)
    data = as_input(np.zeros((200, 1)), codes)
    guess = np.full((200, 2), 0.5)
    better = 0.4 * guess + 0.6 * np.eye(2)[codes]
    assert _last_clearly_helps([guess, guess, better], data)
    assert not _last_clearly_helps([guess, better, better], data)


def test_labels_of_held_out_rows_are_not_spread():
    """Changing the labels of the held-out rows of a fold does not change the probabilities of that fold."""
    X, _, noisy = moons(80, 300)
    data = as_input(X[:80], noisy)
    folds = held_out_folds(4, data, seed=0)
    first = fit_spread_labels(data, X[80:], folds, seed=0)
    test = folds[0][1]
    changed = noisy.copy()
    changed[test] = 1 - changed[test]
    second = fit_spread_labels(as_input(X[:80], changed), X[80:], folds, seed=0)
    np.testing.assert_array_equal(first[0][1], second[0][1])
    assert not np.array_equal(first[1][1], second[1][1])


def test_equal_rows_are_one_node():
    """Twenty copies of each row are not only each other's neighbours: labels still reach the other rows."""
    X, clean, _ = moons(40, 240)
    data = as_input(np.repeat(X[:40], 20, axis=0), np.repeat(clean[:40], 20))
    groups = np.repeat(np.arange(40), 20)
    folds = held_out_folds(4, data, seed=0, groups=groups)
    found = fit_spread_labels(data, X[40:], folds, seed=0)
    proba = join_folds(folds, [part for _, part in found], data)
    assert (proba.argmax(axis=1) == data.codes).mean() > 0.85


def test_the_graph_is_limited(monkeypatch):
    """Unlabelled rows are sampled to the limit; with as many labelled rows there is no candidate."""
    X, _, noisy = moons(80, 300)
    data = as_input(X[:80], noisy)
    folds = held_out_folds(4, data, seed=0)
    sizes = []
    graph = _spread_labels.kneighbors_graph
    monkeypatch.setattr(_spread_labels, "kneighbors_graph", lambda X, k: sizes.append(len(X)) or graph(X, k))
    monkeypatch.setattr(_spread_labels, "MAX_GRAPH_ROWS", 200)
    assert len(fit_spread_labels(data, X[80:], folds, seed=0)) == 4
    assert sizes == [200]
    monkeypatch.setattr(_spread_labels, "MAX_GRAPH_ROWS", 80)
    assert fit_spread_labels(data, X[80:], folds, seed=0) == []
