"""Weights of rows: their unit does not matter, and negligible weights are zero."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from peerloss._classifier import NoisyLabelClassifier
from peerloss.estimators import (
    CostSensitiveSVC,
    MarginPerceptron,
    PeerClassifier,
    PeerPlugInClassifier,
    RobustMLPClassifier,
)
from tests.estimators.blobs import blobs


class Checked(NoisyLabelClassifier):
    """Keeps the checked input."""

    def fit(self, X, y, sample_weight=None):
        """Check the input."""
        self.data_ = self._check_fit(X, y, sample_weight)
        return self

    def predict_proba(self, X):
        """Return equal probabilities."""
        return np.full((len(X), 2), 0.5)


class Counting(Checked):
    """A classifier for which a weight of 2 means two rows."""

    _usual_weights = (1e-6, 1e6)


def checked(weight, kind=Checked):
    """Return the checked input for weights of rows of two classes."""
    y = np.arange(len(weight)) % 2
    return kind().fit(np.arange(len(weight))[:, None], y, sample_weight=weight).data_


@pytest.mark.parametrize("unit", [1e-300, 1e-50, 1 / 300, 1.0, 7.0, 1e30])
def test_the_mean_of_the_positive_weights_is_one(unit):
    """Weights are divided by the mean of the positive ones, so that their unit does not matter."""
    weight = np.array([1.0, 0.0, 2.0, 3.0])
    np.testing.assert_allclose(checked(unit * weight).weight, weight / 2.0, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-300, 1e-50, 1 / 300, 1.0, 7.0, 1e30])
def test_counts_of_rows_stay_as_they_are(unit):
    """Where a weight means a number of rows, only a mean that cannot be such a number is set to 1."""
    weight = unit * np.array([1.0, 0.0, 2.0, 3.0])
    expected = weight if 1e-6 < unit < 1e6 else weight / (2.0 * unit)
    np.testing.assert_allclose(checked(weight, Counting).weight, expected, rtol=1e-12)


@pytest.mark.parametrize("weight", [None, [1.0, 1.0, 1.0, 1.0], [0.1, 1.2, 1.7, 0.0], [0.7, 0.3, 1.1, 1.9]])
def test_weights_of_mean_one_stay_as_they_are(weight):
    """No bit of such weights changes, although their mean in floating point may differ from 1 slightly."""
    given = np.ones(4) if weight is None else np.array(weight)
    y = [0, 1, 0, 1]
    data = Checked().fit(np.arange(4.0)[:, None], y, sample_weight=weight).data_
    np.testing.assert_array_equal(data.weight, given)


def test_negligible_weights_are_zero():
    """A weight below 1e-12 of the largest is zero; a weight above that is kept."""
    data = checked(np.array([1.0, 1.0, 1e-300, 1e-13, 1e-11, 0.0]))
    assert data.is_used.tolist() == [True, True, False, False, True, False]


@pytest.mark.parametrize(
    "make",
    [
        lambda: PeerClassifier(random_state=0),
        lambda: RobustMLPClassifier(max_steps=20, random_state=0),
    ],
    ids=["peer", "mlp"],
)
@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_the_unit_of_weights_does_not_change_the_fit(make, small_portfolio):  # noqa: ARG001 (a fixture)
    """Weights in any unit give the probabilities of the same weights with mean 1."""
    X, y = blobs(120)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 120)
    weight /= weight.mean()
    expected = make().fit(X, y, sample_weight=weight).predict_proba(X)
    for unit in (1e-300, 1 / 120, 1e30):
        found = make().fit(X, y, sample_weight=unit * weight).predict_proba(X)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PeerClassifier(random_state=0),
        lambda: PeerPlugInClassifier(LogisticRegression(), cv=3),
        lambda: CostSensitiveSVC(cv=2, class_weight_grid=[1.0], random_state=0),
        lambda: MarginPerceptron(cv=2, margin_grid=[1.0], random_state=0),
        lambda: RobustMLPClassifier(max_steps=20, random_state=0),
    ],
    ids=["peer", "plug-in", "svm", "perceptron", "mlp"],
)
@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_negligible_weights_give_the_fit_of_weight_zero(make, small_portfolio):  # noqa: ARG001 (a fixture)
    """Half of the weights at 1e-300 give the fit with weight zero, without an error."""
    X, y = blobs(120)
    is_used = np.arange(120) % 2 == 0
    found, expected = (
        make().fit(X, y, sample_weight=np.where(is_used, 1.0, low)).predict_proba(X) for low in (1e-300, 0.0)
    )
    np.testing.assert_array_equal(found, expected)
