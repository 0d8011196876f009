"""The peer objective: its gradient, the bound of its Hessian, and both interfaces."""

import pickle

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax

from peerloss.boosting import (
    PeerObjective,
    lightgbm_peer_objective,
    peer_gradient,
    xgboost_peer_objective,
)
from peerloss.exceptions import InvalidInputError
from peerloss.functional import loss_matrix

ALPHAS = [-2.0, 0.0, 0.3, 0.5, 1.0, 2.5]


def problem(n_classes, n=60, seed=0):
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=n) * 2 if n_classes == 2 else rng.normal(size=(n, n_classes)) * 2
    y = np.r_[np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)]
    return raw, y, rng.uniform(0.2, 3, n)


def expected_peer_loss(raw, y, alpha, prior, base, weight):
    """Return Σ_n L[n, y] − α Σ_k π̃_k L[n, k], from the loss matrices of peerloss.functional."""
    losses = loss_matrix(raw, base)
    own = losses.gather(1, torch.as_tensor(y)[:, None])[:, 0]
    return (torch.as_tensor(weight) * (own - alpha * losses @ torch.as_tensor(prior))).sum()


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("base", ["logistic", "sigmoid"])
def test_gradient_is_that_of_the_expected_peer_loss(alpha, n_classes, base):
    """The closed form equals the derivative of the loss matrices by torch, with weights."""
    raw, y, weight = problem(n_classes)
    prior = np.bincount(y, weight) / weight.sum()
    z = torch.tensor(raw, requires_grad=True)
    expected_peer_loss(z, y, alpha, prior, base, weight).backward()
    gradient, _ = peer_gradient(raw, y, alpha=alpha, sample_weight=weight, base=base)
    np.testing.assert_allclose(gradient, z.grad.numpy(), atol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("base", ["logistic", "sigmoid"])
@pytest.mark.parametrize("alpha", [a for a in ALPHAS if a >= 0])
def test_hessian_bounds_the_exact_one(alpha, n_classes, base):
    """The second array is positive and never below the exact second derivative."""
    raw, y, weight = problem(n_classes)
    step = 1e-4
    _, hessian = peer_gradient(raw, y, alpha=alpha, sample_weight=weight, base=base)
    columns = [None] if raw.ndim == 1 else range(n_classes)
    for column in columns:
        bump = np.zeros_like(raw)
        where = ... if column is None else (slice(None), column)
        bump[where] = step
        up, _ = peer_gradient(raw + bump, y, alpha=alpha, sample_weight=weight, base=base)
        down, _ = peer_gradient(raw - bump, y, alpha=alpha, sample_weight=weight, base=base)
        exact = (up - down)[where] / (2 * step)
        assert (hessian[where] >= exact - 1e-6).all()
        assert (hessian[where] > 0).all()


@pytest.mark.parametrize("raw", [np.array([-1.0, 0.0, 3.0]), np.random.default_rng(0).normal(size=(3, 3))])
def test_without_a_peer_term_it_is_plain_boosting(raw):
    """At α = 0 gradient and Hessian are those of LightGBM: p − y and p(1 − p), times K/(K − 1) for K > 2."""
    y = np.array([0, 1, 1])
    gradient, hessian = peer_gradient(raw, y, alpha=0.0)
    p = expit(raw) if raw.ndim == 1 else softmax(raw, axis=1)
    one_hot = y if raw.ndim == 1 else np.eye(3)[y]
    np.testing.assert_allclose(gradient, p - one_hot)
    np.testing.assert_allclose(hessian, p * (1 - p) * (1 if raw.ndim == 1 else 1.5))


@pytest.mark.parametrize("base", ["logistic", "sigmoid"])
def test_two_columns_equal_one(base):
    """Scores (0, z) in two columns have the gradient of z in their second column."""
    raw, y, _ = problem(2)
    one, _ = peer_gradient(raw, y, alpha=0.7, base=base)
    two, _ = peer_gradient(np.column_stack([np.zeros_like(raw), raw]), y, alpha=0.7, base=base)
    np.testing.assert_allclose(two[:, 1], one, atol=1e-12)
    np.testing.assert_allclose(two.sum(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("base", ["logistic", "sigmoid"])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_newton_steps_lower_the_loss(alpha, n_classes, base):
    """For α ≥ ½ a full step −g/h on shared leaves lowers the loss in each of fifty rounds."""
    raw, y, weight = problem(n_classes, n=200)
    prior = np.bincount(y, weight) / weight.sum()
    leaf = np.random.default_rng(1).integers(0, 8, 200)
    raw = np.zeros_like(raw)
    losses = []
    for _ in range(50):
        losses.append(float(expected_peer_loss(torch.tensor(raw), y, alpha, prior, base, weight)))
        gradient, hessian = peer_gradient(raw, y, alpha=alpha, sample_weight=weight, base=base)
        for k in range(8):
            raw[leaf == k] -= gradient[leaf == k].sum(axis=0) / hessian[leaf == k].sum(axis=0)
    assert (np.diff(losses) <= 1e-9).all()
    assert losses[-1] < losses[0]


def test_the_prior_may_be_given():
    """A given π̃ replaces the label frequencies; one number is P(ỹ = 1)."""
    raw, y = np.zeros(4), np.array([0, 0, 0, 1])
    gradient, _ = peer_gradient(raw, y, alpha=1.0, noisy_prior=0.4)
    np.testing.assert_allclose(gradient, [0.4, 0.4, 0.4, -0.6])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": np.nan}, "`alpha`"),
        ({"base": "hinge"}, "`base` must be one of 'logistic', 'sigmoid'"),
        ({"noisy_prior": [0.2, 0.3, 0.5]}, "`noisy_prior` must have 2 entries"),
        ({"sample_weight": [1.0]}, "`sample_weight` must have one entry per row, 3"),
        ({"y": [0, 1]}, "must have the same length"),
        ({"y": [0, 1, 2]}, "labels in 0..1"),
        ({"raw_score": [0.0, np.inf, 0.0]}, "`raw_score` must be finite"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(arguments, message):
    """Errors name the wrong argument."""
    given = {"raw_score": [0.0, 0.0, 0.0], "y": [0, 1, 1]} | arguments
    with pytest.raises(InvalidInputError, match=message):
        peer_gradient(given.pop("raw_score"), given.pop("y"), **given)


def test_objectives_check_their_settings_when_created():
    """An invalid α, prior or base is an error before training."""
    with pytest.raises(InvalidInputError, match="`alpha`"):
        lightgbm_peer_objective(np.inf)
    with pytest.raises(InvalidInputError, match="`noisy_prior`"):
        xgboost_peer_objective(1.0, noisy_prior=[0.5, 0.6])
    with pytest.raises(InvalidInputError, match="`base`"):
        lightgbm_peer_objective(1.0, base="ramp")


def test_objectives_pickle():
    """A pickled objective equals the original."""
    objective = lightgbm_peer_objective(0.5, noisy_prior=0.3, base="sigmoid")
    assert pickle.loads(pickle.dumps(objective)) == objective  # noqa: S301  # made in this test
    assert objective == PeerObjective(0.5, (0.7, 0.3), "sigmoid")


def clouds(n_classes, n=300):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    return rng.normal(size=(n_classes, 4))[y] * 2 + rng.normal(size=(n, 4)), y


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_lightgbm_accepts_the_objective_in_both_interfaces(n_classes, weighted):
    """LGBMClassifier and lightgbm.train grow the same trees from it, with and without weights."""
    lightgbm = pytest.importorskip("lightgbm")
    X, y = clouds(n_classes)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else None
    objective = lightgbm_peer_objective(0.8)
    shared = {"num_leaves": 7, "learning_rate": 0.1, "num_threads": 1, "verbosity": -1}
    model = lightgbm.LGBMClassifier(objective=objective, n_estimators=5, **shared)
    model.fit(X, y, sample_weight=weight)
    native = shared | {"objective": objective} | ({"num_class": n_classes} if n_classes > 2 else {})
    booster = lightgbm.train(native, lightgbm.Dataset(X, y, weight=weight), 5)
    raw = booster.predict(X)
    np.testing.assert_allclose(model.predict(X, raw_score=True), raw)
    predicted = raw > 0 if n_classes == 2 else raw.argmax(axis=1)
    assert (predicted == y).mean() > 0.85


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_xgboost_accepts_the_objective_in_both_interfaces(n_classes, weighted):
    """XGBClassifier and xgboost.train grow the same trees from it, with and without weights."""
    xgboost = pytest.importorskip("xgboost")
    X, y = clouds(n_classes)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else None
    objective = xgboost_peer_objective(0.8)
    shared = {"max_depth": 3, "learning_rate": 0.1, "nthread": 1}
    model = xgboost.XGBClassifier(objective=objective, n_estimators=5, base_score=0.5, **shared)
    model.fit(X, y, sample_weight=weight)
    native = shared | {"base_score": 0.0} | ({"num_class": n_classes} if n_classes > 2 else {})
    booster = xgboost.train(native, xgboost.DMatrix(X, y, weight=weight), 5, obj=objective)
    raw = booster.predict(xgboost.DMatrix(X), output_margin=True)
    wrapped = model.predict(X, output_margin=True)
    if n_classes > 2:  # base_score is then added to every column, which does not change probabilities
        wrapped = wrapped - 0.5
    np.testing.assert_allclose(wrapped, raw, rtol=1e-4, atol=1e-6)
    predicted = raw > 0 if n_classes == 2 else raw.argmax(axis=1)
    assert (predicted == y).mean() > 0.85
