"""CostSensitiveSVC."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from peerloss.estimators import CostSensitiveSVC
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score
from peerloss.noise import NoiseModel, flip_labels

sklearn_version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])


def moons(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (np.square(X).sum(axis=1) > 2.4).astype(int)


# Before scikit-learn 1.7 the check passes repeated rows to the folds as if they were different rows.
OLD_CHECK = {
    f"check_sample_weight_equivalence_on_{kind}_data": "this version's check ignores the estimator's folds"
    for kind in ("dense", "sparse")
}


# A tight tolerance, because the weight-equivalence check compares seven digits.
@parametrize_with_checks(
    [CostSensitiveSVC(cv=2, class_weight_grid=(0.5, 1.0), tol=1e-10)],
    expected_failed_checks=lambda _: OLD_CHECK if sklearn_version < (1, 7) else {},
)
def test_scikit_learn_conventions(estimator, check):
    """All checks of scikit-learn pass."""
    check(estimator)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_weight_is_the_best_on_held_out_noisy_labels(alpha):
    """Scores and choice equal a plain loop over the grid with scikit-learn's SVC, γ = 1/d."""
    X, y = moons()
    noisy = flip_labels(y, NoiseModel.binary(0.1, 0.4), random_state=99)
    folds = list(StratifiedKFold(3).split(X, noisy))
    model = CostSensitiveSVC(cv=folds, scoring_alpha=alpha).fit(X, noisy)
    expected = []
    for weight in model.class_weight_grid:
        predicted = np.zeros_like(noisy)
        for train, test in folds:
            machine = SVC(gamma=1 / 3, class_weight={1: weight}).fit(X[train], noisy[train])
            predicted[test] = machine.predict(X[test])
        expected.append(peer_score(noisy, predicted, alpha=alpha))
    np.testing.assert_allclose(model.scores_, expected, atol=1e-12)
    best = model.class_weight_grid[int(np.argmax(expected))]
    assert expected[model.class_weight_grid.index(model.class_weight_)] == max(expected)
    final = SVC(gamma=1 / 3, class_weight={1: model.class_weight_}).fit(X, noisy)
    np.testing.assert_array_equal(model.predict(X), final.predict(X))
    assert abs(np.log(model.class_weight_)) <= abs(np.log(best))


def test_the_grid_of_the_paper_is_the_default():
    """Eleven weights from 0.1 to 10, the other class at 1, RBF with γ = 1/d."""
    model = CostSensitiveSVC()
    assert model.class_weight_grid == (0.1, 0.2, 0.25, 0.33, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
    assert (model.gamma, model.C, model.scoring_alpha) == ("auto", 1.0, 0.0)


def test_one_sided_noise_increases_the_class_weight():
    """If half of the positives are labelled negative, the peer score chooses a larger positive weight."""
    X, y = moons(600)
    noisy = flip_labels(y, NoiseModel.binary(0.0, 0.5), random_state=99)
    model = CostSensitiveSVC(scoring_alpha=1.0, random_state=0).fit(X, noisy)
    plain = SVC(gamma="auto").fit(X, noisy)
    assert model.class_weight_ > 1
    assert balanced_accuracy_score(y, model.predict(X)) > balanced_accuracy_score(y, plain.predict(X)) + 0.05


def test_probabilities_agree_with_the_decision():
    """Probabilities increase with the decision function and are ½ where it is 0."""
    X, y = moons()
    model = CostSensitiveSVC(cv=2, random_state=0).fit(X, np.where(y, "out", "in"))
    decision, proba = model.decision_function(X), model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(proba[:, 1] > 0.5, decision > 0)
    assert (np.diff(proba[np.argsort(decision), 1]) >= 0).all()
    np.testing.assert_array_equal(model.predict(X), np.where(decision > 0, "out", "in"))


def test_three_classes_are_rejected_with_advice():
    """The method is for two classes, as its tag says; the message names alternatives."""
    X, _ = moons(30)
    with pytest.raises(InvalidInputError, match=r"two classes.*got 3.*OneVsRestClassifier"):
        CostSensitiveSVC().fit(X, np.arange(30) % 3)
    assert CostSensitiveSVC().__sklearn_tags__().classifier_tags.multi_class is False


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, "`C` must lie in"),
        ({"gamma": -1.0}, "`gamma` must lie in"),
        ({"gamma": "wide"}, "`gamma` must be a finite number"),
        ({"class_weight_grid": [0.0, 1.0]}, "positive weights"),
        ({"class_weight_grid": []}, "`class_weight_grid` is empty"),
        ({"class_weight_grid": [1.0, np.nan]}, "`class_weight_grid` must be finite"),
        ({"scoring_alpha": np.inf}, "`scoring_alpha` must be a finite number"),
        ({"cv": 0}, "`cv` must be an integer"),
        ({"random_state": "seed"}, "`random_state`"),
        ({"tol": 0.0}, "`tol` must lie in"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters, message):
    """An invalid parameter raises an error that names it, and no attribute is left."""
    X, y = moons(40)
    model = CostSensitiveSVC(**parameters)
    before = dict(vars(model))
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, y)
    assert vars(model) == before


def test_works_in_searches_and_pickles():
    """Grid search inside a pipeline, and a pickled copy, work."""
    X, y = moons(100)
    pipeline = make_pipeline(StandardScaler(), CostSensitiveSVC(cv=2, class_weight_grid=(0.5, 1.0, 2.0)))
    search = GridSearchCV(pipeline, {"costsensitivesvc__C": [0.1, 1.0]}, cv=2).fit(X, y)
    copy = pickle.loads(pickle.dumps(search))  # noqa: S301  # made in this test
    np.testing.assert_array_equal(copy.predict_proba(X), search.predict_proba(X))
