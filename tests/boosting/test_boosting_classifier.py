"""PeerBoostingClassifier."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from peerloss.boosting import PeerBoostingClassifier, libraries
from peerloss.boosting._cross_fit import hold_out
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import make_peer_scorer, peer_score
from peerloss.noise import NoiseModel, flip_labels

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
BACKENDS = ["lightgbm", "xgboost"]


def rings(n=1000, n_classes=2, seed=0):
    """Return classes that only a non-linear model can separate."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    radius = np.square(X[:, :2]).sum(axis=1)
    return X, np.searchsorted(np.quantile(radius, np.arange(1, n_classes) / n_classes), radius)


def small(**parameters):
    return PeerBoostingClassifier(
        **{"n_estimators": 40, "learning_rate": 0.1, "num_leaves": 7, "random_state": 0} | parameters
    )


WEIGHT_REASON = (
    "a histogram learner: bins and the least number of rows in a leaf are counted in rows, not in weights"
)


FOLD_REASON = "folds count rows, not weights: a row of weight 2 is not two rows"


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")  # random labels
@pytest.mark.filterwarnings("ignore:.*folds are used")  # and few rows
@parametrize_with_checks(
    [
        PeerBoostingClassifier(
            alpha=alpha, n_estimators=10, learning_rate=0.3, min_child_samples=1, backend=backend
        )
        for backend in BACKENDS
        for alpha in ("auto", 1.0)
    ],
    expected_failed_checks=lambda estimator: (
        {
            f"check_sample_weight_equivalence_on_{kind}_data": (
                FOLD_REASON if estimator.alpha == "auto" else WEIGHT_REASON
            )
            for kind in ("dense", "sparse")
        }
        if estimator.backend == "lightgbm" or estimator.alpha == "auto"
        else {}
    ),
)
def test_scikit_learn_conventions(estimator, check):
    """All checks of scikit-learn pass, except weight equivalence of LightGBM and of folds."""
    check(estimator)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_a_peer_term_it_equals_lightgbm(n_classes):
    """At α = 0 the probabilities equal those of LGBMClassifier with initial score 0."""
    X, y = rings(n_classes=n_classes)
    ours = small(alpha=0.0, reg_lambda=0.0).fit(X, y)
    own = lightgbm.LGBMClassifier(
        n_estimators=40, learning_rate=0.1, num_leaves=7, boost_from_average=False, n_jobs=1, verbose=-1
    ).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), own.predict_proba(X), atol=0.03)
    assert (ours.predict(X) == own.predict(X)).mean() > 0.99


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("base", ["logistic", "sigmoid"])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_trees_grow_at_every_alpha(backend, base, alpha):
    """With the bound trees grow and learn, also if the exact Hessian is zero or negative."""
    X, y = rings()
    model = small(backend=backend, base=base, alpha=alpha).fit(X[:700], y[:700])
    assert model.score(X[700:], y[700:]) > 0.85


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_sided_noise_is_corrected(backend):
    """If half of the positives are labelled negative, α = 1 has the higher clean balanced accuracy."""
    X, y = rings(2000)
    noisy = flip_labels(y[:1000], NoiseModel.binary(0.05, 0.5), random_state=99)
    accuracy = {
        alpha: balanced_accuracy_score(
            y[1000:], small(backend=backend, alpha=alpha).fit(X[:1000], noisy).predict(X[1000:])
        )
        for alpha in (0.0, 1.0)
    }
    assert accuracy[1.0] > accuracy[0.0] + 0.05


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_are_valid(backend, n_classes):
    """They lie in [0, 1], rows sum to one, and the argmax is the prediction, also for text labels."""
    X, y = rings(n_classes=n_classes)
    names = np.array(["a", "b", "c", "d"])[y]
    model = small(backend=backend).fit(X, names)
    proba = model.predict_proba(X)
    assert proba.shape == (1000, n_classes)
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(X), model.classes_[proba.argmax(axis=1)])


@pytest.mark.parametrize("backend", BACKENDS)
def test_early_stopping_keeps_the_round_with_the_best_noisy_peer_score(backend):
    """The validation scores are peer scores at α, training stops, and the best round is the last one used."""
    X, y = rings()
    noisy = flip_labels(y, NoiseModel.binary(0.2, 0.3), random_state=99)
    model = small(backend=backend, alpha=0.5, n_estimators=300, early_stopping_rounds=15).fit(X, noisy)
    scores = model.validation_scores_
    assert model.n_iter_ == int(np.argmax(scores)) + 1
    assert len(scores) == model.n_iter_ + 15 < 300
    truncated = small(backend=backend, alpha=0.5, n_estimators=300, early_stopping_rounds=15).fit(X, noisy)
    np.testing.assert_array_equal(truncated.predict_proba(X), model.predict_proba(X))
    _, held_out = hold_out(noisy, share=model.validation_fraction, seed=model._settings.seed)
    found = peer_score(noisy[held_out], model.predict(X[held_out]), alpha=0.5)
    assert found == pytest.approx(max(scores))


