"""RobustMLPClassifier."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from peerloss import NoiseModel, flip_labels, peer_scorer
from peerloss.estimators import PeerPlugInClassifier, RobustMLPClassifier
from peerloss.estimators._mlp_checks import LOSSES
from peerloss.estimators._mlp_search import ALPHA_GRID, assign_folds, hold_out, search_alpha
from peerloss.exceptions import DivergenceError, DivergenceWarning, IdentifiabilityWarning, InvalidInputError
from peerloss.posterior.decision import NEAR_BALANCE
from peerloss.theory import optimal_alpha

STOCHASTIC = "batches are random: a row of weight 2 is drawn once an epoch, two equal rows twice"
EXEMPT = {"check_sample_weight_equivalence_on_dense_data": STOCHASTIC}
NEEDS_NOISE = ("surrogate", "backward", "forward")


def expected_failed_checks(estimator):  # noqa: ARG001 (scikit-learn passes it)
    return EXEMPT


@parametrize_with_checks(
    [
        RobustMLPClassifier(max_steps=200, hidden_layer_sizes=(16,), learning_rate=0.01, random_state=0),
        RobustMLPClassifier(
            "symmetric", max_steps=200, n_members=2, learning_rate=0.01, early_stopping=True, random_state=0
        ),
    ],
    expected_failed_checks=expected_failed_checks,
)
def test_scikit_learn_contract(estimator, check):
    """Everything scikit-learn asks of a classifier, but weight equivalence (exempt with its reason)."""
    check(estimator)


def data(n=300, k=2, seed=0, noise=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1.0, 10.0, 0.1, 1.0] + [0.0, 50.0, 0.0, 0.0]
    score = X[:, 0] + X[:, 3]
    y = np.digitize(score, [0.0] if k == 2 else [-0.6, 0.6])
    return X, y, y if noise is None else flip_labels(y, noise, random_state=seed)


def fast(*args, **kwargs):
    settings = {"max_steps": 150, "learning_rate": 0.01, "hidden_layer_sizes": (8, 8), "random_state": 0}
    return RobustMLPClassifier(*args, **{**settings, **kwargs})


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_sees_through_noise(loss, k):
    """With noisy training labels, every loss predicts the clean ones well on new rows."""
    noise = NoiseModel.binary(0.1, 0.3) if k == 2 else NoiseModel.uniform(3, 0.3)
    X, _, noisy = data(800, k, noise=noise)
    X_new, y_new, _ = data(500, k, seed=1)
    model = fast(loss, noise=noise if loss in NEEDS_NOISE else None, max_steps=300).fit(X, noisy)
    assert model.score(X_new, y_new) > (0.83 if k == 2 else 0.7)
    probabilities = model.predict_proba(X_new)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.array_equal(model.predict(X_new), model.classes_[probabilities.argmax(axis=1)])


@pytest.mark.parametrize("base", ["sigmoid", "unhinged", "mae", "ramp"])
def test_symmetric_losses(base):
    """The symmetric loss is the plain loss of its base, sigmoid unless said otherwise."""
    X, y, _ = data(200)
    symmetric = fast("symmetric", base=base).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(symmetric, fast("plain", base=base).fit(X, y).predict_proba(X))
    if base == "sigmoid":
        np.testing.assert_allclose(symmetric, fast("symmetric").fit(X, y).predict_proba(X))


def test_plain_is_peer_at_alpha_zero():
    """The plain loss, the peer loss at α = 0, and backward correction of no noise are one."""
    X, y, _ = data(200)
    plain = fast("plain").fit(X, y).predict_proba(X)
    np.testing.assert_allclose(plain, fast("peer", alpha=0).fit(X, y).predict_proba(X))
    np.testing.assert_allclose(plain, fast("backward", noise=np.eye(2)).fit(X, y).predict_proba(X), atol=1e-4)


def test_sampled_peers():
    """Sampled peers train too, to another net than expected ones."""
    X, y, _ = data()
    sampled = fast(peers="sampled").fit(X, y)
    assert sampled.score(X, y) > 0.85
    assert not np.allclose(sampled.predict_proba(X), fast().fit(X, y).predict_proba(X))


def test_noise_is_estimated_from_the_noisy_labels():
    """noise="estimate" finds rates near the true ones and reports them."""
    noise = NoiseModel.binary(0.1, 0.3)
    X, y, noisy = data(2000, noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model = fast("surrogate", noise="estimate").fit(X, noisy)
    assert abs(model.noise_.e_neg - 0.1) < 0.12
    assert abs(model.noise_.e_pos - 0.3) < 0.12
    assert "NoiseModel" in model.report_["noise"]
    assert model.score(X, y) > 0.85


def test_alpha_is_searched_on_noisy_labels():
    """alpha="auto" tries the grid, 0 included, and reports the score of each candidate."""
    X, _, noisy = data(300, noise=NoiseModel.binary(0.1, 0.3))
    model = fast(alpha="auto", max_steps=60).fit(X, noisy)
    assert 0.0 in ALPHA_GRID
    assert tuple(model.report_["alpha_scores"]) == ALPHA_GRID
    best = max(model.report_["alpha_scores"].values())
    assert model.report_["alpha_scores"][model.alpha_] == best
    assert model.report_["alpha"] == model.alpha_


def test_candidates_are_compared_under_one_scorer_alpha():
    """The search takes the best peer score at the scorer's α; ties go to the nearest α, NaNs to nobody."""
    y = np.array([0, 0, 0, 1] * 5)
    folds = [(np.arange(10, 20), np.arange(10)), (np.arange(10), np.arange(10, 20))]
    nobody = np.full((20, 2), np.nan)
    found = search_alpha(
        np.stack([np.eye(2)[0 * y], np.eye(2)[y], np.eye(2)[y], nobody]),
        1.0,
        y=y,
        weight=None,
        folds=folds,
        grid=(0.0, 1.0, 2.0, 3.0),
    )
    assert found.alpha == 1.0
    assert found.scores[3] == -np.inf
    tied = search_alpha(np.eye(2)[np.stack([y, y])], 1.9, y=y, weight=None, folds=folds, grid=(1.0, 2.0))
    assert tied.alpha == 2.0
    with pytest.raises(DivergenceError, match="every candidate"):
        search_alpha(nobody[None], 1.0, y=y, weight=None, folds=folds, grid=(3.0,))


