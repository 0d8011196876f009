"""PeerBoostingClassifier(alpha="auto"): rounds, leaves and decision; what LightGBM users expect."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss

from peerloss.boosting import PeerBoostingClassifier
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score
from peerloss.noise import NoiseModel, flip_labels

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
BACKENDS = ["lightgbm", "xgboost"]


def stripes(n, n_classes=2, seed=0):
    """Return classes that depend on the first two of four features."""
    X = np.random.default_rng(seed).normal(size=(n, 4))
    score = X[:, 0] * X[:, 1]
    return X, np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)


def quick(**parameters):
    return PeerBoostingClassifier(
        **{"n_estimators": 60, "learning_rate": 0.2, "n_folds": 3, "random_state": 0} | parameters
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("n_classes", "noise"),
    [(2, NoiseModel.binary(0.05, 0.4)), (2, NoiseModel.uniform(2, 0.3)), (3, NoiseModel.pair_flip(3, 0.35))],
    ids=["one-sided", "uniform", "pair"],
)
def test_default_lightgbm_is_beaten_under_noise(backend, n_classes, noise):
    """With one-sided, uniform and pair noise, clean accuracy is clearly above that of LGBMClassifier."""
    X, y = stripes(3000, n_classes)
    noisy = flip_labels(y[:1500], noise, random_state=1)
    plain = lightgbm.LGBMClassifier(n_jobs=1, verbose=-1).fit(X[:1500], noisy)
    model = PeerBoostingClassifier(backend=backend, random_state=0).fit(X[:1500], noisy)
    assert model.score(X[1500:], y[1500:]) > plain.score(X[1500:], y[1500:]) + 0.02
    assert np.abs(model.noise_.transition - noise.transition).max() < 0.2


@pytest.mark.parametrize("backend", BACKENDS)
def test_rounds_and_leaves_minimise_the_held_out_loss(backend):
    """The last round within .002 of the smallest loss is chosen; no fixed number of leaves has less loss."""
    X, y = stripes(600)
    noisy = flip_labels(y, NoiseModel.uniform(2, 0.25), random_state=1)
    model = quick(backend=backend).fit(X, noisy)
    losses = np.array(model.validation_scores_)
    good = losses <= losses.min() + 0.002
    assert np.argmin(losses) + 1 <= model.n_iter_ < 60
    assert good[model.n_iter_ - 1]
    assert not good[model.n_iter_ :].any()
    fixed = {leaves: quick(backend=backend, num_leaves=leaves).fit(X, noisy) for leaves in (7, 31)}
    best = min(fixed, key=lambda leaves: min(fixed[leaves].validation_scores_))
    assert model.num_leaves_ == best
    np.testing.assert_array_equal(model.predict_proba(X), fixed[best].predict_proba(X))


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_early_stopping_all_rounds_are_trained(backend):
    """With early_stopping_rounds=None the booster has n_estimators rounds."""
    X, y = stripes(300)
    model = quick(backend=backend, n_estimators=12, early_stopping_rounds=None).fit(X, y)
    assert model.n_iter_ == len(model.validation_scores_) == 12


def test_the_booster_is_fitted_to_all_rows():
    """After the folds, every row is at the root of the first tree."""
    X, y = stripes(300)
    tree = quick().fit(X, y).booster_.trees_to_dataframe().iloc[0]
    assert tree["count"] == 300


@pytest.mark.parametrize("backend", BACKENDS)
def test_out_of_fold_probabilities_do_not_know_the_label(backend):
    """Labels that are pure chance are predicted no better than chance, although the booster learns them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 4)), rng.integers(2, size=400)
    model = quick(backend=backend, early_stopping_rounds=None).fit(X, y)
    assert ((model.oof_proba_.argmax(axis=1) == y).mean()) < 0.58
    assert (model.predict_noisy_proba(X).argmax(axis=1) == y).mean() > 0.8


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_weight_zero_have_out_of_fold_probabilities(backend):
    """They are predicted by the final booster, which has not seen them."""
    X, y = stripes(400)
    weight = np.r_[np.ones(300), np.zeros(100)]
    model = quick(backend=backend).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.oof_proba_[300:], model.predict_noisy_proba(X[300:]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_eval_set_records_the_log_loss(backend, n_classes):
    """The last entry is the log loss of the booster's probabilities; the rows do not change the model."""
    X, y = stripes(600, n_classes)
    names = np.array(["a", "b", "c"])[y]
    train, first, second = slice(0, 400), slice(400, 500), slice(500, 600)
    sets = [(X[first], names[first]), (X[second], names[second])]
    model = quick(backend=backend).fit(X[train], names[train], eval_set=sets)
    assert list(model.evals_result_) == ["valid_0", "valid_1"]
    for history, (features, labels) in zip(model.evals_result_.values(), sets, strict=True):
        assert len(history["log_loss"]) == model.n_iter_
        expected = log_loss(labels, model.predict_noisy_proba(features), labels=model.classes_)
        assert history["log_loss"][-1] == pytest.approx(expected, rel=1e-4)
    without = quick(backend=backend).fit(X[train], names[train])
    assert without.evals_result_ == {}
    np.testing.assert_array_equal(without.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("early_stopping_rounds", [None, 5])
def test_eval_set_records_the_peer_score(backend, early_stopping_rounds):
    """With a number for alpha it is the peer score, also if other rows stop the training early."""
    X, y = stripes(600)
    model = quick(backend=backend, alpha=0.5, early_stopping_rounds=early_stopping_rounds)
    model.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])])
    expected = peer_score(y[400:], model.predict(X[400:]), alpha=0.5)
    assert model.evals_result_["valid_0"]["peer_score"][model.n_iter_ - 1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("eval_set", "message"),
    [
        ("X", r"`eval_set` must be a list of pairs.*\[\(X_valid, y_valid\)\]"),
        ([np.zeros((3, 4))], "`eval_set` must be a list of pairs.*with other entries"),
        ([(np.zeros((2, 4)), [0, 7])], "`eval_set` must contain only labels that occur in `y`.*got 7"),
    ],
    ids=["text", "no labels", "unknown label"],
)
def test_a_bad_eval_set_is_named(eval_set, message):
    """The error says what was expected."""
    X, y = stripes(60)
    with pytest.raises(InvalidInputError, match=message):
        quick().fit(X, y, eval_set=eval_set)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("alpha", ["auto", 1.0])