@pytest.mark.parametrize("backend", BACKENDS)
def test_held_out_rows_do_not_train(backend):
    """Held-out rows only decide when to stop: changing their features does not change the first tree."""
    X, y = rings()
    model = small(backend=backend, alpha=0.0, early_stopping_rounds=50).fit(X, y)
    _, held_out = hold_out(y, share=model.validation_fraction, seed=model._settings.seed)
    _, counts = np.unique(y[held_out], return_counts=True)
    assert len(held_out) == 150
    assert np.ptp(counts) <= 1
    garbage = X.copy()
    garbage[held_out] = 1e3
    other = small(backend=backend, alpha=0.0, early_stopping_rounds=50).fit(garbage, y)
    assert other.n_iter_ < model.n_iter_
    frames = [m.booster_.trees_to_dataframe() for m in (model, other)]
    column = "tree_index" if backend == "lightgbm" else "Tree"
    first, second = (frame[frame[column] == 0] for frame in frames)
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_repeats_the_model(backend):
    """With row and column sampling, equal seeds give equal probabilities and other seeds do not."""
    X, y = rings()
    first, again, other = (
        small(backend=backend, subsample=0.5, colsample_bytree=0.5, random_state=seed)
        .fit(X, y)
        .predict_proba(X)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_reach_the_trees_and_the_prior(backend):
    """Rows of weight zero are ignored, and weights change π̃."""
    X, y = rings()
    weight = np.r_[np.ones(600), np.zeros(400)]
    weighted = small(backend=backend).fit(X, y, sample_weight=weight)
    without = small(backend=backend).fit(X[:600], y[:600])
    np.testing.assert_array_equal(weighted.predict_proba(X), without.predict_proba(X))
    tilted = small(backend=backend).fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_allclose(tilted.noisy_prior_, [0.25, 0.75], atol=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_missing_values_are_handled(backend):
    """The model learns from NaN that missing values mean class 1."""
    X, y = rings(400)
    X[:, 0] = np.where(y == 1, np.nan, X[:, 0])
    model = small(backend=backend).fit(X, y)
    assert model.score(X, y) > 0.99
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.full((1, 4), np.inf))


def fruit(n=600):
    """Return a table whose label depends on an unordered text column."""
    rng = np.random.default_rng(0)
    kind = rng.choice(list("abcdefgh"), n)
    return pd.DataFrame({"kind": kind, "size": rng.normal(size=n)}), np.isin(kind, list("aceg")).astype(int)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["dtype", "name", "position", "array"])
def test_categorical_columns(backend, how):
    """Categorical columns are found by dtype, by name, by position, and in object arrays."""
    frame, y = fruit()
    given = {"dtype": None, "name": ["kind"], "position": [0], "array": [0]}[how]
    X = frame.astype({"kind": "category"}) if how == "dtype" else frame
    X = X.to_numpy(dtype=object) if how == "array" else X
    model = small(backend=backend, categorical_features=given, num_leaves=2, n_estimators=10).fit(X, y)
    assert model.score(X, y) > 0.99  # one split on a set of categories; one ordered split cannot reach it
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301  # made in this test
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("backend", BACKENDS)
def test_categories_keep_their_meaning_at_prediction_time(backend):
    """The codes of the fit are used for any later subset or order; unseen values are missing."""
    frame, y = fruit()
    model = small(backend=backend).fit(frame.astype({"kind": "category"}), y)
    few = frame[frame["kind"].isin(["b", "c"])].iloc[::-1]
    reordered = few.assign(kind=pd.Categorical(few["kind"], categories=["c", "b"]))
    np.testing.assert_array_equal(model.predict(reordered), y[few.index])
    unseen = pd.DataFrame({"kind": ["zebra"], "size": [0.0]})
    missing = pd.DataFrame({"kind": [None], "size": [0.0]})
    np.testing.assert_array_equal(model.predict_proba(unseen), model.predict_proba(missing))


