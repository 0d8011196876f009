"""Model folders with content that is not safe for compiled code are rejected."""

import numpy as np
import pytest
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.utils import Bunch

from peerloss import PeerPlugInClassifier, load_model, save_model
from peerloss.exceptions import ModelFolderError
from peerloss.persistence import _content_checks
from tests.persistence.saved_models import CODES, X, assert_same


def set_to(**attributes):
    """Return a function that replaces attributes."""
    return lambda model: vars(model).update(attributes)


def in_place(path, index, value):
    """Return a function that changes one element of an array, found by its dotted path."""

    def change(model):
        *owners, name = path.split(".")
        for owner in owners:
            model = model[int(owner)] if owner.isdigit() else getattr(model, owner)
        array = getattr(model, name).copy()
        array[index] = value
        setattr(model, name, array)

    return change


def wider(model):
    """Repeat the trees of each round."""
    model.estimators_ = np.hstack([model.estimators_, model.estimators_])


def renumber(**columns):
    """Return a function that changes columns of the vocabulary."""
    return lambda pipeline: pipeline[0].vocabulary_.update(columns)


ROUNDED = np.round(X)
TEXT = np.where(CODES == 1, "good word", "bad word").astype(object)
BOOSTING = GradientBoostingClassifier(n_estimators=2)
HISTOGRAMS = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=5)
ONE_HOT = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
GROUPED = make_pipeline(
    OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=20, drop="first"), LogisticRegression()
)
WORDS = make_pipeline(CountVectorizer(), LogisticRegression())


def histogram_node(field, value):
    """Return a function that changes a field of the first node."""

    def change(model):
        model._predictors[0][0].nodes[field][0] = value

    return change


CRAFTED = {
    "boosting, more columns": (BOOSTING, X, wider, "another number of trees"),
    "boosting, more columns and trees": (
        BOOSTING,
        X,
        lambda m: (wider(m), set_to(n_trees_per_iteration_=2)(m)),
        "another number of scores",
    ),
    "boosting, other classes": (
        BOOSTING,
        X,
        lambda m: (wider(m), set_to(n_trees_per_iteration_=2, init_="zero")(m), set_to(init_=5)(m)),
        "starts from another model",
    ),
    "boosting, other features": (BOOSTING, X, set_to(n_features_in_=2), "other features"),
    "boosting, no features": (BOOSTING, X, lambda m: vars(m).pop("n_features_in_"), "unknown features"),
    "boosting, not a tree": (BOOSTING, X, in_place("estimators_", (0, 0), 3), "objects that are not trees"),
    "forest, other features": (RandomForestClassifier(2), X, set_to(n_features_in_=2), "other features"),
    "forest, features as text": (
        RandomForestClassifier(2),
        X,
        set_to(n_features_in_="5"),
        "unknown features",
    ),
    "forest, empty": (RandomForestClassifier(2), X, set_to(estimators_=[]), "without trees"),
    "forest, threads": (RandomForestClassifier(2), X, set_to(n_jobs=10**6), "n_jobs=1000000"),
    "a method replaced": (LogisticRegression(), X, set_to(predict_proba=3), "another predict_proba"),
    "histograms, child": (HISTOGRAMS, X, histogram_node("left", 10**6), "point outside"),
    "histograms, loop": (HISTOGRAMS, X, histogram_node("right", 0), "point outside"),
    "histograms, feature": (HISTOGRAMS, X, histogram_node("feature_idx", 10**6), "unknown features"),
    "histograms, category": (
        HISTOGRAMS,
        X,
        histogram_node("is_categorical", 1),
        "a category in a numeric feature",
    ),
    "histograms, in its fit": (HISTOGRAMS, X, set_to(_in_fit=True), "unfinished fit"),
    "histograms, preprocessor": (HISTOGRAMS, X, set_to(_preprocessor=StandardScaler()), "preprocessor"),
    "histograms, bins": (
        HISTOGRAMS,
        X,
        in_place("_bin_mapper.is_categorical_", 0, 1),
        "categories out of range",
    ),
    "histograms, no nodes": (
        HISTOGRAMS,
        X,
        lambda m: setattr(m._predictors[0][0], "nodes", m._predictors[0][0].nodes[:0]),
        "without nodes",
    ),
    "histograms, trees": (HISTOGRAMS, X, set_to(n_trees_per_iteration_=10**9), "another number of trees"),
    "boosting, classes of its start": (
        BOOSTING,
        X,
        lambda m: set_to(n_classes_=10**9)(m.init_),
        "other classes",
    ),
    "boosting, loss": (BOOSTING, X, set_to(_loss=Bunch(is_multiclass=True)), "another loss"),
    "machine, precomputed": (SVC(), X, set_to(kernel="precomputed"), "kernel='precomputed'"),
    "machine, precomputed and far": (
        SVC(),
        X,
        lambda m: (set_to(kernel="precomputed")(m), in_place("support_", 0, 10**8)(m)),
        "kernel='precomputed'",
    ),
    "machine, support": (SVC(), X, in_place("support_", 0, 10**8), "out of range"),
    "machine, negative support": (SVC(), X, in_place("support_", 0, -5), "out of range"),
    "machine, counts": (SVC(), X, in_place("_n_support", 0, 10**6), "do not match"),
    "machine, negative counts": (
        SVC(),
        X,
        lambda m: setattr(m, "_n_support", np.array([-5, len(m.support_) + 5], dtype=np.int32)),
        "do not match",
    ),
    "machine, sparse": (SVC(), X, set_to(_sparse=True), "sparse features"),
    "machine, another kind": (SVC(), X, set_to(_impl="nu_svr"), "another _impl"),
    "machine, intercepts": (SVC(), X, set_to(_intercept_=np.zeros(0)), "intercepts"),
    "machine, coefficients": (SVC(), X, set_to(_dual_coef_=np.zeros((1, 2))), "coefficients"),
    "machine, probabilities": (SVC(), X, set_to(_probA=np.zeros(1)), "probabilities"),
    "machine, classes": (SVC(), X, set_to(classes_=np.arange(9)), "other classes"),
    "machine, features": (SVC(), X, set_to(n_features_in_=900), "other features"),
    "one hot, columns": (ONE_HOT, ROUNDED, lambda m: m[0]._n_features_outs.append(3), "number of columns"),
    "one hot, fewer columns": (
        ONE_HOT,
        ROUNDED,
        lambda m: set_to(_n_features_outs=[1] * 5)(m[0]),
        "number of columns",
    ),
    "one hot, not sorted": (
        ONE_HOT,
        ROUNDED,
        lambda m: set_to(categories_=[values[::-1] for values in m[0].categories_])(m[0]),
        "not sorted",
    ),
    "one hot, group": (
        GROUPED,
        ROUNDED,
        lambda m: m[0]._default_to_infrequent_mappings[0].__setitem__(0, 10**9),
        "unknown categories",
    ),
    "one hot, dropped": (
        GROUPED,
        ROUNDED,
        lambda m: m[0]._drop_idx_after_grouping.__setitem__(0, -4),
        "unknown category",
    ),
    "words, far": (WORDS, TEXT, renumber(good=10**9), "columns out of range"),
    "words, negative": (WORDS, TEXT, renumber(good=-9), "columns out of range"),
}


