"""Fixtures of the tests of commands."""

import json

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from peerloss.audit import _issues
from peerloss.estimators.portfolio import _fit_portfolio
from tests.cli.audits import made_up, run


class QuickPortfolio:
    """Replaces PeerClassifier, which takes seconds."""

    def __init__(self, **_settings):
        pass

    def cross_val_noisy_proba(self, X, y, **_more):
        """Cross-fit a logistic regression."""
        return cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")


@pytest.fixture
def quick_models(monkeypatch):
    """Train one logistic regression instead of the portfolio, in an audit and in a fit."""
    monkeypatch.setattr(_issues, "PeerClassifier", QuickPortfolio)
    models = {"linear": LogisticRegression()}
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: models)


@pytest.fixture
def audited(tmp_path):
    """Audit a table; return the folder, the data, the clean labels and the printed summary."""
    data, clean = made_up(tmp_path)
    result = run(
        "audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out", "--id", "id",
        "--probabilities", tmp_path / "proba.csv", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return tmp_path, data, clean, json.loads(result.stdout)
