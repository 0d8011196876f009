"""Kernel ridge regression of all folds and penalties from one matrix of products."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.kernel_approximation import Nystroem

from peerloss import PeerClassifier
from peerloss._classifier import FitInput
from peerloss.estimators.portfolio import _kernel_ridge
from peerloss.estimators.portfolio._kernel_ridge import (
    INTERCEPT_PENALTY,
    SLOPE,
    KernelRidgeSettings,
    fit_kernel_ridge,
)

SETTINGS = KernelRidgeSettings(gamma=0.4, penalties=(0.03, 3.0), n_components=20, seed=3)


def data(n=90, weight=None):
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=n)
    X = rng.normal(size=(n, 2)) + 2.0 * np.eye(3, 2)[codes]
    return FitInput(X, codes, np.ones(n) if weight is None else weight, np.arange(3))


def folds(n=90):
    """Three folds that hold out every row once, and one that holds out rows again and trains on few."""
    parts = [(np.delete(np.arange(n), np.arange(i, n, 3)), np.arange(i, n, 3)) for i in range(3)]
    return [*parts, (np.arange(50), np.arange(60, n))]


def reference(rows, codes, weight, new, penalty, components):
    """Return scores by least squares on the weighted rows and on one more row per coefficient."""
    z, z_new = (np.column_stack([components.transform(part), np.ones(len(part))]) for part in (rows, new))
    scale = np.sqrt(penalty * np.r_[np.ones(z.shape[1] - 1), INTERCEPT_PENALTY])
    left = np.vstack([z * np.sqrt(weight)[:, None], np.diag(scale)])
    right = np.vstack([np.eye(3)[codes] * np.sqrt(weight)[:, None], np.zeros((len(scale), 3))])
    coefficients = np.linalg.lstsq(left, right, rcond=None)[0]
    return z_new @ coefficients, coefficients


@pytest.mark.parametrize("weighted", [False, True])
def test_held_out_probabilities_are_those_of_a_fit_per_fold(weighted):
    """Each fold and penalty equals least squares on its training rows, also with weights, some of them 0."""
    weight = np.random.default_rng(1).integers(3, size=90).astype(float) if weighted else None
    given, parts = data(weight=weight), folds()
    models, proba = fit_kernel_ridge(SETTINGS, given, parts)
    used = given.weight > 0
    components = Nystroem(gamma=0.4, n_components=20, random_state=3).fit(given.X[used])
    share = given.weight / given.weight[used].mean()
    for penalty, found, model in zip(SETTINGS.penalties, proba, models, strict=True):
        mean = 0.0
        for (train, test), part in zip(parts, found, strict=True):
            scores, coefficients = reference(
                given.X[train], given.codes[train], share[train], given.X[test], penalty, components
            )
            np.testing.assert_allclose(part, softmax(SLOPE * scores, axis=1), atol=1e-7)
            mean = mean + coefficients / len(parts)
        new = np.column_stack([components.transform(given.X), np.ones(90)])
        expected = softmax(SLOPE * (new @ mean), axis=1)
        np.testing.assert_allclose(model.predict_proba(given.X), expected, atol=1e-7)


def test_blocks_of_rows_do_not_change_the_fit(monkeypatch):
    """Rows are processed in blocks, so that large tables need little memory."""
    models, proba = fit_kernel_ridge(SETTINGS, data(), folds())
    monkeypatch.setattr(_kernel_ridge, "BLOCK_ROWS", 7)
    again, in_blocks = fit_kernel_ridge(SETTINGS, data(), folds())
    for first, second in zip(proba, in_blocks, strict=True):
        for part, other in zip(first, second, strict=True):
            np.testing.assert_allclose(part, other, atol=1e-9)
    X = data().X
    np.testing.assert_allclose(models[0].predict_proba(X), again[0].predict_proba(X), atol=1e-9)


def test_weights_count_relative_to_each_other():
    """Multiplying all weights by a number changes nothing."""
    weight = np.random.default_rng(2).random(90) + 0.1
    _, first = fit_kernel_ridge(SETTINGS, data(weight=weight), folds())
    _, second = fit_kernel_ridge(SETTINGS, data(weight=1000.0 * weight), folds())
    np.testing.assert_allclose(first[1][0], second[1][0], atol=1e-9)


def test_few_rows_and_equal_rows_are_no_problem():
    """More components than rows, and rows that are all equal, give finite probabilities."""
    few = data(8)
    split = [(np.arange(4), np.arange(4, 8)), (np.arange(4, 8), np.arange(4))]
    for given in (few, few._replace(X=np.zeros((8, 2)))):
        models, proba = fit_kernel_ridge(SETTINGS, given, split)
        assert all(np.isfinite(part).all() for parts in proba for part in parts)
        assert all(np.isfinite(model.predict_proba(given.X)).all() for model in models)


def test_classes_of_many_clusters_are_learned():
    """Four classes of six round clusters each: kernels have a large weight, and the decisions are right."""
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.arange(800) % 24)
    X = rng.normal(size=(24, 8))[cluster] + 0.35 * rng.normal(size=(800, 8))
    y = cluster % 4
    model = PeerClassifier(random_state=0).fit(X[:500], y[:500])
    weight = model.report_.candidates["weight"]
    assert weight[[name for name in weight.index if "kernel" in name]].sum() > 0.3
    assert (model.predict(X[500:]) == y[500:]).mean() > 0.95
