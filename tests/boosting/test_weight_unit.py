"""Weights of rows do not depend on their unit in boosting."""

import numpy as np
import pytest

from peerloss.boosting import PeerBoostingClassifier

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")


@pytest.mark.parametrize("backend", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("alpha", ["auto", 1.0])
def test_the_unit_of_weights_does_not_change_the_trees(backend, alpha):
    """Equal weights in any unit give the fit without weights, though libraries limit sums of weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0).astype(int)

    def fit(weight):
        model = PeerBoostingClassifier(
            backend=backend, alpha=alpha, n_estimators=20, num_leaves=7, random_state=0
        )
        return model.fit(X, y, sample_weight=weight).predict_proba(X)

    expected = fit(None)
    for unit in (1e-300, 1e-50, 1e-5, 1 / 300, 1e30):
        np.testing.assert_allclose(fit(np.full(300, unit)), expected, atol=1e-6)


@pytest.mark.parametrize("backend", ["lightgbm", "xgboost"])
def test_negligible_weights_give_the_fit_of_weight_zero(backend):
    """Half of the weights at 1e-300 give the fit with weight zero, without an error."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] > 0).astype(int)
    found, expected = (
        PeerBoostingClassifier(backend=backend, n_estimators=20, num_leaves=7, random_state=0)
        .fit(X, y, sample_weight=np.where(np.arange(200) % 2, 1.0, low))
        .predict_proba(X)
        for low in (1e-300, 0.0)
    )
    np.testing.assert_array_equal(found, expected)
