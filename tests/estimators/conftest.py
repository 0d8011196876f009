"""A small portfolio for tests that do not depend on the candidates."""

import pytest
from sklearn.linear_model import LogisticRegression

from peerloss.estimators.portfolio import _fit_portfolio


@pytest.fixture
def small_portfolio(monkeypatch):
    """Replace the models of the portfolio by two fast ones."""

    def two(n_rows, n_features, n_classes, *, seed):  # noqa: ARG001 (the signature of candidate_models)
        return {"weak": LogisticRegression(C=0.01), "strong": LogisticRegression(C=1.0)}

    monkeypatch.setattr(_fit_portfolio, "candidate_models", two)
