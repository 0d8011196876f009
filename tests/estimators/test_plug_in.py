"""The plug-in form of the peer classifier."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
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
from peerloss.posterior.calibrator import Calibrator
from peerloss.posterior.decision import clean_proba
from peerloss.theory import noisy_joint, optimal_alpha, optimal_alpha_from_noisy_prior, peer_decision


def blobs(n=600, n_classes=2, seed=0, prior=None, spread=1.5):
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, size=n, p=prior)
    centres = rng.normal(size=(n_classes, 4)) * spread
    return centres[y] + rng.normal(size=(n, 4)), y


@parametrize_with_checks(
    [PeerPlugInClassifier(LogisticRegression(), cv=2), PeerPlugInClassifier(RidgeClassifier(tol=1e-10), cv=2)]
)
def test_scikit_learn_conventions(estimator, check):
    """Around a classifier with probabilities and around one with a decision function, no check is exempt."""
    check(estimator)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.4, 1.0, 2.5])
def test_prediction_is_the_peer_decision(n_classes, alpha):
    """``predict`` is argmax_k(η̃_k − απ̃_k) of the calibrated noisy probabilities, for every K and α."""
    X, y = blobs(n_classes=n_classes)
    model = PeerPlugInClassifier(LogisticRegression(), alpha=alpha, cv=3).fit(X, y)
    expected = peer_decision(model.predict_noisy_proba(X), alpha, np.bincount(y) / len(y))
    np.testing.assert_array_equal(model.predict(X), expected)


@given(
    n_classes=st.integers(2, 6), alpha=st.floats(-3, 5, allow_subnormal=False), seed=st.integers(0, 10_000)
)
@settings(max_examples=150, deadline=None)
def test_clean_probabilities_are_probabilities_in_the_right_order(n_classes, alpha, seed):
    """The map of η̃ gives probabilities ordered as η̃ − απ̃, whatever η̃, α and π̃, also on the border."""
    rng = np.random.default_rng(seed)
    eta = rng.dirichlet(np.full(n_classes, 0.5), size=20)
    eta[:n_classes] = np.eye(n_classes)
    prior = rng.dirichlet(np.ones(n_classes))
    clean = clean_proba(eta, alpha, prior)
    assert (clean >= 0).all()
    np.testing.assert_allclose(clean.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(clean.argmax(axis=1), peer_decision(eta, alpha, prior))


def test_clean_probabilities_of_two_classes_are_piecewise_linear():
    """For two classes the map goes through (0, 0), (threshold, ½) and (1, 1), linearly between."""
    prior, alpha = np.array([0.7, 0.3]), 0.5
    threshold = (1 + alpha * (0.3 - 0.7)) / 2
    p = np.linspace(0, 1, 101)
    expected = np.interp(p, [0, threshold, 1], [0, 0.5, 1])
    mapped = clean_proba(np.column_stack([1 - p, p]), alpha, prior)
    np.testing.assert_allclose(mapped[:, 1], expected, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_without_a_peer_term_probabilities_are_the_noisy_ones(n_classes):
    """At α = 0 the map is the identity."""
    eta = np.random.default_rng(0).dirichlet(np.ones(n_classes), size=50)
    prior = np.arange(1.0, n_classes + 1) / np.arange(1.0, n_classes + 1).sum()
    np.testing.assert_allclose(clean_proba(eta, 0.0, prior), eta, atol=1e-14)


def test_the_point_of_a_tie_maps_to_equal_probabilities():
    """Where η̃ − απ̃ is the same for all classes the clean probabilities are uniform."""
    prior = np.array([0.5, 0.3, 0.2])
    tie = 1 / 3 + 0.6 * (prior - 1 / 3)
    np.testing.assert_allclose(clean_proba(tie[None], 0.6, prior), 1 / 3, atol=1e-9)


def test_calibrator_equals_platt_scaling_found_by_another_optimiser():
    """For two classes slope and bias minimise the penalised logistic loss, as BFGS finds them."""
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=400) * 2
    codes = (rng.uniform(size=400) < expit(0.6 * log_odds + 0.3)).astype(np.int64)
    weight = rng.uniform(0.5, 2, size=400)

    def loss(v):
        z = v[0] * log_odds + v[1]
        return weight @ (np.logaddexp(0, z) - codes * z) + 0.5 * (v[0] - 1) ** 2

    found = minimize(loss, [1.0, 0.0], tol=1e-12).x
    scores = np.column_stack([np.zeros(400), log_odds])
    fitted = Calibrator.fit(scores, codes, weight, scale=1.0)
    np.testing.assert_allclose([fitted.slope, fitted.bias[1]], found, atol=1e-4)
    assert fitted.bias[0] == 0


def test_calibrated_probabilities_have_the_mean_of_the_labels():
    """With free biases the mean probability of each class is its weighted frequency."""
    rng = np.random.default_rng(1)
    scores, codes, weight = rng.normal(size=(300, 3)), rng.integers(0, 3, 300), rng.uniform(size=300)
    proba = Calibrator.fit(scores, codes, weight).proba(scores)
    np.testing.assert_allclose(weight @ proba, np.bincount(codes, weight), rtol=1e-8)


def test_calibrator_never_reverses_the_scores():
    """Scores that point the wrong way are flattened, not reversed, and the biases still fit the labels."""
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 2, 200)
    scores = np.column_stack([np.zeros(200), 1.0 - 2.0 * codes + rng.normal(size=200)])
    fitted = Calibrator.fit(scores, codes, np.ones(200), scale=1.0)
    assert fitted.slope == 0.05
    assert fitted.proba(scores)[:, 1].mean() == pytest.approx(codes.mean())


def test_calibrator_stays_finite_where_scores_separate_the_classes():
    """Perfect scores give confident, finite probabilities."""
    codes = np.repeat([0, 1], 20)
    scores = np.column_stack([np.zeros(40), np.where(codes, 3.0, -3.0)])
    fitted = Calibrator.fit(scores, codes, np.ones(40))
    assert np.isfinite([fitted.slope, *fitted.bias]).all()
    assert (fitted.proba(scores)[np.arange(40), codes] > 0.95).all()


def test_out_of_fold_probabilities_know_nothing_of_their_own_label():
    """A forest that learns training rows by heart is far from certain of them out of fold."""
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
    """Naive Bayes on repeated columns is overconfident; out-of-fold calibration repairs its log loss."""
    X, y = blobs(800)
    noisy = flip_labels(y, NoiseModel.binary(0.2, 0.2), random_state=99)
    wide = np.hstack([X] * 8)
    model = PeerPlugInClassifier(GaussianNB(), alpha=0.0).fit(wide[:400], noisy[:400])
    rows = np.arange(400)
    raw = -np.log(model.estimator_.predict_proba(wide[400:])[rows, noisy[400:]] + 1e-12).mean()
    calibrated = -np.log(model.predict_noisy_proba(wide[400:])[rows, noisy[400:]]).mean()
    assert calibrated < 0.7 < raw


@pytest.mark.parametrize("estimator", [LogisticRegression(), RidgeClassifier()], ids=["proba", "decision"])
def test_asymmetric_noise_is_undone(estimator):
    """At α* predictions follow the clean labels where the plain estimator follows the noise."""
    X, y = blobs(2000, prior=[0.3, 0.7], spread=0.8)
    noise = NoiseModel.binary(0.0, 0.55)
    noisy = flip_labels(y[:1000], noise, random_state=99)
    alpha = optimal_alpha_from_noisy_prior(noise, noisy.mean())
    peer = PeerPlugInClassifier(estimator, alpha=alpha).fit(X[:1000], noisy)
    plain = clone(estimator).fit(X[:1000], noisy)
    assert peer.score(X[1000:], y[1000:]) > plain.score(X[1000:], y[1000:]) + 0.1
    one = PeerPlugInClassifier(estimator).fit(X[:1000], noisy)
    assert balanced_accuracy_score(y[1000:], one.predict(X[1000:])) > 0.75


def test_uniform_noise_on_balanced_classes_leaves_five_classes_right():
    """Several classes with 40 % uniform noise are still told apart."""
    X, y = blobs(2500, n_classes=5, seed=3)
    noisy = flip_labels(y, NoiseModel.uniform(5, 0.4), random_state=99)
    clean = LogisticRegression().fit(X, y).score(X, y)
    assert PeerPlugInClassifier(LogisticRegression()).fit(X, noisy).score(X, y) > clean - 0.03


def test_weights_move_prior_and_estimator():
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


def test_rows_without_weight_teach_nothing_but_are_scored():
    """Rows of weight 0 leave the fit as if absent, and still get an out-of-fold probability."""
    X, y = blobs(90)
    weight = np.r_[np.ones(60), np.zeros(30)]
    model = PeerPlugInClassifier(LogisticRegression(), cv=3).fit(X, y, sample_weight=weight)
    without = PeerPlugInClassifier(LogisticRegression(), cv=3).fit(X[:60], y[:60])
    np.testing.assert_allclose(model.predict_proba(X), without.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(model.oof_proba_[:60], without.oof_proba_, atol=1e-9)
    np.testing.assert_allclose(model.oof_proba_[60:], model.predict_noisy_proba(X[60:]))


def test_weights_are_refused_where_the_estimator_takes_none():
    """Weights that would be ignored are an error."""
    X, y = blobs(30)
    with pytest.raises(InvalidInputError, match=r"KNeighborsClassifier.*does not accept"):
        PeerPlugInClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=np.ones(30))


def test_data_frames_reach_a_pipeline_unchanged():
    """The estimator may be a pipeline that selects columns of a DataFrame by name, text included."""
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
    """With routing switched on and weights requested, cross validation hands each fold its weights."""
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
    """Grouped folds made beforehand keep a group's rows together."""
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


