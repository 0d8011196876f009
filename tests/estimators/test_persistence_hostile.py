"""Model folders from strangers: what is damaged, newer or crafted is refused, and builds nothing."""

import hashlib
import io
import json
import os
import re
import sys
import zipfile

import numpy as np
import pytest
import safetensors.numpy
import skops.io
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from skops.io._protocol import PROTOCOL

from peerloss import (
    PeerBoostingClassifier,
    PeerPlugInClassifier,
    load_model,
    save_model,
)
from peerloss.estimators import _persistence_checks, _persistence_types
from peerloss.exceptions import InvalidInputError, ModelFolderError
from tests.estimators.saved_models import CODES, X, assert_same


def rewrite(folder, name, content):
    """Put other content in a folder, as somebody would who knows the format."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def copy_of(saved, tmp_path):
    target = tmp_path / "copy"
    target.mkdir()
    for file in saved.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def test_folders_that_are_no_models(tmp_path):
    """Absent, a file, empty, foreign, broken: each is said."""
    with pytest.raises(ModelFolderError, match="does not exist"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelFolderError, match=r"it has no manifest.json"):
        load_model(tmp_path)
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    with pytest.raises(ModelFolderError, match="is a file"):
        load_model(manifest)
    with pytest.raises(ModelFolderError, match="belongs to something else"):
        load_model(tmp_path)
    manifest.write_text("{")
    with pytest.raises(ModelFolderError, match=r"manifest.json is damaged"):
        load_model(tmp_path)
    manifest.write_text(json.dumps({"format": "peerloss model", "format_version": "1", "files": {}}))
    with pytest.raises(ModelFolderError, match="damaged"):
        load_model(tmp_path)
    manifest.write_text(json.dumps({"format": "peerloss model", "format_version": 1, "files": {}}))
    with pytest.raises(ModelFolderError, match=r"does not list state.json"):
        load_model(tmp_path)


def test_a_newer_format_asks_for_a_newer_version(saved, tmp_path):
    """Rather than guess."""
    folder = copy_of(saved, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text()) | {"format_version": 2}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFolderError, match=r"newer peerloss: format 2.*pip install --upgrade"):
        load_model(folder)


@pytest.mark.parametrize("name", ["state.json", "arrays.safetensors"])
def test_a_changed_file_is_noticed(saved, tmp_path, name):
    """One bit is enough; so is a file that is gone, or one outside the folder."""
    folder = copy_of(saved, tmp_path)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFolderError, match=f"{name} is not as it was saved"):
        load_model(folder)
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=f"{name} cannot be read"):
        load_model(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {"../model/state.json": "0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFolderError, match="lies outside the folder"):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["objects"][0].update(type="os.system"), "names the type 'os.system'"),
        (lambda s: s["objects"][0]["fields"].pop("alpha"), "PeerPlugInClassifier lacks alpha"),
        (lambda s: s.update(root={"$": "exec"}), "holds 'exec'"),
        (lambda s: s.update(root=5), "holds no classifier but int"),
        (lambda s: s.update(root={"$": "object", "number": 99}), "state is damaged"),
        (lambda s: s.update(root={"$": "part", "number": 0}), "state is damaged"),
        (lambda s: s["objects"][0]["fields"].update(cv={"$": "object", "number": 0}), "holds itself"),
        (lambda s: s.update(root={"$": "values", "items": [1], "dtype": "V8", "shape": [1]}), "dtype 'V8'"),
        (lambda s: s.clear(), "state cannot be read"),
    ],
)
def test_a_crafted_state_builds_nothing_else(saved, tmp_path, change, message):
    """Only this library's types, whole; everything else is an error of ours."""
    folder = copy_of(saved, tmp_path)
    state = json.loads((folder / "state.json").read_text())
    change(state)
    rewrite(folder, "state.json", json.dumps(state).encode())
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


def tree_arrays(folder):
    """Return the arrays of a saved forest, and where the first tree keeps each property."""
    state = json.loads((folder / "state.json").read_text())
    trees = [
        f for o in state["objects"] for f in o["fields"].values() if isinstance(f, dict) and f["$"] == "tree"
    ]
    places = {key: array["name"] for key, array in trees[0]["arrays"]}
    return safetensors.numpy.load_file(folder / "arrays.safetensors"), places


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("node_left_child", 10**6, "point outside it"),
        ("node_right_child", 0, "point outside it"),
        ("node_left_child", -7, "point outside it"),
        ("node_feature", 10**6, "absent features"),
        ("node_feature", -5, "absent features"),
        ("sizes", 3, "absent features|other features"),
    ],
)
def test_a_crafted_tree_is_refused(saved, tmp_path, name, value, message):
    """Compiled code would follow these indices anywhere in memory."""
    folder = copy_of(saved, tmp_path)
    arrays, places = tree_arrays(folder)
    changed = arrays[places[name]].copy()
    changed[0] = value
    rewrite(folder, "arrays.safetensors", safetensors.numpy.save({**arrays, places[name]: changed}))
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


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
    model.estimators_ = np.hstack([model.estimators_, model.estimators_])