def test_the_search_compares_under_the_estimated_alpha():
    """By default the scorer's α is the library's rule, from the out-of-fold probabilities of plain nets."""
    X, y, noisy = data(1500, noise=NoiseModel.binary(0.05, 0.4))
    keep = (y == 1) | (np.arange(len(y)) % 3 == 0)  # classes of unequal size, so that α* is not 1
    model = fast(alpha="auto", max_steps=150).fit(X[keep], noisy[keep])
    right = optimal_alpha(NoiseModel.binary(0.05, 0.4), y[keep].mean())
    assert abs(model.report_["scoring_alpha"] - right) < abs(1.0 - right)


def test_balanced_noisy_labels_are_weighed_apart():
    """With δ_p̃ = 0 no α tells unequal rates; rows weighted by their label have one, and accuracy gains.

    The plug-in reaches the Bayes threshold by it; the networks have a grid of α to choose from and gain less.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = (X[:, 0] + 0.7 * rng.normal(size=3000) > -0.61).astype(int)  # two thirds are 1
    noisy = flip_labels(y, NoiseModel.binary(0.05, 0.3), exact=True, random_state=1)
    noisy_delta = 2 * noisy.mean() - 1
    assert abs(noisy_delta) < NEAR_BALANCE
    model = fast(alpha="auto").fit(X, noisy)
    plain = fast("plain").fit(X, noisy)
    assert model.report_["scoring_alpha"] > 1
    assert model.score(X, y) > plain.score(X, y) + 0.01
    plug_in = PeerPlugInClassifier(LogisticRegression(), alpha="auto").fit(X, noisy)
    fixed = PeerPlugInClassifier(LogisticRegression(), alpha=1.0).fit(X, noisy)
    assert plug_in.score(X, y) > fixed.score(X, y) + 0.04


def test_logits_that_run_away_are_said():
    """Unclipped cross entropy at α above 1 on one clean feature: finite, but past 10⁴."""
    X = np.repeat([[-1.0], [1.0]], 50, axis=0)
    y = np.repeat([0, 1], 50)
    with pytest.warns(DivergenceWarning, match="runs away"):
        RobustMLPClassifier(
            alpha=3.0, eps=0.0, weight_decay=0.0, learning_rate=0.05, random_state=0, max_steps=1500
        ).fit(X, y)


def test_folds_and_held_out_rows_keep_the_classes():
    """Folds spread every class evenly; the part held out has the classes in proportion."""
    y = np.repeat([0, 1, 2], [50, 30, 20])
    folds = assign_folds(y, 5, 3)
    for k, per_fold in enumerate((10, 6, 4)):
        assert np.bincount(folds[y == k]).tolist() == [per_fold] * 5
    train, held_out = hold_out(y, 0.2, 3)
    assert np.bincount(y[held_out]).tolist() == [10, 6, 4]
    assert sorted([*train, *held_out]) == list(range(100))


def test_early_stopping_keeps_the_best_step():
    """The curve of noisy peer scores is kept, and the weights are those of its maximum."""
    X, _, noisy = data(300, noise=NoiseModel.binary(0.2, 0.2))
    model = fast(early_stopping=True, n_members=2).fit(X, noisy)
    curve = model.validation_score_curve_
    assert curve.shape == model.loss_curve_.shape == (2, len(model.nets_.steps))
    assert model.nets_.best_step.tolist() == model.nets_.steps[curve.argmax(axis=1)].tolist()
    assert fast().fit(X, noisy).validation_score_curve_ is None


def test_members_are_averaged():
    """The probabilities of an ensemble are the mean of its members'."""
    X, y, _ = data()
    model = fast(n_members=3).fit(X, y)
    Z = model._standardise(X)
    members = [model.nets_.mean_probabilities(Z, nets=[i]) for i in range(3)]
    np.testing.assert_allclose(model.predict_proba(X), np.mean(members, axis=0))