def test_a_rare_class_lowers_the_number_of_folds_and_says_so():
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
        ({"cv": ShuffleSplit(3, random_state=0)}, "each row out exactly once"),
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
    """An impossible parameter raises, names itself, and leaves nothing behind."""
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


def test_alpha_auto_estimates_the_optimal_one():
    """On many rows it comes near the true α*, and its accuracy near that of the true one."""
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.35).astype(int)
    X = rng.normal(size=(4000, 2)) + 1.3 * (2 * y - 1)[:, None]
    noise = NoiseModel.binary(0.1, 0.35)
    noisy = flip_labels(y, noise, random_state=99)
    auto = PeerPlugInClassifier(LogisticRegression(), alpha="auto").fit(X, noisy)
    star = optimal_alpha(noise, 0.35)
    assert auto.alpha_ == pytest.approx(star, abs=0.25)
    best = PeerPlugInClassifier(LogisticRegression(), alpha=star).fit(X, noisy)
    assert auto.score(X, y) > best.score(X, y) - 0.01


def test_an_unknown_rule_for_alpha_is_refused():
    """A word other than "auto" is a mistake."""
    with pytest.raises(InvalidInputError, match=r"`alpha` must be a finite number; got 'best'\. Pass 'auto'"):
        PeerPlugInClassifier(LogisticRegression(), alpha="best").fit(np.eye(4), [0, 1, 0, 1])


