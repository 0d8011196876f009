"""RobustMLPClassifier."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from peerloss import NoiseModel, flip_labels, peer_scorer
from peerloss.estimators import RobustMLPClassifier, _robust_mlp
from peerloss.estimators._mlp_settings import CORRECTIONS, LOSSES
from peerloss.exceptions import (
    DivergenceError,
    DivergenceWarning,
    IdentifiabilityWarning,
    InvalidInputError,
)
from tests.estimators.mlp_task import data, fast

STOCHASTIC = "batches are random: a row of weight 2 is drawn once per epoch, two equal rows twice"
EXEMPT = {f"check_sample_weight_equivalence_on_{kind}_data": STOCHASTIC for kind in ("dense", "sparse")}


def expected_failed_checks(estimator):  # noqa: ARG001 (scikit-learn passes it)
    return EXEMPT


@parametrize_with_checks(
    [
        RobustMLPClassifier(max_steps=200, hidden_layer_sizes=(16,), learning_rate=0.01, random_state=0),
        RobustMLPClassifier(
            alpha=0.0,
            base="sigmoid",
            max_steps=200,
            n_members=2,
            learning_rate=0.01,
            early_stopping=True,
            random_state=0,
        ),
    ],
    expected_failed_checks=expected_failed_checks,
)
def test_scikit_learn_contract(estimator, check):
    """All checks of scikit-learn pass, except weight equivalence."""
    check(estimator)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        *({"loss": loss} for loss in LOSSES),
        {"alpha": 0},
        {"alpha": 0, "base": "gce"},
        {"alpha": 0, "base": "sigmoid"},
    ],
    ids=str,
)
def test_every_loss_is_robust_to_noise(settings, k):
    """With noisy training labels, every loss predicts the clean labels of new rows well."""
    noise = NoiseModel.binary(0.1, 0.3) if k == 2 else NoiseModel.uniform(3, 0.3)
    X, _, noisy = data(800, k, noise=noise)
    X_new, y_new, _ = data(500, k, seed=1)
    needs_noise = settings.get("loss") in CORRECTIONS
    model = fast(**settings, noise=noise if needs_noise else None, max_steps=300).fit(X, noisy)
    assert model.score(X_new, y_new) > (0.83 if k == 2 else 0.7)
    probabilities = model.predict_proba(X_new)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.array_equal(model.predict(X_new), model.classes_[probabilities.argmax(axis=1)])


def test_backward_correction_without_noise_is_plain_training():
    """The peer loss at α = 0 and backward correction with the identity matrix give the same nets."""
    X, y, _ = data(200)
    plain = fast(alpha=0).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(plain, fast("backward", noise=np.eye(2)).fit(X, y).predict_proba(X), atol=1e-4)


def test_sampled_peers():
    """Sampled peers train a net too, different from that of expected peers."""
    X, y, _ = data()
    sampled = fast(peers="sampled").fit(X, y)
    assert sampled.score(X, y) > 0.85
    assert not np.allclose(sampled.predict_proba(X), fast().fit(X, y).predict_proba(X))


def test_noise_is_estimated_from_the_noisy_labels():
    """noise="estimate" estimates rates near the true ones and reports them."""
    noise = NoiseModel.binary(0.1, 0.3)
    X, y, noisy = data(2000, noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model = fast("backward", noise="estimate").fit(X, noisy)
    assert abs(model.noise_.e_neg - 0.1) < 0.12
    assert abs(model.noise_.e_pos - 0.3) < 0.12
    assert "NoiseModel" in model.report_["noise"]
    assert model.score(X, y) > 0.85


def test_diverging_logits_are_warned_of():
    """Unclipped cross entropy at α > 1 on one clean feature gives finite logits above 10⁴."""
    X = np.repeat([[-1.0], [1.0]], 50, axis=0)
    y = np.repeat([0, 1], 50)
    with pytest.warns(DivergenceWarning, match="training diverges") as caught:
        RobustMLPClassifier(
            alpha=3.0, eps=0.0, weight_decay=0.0, learning_rate=0.05, random_state=0, max_steps=1500
        ).fit(X, y)
    assert caught[0].filename == __file__


def test_early_stopping_keeps_the_best_step():
    """The curve of noisy peer scores is recorded, and the weights are those of its maximum."""
    X, _, noisy = data(300, noise=NoiseModel.binary(0.2, 0.2))
    model = fast(early_stopping=True, n_members=2).fit(X, noisy)
    curve = model.validation_score_curve_
    assert curve.shape == model.loss_curve_.shape == (2, len(model.nets_.steps))
    assert model.nets_.best_step.tolist() == model.nets_.steps[curve.argmax(axis=1)].tolist()
    assert fast().fit(X, noisy).validation_score_curve_ is None


def test_members_are_averaged():
    """The probabilities of an ensemble are the mean over its members."""
    X, y, _ = data()
    model = fast(n_members=3).fit(X, y)
    Z = model._standardise(X)
    members = [model.nets_.mean_probabilities(Z, nets=[i]) for i in range(3)]
    np.testing.assert_allclose(model.predict_proba(X), np.mean(members, axis=0))


def test_a_diverged_member_is_left_out_and_named(monkeypatch):
    """If one net is NaN, fit warns, the report has its index, and the others are averaged."""
    X, y, _ = data()
    break_members(monkeypatch, [1])
    with pytest.warns(DivergenceWarning, match=r"members \[1\] of 3"):
        model = fast(n_members=3).fit(X, y)
    assert model.report_["diverged"] == [1]
    assert np.isfinite(model.predict_proba(X)).all()


def test_all_members_diverged_is_an_error(monkeypatch):
    """The error has a remedy, and no fitted attribute is left."""
    X, y, _ = data()
    break_members(monkeypatch, [0, 1])
    model = fast(n_members=2)
    with pytest.raises(DivergenceError, match=r"all 2 nets.*learning_rate"):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


def break_members(monkeypatch, broken):
    """Set the weights of some nets to NaN after training."""
    train = _robust_mlp.train_nets

    def train_and_break(*args, **kwargs):
        nets = train(*args, **kwargs)
        nets.parameters[broken] = np.nan
        nets.diverged[broken] = True
        return nets

    monkeypatch.setattr(_robust_mlp, "train_nets", train_and_break)


def test_a_too_large_learning_rate_is_an_error():
    """Divergence in training is detected."""
    X, y, _ = data()
    with pytest.raises(DivergenceError):
        fast(alpha=0, base="unhinged", learning_rate=1e38).fit(X, y)


def test_the_seed_determines_the_result():
    """Equal seeds give bit-equal results, other seeds differ, and a generator is advanced by each fit."""
    X, y, _ = data(100)
    first, again, other = (fast(random_state=s).fit(X, y).predict_proba(X) for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    rng = np.random.default_rng(0)
    assert not np.allclose(*(fast(random_state=rng).fit(X, y).predict_proba(X) for _ in range(2)))


def test_weights_are_used_and_rows_of_weight_zero_are_ignored():
    """Rows of weight zero do not change the fit; rows of large weight dominate it."""
    X, y, _ = data(200)
    weight = np.ones(200)
    weight[100:] = 0
    np.testing.assert_array_equal(
        fast().fit(X, y, weight).predict_proba(X), fast().fit(X[:100], y[:100]).predict_proba(X)
    )
    flipped = np.where(np.arange(200) < 100, y, 1 - y)
    heavy = np.where(np.arange(200) < 100, 1.0, 0.01)
    assert fast().fit(X, flipped, heavy).score(X, y) > 0.8
    assert fast(alpha="auto", max_steps=100, early_stopping=True).fit(X, flipped, heavy).score(X, y) > 0.7


def test_text_labels_and_data_frames():
    """Predictions of text labels are text; other column names are an error."""
    X, y, _ = data(k=3)
    frame = pd.DataFrame(X, columns=list("abcd"), index=range(1000, 1300))
    labels = pd.Series(np.array(["low", "mid", "top"])[y], index=frame.index)
    model = fast().fit(frame, labels)
    assert model.classes_.tolist() == ["low", "mid", "top"]
    assert set(model.predict(frame)) <= {"low", "mid", "top"}
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_constant_and_very_large_features():
    """Standardisation handles a constant column and columns of very different scales."""
    X, y, _ = data()
    wide = np.column_stack([X, np.full(300, 1e9), X[:, 1] * 1e8])
    assert fast().fit(wide, y).score(wide, y) > 0.9


@pytest.mark.parametrize("value", [-np.inf, np.inf])
def test_features_must_not_be_infinite(value):
    """Infinity is rejected in fit and in predict; NaN is a missing value (``test_any_table.py``)."""
    X, y, _ = data(50)
    model = fast(max_steps=5).fit(X, y)
    X[3, 1] = value
    with pytest.raises(ValueError, match="infinity"):
        fast().fit(X, y)
    with pytest.raises(ValueError, match="infinity"):
        model.predict(X)


def test_pipelines_searches_clones_and_pickles():
    """Pipeline, GridSearchCV under the peer score, cross_val_score, clone and pickle all work."""
    X, _, noisy = data(200, noise=NoiseModel.binary(0.1, 0.2))
    pipeline = make_pipeline(StandardScaler(), fast(max_steps=30))
    grid = {"robustmlpclassifier__base": ["cross_entropy", "gce"], "robustmlpclassifier__alpha": [0.5, 1.0]}
    search = GridSearchCV(pipeline, grid, scoring=peer_scorer, cv=3).fit(X, noisy)
    assert set(search.best_params_) == set(grid)
    assert len(cross_val_score(fast(max_steps=30), X, noisy, cv=3)) == 3
    model = fast(max_steps=30).fit(X, noisy)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    assert clone(model).get_params() == model.get_params()


def test_many_rows_take_bounded_time_and_memory():
    """A fit of 100,000 rows works: batches are drawn as needed, and predictions are made in blocks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 5))
    y = (X[:, 0] > 0).astype(int)
    model = fast(max_steps=100).fit(X, y)
    assert model.score(X, y) > 0.95