def test_feature_importances_are_shares(backend, alpha):
    """They sum to one, and the feature that decides the class has nearly everything."""
    X = stripes(600)[0]
    y = (X[:, 2] > 0.5).astype(int)
    importances = quick(backend=backend, alpha=alpha).fit(X, y).feature_importances_
    assert importances.shape == (4,)
    assert importances.sum() == pytest.approx(1.0)
    assert importances[2] > 0.8


def test_shap_values_add_up():
    """SHAP values of the booster sum to its raw score, with missing values and a categorical column."""
    X, y = stripes(600)
    table = pd.DataFrame(X, columns=list("abcd"))
    table["kind"] = pd.Categorical(np.where(X[:, 2] > 0, "up", "down"))
    table.loc[:50, "a"] = np.nan
    model = quick().fit(table, y)
    contributions = model.booster_.predict(model.encode_features(table), pred_contrib=True)
    assert contributions.shape == (600, 6)
    np.testing.assert_allclose(expit(contributions.sum(axis=1)), model.predict_noisy_proba(table)[:, 1])


def test_noisy_probabilities_need_auto():
    """With a number for alpha there are none, and the error says so."""
    X, y = stripes(100)
    model = quick(alpha=1.0).fit(X, y)
    with pytest.raises(InvalidInputError, match=r"`alpha` must be 'auto'.*got 1\.0"):
        model.predict_noisy_proba(X)
    assert model.oof_proba_ is model.noise_ is model.clean_map_ is None
    assert model.alpha_ == 1.0


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
@pytest.mark.filterwarnings("ignore:No tree could split")  # one row is too little for a leaf
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_class_with_one_row(backend, n_classes):
    """Fewer folds are used, with a warning, and the probabilities are finite."""
    X, y = stripes(200, n_classes)
    rare = np.flatnonzero(y == n_classes - 1)
    kept = np.setdiff1d(np.arange(200), rare[1:])
    with pytest.warns(UserWarning, match="has only 1 rows; 2 folds are used"):
        model = quick(backend=backend).fit(X[kept], y[kept])
    assert np.isfinite(model.predict_proba(X)).all()