class KnownPosterior(ClassifierMixin, BaseEstimator):
    """Gives the probabilities of the noisy label that a finite world has; X holds the number of the point."""

    def __init__(self, posterior):
        self.posterior = posterior

    def fit(self, X, y):  # noqa: ARG002 (the signature of scikit-learn)
        """Learn the classes only."""
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        """Look the points up."""
        return self.posterior[np.asarray(X)[:, 0].astype(int)]


def sample_of(rng, clean, noise, n):
    """Draw points, clean and noisy labels from a finite world."""
    cell = rng.choice(clean.size, size=n, p=clean.ravel())
    x, y = np.divmod(cell, clean.shape[1])
    return x[:, None].astype(float), y, flip_labels(y, noise, random_state=rng)


def five_class_world():
    """Half of the mass lies on points of known class, so that T can be estimated, half on twelve others."""
    prior = np.array([0.5, 0.25, 0.15, 0.06, 0.04])
    rng = np.random.default_rng(3)
    sure = np.diag(prior) * 0.5
    unsure = rng.dirichlet(np.ones(12), size=5).T * prior * 0.5
    return np.vstack([sure, unsure])


@pytest.mark.parametrize(
    "noise",
    [NoiseModel.uniform(5, 0.2), NoiseModel(0.8 * np.eye(5) + [0.12, 0.05, 0.01, 0.01, 0.01])],
    ids=["uniform", "rates e_j"],
)
def test_balanced_accuracy_of_five_classes_is_nearly_the_best_there_is(noise):
    """With the noisy posterior known and T estimated, it is within a point of the best; α = 1 is not.

    α = 1 loses at least two points of clean balanced accuracy here.
    """
    clean = five_class_world()
    noisy = noisy_joint(clean, noise)
    posterior = noisy / noisy.sum(axis=1, keepdims=True)
    X, _, labels = sample_of(np.random.default_rng(0), clean, noise, 20_000)
    model = PeerPlugInClassifier(KnownPosterior(posterior), metric="balanced_accuracy", cv=2).fit(X, labels)
    points = np.arange(len(clean))[:, None]
    share = clean / clean.sum(axis=0)
    best = share.max(axis=1).sum() / 5
    reached = share[points[:, 0], model.predict(points)].sum() / 5
    at_one = share[points[:, 0], peer_decision(posterior, 1.0, noisy.sum(axis=0))].sum() / 5
    assert reached > best - 0.01
    assert at_one < best - 0.02
    assert np.isnan(model.alpha_)
    proba = model.predict_proba(points)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(proba.argmax(axis=1), model.predict(points))