def test_dmi_learns_ten_classes():
    """On digits with 30 % wrong labels it improves on the net at the end of its warm-up."""
    X, clean = load_digits(return_X_y=True)
    noisy = flip_labels(clean, NoiseModel.uniform(10, 0.3), random_state=1)
    train, test = slice(0, 1300), slice(1300, None)
    options = {"hidden_layer_sizes": (32,), "learning_rate": 0.003, "n_members": 2, "random_state": 0}
    warm = RobustMLPClassifier(alpha=0, max_steps=15, **options).fit(X[train], noisy[train])
    dmi = RobustMLPClassifier("dmi", max_steps=400, warm_up_fraction=15 / 400, **options)
    dmi.fit(X[train], noisy[train])
    assert dmi.score(X[test], clean[test]) > max(0.75, 0.04 + warm.score(X[test], clean[test]))


@pytest.mark.parametrize("missing", [-1, np.nan])
@pytest.mark.parametrize(
    "options", [{}, {"early_stopping": True}, {"alpha": "auto", "cv": 2, "max_steps": 30}]
)
def test_rows_without_a_label_are_left_out(missing, options):
    """The model is that of the labelled rows, also if α is searched or rows are held out."""
    X, _, noisy = data(k=3, noise=NoiseModel.uniform(3, 0.2))
    known = np.arange(len(X)) % 3 > 0
    labels = np.where(known, noisy, missing)
    model = fast(**options).fit(X, labels)
    expected = fast(**options).fit(X[known], noisy[known])
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_soft_labels_are_refused():
    """The message names what accepts them."""
    X, y, _ = data(k=3)
    with pytest.raises(InvalidInputError, match=r"soft labels of shape \(300, 3\).*train_nets"):
        fast().fit(X, 0.9 * np.eye(3)[y] + 0.1 / 3)
