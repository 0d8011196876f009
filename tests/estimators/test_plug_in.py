"""PeerPlugInClassifier."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from peerloss.estimators import CostSensitiveSVC, MarginPerceptron, PeerPlugInClassifier
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import make_peer_scorer
from peerloss.noise import NoiseModel, flip_labels
from peerloss.theory import optimal_alpha_from_noisy_prior, peer_decision
from tests.estimators.blobs import blobs


@parametrize_with_checks(
    [PeerPlugInClassifier(LogisticRegression(), cv=2), PeerPlugInClassifier(RidgeClassifier(tol=1e-10), cv=2)]
)
def test_scikit_learn_conventions(estimator, check):
    """All checks pass, around a classifier with probabilities and around one with a decision function."""
    check(estimator)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.4, 1.0, 2.5])
def test_prediction_is_the_peer_decision(n_classes, alpha):
    """``predict`` is argmax_k(η̃_k − απ̃_k) of the calibrated noisy probabilities, for every K and α."""
    X, y = blobs(n_classes=n_classes)
    model = PeerPlugInClassifier(LogisticRegression(), alpha=alpha, cv=3).fit(X, y)
    expected = peer_decision(model.predict_noisy_proba(X), alpha, np.bincount(y) / len(y))
    np.testing.assert_array_equal(model.predict(X), expected)


def test_out_of_fold_probabilities_do_not_depend_on_their_own_label():
    """A forest that memorises its training rows is not confident about them out of fold."""
    X, y = blobs(300)
    noisy = flip_labels(y, NoiseModel.binary(0.3, 0.3), random_state=99)
    model = PeerPlugInClassifier(RandomForestClassifier(30, random_state=0)).fit(X, noisy)
    rows = np.arange(len(y))
    in_fold = model.estimator_.predict_proba(X)[rows, noisy]
    assert in_fold.mean() > 0.8
    assert model.oof_proba_[rows, noisy].mean() < 0.7
    assert model.oof_proba_.shape == (300, 2)
    np.testing.assert_allclose(model.oof_proba_.mean(axis=0), model.noisy_prior_, atol=1e-6)


def test_probabilities_of_an_overconfident_model_are_calibrated():
    """Naive Bayes on repeated columns is overconfident; out-of-fold calibration improves its log loss."""
    X, y = blobs(800)
    noisy = flip_labels(y, NoiseModel.binary(0.2, 0.2), random_state=99)
    wide = np.hstack([X] * 8)
    model = PeerPlugInClassifier(GaussianNB(), alpha=0.0).fit(wide[:400], noisy[:400])
    rows = np.arange(400)
    raw = -np.log(model.estimator_.predict_proba(wide[400:])[rows, noisy[400:]] + 1e-12).mean()
    calibrated = -np.log(model.predict_noisy_proba(wide[400:])[rows, noisy[400:]]).mean()
    assert calibrated < 0.7 < raw


@pytest.mark.parametrize("estimator", [LogisticRegression(), RidgeClassifier()], ids=["proba", "decision"])
def test_asymmetric_noise_is_corrected(estimator):
    """At α* predictions agree with the clean labels more often than those of the plain estimator."""
    X, y = blobs(2000, prior=[0.3, 0.7], spread=0.8)
    noise = NoiseModel.binary(0.0, 0.55)
    noisy = flip_labels(y[:1000], noise, random_state=99)
    alpha = optimal_alpha_from_noisy_prior(noise, noisy.mean())
    peer = PeerPlugInClassifier(estimator, alpha=alpha).fit(X[:1000], noisy)
    plain = clone(estimator).fit(X[:1000], noisy)
    assert peer.score(X[1000:], y[1000:]) > plain.score(X[1000:], y[1000:]) + 0.1
    one = PeerPlugInClassifier(estimator).fit(X[:1000], noisy)
    assert balanced_accuracy_score(y[1000:], one.predict(X[1000:])) > 0.75


def test_uniform_noise_on_five_balanced_classes():
    """With 40 % uniform noise the accuracy is near that of training on clean labels."""
    X, y = blobs(2500, n_classes=5, seed=3)
    noisy = flip_labels(y, NoiseModel.uniform(5, 0.4), random_state=99)
    clean = LogisticRegression().fit(X, y).score(X, y)
    assert PeerPlugInClassifier(LogisticRegression()).fit(X, noisy).score(X, y) > clean - 0.03


def test_weights_change_prior_and_estimator():
    """Doubling the weight of a class is the same as repeating its rows, with the same folds."""
    X, y = blobs(60)
    weight = np.where(y == 1, 2.0, 1.0)
    folds = list(KFold(3).split(X))
    index = np.repeat(np.arange(60), weight.astype(int))
    repeated = [(np.flatnonzero(np.isin(index, a)), np.flatnonzero(np.isin(index, b))) for a, b in folds]
    weighted = PeerPlugInClassifier(LogisticRegression(tol=1e-10), cv=folds).fit(X, y, sample_weight=weight)
    again = PeerPlugInClassifier(LogisticRegression(tol=1e-10), cv=repeated).fit(X[index], y[index])
    np.testing.assert_allclose(weighted.noisy_prior_, again.noisy_prior_)
    np.testing.assert_allclose(weighted.predict_proba(X), again.predict_proba(X), atol=1e-6)


def test_rows_of_weight_zero_are_scored_but_not_trained_on():
    """Rows of weight zero do not change the fit, and still get an out-of-fold probability."""
    X, y = blobs(90)
    weight = np.r_[np.ones(60), np.zeros(30)]
    model = PeerPlugInClassifier(LogisticRegression(), cv=3).fit(X, y, sample_weight=weight)
    without = PeerPlugInClassifier(LogisticRegression(), cv=3).fit(X[:60], y[:60])
    np.testing.assert_allclose(model.predict_proba(X), without.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(model.oof_proba_[:60], without.oof_proba_, atol=1e-9)
    np.testing.assert_allclose(model.oof_proba_[60:], model.predict_noisy_proba(X[60:]))


def test_weights_are_rejected_if_the_estimator_does_not_accept_them():
    """Weights that would be ignored are an error."""
    X, y = blobs(30)
    with pytest.raises(InvalidInputError, match=r"KNeighborsClassifier.*does not accept"):
        PeerPlugInClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=np.ones(30))


def test_data_frames_reach_a_pipeline_unchanged():
    """The estimator may be a pipeline that selects columns of a DataFrame by name, also text columns."""
    X, y = blobs(200)
    frame = pd.DataFrame(
        {"size": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue")}, index=range(9, 209)
    )
    columns = make_column_transformer((StandardScaler(), ["size"]), (OneHotEncoder(), ["colour"]))
    model = PeerPlugInClassifier(make_pipeline(columns, LogisticRegression()))
    model.fit(frame, pd.Series(np.where(y, "yes", "no"), index=frame.index))
    assert model.feature_names_in_.tolist() == ["size", "colour"]
    assert set(model.predict(frame)) == {"yes", "no"}
    assert (model.predict(frame) == np.where(y, "yes", "no")).mean() > 0.7


def test_works_in_searches_pipelines_and_pickles():
    """Grid search over α and over the inner estimator, cross validation, clone and pickle work."""
    X, y = blobs(150)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), PeerPlugInClassifier(LogisticRegression(), cv=2)),
        {"peerpluginclassifier__alpha": [0.0, 1.0], "peerpluginclassifier__estimator__C": [0.01, 1.0]},
        scoring=make_peer_scorer(1.0),
        cv=2,
    ).fit(X, y)
    model = pickle.loads(pickle.dumps(search.best_estimator_))  # noqa: S301  # made in this test
    np.testing.assert_array_equal(model.predict_proba(X), search.predict_proba(X))
    assert cross_val_score(clone(search.best_estimator_), X, y, cv=2).mean() > 0.7


@pytest.mark.parametrize(
    "wrapped",
    [
        PeerPlugInClassifier(LogisticRegression(), cv=2),
        CostSensitiveSVC(cv=2, class_weight_grid=[1.0], random_state=0),
        MarginPerceptron(cv=2, margin_grid=[1.0], random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_metadata_routing_passes_weights(wrapped):
    """With routing enabled and weights requested, cross-validation passes each fold its weights."""
    X, y = blobs(80)
    weight = np.random.default_rng(1).uniform(0.1, 3, 80)
    with config_context(enable_metadata_routing=True):
        model = clone(wrapped).set_fit_request(sample_weight=True)
        scorer = make_peer_scorer(1.0).set_score_request(sample_weight=True)
        search = GridSearchCV(model, {"cv": [2]}, cv=2, scoring=scorer)
        found = search.fit(X, y, sample_weight=weight).best_estimator_
    expected = clone(wrapped).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X))


def test_folds_may_come_from_a_splitter_or_as_pairs():
    """``cv`` may be a list of index pairs or a splitter."""
    X, y = blobs(120)
    groups = np.arange(120) // 10
    pairs = list(GroupKFold(4).split(X, y, groups))
    one = PeerPlugInClassifier(LogisticRegression(), cv=pairs).fit(X, y)
    assert one.oof_proba_.shape == (120, 2)
    assert PeerPlugInClassifier(LogisticRegression(), cv=KFold(3)).fit(X, y).score(X, y) > 0.7


def test_two_fits_agree():
    """Folds are seeded: the same data give the same model."""
    X, y = blobs(100)
    first, second = (PeerPlugInClassifier(LogisticRegression()).fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_random_state_seeds_the_folds():
    """The default is 0, other seeds shuffle other folds, and a generator is advanced by each fit."""
    X, y = blobs(100)

    def fit(**options):
        return PeerPlugInClassifier(LogisticRegression(), **options).fit(X, y).oof_proba_

    np.testing.assert_array_equal(fit(), fit(random_state=0))
    assert not np.array_equal(fit(), fit(random_state=1))
    generator = np.random.default_rng(0)
    assert not np.array_equal(fit(random_state=generator), fit(random_state=generator))
    with pytest.raises(InvalidInputError, match="`random_state` must be a non-negative integer"):
        fit(random_state=-1)


def test_a_rare_class_reduces_the_number_of_folds_with_a_warning():
    """Three rows of a class allow three folds, with a warning; one row is an error that names the class."""
    X, y = blobs(40)
    y = np.where(np.arange(40) < 3, "rare", np.where(y, "b", "a"))
    with pytest.warns(UserWarning, match="'rare' has only 3 rows; 3 folds"):
        PeerPlugInClassifier(LogisticRegression()).fit(X, y)
    y[:2] = "a"
    model = PeerPlugInClassifier(LogisticRegression())
    with pytest.raises(InvalidInputError, match="'rare' has 1"):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": np.nan}, "`alpha` must be a finite number"),
        ({"alpha": "auto?"}, "`alpha` must be a finite number"),
        ({"cv": 1}, "`cv` must be an integer of at least 2"),
        ({"cv": "five"}, "`cv` must be a number of folds"),
        ({"cv": ShuffleSplit(3, random_state=0)}, "out each row exactly once"),
        ({"cv": GroupKFold(2)}, "splitter needs groups, pass them"),
        ({"estimator": LogisticRegression}, "classifier object"),
        ({"estimator": LinearRegression()}, "`predict_proba` or `decision_function`"),
        (
            {"cv": [(np.arange(0, 20), np.arange(20, 40)), (np.arange(20, 40), np.arange(0, 20))]},
            "every class",
        ),
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters, message):
    """An invalid parameter raises an error that names it, and no attribute is left."""
    X, _ = blobs(40)
    model = PeerPlugInClassifier(LogisticRegression()).set_params(**parameters)
    before = dict(vars(model))
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, np.repeat([0, 1], 20))
    assert vars(model) == before


def test_unfitted_and_wrong_width():
    """Predicting before the fit, or with another number of features, is an error."""
    X, y = blobs(40)
    model = PeerPlugInClassifier(LogisticRegression())
    with pytest.raises(NotFittedError):
        model.predict_proba(X)
    with pytest.raises(ValueError, match="features"):
        model.fit(X, y).predict(X[:, :2])