def test_balanced_accuracy_of_two_classes_is_alpha_one():
    """No rates are estimated for it."""
    X, y = blobs(prior=[0.8, 0.2])
    by_metric = PeerPlugInClassifier(LogisticRegression(), metric="balanced_accuracy").fit(X, y)
    by_alpha = PeerPlugInClassifier(LogisticRegression(), alpha=1.0).fit(X, y)
    assert (by_metric.alpha_, by_metric.clean_map_) == (1.0, None)
    np.testing.assert_array_equal(by_metric.predict_proba(X), by_alpha.predict_proba(X))


def test_metric_accuracy_is_alpha_auto():
    """Both names of the rule give the same classifier."""
    X, y = blobs(prior=[0.7, 0.3])
    noisy = flip_labels(y, NoiseModel.binary(0.1, 0.3), random_state=0)
    by_metric = PeerPlugInClassifier(LogisticRegression(), metric="accuracy").fit(X, noisy)
    by_alpha = PeerPlugInClassifier(LogisticRegression(), alpha="auto").fit(X, noisy)
    assert by_metric.alpha_ == by_alpha.alpha_


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "f1"}, "`metric` must be one of 'accuracy', 'balanced_accuracy'; got 'f1'"),
        (
            {"metric": "accuracy", "alpha": 0.5},
            "`metric` chooses the decision in place of a number for `alpha`",
        ),
    ],
)
def test_a_metric_beside_an_alpha_is_refused(parameters, message):
    """Only one of the two can decide."""
    X, y = blobs()
    with pytest.raises(InvalidInputError, match=message):
        PeerPlugInClassifier(LogisticRegression(), **parameters).fit(X, y)
