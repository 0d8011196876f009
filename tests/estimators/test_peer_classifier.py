"""PeerClassifier."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from peerloss import NoiseModel, RobustMLPClassifier, flip_labels
from peerloss.estimators import PeerClassifier, _robust_mlp
from peerloss.estimators.portfolio import _candidates, _fit_portfolio
from peerloss.exceptions import InvalidInputError
from tests.estimators.binary_task import task

FOLDS = "folds and standard errors count rows, not weights: a row of weight 2 is not two rows"


@pytest.mark.filterwarnings(
    "ignore::peerloss.exceptions.IdentifiabilityWarning"
)  # the checks use random labels
@pytest.mark.filterwarnings("ignore:.*folds are used")  # and few rows
@parametrize_with_checks(
    [PeerClassifier(random_state=0)],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": FOLDS for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_accepts_it(estimator, check, small_portfolio):  # noqa: ARG001 (a fixture)
    """Every check of scikit-learn, with a small portfolio for speed."""
    check(estimator)


def test_it_predicts_the_clean_labels():
    """Trained on labels with noise rates .1 and .4, it is better than a model without noise handling."""
    X, _, noisy = task()
    X_test, y_test, _ = task(2000, seed=1)
    model = PeerClassifier(random_state=0).fit(X, noisy)
    plain = LogisticRegression().fit(X, noisy)
    assert model.score(X_test, y_test) > 0.93
    assert model.score(X_test, y_test) > plain.score(X_test, y_test) + 0.02


def test_the_report_has_candidates_noise_and_accuracy():
    """Weights sum to one, the noise is near the truth, and the interval covers the clean accuracy."""
    X, _, noisy = task(1500, positive=0.4)
    X_test, y_test, _ = task(4000, seed=1, positive=0.4)
    model = PeerClassifier(random_state=0).fit(X, noisy)
    report = model.report_
    tried = {*_candidates.candidate_models(1500, 4, 2, seed=0), *_candidates.candidate_networks()}
    names = {re.sub(", (shrinkage|penalty) .*", "", name) for name in report.candidates.index}
    assert names == tried
    assert report.candidates["weight"].sum() == pytest.approx(1.0)
    assert report.noise.e_neg == pytest.approx(0.1, abs=0.06)
    assert report.noise.e_pos == pytest.approx(0.4, abs=0.08)
    accuracy = model.score(X_test, y_test)
    assert report.accuracy_low - 0.01 <= accuracy <= report.accuracy_high + 0.01
    for part in ("candidates are averaged", "Estimated noise", "on clean labels"):
        assert part in str(report)


def test_the_same_seed_gives_the_same_classifier(small_portfolio):  # noqa: ARG001 (a fixture)
    """The number of processes does not matter."""
    X, _, noisy = task()
    first = PeerClassifier(random_state=3).fit(X, noisy)
    second = PeerClassifier(random_state=3, n_jobs=2).fit(X, noisy)
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
def test_probabilities_decide(small_portfolio, metric):  # noqa: ARG001 (a fixture)
    """The argmax of predict_proba is predict; rows sum to one."""
    X, _, noisy = task(positive=0.25)
    model = PeerClassifier(metric=metric, random_state=0).fit(X, noisy)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[proba.argmax(axis=1)])


def test_balanced_accuracy_decides_at_the_noisy_prior(small_portfolio):  # noqa: ARG001 (a fixture)
    """Peer loss at α = 1: predict 1 if P(noisy 1 | x) exceeds the frequency of 1."""
    X, _, noisy = task(positive=0.25)
    model = PeerClassifier(metric="balanced_accuracy", random_state=0).fit(X, noisy)
    above = model.predict_noisy_proba(X)[:, 1] > model.noisy_prior_[1]
    np.testing.assert_array_equal(model.predict(X), above.astype(int))
    assert model.alpha_ == 1.0


def four_classes(n, seed):
    """Return overlapping classes; the rarest has one row in twenty."""
    rng = np.random.default_rng(seed)
    y = rng.choice(4, size=n, p=[0.6, 0.25, 0.1, 0.05])
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [1.5, 1.5], [3.0, 1.5]])
    return centres[y] + rng.normal(size=(n, 2)), y


# If classes overlap this much, T is estimated badly, and fit may warn of it.
@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_balanced_accuracy_of_four_classes(small_portfolio):  # noqa: ARG001 (a fixture)
    """It is above that of α = 1, near that of clean labels, and inside the interval of the report."""
    X, y = four_classes(3000, 0)
    X_test, y_test = four_classes(20_000, 1)
    noisy = flip_labels(y, NoiseModel.uniform(4, 0.2), random_state=0)
    model = PeerClassifier(metric="balanced_accuracy", random_state=0).fit(X, noisy)
    at_one = PeerClassifier(alpha=1.0, random_state=0).fit(X, noisy)
    clean = LogisticRegression().fit(X, y)
    best = balanced_accuracy_score(y_test, (clean.predict_proba(X_test) / np.bincount(y)).argmax(axis=1))
    reached = balanced_accuracy_score(y_test, model.predict(X_test))
    assert reached > balanced_accuracy_score(y_test, at_one.predict(X_test)) + 0.005
    assert reached > best - 0.02
    report = model.report_
    assert report.accuracy_low - 0.01 <= reached <= report.accuracy_high + 0.01
    assert np.isnan(model.alpha_)
    assert "nan" not in str(report)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), proba.argmax(axis=1))


def test_a_given_alpha_decides(small_portfolio):  # noqa: ARG001 (a fixture)
    """The decision is argmax (η̃ − α·π̃) at the given α."""
    X, _, noisy = task(positive=0.25)
    model = PeerClassifier(alpha=0.3, random_state=0).fit(X, noisy)
    decided = (model.predict_noisy_proba(X) - 0.3 * model.noisy_prior_).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), decided)


def test_more_than_two_classes_and_text_labels(small_portfolio):  # noqa: ARG001 (a fixture)
    """Three classes with uniform noise and text labels."""
    X, y = make_blobs(600, centers=3, cluster_std=0.6, random_state=0)
    noisy = flip_labels(y, NoiseModel.uniform(3, 0.3), random_state=0)
    names = np.array(["ant", "bee", "cat"])
    for metric in ("accuracy", "balanced_accuracy"):
        model = PeerClassifier(metric=metric, random_state=0).fit(X, names[noisy])
        assert model.score(X, names[y]) > 0.95
        assert model.report_.accuracy > 0.8


def test_gold_labels_help(small_portfolio):  # noqa: ARG001 (a fixture)
    """Known clean labels, or a mask of correct ones, improve the estimated noise."""
    X, y, noisy = task(120, 0.05, 0.45, seed=5)
    gold = pd.Series([*y[:60].astype(object), *[None] * 60])
    with_gold = PeerClassifier(random_state=0).fit(X, noisy, gold=gold)
    with_mask = PeerClassifier(random_state=0).fit(X, noisy, gold=(noisy == y) & (np.arange(120) < 60))
    without = PeerClassifier(random_state=0).fit(X, noisy)
    truth = np.array([0.05, 0.45])
    models = (with_gold, with_mask, without)
    error = [np.abs([m.noise_.e_neg, m.noise_.e_pos] - truth).sum() for m in models]
    assert max(error[:2]) < error[2]


def test_it_works_in_pipelines_searches_and_clones(small_portfolio):  # noqa: ARG001 (a fixture)
    """Pipelines, searches and clones of scikit-learn work."""
    X, _, noisy = task(300)
    pipeline = make_pipeline(StandardScaler(), PeerClassifier(random_state=0))
    assert len(cross_val_score(pipeline, X, noisy, cv=3)) == 3
    search = GridSearchCV(PeerClassifier(random_state=0), {"metric": ["accuracy", "balanced_accuracy"]}, cv=2)
    search.fit(pd.DataFrame(X, columns=list("abcd")), noisy)
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "f1"}, "`metric` must be one of 'accuracy', 'balanced_accuracy'; got 'f1'"),
        ({"alpha": "best"}, r"`alpha` must be a finite number; got 'best'\. Pass 'auto'"),
        ({"alpha": np.nan}, "`alpha` must be a finite number"),
        ({"alpha": [0.1, np.nan]}, "`alpha` must be a finite number"),
        ({"cv": 1}, "`cv` must be an integer of at least 2"),
        (
            {"device": "tpu"},
            "`device` must be 'auto' or a torch device such as 'cpu' or 'cuda:0'; 'tpu' cannot be used",
        ),
    ],
)
def test_bad_parameters_are_named(options, message):
    """The error names the parameter, and no fitted attribute is left."""
    X, _, noisy = task(60)
    model = PeerClassifier(**options)
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, noisy)
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gold": [1.0]}, "`gold` must have one entry per row"),
        ({"gold": np.full(60, 7.0)}, "`gold` must contain labels that occur in `y`"),
        ({"groups": [1, 2]}, "`groups` must have one entry for each of 60 rows"),
    ],
)
def test_bad_arguments_of_fit_are_named(arguments, message):
    """The message names the argument and the given value."""
    X, _, noisy = task(60)
    with pytest.raises(InvalidInputError, match=message):
        PeerClassifier().fit(X, noisy, **arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("model", [PeerClassifier(device="cuda"), RobustMLPClassifier(device="cuda")])
def test_a_missing_device_is_rejected_before_training(model, monkeypatch):
    """Without CUDA, ``device="cuda"`` fails at once: nothing is trained before the error."""
    trained = []
    monkeypatch.setattr(_fit_portfolio, "fit_fold", lambda *_: trained.append("candidate"))
    monkeypatch.setattr(_robust_mlp, "train_nets", lambda *_, **__: trained.append("network"))
    X, _, noisy = task(60)
    with pytest.raises(
        InvalidInputError, match="`device` must be 'auto' or a torch device such as 'cpu' or 'cuda:0'"
    ):
        model.fit(X, noisy)
    assert not trained


def test_rows_of_weight_zero_are_ignored(small_portfolio):  # noqa: ARG001 (a fixture)
    """Rows of weight zero are ignored: changing their labels has no effect."""
    X, _, noisy = task(200)
    weight = np.where(np.arange(200) < 150, 1.0, 0.0)
    changed = np.where(weight > 0, noisy, 1 - noisy)
    first = PeerClassifier(random_state=0).fit(X, noisy, sample_weight=weight)
    second = PeerClassifier(random_state=0).fit(X, changed, sample_weight=weight)
    np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), atol=1e-9)


def test_out_of_fold_probabilities_without_a_fit(small_portfolio):  # noqa: ARG001 (a fixture)
    """``cross_val_noisy_proba`` returns ``oof_proba_`` of a fit, and leaves the classifier as it was."""
    X, _, noisy = task(120)
    model = PeerClassifier(random_state=3)
    found = model.cross_val_noisy_proba(X, noisy)
    assert not hasattr(model, "scaler_")
    np.testing.assert_array_equal(found, model.fit(X, noisy).oof_proba_)
    groups = np.arange(120) // 4
    found = PeerClassifier(random_state=3).cross_val_noisy_proba(X, noisy, groups=groups)
    np.testing.assert_array_equal(found, model.fit(X, noisy, groups=groups).oof_proba_)


def test_out_of_fold_probabilities_need_all_labels():
    """A missing label is refused with a remedy, because there is nothing to hold out."""
    X, _, noisy = task(60)
    with pytest.raises(InvalidInputError, match="`y` must have a label for every row; rows without one: 1"):
        PeerClassifier().cross_val_noisy_proba(X, np.r_[noisy[:-1], np.nan])
