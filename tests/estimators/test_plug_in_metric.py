"""PeerPlugInClassifier: ``alpha="auto"`` and ``metric``."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from peerloss.estimators import PeerPlugInClassifier
from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel, flip_labels
from peerloss.theory import noisy_joint, optimal_alpha, peer_decision
from tests.estimators.blobs import blobs


def test_alpha_auto_estimates_the_optimal_one():
    """On many rows it is near the true α*, and so is its accuracy."""
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.35).astype(int)
    X = rng.normal(size=(4000, 2)) + 1.3 * (2 * y - 1)[:, None]
    noise = NoiseModel.binary(0.1, 0.35)
    noisy = flip_labels(y, noise, random_state=99)
    auto = PeerPlugInClassifier(LogisticRegression(), alpha="auto").fit(X, noisy)
    star = optimal_alpha(noise, 0.35)
    assert auto.alpha_ == pytest.approx(star, abs=0.25)
    best = PeerPlugInClassifier(LogisticRegression(), alpha=star).fit(X, noisy)
    assert auto.score(X, y) > best.score(X, y) - 0.01


def test_an_unknown_rule_for_alpha_is_rejected():
    """A string other than "auto" is an error."""
    with pytest.raises(InvalidInputError, match=r"`alpha` must be a finite number; got 'best'\. Pass 'auto'"):
        PeerPlugInClassifier(LogisticRegression(), alpha="best").fit(np.eye(4), [0, 1, 0, 1])


class KnownPosterior(ClassifierMixin, BaseEstimator):
    """Returns the noisy posterior of a discrete distribution; X has the index of the point."""

    def __init__(self, posterior):
        self.posterior = posterior

    def fit(self, X, y):  # noqa: ARG002 (the signature of scikit-learn)
        """Record the classes."""
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        """Return the posterior of each point."""
        return self.posterior[np.asarray(X)[:, 0].astype(int)]


def sample_of(rng, clean, noise, n):
    """Draw points, clean labels and noisy labels from a discrete distribution."""
    cell = rng.choice(clean.size, size=n, p=clean.ravel())
    x, y = np.divmod(cell, clean.shape[1])
    return x[:, None].astype(float), y, flip_labels(y, noise, random_state=rng)


def five_class_distribution():
    """Return P(point, class): half on points of one class each, which identify T, half on twelve others."""
    prior = np.array([0.5, 0.25, 0.15, 0.06, 0.04])
    rng = np.random.default_rng(3)
    certain = np.diag(prior) * 0.5
    uncertain = rng.dirichlet(np.ones(12), size=5).T * prior * 0.5
    return np.vstack([certain, uncertain])


@pytest.mark.parametrize(
    "noise",
    [NoiseModel.uniform(5, 0.2), NoiseModel(0.8 * np.eye(5) + [0.12, 0.05, 0.01, 0.01, 0.01])],
    ids=["uniform", "rates e_j"],
)
def test_balanced_accuracy_of_five_classes_is_nearly_optimal(noise):
    """With a known noisy posterior and estimated T, it is within .01 of the optimum; α = 1 is not.

    α = 1 loses at least .02 of clean balanced accuracy here.
    """
    clean = five_class_distribution()
    noisy = noisy_joint(clean, noise)
    posterior = noisy / noisy.sum(axis=1, keepdims=True)
    X, _, labels = sample_of(np.random.default_rng(0), clean, noise, 20_000)
    model = PeerPlugInClassifier(KnownPosterior(posterior), metric="balanced_accuracy", cv=2).fit(X, labels)
    points = np.arange(len(clean))[:, None]
    share = clean / clean.sum(axis=0)
    best = share.max(axis=1).sum() / 5
    reached = share[points[:, 0], model.predict(points)].sum() / 5
    at_one = share[points[:, 0], peer_decision(posterior, 1.0, noisy.sum(axis=0))].sum() / 5
    assert reached > best - 0.01
    assert at_one < best - 0.02
    assert np.isnan(model.alpha_)
    proba = model.predict_proba(points)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(proba.argmax(axis=1), model.predict(points))


def test_balanced_accuracy_of_two_classes_is_alpha_one():
    """It needs no noise rates."""
    X, y = blobs(prior=[0.8, 0.2])
    by_metric = PeerPlugInClassifier(LogisticRegression(), metric="balanced_accuracy").fit(X, y)
    by_alpha = PeerPlugInClassifier(LogisticRegression(), alpha=1.0).fit(X, y)
    assert (by_metric.alpha_, by_metric.clean_map_) == (1.0, None)
    np.testing.assert_array_equal(by_metric.predict_proba(X), by_alpha.predict_proba(X))


def test_metric_accuracy_is_alpha_auto():
    """``metric="accuracy"`` and ``alpha="auto"`` give the same classifier."""
    X, y = blobs(prior=[0.7, 0.3])
    noisy = flip_labels(y, NoiseModel.binary(0.1, 0.3), random_state=0)
    by_metric = PeerPlugInClassifier(LogisticRegression(), metric="accuracy").fit(X, noisy)
    by_alpha = PeerPlugInClassifier(LogisticRegression(), alpha="auto").fit(X, noisy)
    assert by_metric.alpha_ == by_alpha.alpha_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "f1"}, "`metric` must be one of 'accuracy', 'balanced_accuracy'; got 'f1'"),
        (
            {"metric": "accuracy", "alpha": 0.5},
            "`metric` chooses the decision instead of a number for `alpha`",
        ),
    ],
)
def test_metric_and_alpha_exclude_each_other(parameters, message):
    """A metric with a number for alpha, and an unknown metric, are errors."""
    X, y = blobs()
    with pytest.raises(InvalidInputError, match=message):
        PeerPlugInClassifier(LogisticRegression(), **parameters).fit(X, y)