def renumber(**columns):
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
    "boosting, not a tree": (BOOSTING, X, in_place("estimators_", (0, 0), 3), "something else than trees"),
    "forest, other features": (RandomForestClassifier(2), X, set_to(n_features_in_=2), "other features"),
    "forest, features as text": (RandomForestClassifier(2), X, set_to(n_features_in_="5"), "unknown features"),
    "forest, empty": (RandomForestClassifier(2), X, set_to(estimators_=[]), "without trees"),
    "forest, threads": (RandomForestClassifier(2), X, set_to(n_jobs=10**6), "n_jobs=1000000"),
    "a method replaced": (LogisticRegression(), X, set_to(predict_proba=3), "another predict_proba"),
    "histograms, child": (HISTOGRAMS, X, histogram_node("left", 10**6), "point outside"),
    "histograms, loop": (HISTOGRAMS, X, histogram_node("right", 0), "point outside"),
    "histograms, feature": (HISTOGRAMS, X, histogram_node("feature_idx", 10**6), "absent features"),
    "histograms, category": (HISTOGRAMS, X, histogram_node("is_categorical", 1), "a category where numbers are"),
    "histograms, in its fit": (HISTOGRAMS, X, set_to(_in_fit=True), "not ended its fit"),
    "histograms, preprocessor": (HISTOGRAMS, X, set_to(_preprocessor=StandardScaler()), "preprocessor"),
    "histograms, bins": (HISTOGRAMS, X, in_place("_bin_mapper.is_categorical_", 0, 1), "categories out of range"),
    "histograms, no nodes": (
        HISTOGRAMS,
        X,
        lambda m: setattr(m._predictors[0][0], "nodes", m._predictors[0][0].nodes[:0]),
        "without nodes",
    ),
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
def test_content_that_leads_compiled_code_astray_is_refused(name, tmp_path):
    """Indices and shapes that nobody would look at again are checked before anybody predicts."""
    estimator, features, change, message = CRAFTED[name]
    model = PeerPlugInClassifier(estimator, cv=2).fit(features, CODES)
    assert_same(model, load_model(save_model(model, tmp_path / "sound")), features)
    change(model.estimator_)
    save_model(model, tmp_path / "model")
    with pytest.raises(ModelFolderError, match=message):
        load_model(tmp_path / "model")


@pytest.mark.parametrize(
    "estimator",
    [KNeighborsClassifier(), KNeighborsClassifier(algorithm="brute"), MLPClassifier(max_iter=2)],
    ids=["tree of neighbours", "neighbours", "network"],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_estimators_off_the_list_need_trust(estimator, tmp_path):
    """The error names the types and what to do; with trust they are saved and loaded."""
    model = PeerPlugInClassifier(estimator, cv=2).fit(X, CODES)
    with pytest.raises(InvalidInputError, match=r"content is checked.*trusted=\['sklearn") as caught:
        save_model(model, tmp_path / "model")
    trusted = re.findall(r"'(sklearn[^']*)'", str(caught.value))
    folder = save_model(model, tmp_path / "model", trusted=trusted)
    with pytest.raises(ModelFolderError, match=r"not trusted: sklearn.*cannot be checked.*trusted=\[...\]"):
        load_model(folder)
    assert_same(model, load_model(folder, trusted=trusted))


def test_a_tree_in_the_parts_is_not_built(saved, tmp_path):
    """Compiled code copies a tree's sizes when it builds one, before anybody could check them."""
    folder = copy_of(saved, tmp_path)
    rewrite(folder, "parts.skops", skops.io.dumps([DecisionTreeClassifier().fit(X, CODES)]))
    with pytest.raises(ModelFolderError, match=r"not trusted: .*DecisionTreeClassifier, sklearn.tree._tree.Tree"):
        load_model(folder)


def test_a_listed_type_under_another_kind_of_entry_is_refused(saved, tmp_path):
    """An entry that calls a class is not the entry that only fills in its attributes."""
    folder = copy_of(saved, tmp_path)
    empty = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}
    schema = {
        "__class__": "LogisticRegression",
        "__module__": "sklearn.linear_model._logistic",
        "__loader__": "ConstructorFromReduceNode",
        "content": empty,
        "protocol": PROTOCOL,
    }
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as file:
        file.writestr("schema.json", json.dumps(schema))
    rewrite(folder, "parts.skops", (tmp_path / "parts.zip").read_bytes())
    with pytest.raises(ModelFolderError, match=r"not trusted: .*LogisticRegression"):
        load_model(folder)


