"""Crafted boosters: indices that LightGBM and XGBoost would follow out of range are rejected."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from peerloss import PeerBoostingClassifier, load_model, save_model
from peerloss.exceptions import ModelFolderError
from tests.persistence.saved_models import CODES, X, assert_same
from tests.persistence.test_hostile import copy_of, rewrite

#: Enough rows for LightGBM to split by category.
ROWS = np.tile(X, (10, 1))
TABLE = pd.DataFrame(ROWS[:, :3], columns=["a", "b", "c"]).assign(
    kind=pd.Categorical(np.arange(len(ROWS)) % 9)
)
LABELS = (np.tile(CODES, 10) + np.arange(len(ROWS)) % 9) % 2


@pytest.fixture(scope="module", params=["lightgbm", "xgboost"])
def backend(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.fixture(scope="module")
def saved_booster(backend, tmp_path_factory):
    """Save a model with categorical splits, of which the tests change copies."""
    model = PeerBoostingClassifier(backend=backend, n_estimators=5, min_child_samples=2).fit(TABLE, LABELS)
    folder = save_model(model, tmp_path_factory.mktemp(backend) / "model")
    assert_same(model, load_model(folder), TABLE)
    return folder


def assert_rejected(saved, tmp_path, change, message):
    """Change the file of the booster, and expect a ModelFolderError."""
    folder = copy_of(saved, tmp_path)
    (file,) = folder.glob("booster-*")
    rewrite(folder, file.name, change(file.read_text()).encode())
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


def replace_first(name, value):
    """Return a function that changes the first number of the first line ``name=...`` of a LightGBM file."""

    def change(text):
        changed = re.sub(rf"(?m)^({name}=)\S+", rf"\g<1>{value}", text, count=1)
        assert changed != text
        return changed

    return change


@pytest.mark.parametrize("backend", ["lightgbm"], indirect=True)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replace_first("left_child", 10**6), "point outside it"),
        (replace_first("left_child", 0), "point outside it"),
        (replace_first("right_child", -(10**6)), "point outside it"),
        (replace_first("split_feature", 10**6), "unknown features"),
        (replace_first("split_feature", -1), "unknown features"),
        (replace_first("num_leaves", 10**6), "fewer numbers"),
        (replace_first("num_leaves", 0), "without leaves"),
        (replace_first("num_cat", 0), "unknown categories"),
        (replace_first("cat_boundaries", 5), "overlap"),
        (replace_first("cat_threshold", -1), "unknown categories"),
        (replace_first("decision_type", 99), "unknown kind"),
        (replace_first("leaf_value", "x"), "cannot be read"),
        (replace_first("leaf_value", "1_0"), "cannot be read"),
        (replace_first("is_linear", 1), "linear models"),
        (replace_first("num_tree_per_iteration", 0), "other classes"),
        (replace_first("num_class", 0), "other classes"),
        (replace_first("max_feature_idx", 10**6), "other features"),
        (replace_first("num_class", 10**30), "instead of a number"),
        (replace_first("version", "v9"), "another version"),
        (replace_first("feature_names", "a\rtree_sizes=99999999\r"), "names that cannot be read"),
        (replace_first("feature_infos", "none\x0b"), "names that cannot be read"),
        (lambda text: text.replace("shrinkage=", "num_cat=0\nshrinkage=", 1), "repeated name"),
        (lambda text: text[: text.index("Tree=")], "incomplete rounds"),
    ],
)
def test_a_crafted_lightgbm_model_is_rejected(saved_booster, tmp_path, change, message):
    """Children, features, categories and lengths are checked, and numbers are read as LightGBM reads them."""
    assert_rejected(saved_booster, tmp_path, change, message)


@pytest.mark.parametrize("alpha", ["auto", 1.0])
def test_lightgbm_receives_only_what_predictions_need(alpha, tmp_path):
    """Sizes of trees, which the parser would follow, parameters and another objective are left out."""
    pytest.importorskip("lightgbm")
    model = PeerBoostingClassifier(alpha=alpha, n_estimators=3).fit(X, CODES)
    folder = save_model(model, tmp_path / "model")
    text = re.sub(r"\nobjective=.*", "", (folder / "booster-0.txt").read_text())
    text = re.sub(r"tree_sizes=.*", "tree_sizes=1 99999999 -5", text).replace(
        "label_index=0", "label_index=0\nobjective=multiclass num_class:99\naverage_output"
    )
    text = text.replace("[num_class: 1]", "[num_class: 99]").replace("[verbosity: -1]", "[verbosity: 9]")
    rewrite(folder, "booster-0.txt", text.encode())
    assert_same(model, load_model(folder))


def test_folders_without_the_new_fields_load(backend, tmp_path):
    """A peer-loss model that an earlier version saved, without folds and clean map, predicts the same."""
    model = PeerBoostingClassifier(alpha=1.0, backend=backend, n_estimators=3).fit(X, CODES)
    folder = save_model(model, tmp_path / "model")
    state = json.loads((folder / "state.json").read_text())
    (fields,) = (o["fields"] for o in state["objects"] if o["type"] == "PeerBoostingClassifier")
    for name in ("n_folds", "clean_map_", "noise_", "oof_proba_", "evals_result_", "num_leaves_", "alpha_"):
        del fields[name]
    rewrite(folder, "state.json", json.dumps(state).encode())
    assert_same(model, load_model(folder))


def in_tree(name, place, value):
    """Return a function that changes one number of the first XGBoost tree with categories."""

    def change(text):
        data = json.loads(text)
        trees = data["learner"]["gradient_booster"]["model"]["trees"]
        tree = next(tree for tree in trees if tree["categories_nodes"])
        tree[name][place] = value
        return json.dumps(data)

    return change


def in_model(path, value):
    """Return a function that replaces one entry of an XGBoost file, found by its dotted path."""

    def change(text):
        data = json.loads(text)
        parent = data
        *parts, last = path.split(".")
        for part in parts:
            parent = parent[part]
        parent[last] = value
        return json.dumps(data)

    return change


MODEL = "learner.gradient_booster.model"


@pytest.mark.parametrize("backend", ["xgboost"], indirect=True)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_tree("left_children", 0, 10**6), "point outside it"),
        (in_tree("left_children", 0, 0), "point outside it"),
        (in_tree("right_children", 0, -7), "point outside it"),
        (in_tree("right_children", 0, 2**40), "out of range"),
        (in_tree("left_children", 0, 1.5), "fractions"),
        (in_tree("right_children", -1, 2), "a leaf with a child"),
        (in_tree("parents", 1, 10**6), "other parents"),
        (in_tree("split_indices", 0, 10**6), "unknown features"),
        (in_tree("split_indices", -1, -3), "unknown features"),
        (in_tree("split_type", 0, 7), "unknown splits"),
        (in_tree("split_type", -1, 1), "other nodes"),
        (in_tree("categories", 0, 2**30), "unknown categories"),
        (in_tree("categories", 0, -1), "unknown categories"),
        (in_tree("categories_nodes", 0, 999), "other nodes"),
        (in_tree("categories_sizes", 0, 10**6), "unknown categories"),
        (in_tree("categories_segments", 0, 5), "unknown categories"),
        (in_model(f"{MODEL}.tree_info", [7] * 5), "other classes"),
        (in_model(f"{MODEL}.tree_info", [0]), "incomplete rounds"),
        (in_model(f"{MODEL}.iteration_indptr", [0, 99]), "incomplete rounds"),
        (in_model(f"{MODEL}.trees", []), "incomplete rounds"),
        (in_model("learner.gradient_booster.name", "dart"), "another kind"),
        (in_model("learner.objective.name", "rank:pairwise"), "another objective"),
        (in_model("learner.learner_model_param.num_feature", "1"), "unknown features"),
        (in_model("learner.learner_model_param.num_class", "-4"), "other features"),
        (in_model("learner.learner_model_param.num_target", "9"), "several targets"),
        (in_model("learner.learner_model_param.base_score", "[0,0,0]"), "base scores"),
        (in_model("learner.learner_model_param.base_score", "x"), "base score"),
        (in_model("learner.feature_types", ["int"]), "other kinds"),
        (in_model("learner.feature_types", []), "other kinds"),
        (in_model("version", [3]), "another version"),
        (in_model("version", [3, 2, -1]), "another version"),
    ],
)
def test_a_crafted_xgboost_model_is_rejected(saved_booster, tmp_path, change, message):
    """Children, features, categories, classes and rounds are checked."""
    assert_rejected(saved_booster, tmp_path, change, message)


def test_a_very_deep_tree_is_rejected(tmp_path):
    """XGBoost recurses once per level, so a very deep tree overflows the stack."""
    pytest.importorskip("xgboost")
    model = PeerBoostingClassifier(backend="xgboost", n_estimators=1).fit(X, CODES)
    folder = save_model(model, tmp_path / "model")
    n_splits = 1001

    def change(text):
        data = json.loads(text)
        (tree,) = data["learner"]["gradient_booster"]["model"]["trees"]
        for name in ("base_weights", "default_left", "loss_changes", "split_conditions", "split_indices"):
            tree[name] = [0] * (2 * n_splits + 1)
        tree["split_type"], tree["sum_hessian"] = [0] * (2 * n_splits + 1), [1] * (2 * n_splits + 1)
        inner = range(0, 2 * n_splits, 2)
        tree["left_children"] = [node + 2 if node in inner else -1 for node in range(2 * n_splits + 1)]
        tree["right_children"] = [node + 1 if node in inner else -1 for node in range(2 * n_splits + 1)]
        tree["parents"] = [2**31 - 1, *(node for node in inner for _ in range(2))]
        tree["tree_param"]["num_nodes"] = str(2 * n_splits + 1)
        return json.dumps(data)

    assert_rejected(folder, tmp_path, change, "more than 1000 levels")


def test_categories_cannot_fill_the_memory(tmp_path):
    """XGBoost keeps one bit for each number up to the largest category of a node."""
    pytest.importorskip("xgboost")
    model = PeerBoostingClassifier(backend="xgboost", n_estimators=200, min_child_samples=2).fit(
        TABLE, LABELS
    )
    folder = save_model(model, tmp_path / "model")

    def change(text):
        data = json.loads(text)
        for tree in data["learner"]["gradient_booster"]["model"]["trees"]:
            tree["categories"] = [2**24 - 1 for _ in tree["categories"]]
        return json.dumps(data)

    assert_rejected(folder, tmp_path, change, "more categories than a model needs")


@pytest.mark.parametrize("content", ["{}", "", "tree", "{", "[]", "\u00e9"])
def test_a_damaged_booster_is_a_model_folder_error(backend, saved_booster, tmp_path, content):
    """It is neither a crash nor an internal error of the library."""
    assert_rejected(saved_booster, tmp_path, lambda _: content, f"cannot be read by {backend}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda settings: replace(settings, n_jobs=10**6), "n_jobs=1000000"),
        (lambda settings: replace(settings, n_jobs=0.5), r"n_jobs=0\.5"),
        (lambda _: Bunch(n_jobs=10**6, categorical=[]), "without settings"),
    ],
)
def test_a_booster_does_not_start_millions_of_threads(backend, tmp_path, change, message):
    """A process ends if its threads cannot be started."""
    model = PeerBoostingClassifier(backend=backend, n_estimators=2).fit(X, CODES)
    model._settings = change(model._settings)
    folder = save_model(model, tmp_path / "model")
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


def test_an_unknown_library_is_named(saved_booster, tmp_path):
    """Only LightGBM and XGBoost are imported, whatever the file contains."""
    folder = copy_of(saved_booster, tmp_path)
    state = (folder / "state.json").read_text()
    rewrite(folder, "state.json", re.sub(r'"library": "\w+"', '"library": "this"', state).encode())
    with pytest.raises(ModelFolderError, match="needs 'this', which is not a boosting library"):
        load_model(folder)