def test_a_diverged_member_is_left_out_and_named(monkeypatch):
    """One net in NaN: a warning, its number in the report, the average over the others."""
    X, y, _ = data()
    break_members(monkeypatch, [1])
    with pytest.warns(DivergenceWarning, match=r"members \[1\] of 3"):
        model = fast(n_members=3).fit(X, y)
    assert model.report_["diverged"] == [1]
    assert np.isfinite(model.predict_proba(X)).all()


def test_all_members_diverged_is_an_error(monkeypatch):
    """Nothing is left to average: an error with a remedy, and nothing half-fitted."""
    X, y, _ = data()
    break_members(monkeypatch, [0, 1])
    model = fast(n_members=2)
    with pytest.raises(DivergenceError, match=r"all 2 nets.*learning_rate"):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


def break_members(monkeypatch, broken):
    from peerloss.estimators import _mlp  # noqa: PLC0415

    train = _mlp.train_nets

    def sabotaged(*args, **kwargs):
        nets = train(*args, **kwargs)
        nets.parameters[broken] = np.nan
        nets.diverged[broken] = True
        return nets

    monkeypatch.setattr(_mlp, "train_nets", sabotaged)


def test_an_absurd_rate_diverges_loudly():
    """Real divergence is found as well."""
    X, y, _ = data()
    with pytest.raises(DivergenceError):
        fast("plain", base="unhinged", learning_rate=1e38).fit(X, y)


def test_the_seed_decides():
    """Equal seeds repeat to the last digit, others differ; a generator moves on."""
    X, y, _ = data(100)
    first, again, other = (fast(random_state=s).fit(X, y).predict_proba(X) for s in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)
    rng = np.random.default_rng(0)
    assert not np.allclose(*(fast(random_state=rng).fit(X, y).predict_proba(X) for _ in range(2)))


def test_weights_matter_and_zero_means_absent():
    """Rows of weight zero might as well not be there; heavy rows pull."""
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


def test_labels_of_any_kind_and_frames():
    """Strings in a frame with named columns: predictions are strings, wrong columns are refused."""
    X, y, _ = data(k=3)
    frame = pd.DataFrame(X, columns=list("abcd"), index=range(1000, 1300))
    labels = pd.Series(np.array(["low", "mid", "top"])[y], index=frame.index)
    model = fast().fit(frame, labels)
    assert model.classes_.tolist() == ["low", "mid", "top"]
    assert set(model.predict(frame)) <= {"low", "mid", "top"}
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_constant_and_huge_features_do_no_harm():
    """A constant column and columns of very different size are standardised away."""
    X, y, _ = data()
    wide = np.column_stack([X, np.full(300, 1e9), X[:, 1] * 1e8])
    assert fast().fit(wide, y).score(wide, y) > 0.9


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_features_must_be_finite(value):
    """NaN and infinity are refused, at fit and at predict."""
    X, y, _ = data(50)
    model = fast(max_steps=5).fit(X, y)
    X[3, 1] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        fast().fit(X, y)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(X)


