"""Principal components of wide features."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from peerloss.exceptions import InvalidInputError
from peerloss.features import _principal_components, principal_components

X = np.random.default_rng(0).normal(size=(200, 30)) * np.arange(1, 31)


@pytest.mark.parametrize("standardise", [True, False])
def test_components_are_those_of_scikit_learn(standardise):
    """Of standardised features, or of features as they are; in parts or at once."""
    features = StandardScaler().fit_transform(X) if standardise else X
    expected = PCA(5, random_state=0).fit_transform(features)
    found = principal_components(X, 5, standardise=standardise)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-8)


def test_narrow_features_are_copied():
    """The caller's array is not changed, and constant columns do no harm."""
    found = principal_components(X)
    np.testing.assert_array_equal(found, X)
    assert not np.shares_memory(found, X)
    wide = np.hstack([X, np.full((200, 1), 7.0)])
    assert np.isfinite(principal_components(wide, 5)).all()


def test_many_rows_are_fitted_to_a_sample(monkeypatch):
    """Components of half of the rows explain nearly as much."""
    monkeypatch.setattr(_principal_components, "MAX_FIT_ROWS", 100)
    monkeypatch.setattr(_principal_components, "CHUNK", 64)
    found = principal_components(X, 5, standardise=False)
    best = PCA(5).fit_transform(X)
    assert found.shape == best.shape
    assert found.var(axis=0).sum() > 0.9 * best.var(axis=0).sum()


def test_other_shapes_are_refused():
    """One dimension is not a table of features."""
    with pytest.raises(InvalidInputError, match=r"2 dimensions; got shape \(3,\)"):
        principal_components(np.zeros(3))
    with pytest.raises(InvalidInputError, match="`n_components`"):
        principal_components(X, 0)
