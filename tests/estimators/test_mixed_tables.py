"""PeerClassifier on tables with categories, free text and missing values."""

import numpy as np
import pandas as pd
import pytest

from peerloss import PeerClassifier, load_model, save_model
from peerloss.estimators.portfolio import _candidates
from peerloss.exceptions import InvalidInputError

ROWS = 600


def mixed(seed=0):
    """Return a table, clean labels, and noisy labels; 300 cities, words and a gap each carry information."""
    rng = np.random.default_rng(seed)
    effect = 0.5 * np.random.default_rng(5).normal(size=300)
    number, city, likes = rng.normal(size=ROWS), rng.integers(300, size=ROWS), rng.random(ROWS) < 0.5
    words = {True: ["fine", "great", "lovely"], False: ["bad", "poor", "awful"]}
    review = [f"the order was {rng.choice(words[bool(k)])} number {rng.integers(10**6)}" for k in likes]
    missing = rng.random(ROWS) < 0.2
    y = (number + effect[city] + 2.0 * likes - 1.0 + 2.0 * missing > 0).astype(int)
    table = pd.DataFrame(
        {
            "number": np.where(missing, np.nan, number),
            "city": [f"city {c}" for c in city],
            "review": review,
            "size": pd.Categorical(rng.choice(["small", "large"], ROWS)),
        }
    )
    return table, y, np.where(rng.random(ROWS) < 0.15, 1 - y, y)


@pytest.mark.parametrize("lightgbm", [True, False], ids=["lightgbm", "scikit-learn"])
def test_mixed_columns_are_used_without_preparation(monkeypatch, tmp_path, lightgbm):
    """All kinds of columns are fitted, predicted with unseen values and gaps, saved and loaded."""
    if lightgbm:
        pytest.importorskip("lightgbm")
    monkeypatch.setattr(_candidates, "has_lightgbm", lambda: lightgbm)
    X, _, noisy = mixed()
    model = PeerClassifier(random_state=0).fit(X, noisy)
    X_new, y_new, _ = mixed(seed=1)
    assert model.score(X_new, y_new) > 0.8
    assert model.n_features_in_ == 4
    assert list(model.feature_names_in_) == list(X)
    strange = X_new.assign(city="never seen", review=None, number=np.nan, size=None)
    assert np.isfinite(model.predict_proba(strange)).all()
    loaded = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X_new), model.predict_proba(X_new))


def test_trees_split_categories_and_see_gaps(monkeypatch):
    """Boosting finds a rule about names and gaps that has no order and no numbers."""
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(_candidates, "has_lightgbm", lambda: True)
    rng = np.random.default_rng(0)
    names = rng.choice([f"n{i}" for i in range(60)], 900)
    X = pd.DataFrame({"name": names, "value": np.where(rng.random(900) < 0.5, np.nan, 1.0)})
    odd = np.array([int(name[1:]) % 2 for name in names])
    y = np.where(X["value"].isna(), odd, 1 - odd)
    model = PeerClassifier(random_state=0).fit(X[:700], y[:700])
    assert model.score(X[700:], y[700:]) > 0.9


def test_the_order_of_columns_does_not_matter():
    """Columns are found by name; a missing one, and an array, are errors that name the problem."""
    X, _, noisy = mixed()
    model = PeerClassifier(cv=2, random_state=0).fit(X[:200], noisy[:200])
    expected = model.predict_proba(X[:50])
    np.testing.assert_array_equal(model.predict_proba(X[:50].iloc[:, ::-1]), expected)
    with pytest.raises(InvalidInputError, match="has no column 'city'"):
        model.predict(X.drop(columns="city"))
    with pytest.raises(InvalidInputError, match="must be a pandas DataFrame; got ndarray"):
        model.predict(X.to_numpy())


def test_tables_of_numbers_are_not_encoded():
    """A DataFrame of numbers without gaps gives the same model as its array."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc"))
    y = (X["a"] > 0).to_numpy()
    model = PeerClassifier(cv=2, random_state=0).fit(X, y)
    assert model.table_ is None
    other = PeerClassifier(cv=2, random_state=0).fit(X.to_numpy(), y)
    np.testing.assert_array_equal(model.predict_proba(X), other.predict_proba(X.to_numpy()))
