"""Rebuild untrusted LightGBM and XGBoost models from checked values.

LightGBM and XGBoost follow the indices in their files without a check. Therefore the file of a booster is
read here, every index and length is checked, and the library receives a text written from the checked values.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import numpy as np

from peerloss.boosting.libraries import import_backend
from peerloss.exceptions import ModelFolderError
from peerloss.persistence._content_checks import check_nodes, require, require_range, tree_depth

_INTEGER = re.compile(r"-?[0-9]{1,10}")
_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|inf|nan)")
_SCIENTIFIC = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
#: Excludes everything that LightGBM could read as the end of a line.
_PRINTABLE = re.compile(r"[ -~]+")
#: Limit on the total number of bits for the categories of all nodes of a booster.
_MAX_CATEGORY_BITS = 2**31
#: Limit on the depth of a tree: XGBoost recurses once per level, and a deeper tree overflows the stack.
_MAX_DEPTH = 1000
_LIGHTGBM_COUNTS = ("num_class", "num_tree_per_iteration", "label_index", "max_feature_idx")
_XGBOOST_INTEGERS = (
    "left_children",
    "right_children",
    "parents",
    "split_indices",
    "split_type",
    "default_left",
)
_XGBOOST_NUMBERS = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
_XGBOOST_CATEGORIES = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
_NO_PARENT = 2**31 - 1
#: Objective of XGBoost → the name of its parameters. The first and the third are those of custom objectives.
_OBJECTIVES = {
    "reg:squarederror": "reg_loss_param",
    "binary:logistic": "reg_loss_param",
    "multi:softmax": "softmax_multiclass_param",
    "multi:softprob": "softmax_multiclass_param",
}


def load_booster(library: str, content: bytes) -> Any:
    """Return the booster of a file that LightGBM or XGBoost wrote."""
    if library not in {"lightgbm", "xgboost"}:
        raise ModelFolderError(
            f"it needs {library!r}, which is not a boosting library that this version knows."
        )
    module = import_backend(library)
    try:
        if library == "lightgbm":
            return module.Booster(model_str=checked_lightgbm(content.decode("ascii")))
        booster = module.Booster()
        booster.load_model(bytearray(checked_xgboost(content.decode()), "utf-8"))
    except Exception as error:  # parsers may raise anything for hostile bytes
        raise ModelFolderError(f"its booster cannot be read by {library}: {error}") from error
    return booster


def checked_lightgbm(text: str) -> str:
    """Return a LightGBM model with the trees of ``text`` and only what predictions need."""
    head, *blocks = re.split(r"\n\n+(?=Tree=|end of trees)", text)
    fields = _fields(head)
    counts = {name: _integer(fields[name]) for name in _LIGHTGBM_COUNTS}
    n_scores, n_features = counts["num_class"], counts["max_feature_idx"] + 1
    trees = [_fields(block) for block in blocks if block.startswith("Tree=")]
    require(n_scores > 0 and counts["num_tree_per_iteration"] == n_scores, "a booster of other classes")
    require(len(trees) > 0 and len(trees) % n_scores == 0, "a booster with incomplete rounds")
    require(fields.get("version") in {"v3", "v4"}, "a booster of another version")
    for name in ("feature_names", "feature_infos"):
        require(_PRINTABLE.fullmatch(fields[name]) is not None, "names that cannot be read")
        require(len(fields[name].split(" ")) == n_features, "a booster for other features")
    lines = ["tree", f"version={fields['version']}", *(f"{name}={counts[name]}" for name in _LIGHTGBM_COUNTS)]
    lines += [f"{name}={fields[name]}" for name in ("feature_names", "feature_infos")]
    own = "binary sigmoid:1" if n_scores == 1 else f"multiclass num_class:{n_scores}"
    if fields.get("objective") == own:  # a custom objective is not written
        lines.append(f"objective={own}")
    for number, tree in enumerate(trees):
        lines += ["", f"Tree={number}", *_checked_lightgbm_tree(tree, n_features), ""]
    return "\n".join([*lines, "", "end of trees", ""])


def _checked_lightgbm_tree(tree: dict[str, str], n_features: int) -> list[str]:
    n_leaves, n_categorical = _integer(tree["num_leaves"]), _integer(tree["num_cat"])
    require(n_leaves > 0 and n_categorical >= 0, "a tree without leaves")
    require(_integer(tree.get("is_linear", "0")) == 0, "trees with linear models")
    n_splits = n_leaves - 1
    lengths = dict.fromkeys(("split_feature", "decision_type", "left_child", "right_child"), n_splits)
    lengths["threshold"] = n_splits
    optional = dict.fromkeys(("split_gain", "internal_value", "internal_weight", "internal_count"), n_splits)
    optional |= dict.fromkeys(("leaf_weight", "leaf_count"), n_leaves)
    lengths |= {name: length for name, length in optional.items() if tree.get(name)}
    lengths["leaf_value"] = n_leaves
    values = {name: _numbers(tree.get(name, ""), length) for name, length in lengths.items()}
    if n_splits:
        _check_lightgbm_nodes(values, n_features)
    if n_categorical:
        values["cat_boundaries"] = _numbers(tree["cat_boundaries"], n_categorical + 1)
        bounds = _integers(values["cat_boundaries"])
        require(bounds[0] == 0 and (np.diff(bounds) > 0), "categories that overlap")
        values["cat_threshold"] = _numbers(tree["cat_threshold"], int(bounds[-1]))
        require_range(_integers(values["cat_threshold"]), 2**32, "unknown categories")
    if n_splits:
        places = np.array(values["threshold"], dtype=np.float64)[_integers(values["decision_type"]) & 1 == 1]
        require(np.isin(places, np.arange(n_categorical)), "unknown categories")
    require(_NUMBER.fullmatch(tree.get("shrinkage", "1")) is not None, "a number that cannot be read")
    return [
        f"num_leaves={n_leaves}",
        f"num_cat={n_categorical}",
        *(f"{name}={' '.join(numbers)}" for name, numbers in values.items()),
        "is_linear=0",
        f"shrinkage={tree.get('shrinkage', '1')}",
    ]


def _check_lightgbm_nodes(values: dict[str, list[str]], n_features: int) -> None:
    """Check splits and leaves; the child −1 − l denotes leaf l."""
    n_splits, n_leaves = len(values["left_child"]), len(values["leaf_value"])
    require_range(_integers(values["decision_type"]), 16, "splits of an unknown kind")
    require_range(_integers(values["split_feature"]), n_features, "a tree with unknown features")
    for side in ("left_child", "right_child"):
        child = _integers(values[side])
        inner = (child > np.arange(n_splits)) & (child < n_splits)
        leaf = (child < 0) & (-1 - child < n_leaves)
        require(inner | leaf, "a tree with nodes that point outside it")


def checked_xgboost(text: str) -> str:
    """Return an XGBoost model in JSON with the trees of ``text`` and what predictions need."""
    given = json.loads(text)
    learner = given["learner"]
    size = learner["learner_model_param"]
    n_classes, n_features = _integer(size["num_class"]), _integer(size["num_feature"])
    require(n_features > 0 and n_classes >= 0, "a booster for other features")
    require(size.get("num_target", "1") == "1", "a booster with several targets")
    require(learner["gradient_booster"]["name"] == "gbtree", "a booster of another kind")
    model = _checked_xgboost_model(learner["gradient_booster"]["model"], n_classes, n_features)
    base = str(size["base_score"]).removeprefix("[").removesuffix("]").split(",")
    require(all(_SCIENTIFIC.fullmatch(score) for score in base), "a base score that cannot be read")
    require(len(base) in {1, max(1, n_classes)}, "base scores of other classes")
    objective = learner["objective"]["name"]
    require(objective in _OBJECTIVES, "a booster with another objective")
    is_softmax = objective.startswith("multi:")
    purpose = {"num_class": str(n_classes)} if is_softmax else {"scale_pos_weight": "1"}
    types = learner["feature_types"]
    require(len(types) == n_features and set(types) <= {"q", "c"}, "features of other kinds")
    version = _index_list(given["version"])
    require(len(version) == 3 and all(0 <= part < 1000 for part in version), "a booster of another version")
    kept = {name: str(_integer(size[name])) for name in ("boost_from_average", "num_target") if name in size}
    numbers = {"num_class": str(n_classes), "num_feature": str(n_features)}
    rebuilt = {
        "attributes": {},
        "feature_names": [],
        "feature_types": types,
        "gradient_booster": {"model": model, "name": "gbtree"},
        "learner_model_param": {**kept, **numbers, "base_score": str(size["base_score"])},
        "objective": {"name": objective, _OBJECTIVES[objective]: purpose},
    }
    return json.dumps({"learner": rebuilt, "version": version})


def _checked_xgboost_model(model: dict[str, Any], n_classes: int, n_features: int) -> dict[str, Any]:
    trees = [_checked_xgboost_tree(tree, n_features, number) for number, tree in enumerate(model["trees"])]
    groups = _index_list(model["tree_info"])
    require(len(trees) == len(groups) > 0, "a booster with incomplete rounds")
    require_range(groups, max(1, n_classes), "trees of other classes")
    require(len(trees) % max(1, n_classes) == 0, "a booster with incomplete rounds")
    bits = sum(max(tree["categories"], default=0) * len(tree["categories_nodes"]) for tree in trees)
    require(bits < _MAX_CATEGORY_BITS, "more categories than a model needs")
    checked: dict[str, Any] = {"trees": trees, "tree_info": groups}
    checked["gbtree_model_param"] = {"num_parallel_tree": "1", "num_trees": str(len(trees))}
    if "iteration_indptr" in model:
        rounds = _index_list(model["iteration_indptr"])
        rising = all(a < b for a, b in pairwise(rounds))
        require(rising and rounds[:1] == [0] and rounds[-1] == len(trees), "a booster with incomplete rounds")
        checked["iteration_indptr"] = rounds
    if "cats" in model:
        checked["cats"] = {"enc": [], "feature_segments": [], "sorted_idx": []}
    return checked


def _checked_xgboost_tree(tree: dict[str, Any], n_features: int, number: int) -> dict[str, Any]:
    n_nodes = _integer(tree["tree_param"]["num_nodes"])
    leaf_size = tree["tree_param"].get("size_leaf_vector", "1")
    require(leaf_size in {"0", "1"}, "leaves with several values")
    checked: dict[str, Any] = {
        name: _index_list(tree[name]) for name in (*_XGBOOST_INTEGERS, *_XGBOOST_CATEGORIES)
    }
    for name in _XGBOOST_NUMBERS:
        checked[name] = [float(value) for value in tree[name]]
    lengths = {len(checked[name]) for name in (*_XGBOOST_INTEGERS, *_XGBOOST_NUMBERS)}
    require(lengths == {n_nodes}, "a tree with fewer nodes than declared")
    left, right = np.array(checked["left_children"]), np.array(checked["right_children"])
    check_nodes(left, right, np.array(checked["split_indices"]), n_features)
    require(tree_depth(left, right) <= _MAX_DEPTH, f"a tree of more than {_MAX_DEPTH} levels")
    inner = np.flatnonzero(left != -1)
    require(right[left == -1] == -1, "a leaf with a child")
    parents = np.full(n_nodes, _NO_PARENT)
    parents[left[inner]] = parents[right[inner]] = inner
    require(checked["parents"] == parents.tolist(), "nodes of other parents")
    require(set(checked["split_type"]) <= {0, 1} and set(checked["default_left"]) <= {0, 1}, "unknown splits")
    require(min(checked["split_indices"]) >= 0, "a tree with unknown features")
    _check_xgboost_categories(checked)
    parameters = {"num_nodes": str(n_nodes), "num_feature": str(n_features), "size_leaf_vector": leaf_size}
    return checked | {"id": number, "tree_param": parameters | {"num_deleted": "0"}}


def _check_xgboost_categories(tree: dict[str, Any]) -> None:
    values = tree["categories"]
    require_range(values, 2**24, "unknown categories")
    splits = [node for node, kind in enumerate(tree["split_type"]) if kind == 1]
    require(tree["categories_nodes"] == splits, "categories of other nodes")
    require(all(tree["left_children"][node] != -1 for node in splits), "categories of a leaf")
    starts, sizes = tree["categories_segments"], tree["categories_sizes"]
    require(len(starts) == len(sizes) == len(splits), "categories of other nodes")
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    require(all(size > 0 for size in sizes), "a node without categories")
    adjacent = starts == [0, *ends[:-1]][: len(splits)]
    require(adjacent and ends[-1:] == [len(values)][: len(splits)], "unknown categories")


def _fields(block: str) -> dict[str, str]:
    """Return the lines ``name=value`` of a block; a name must not be repeated."""
    pairs = [line.split("=", 1) for line in block.split("\n") if "=" in line]
    fields = {pair[0]: pair[1] for pair in pairs}
    require(len(fields) == len(pairs), "a block with a repeated name")
    return fields


def _integer(text: str) -> int:
    require(isinstance(text, str) and _INTEGER.fullmatch(text) is not None, f"{text!r} instead of a number")
    return int(text)


def _numbers(text: str, length: int) -> list[str]:
    words = text.split(" ") if text else []
    require(len(words) == length, "a tree with fewer numbers than declared")
    require(all(_NUMBER.fullmatch(word) for word in words), "a number that cannot be read")
    return words


def _integers(words: list[str]) -> Any:
    require(all(_INTEGER.fullmatch(word) for word in words), "a number that cannot be read")
    return np.array([int(word) for word in words], dtype=np.int64)


def _index_list(values: Any) -> list[int]:
    require(isinstance(values, list) and all(type(v) is int for v in values), "fractions instead of indices")
    require(all(abs(value) < 2**31 for value in values), "indices out of range")
    return list(values)