@pytest.mark.parametrize("name", CRAFTED)
@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_content_that_is_unsafe_for_compiled_code_is_rejected(name, tmp_path):
    """Indices and shapes that compiled code does not check are checked when a model is loaded."""
    estimator, features, change, message = CRAFTED[name]
    model = PeerPlugInClassifier(estimator, cv=2).fit(features, CODES)
    assert_same(model, load_model(save_model(model, tmp_path / "correct")), features)
    change(model.estimator_)
    save_model(model, tmp_path / "model")
    with pytest.raises(ModelFolderError, match=message):
        load_model(tmp_path / "model")


@pytest.mark.parametrize(
    "kind", [np.random.RandomState, lambda seed: np.random.Generator(np.random.Philox(seed))]
)
def test_a_random_generator_stays_within_its_buffer(kind):
    """The position of the next number is an index that compiled code does not check."""
    generator = kind(0)
    _content_checks.check_loaded(generator)
    bits = getattr(generator, "bit_generator", None) or generator._bit_generator
    state = bits.state
    (state if "buffer_pos" in state else state["state"])["buffer_pos" if "buffer_pos" in state else "pos"] = (
        10**6
    )
    bits.state = state
    with pytest.raises(ValueError, match="a position out of range"):
        _content_checks.check_loaded(generator)


def test_categories_of_histogram_boosting_pass(tmp_path):
    """The check of categorical splits accepts a correct model."""
    features = np.column_stack([np.arange(120) % 6, X[:, 1]])
    boosting = HistGradientBoostingClassifier(max_iter=5, categorical_features=[0], min_samples_leaf=2)
    model = PeerPlugInClassifier(boosting, cv=2).fit(features, (features[:, 0] % 2 == 0) | (CODES == 1))
    trusted = ["functools.partial", "sklearn.utils.validation.check_array"]  # used to find the categories
    folder = save_model(model, tmp_path / "model", trusted=trusted)
    assert_same(model, load_model(folder, trusted=trusted), features)