def test_parts_that_unpack_to_too_much_are_refused(saved, tmp_path, monkeypatch):
    """A file of zeros, and one that many entries name."""
    monkeypatch.setattr(_persistence_types, "_MAX_UNPACKED", 10**6)
    folder = copy_of(saved, tmp_path)
    rewrite(folder, "parts.skops", skops.io.dumps([np.zeros(10**6)], compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(ModelFolderError, match=r"bytes unpack to 8\d+, more than a model needs"):
        load_model(folder)
    once = json.loads(zipfile.ZipFile(io.BytesIO(skops.io.dumps(np.zeros(1000)))).read("schema.json"))
    del once["__id__"]
    many = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": [once] * 1000}
    with zipfile.ZipFile(tmp_path / "parts.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("schema.json", json.dumps(many | {"protocol": PROTOCOL}))
        file.writestr(once["file"], bytes(8128))
    rewrite(folder, "parts.skops", (tmp_path / "parts.zip").read_bytes())
    with pytest.raises(ModelFolderError, match=r"bytes unpack to 8128000"):
        load_model(folder)


def test_a_text_array_of_huge_width_is_refused(saved, tmp_path):
    """A few bytes may not declare gigabytes of text."""
    folder = copy_of(saved, tmp_path)
    wide = {"$": "values", "items": ["a", "b"], "dtype": "<U500000000", "shape": [2]}
    rewrite(folder, "state.json", json.dumps({"root": wide, "objects": []}).encode())
    with pytest.raises(ModelFolderError, match="text array that would need 4000000000 bytes"):
        load_model(folder)


@pytest.mark.parametrize("kind", [np.random.RandomState, lambda seed: np.random.Generator(np.random.Philox(seed))])
def test_a_random_generator_stays_within_its_buffer(kind):
    """The position of the next number is an index that compiled code does not check."""
    generator = kind(0)
    _persistence_checks.check_loaded(generator)
    bits = getattr(generator, "bit_generator", None) or generator._bit_generator
    state = bits.state
    (state if "buffer_pos" in state else state["state"])["buffer_pos" if "buffer_pos" in state else "pos"] = 10**6
    bits.state = state
    with pytest.raises(ValueError, match="a position out of range"):
        _persistence_checks.check_loaded(generator)


def test_categories_of_histogram_boosting_pass(tmp_path):
    """The check of categorical splits knows a sound model."""
    features = np.column_stack([np.arange(120) % 6, X[:, 1]])
    boosting = HistGradientBoostingClassifier(max_iter=5, categorical_features=[0], min_samples_leaf=2)
    model = PeerPlugInClassifier(boosting, cv=2).fit(features, (features[:, 0] % 2 == 0) | (CODES == 1))
    trusted = ["functools.partial", "sklearn.utils.validation.check_array"]  # how it finds the categories
    folder = save_model(model, tmp_path / "model", trusted=trusted)
    assert_same(model, load_model(folder, trusted=trusted), features)


def test_a_crafted_part_names_no_other_type(saved, tmp_path):
    """A skops file with a function of the standard library is refused before anything is built."""
    folder = copy_of(saved, tmp_path)
    part = [FunctionTransformer(os.system)]
    rewrite(folder, "parts.skops", skops.io.dumps(part))
    with pytest.raises(ModelFolderError, match=r"not trusted: .*system"):
        load_model(folder)
    rewrite(folder, "parts.skops", b"PK nonsense")
    with pytest.raises(ModelFolderError, match="parts cannot be read"):
        load_model(folder)


@pytest.mark.parametrize("loader", ["ObjectNode", "LossNode", "TypeNode", "FunctionNode", "MethodNode"])
def test_a_crafted_part_imports_nothing(saved, tmp_path, loader):
    """A module that is only named in the file stays unimported, whatever kind of entry names it."""
    folder = copy_of(saved, tmp_path)
    empty = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}
    named = {"__class__": "anything", "__module__": "this", "__loader__": loader}
    content = (
        {"func": "anything", "obj": named | {"__loader__": "TypeNode"}} if loader == "MethodNode" else empty
    )
    schema = named | {"content": content, "__reduce__": {"args": empty}, "protocol": PROTOCOL}
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as file:
        file.writestr("schema.json", json.dumps(schema))
    rewrite(folder, "parts.skops", (tmp_path / "parts.zip").read_bytes())
    with pytest.raises(ModelFolderError, match=r"not trusted: .*this\.anything"):
        load_model(folder)
    assert "this" not in sys.modules
