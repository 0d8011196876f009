"""The peer score."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from peerloss import NoiseModel, make_peer_scorer, peer_score, peer_scorer, theory
from peerloss.exceptions import InvalidInputError


@given(
    st.integers(2, 4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
    st.floats(-2, 2),
)
def test_it_is_one_minus_the_peer_zero_one_risk(k, pairs, alpha):
    """Score = (1 − α) − risk, with the risk of the theory on the empirical distribution."""
    labels, predictions = (np.array(c) % k for c in zip(*pairs, strict=True))
    joint = np.zeros((k, k))
    np.add.at(joint, (predictions, labels), 1 / len(labels))  # the prediction is the feature
    risk = theory.peer_risk(1.0 - np.eye(k), joint, alpha=alpha)
    assert peer_score(labels, predictions, alpha=alpha) == pytest.approx(1 - alpha - risk, abs=1e-12)


@given(st.floats(0, 0.45), st.floats(0, 0.45), st.floats(0.1, 0.9), st.integers(0, 15))
def test_at_one_noise_only_scales_it(e_neg, e_pos, positive, rule):
    """Over an enumerated distribution the noisy score is (1 − Σe) times the clean one (Lemma 2)."""
    noise = NoiseModel.binary(e_neg, e_pos)
    points = np.array([0.1, 0.2, 0.3, 0.4])
    posterior = np.clip(positive + np.array([-0.3, -0.1, 0.2, 0.3]), 0, 1)
    clean = np.column_stack([points * (1 - posterior), points * posterior])
    prediction = np.array([rule >> i & 1 for i in range(4)])

    def score(joint):
        x, y = np.meshgrid(range(4), range(2), indexing="ij")
        return peer_score(y.ravel(), prediction[x.ravel()], sample_weight=joint.ravel())

    factor = 1 - e_neg - e_pos
    assert score(clean @ noise.transition) == pytest.approx(factor * score(clean), abs=1e-12)


def test_constant_predictions_score_zero_at_one():
    """Saying the majority is worth nothing, unlike under accuracy."""
    assert peer_score(["a", "a", "a", "b"], ["a", "a", "a", "a"]) == 0.0


def test_scorers_serve_grid_search():
    """Candidates are compared on noisy labels under one α."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.where(X[:, 0] > 0, "yes", "no")
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, scoring=peer_scorer, cv=3).fit(X, y)
    assert search.best_score_ > 0.4
    dummy = DummyClassifier(strategy="most_frequent").fit(X, y)
    share = (y == "no").mean()
    majority = max(share, 1 - share)
    assert make_peer_scorer(0.0)(dummy, X, y) == pytest.approx(majority)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: peer_score([], []), "`y_noisy` and `y_pred` must be one-dimensional, equally long"),
        (lambda: peer_score([0, 1], [0]), "equally long"),
        (lambda: peer_score([[0]], [[0]]), "one-dimensional"),
        (lambda: peer_score([0, 1], [0, 1], alpha=np.nan), "`alpha` must be a finite number"),
        (lambda: peer_score([0, 1], [0, 1], sample_weight=[1.0]), "`sample_weight` must hold 2"),
        (lambda: peer_score([0, 1], [0, 1], sample_weight=[0.0, 0.0]), "not all zero"),
        (lambda: make_peer_scorer(np.inf), "`alpha` must be a finite number"),
    ],
)
def test_bad_arguments_are_named(call, message):
    """The message names the argument and what came."""
    with pytest.raises(InvalidInputError, match=message):
        call()