def test_misuse_has_clear_errors():
    """One class, predicting before fitting, another number of features, fewer rows than folds."""
    X, y, _ = data(50)
    with pytest.raises(InvalidInputError, match="at least two classes"):
        fast().fit(X, np.zeros(50))
    with pytest.raises(NotFittedError):
        fast().predict(X)
    with pytest.raises(ValueError, match="features"):
        fast(max_steps=5).fit(X, y).predict(X[:, :2])
    with pytest.raises(InvalidInputError, match="`cv` must be at most"):
        fast(alpha="auto").fit(X[:3], [0, 1, 1])
    with pytest.raises(InvalidInputError, match="`validation_fraction`"):
        fast(early_stopping=True).fit(X[:2], [0, 1])


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("loss", "huber", "`loss` must be one of 'peer', 'plain', 'surrogate'"),
        ("base", "zero_one", "`base` must be one of 'cross_entropy'"),
        ("alpha", np.nan, "`alpha` must be a finite number; got nan"),
        ("alpha", [0.5, np.nan], "`alpha` must be a finite number"),
        ("alpha", "best", "`alpha` must be a finite number; got 'best'.*'auto'"),
        ("scoring_alpha", None, "`scoring_alpha`"),
        ("peers", "both", "`peers` must be one of"),
        ("hidden_layer_sizes", (8, 0), "`hidden_layer_sizes`"),
        ("hidden_layer_sizes", None, "`hidden_layer_sizes`"),
        ("batch_size", 0, "`batch_size`"),
        ("max_steps", 1.5, "`max_steps`"),
        ("n_members", 0, "`n_members`"),
        ("cv", 1, "`cv`"),
        ("cv", "five", "`cv` must be a number of folds"),
        ("cv", 2.5, "`cv` must be a number of folds"),
        ("learning_rate", -1.0, "`learning_rate`"),
        ("weight_decay", np.inf, "`weight_decay`"),
        ("eps", 2.0, "`eps`"),
        ("validation_fraction", 1.0, "`validation_fraction`"),
        ("warm_start_fraction", 0.0, "`warm_start_fraction`"),
        ("device", "toaster", "`device`"),
        ("random_state", "seed", "`random_state`"),
    ],
)
def test_bad_parameters_are_named_in_fit(parameter, value, message):
    """The constructor takes anything; fit names the parameter, what is allowed and what came."""
    X, y, _ = data(50)
    model = fast(**{parameter: value}) if parameter != "loss" else fast(value)
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "nets_")


@pytest.mark.parametrize(
    ("loss", "settings", "message"),
    [
        ("surrogate", {}, "`noise` must be given for loss='surrogate'"),
        ("forward", {"noise": "guess"}, "`noise` must be one of 'estimate'"),
        ("backward", {"noise": NoiseModel.uniform(3, 0.1)}, "`noise` must be for the 2 classes"),
        ("forward", {"noise": [[1, 2], [3, 4]]}, "`noise` must be a NoiseModel"),
        ("symmetric", {"base": "hinge"}, "`base` must be one of 'sigmoid'"),
    ],
)
def test_losses_say_what_they_need(loss, settings, message):
    """A loss with missing or wrong settings says which."""
    X, y, _ = data(50)
    with pytest.raises(InvalidInputError, match=message):
        fast(loss, **settings).fit(X, y)


def test_pipelines_searches_clones_and_pickles():
    """Pipeline, GridSearchCV under the peer score, cross_val_score, clone and pickle all work."""
    X, _, noisy = data(200, noise=NoiseModel.binary(0.1, 0.2))
    pipeline = make_pipeline(StandardScaler(), fast(max_steps=30))
    grid = {"robustmlpclassifier__loss": ["peer", "gce"], "robustmlpclassifier__alpha": [0.5, 1.0]}
    search = GridSearchCV(pipeline, grid, scoring=peer_scorer, cv=3).fit(X, noisy)
    assert set(search.best_params_) == set(grid)
    assert len(cross_val_score(fast(max_steps=30), X, noisy, cv=3)) == 3
    model = fast(max_steps=30).fit(X, noisy)
    twin = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    assert clone(model).get_params() == model.get_params()


def test_many_rows_take_bounded_time_and_memory():
    """A hundred thousand rows: batches are drawn as needed, predictions in blocks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 5))
    y = (X[:, 0] > 0).astype(int)
    model = fast(max_steps=100).fit(X, y)
    assert model.score(X, y) > 0.95
