"""MarginPerceptron, the perceptron algorithm with margin (PAM)."""

import pickle
import time

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from peerloss.estimators import MarginPerceptron
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score
from peerloss.noise import NoiseModel, flip_labels


def clouds(n=300, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    return rng.normal(size=(n_classes, 5))[y] * 1.5 + rng.normal(size=(n, 5)), y


def naive(X, y, margin, n_epochs, *, averaged=False, weight=None):
    """Run the algorithm in a plain loop over the rows."""
    weight = np.ones(len(y)) if weight is None else weight
    w, b = np.zeros(X.shape[1]), 0.0
    total_w, total_b = np.zeros(X.shape[1]), 0.0
    for _ in range(n_epochs):
        for x, label, share in zip(X, np.where(y, 1.0, -1.0), weight, strict=True):
            if label * (w @ x + b) <= margin:
                w, b = w + share * label * x, b + share * label
            total_w, total_b = total_w + w, total_b + b
    steps = n_epochs * len(y)
    return (total_w / steps, total_b / steps) if averaged else (w, b)


@parametrize_with_checks(
    [MarginPerceptron(cv=2, margin_grid=(0.0, 1.0))],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": "a weight scales one update; a repeated row "
        "updates again only if the margin is still not met, and in another order"
        for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_conventions(estimator, check):
    """Only weight equivalence is exempt: the algorithm visits the rows in a random order."""
    check(estimator)


@pytest.mark.parametrize("margin", [0.0, 0.125, 1.0, 5.0])
@pytest.mark.parametrize("average", ["last", "averaged"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_compiled_pass_is_the_algorithm(margin, average, weighted):
    """The weights equal those of the plain loop, for the perceptron (margin 0) and for every margin."""
    X, y = clouds(120)
    weight = np.random.default_rng(1).uniform(0.5, 2, 120) if weighted else None
    model = MarginPerceptron(margin_grid=[margin], n_epochs=3, average=average, shuffle=False, cv=2)
    model.fit(X, y, sample_weight=weight)
    w, b = naive(X, y, margin, 3, averaged=average == "averaged", weight=weight)
    np.testing.assert_allclose(model.coef_, w[None], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, [b], rtol=1e-9, atol=1e-12)


def test_more_classes_are_one_against_the_rest():
    """Each class has the weights of its own two-class problem."""
    X, y = clouds(150, n_classes=3)
    model = MarginPerceptron(margin_grid=[0.5], n_epochs=2, shuffle=False, cv=2).fit(X, y)
    for k in range(3):
        w, b = naive(X, y == k, 0.5, 2)
        np.testing.assert_allclose(model.coef_[k], w, rtol=1e-9, atol=1e-12)
        assert model.intercept_[k] == pytest.approx(b)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X).argmax(axis=1))


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_the_margin_is_the_best_on_held_out_noisy_labels(alpha):
    """The scores equal those of the plain loop on the same folds, and the best margin is chosen."""
    X, y = clouds(90)
    noisy = flip_labels(y, NoiseModel.binary(0.1, 0.3), random_state=99)
    folds = list(StratifiedKFold(2).split(X, noisy))
    grid = (0.0, 0.5, 4.0)
    model = MarginPerceptron(margin_grid=grid, n_epochs=2, shuffle=False, cv=folds, scoring_alpha=alpha)
    model.fit(X, noisy)
    expected = []
    for margin in grid:
        predicted = np.zeros_like(noisy)
        for train, test in folds:
            w, b = naive(X[train], noisy[train], margin, 2)
            predicted[test] = X[test] @ w + b > 0
        expected.append(peer_score(noisy, predicted, alpha=alpha))
    np.testing.assert_allclose(model.scores_, expected, atol=1e-12)
    assert model.margin_ == grid[int(np.argmax(expected))]


def test_the_seed_decides_the_order():
    """The same seed gives the same weights; another order gives other weights."""
    X, y = clouds()
    noisy = flip_labels(y, NoiseModel.binary(0.2, 0.2), random_state=99)
    first, again, other = (
        MarginPerceptron(margin_grid=[1.0], cv=2, random_state=seed).fit(X, noisy).coef_ for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_averaging_helps_under_noise():
    """Over several orders of the rows, the averaged hypothesis is more accurate on clean labels."""
    X, y = clouds(400)
    noisy = flip_labels(y, NoiseModel.binary(0.2, 0.2), random_state=99)
    accuracy = {
        average: np.mean(
            [
                MarginPerceptron(average=average, margin_grid=[0.0, 1.0], cv=2, random_state=s)
                .fit(X, noisy)
                .score(X, y)
                for s in range(5)
            ]
        )
        for average in ("last", "averaged")
    }
    assert accuracy["averaged"] > accuracy["last"]


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_agree_with_the_decision(n_classes):
    """Probabilities sum to one and their argmax is that of the scores."""
    X, y = clouds(n_classes=n_classes)
    names = np.array(["north", "south", "east", "west"])[y]
    model = MarginPerceptron(random_state=0, cv=2).fit(X, names)
    proba, scores = model.predict_proba(X), model.decision_function(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    winner = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[winner])
    assert model.score(X, names) > 0.7


def test_the_passes_are_compiled():
    """Nine margins, five folds and ten passes take less time than a tenth of these passes in Python.

    Both are processor times of the same run, so a slow or busy machine does not matter.
    """
    X, y = clouds(20_000)
    start = time.process_time()
    naive(X, y, 1.0, 1)
    middle = time.process_time()
    MarginPerceptron(random_state=0).fit(X, y)
    assert time.process_time() - middle < 9 * 5 * 10 / 10 * (middle - start)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"margin_grid": [-1.0]}, "at least 0"),
        ({"margin_grid": []}, "`margin_grid` is empty"),
        ({"margin_grid": [np.nan]}, "`margin_grid` must be finite"),
        ({"n_epochs": 0}, "`n_epochs` must be an integer"),
        ({"average": "voted"}, "`average` must be one of 'last', 'averaged'"),
        ({"scoring_alpha": np.nan}, "`scoring_alpha` must be a finite number"),
        ({"cv": 1}, "`cv` must be an integer"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters, message):
    """An invalid parameter raises an error that names it, and no attribute is left."""
    X, y = clouds(40)
    model = MarginPerceptron(**parameters)
    before = dict(vars(model))
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, y)
    assert vars(model) == before


def test_works_in_searches_and_pickles():
    """Grid search inside a pipeline, and a pickled copy, work."""
    X, y = clouds(100)
    pipeline = make_pipeline(StandardScaler(), MarginPerceptron(cv=2, random_state=0))
    search = GridSearchCV(pipeline, {"marginperceptron__average": ["last", "averaged"]}, cv=2).fit(X, y)
    copy = pickle.loads(pickle.dumps(search))  # noqa: S301  # made in this test
    np.testing.assert_array_equal(copy.predict_proba(X), search.predict_proba(X))