@pytest.mark.parametrize("backend", BACKENDS)
def test_text_that_is_not_declared_is_categorical(backend):
    """A text column is split as a set of categories; declared columns of numbers still are categories."""
    frame, y = fruit()
    model = small(backend=backend, num_leaves=2, n_estimators=10).fit(frame, y)
    assert model.score(frame, y) > 0.99
    assert model.encode_features(frame).shape == (len(frame), 2)
    assert model.feature_importances_[0] > 0.9
    numbers = frame.assign(kind=frame["kind"].map(ord), word=np.where(frame["size"] > 0, "v", "w"))
    for column in ("kind", 0):
        declared = small(backend=backend, num_leaves=2, n_estimators=10, categorical_features=[column])
        assert declared.fit(numbers, y).score(numbers, y) > 0.99


@pytest.mark.parametrize("backend", BACKENDS)
def test_works_in_searches_and_pickles(backend):
    """Grid search over α under one peer scorer, cross validation, clone and pickle work."""
    X, y = rings(300)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), small(backend=backend, n_estimators=10)),
        {"peerboostingclassifier__alpha": [0.0, 1.0]},
        scoring=make_peer_scorer(1.0),
        cv=2,
    ).fit(X, y)
    copy = pickle.loads(pickle.dumps(search))  # noqa: S301  # made in this test
    np.testing.assert_array_equal(copy.predict_proba(X), search.predict_proba(X))
    assert cross_val_score(clone(search.best_estimator_), X, y, cv=2).mean() > 0.7


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"backend": "catboost"}, "`backend` must be one of 'lightgbm', 'xgboost'"),
        ({"alpha": np.nan}, "`alpha` must be a finite number"),
        ({"base": "hinge"}, "`base` must be one of"),
        ({"n_estimators": 0}, "`n_estimators` must be an integer"),
        ({"learning_rate": 0.0}, "`learning_rate` must lie in"),
        ({"num_leaves": 1}, "`num_leaves` must be an integer of at least 2"),
        ({"max_depth": 0}, "`max_depth` must be an integer"),
        ({"min_child_samples": 0}, "`min_child_samples`"),
        ({"subsample": 1.5}, "`subsample` must lie in"),
        ({"colsample_bytree": 0.0}, "`colsample_bytree` must lie in"),
        ({"reg_lambda": -1.0}, "`reg_lambda`"),
        ({"early_stopping_rounds": 0}, "`early_stopping_rounds`"),
        (
            {"alpha": 1.0, "early_stopping_rounds": 5, "validation_fraction": 1.0},
            "`validation_fraction` must lie in",
        ),
        ({"alpha": 1.0, "early_stopping_rounds": 5, "validation_fraction": 0.001}, "cannot be held out"),
        ({"alpha": "best"}, "`alpha` must be a finite number.*Pass 'auto'"),
        ({"base": "sigmoid"}, "`base` must be 'logistic' for alpha='auto'"),
        ({"num_leaves": "many"}, "`num_leaves` must be an integer of at least 2"),
        ({"n_folds": 1}, "`n_folds` must be an integer of at least 2"),
        ({"categorical_features": ["colour"]}, "`categorical_features`.*'colour'"),
        ({"categorical_features": [9]}, "positions below 4"),
        ({"categorical_features": "kind"}, r"Pass \['kind'\]"),
        ({"n_jobs": 0}, "`n_jobs`"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters, message):
    """An invalid parameter raises an error that names it, and no attribute is left."""
    X, y = rings(60)
    model = PeerBoostingClassifier(**parameters)
    before = dict(vars(model))
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, y)
    assert vars(model) == before


def test_weights_that_leave_one_class_are_rejected():
    """At least two classes need rows of positive weight."""
    X, y = rings(60)
    with pytest.raises(InvalidInputError, match="at least two classes"):
        small().fit(X, y, sample_weight=(y == 0).astype(float))


def test_too_few_rows_for_a_split_are_warned_of():
    """If no tree can split, a warning at the line of the caller names the parameter to change."""
    X, y = rings(30)
    with pytest.warns(UserWarning, match=r"No tree could split.*`min_child_samples` \(now 20\)") as caught:
        small().fit(X, y)
    assert caught[0].filename == __file__


def test_a_missing_library_is_named(monkeypatch):
    """Without the library the error contains the install command, and the estimator stays unfitted."""

    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(libraries, "import_module", absent)
    X, y = rings(60)
    model = small(backend="xgboost")
    with pytest.raises(ImportError, match=r'pip install "lightgbm>=.*" "xgboost>=.*"'):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


def test_importing_the_package_does_not_import_a_boosting_library():
    """LightGBM and XGBoost are imported by the first fit."""
    code = (
        "import sys, peerloss.boosting; peerloss.boosting.PeerBoostingClassifier();"
        "assert not {'lightgbm', 'xgboost'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
