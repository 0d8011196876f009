"""Decision trees as arrays and back, and the checks that indices from outside need.

Compiled code follows the indices of a tree or of a support vector machine without looking, so a crafted file
could make it read anywhere. They are checked before anybody predicts with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.svm._base import BaseLibSVM
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import NODE_DTYPE, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray


def tree_to_arrays(tree: Any) -> dict[str, NDArray[Any]]:
    """Return a tree as one array for each property of its nodes, their values, and its sizes."""
    _, (n_features, n_classes, n_outputs), state = tree.__reduce__()
    nodes = state["nodes"]
    return {
        "sizes": np.array([n_features, n_outputs, state["max_depth"]], dtype=np.int64),
        "n_classes": np.asarray(n_classes),
        "values": state["values"],
        **{f"node_{name}": np.ascontiguousarray(nodes[name]) for name in nodes.dtype.names},
    }


def tree_from_arrays(arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the tree of :func:`tree_to_arrays`; the indices are checked before it is built."""
    n_features, n_outputs, max_depth = (int(size) for size in arrays["sizes"])
    n_classes, values = arrays["n_classes"].astype(np.intp), arrays["values"]
    _require(n_outputs > 0 and n_classes.shape == (n_outputs,), "a tree with other outputs than it says")
    found = {name.removeprefix("node_") for name in arrays if name.startswith("node_")}
    _require(
        found == set(NODE_DTYPE.names or ()),
        "trees in the form of another version of scikit-learn; use that one",
    )
    nodes = np.zeros(len(values), dtype=NODE_DTYPE)
    for name in found:
        _require(arrays[f"node_{name}"].shape == nodes.shape, "a tree with fewer nodes than it says")
        nodes[name] = arrays[f"node_{name}"]
    _check_nodes(nodes["left_child"], nodes["right_child"], nodes["feature"], n_features)
    tree = Tree(n_features, n_classes, n_outputs)
    tree.__setstate__(
        {
            "max_depth": max_depth,
            "node_count": len(nodes),
            "nodes": nodes,
            "values": np.ascontiguousarray(values, dtype=np.float64),
        }
    )
    return tree


def _check_nodes(left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], n_features: int) -> None:
    """Refuse a tree that leaves itself, runs in circles or asks for features that are not there.

    A leaf has −1 in the place of its left child. Children come after their parent, so that every path ends.
    """
    _require(len(left) > 0, "a tree without nodes")
    inner = np.flatnonzero(left != -1)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _require(bool(((child > inner) & (child < len(left))).all()), "a tree whose nodes point outside it")
    asked = feature[inner]
    _require(bool(((asked >= 0) & (asked < n_features)).all()), "a tree that asks for absent features")


def check_indices(estimator: Any) -> None:
    """Check what compiled code will index in a loaded estimator; ``ValueError`` says what is wrong."""
    if isinstance(estimator, BaseDecisionTree) and hasattr(estimator, "tree_"):
        _check_tree(estimator.tree_, estimator.n_features_in_)
    elif isinstance(estimator, BaseForest | BaseGradientBoosting) and hasattr(estimator, "estimators_"):
        for member in np.ravel(estimator.estimators_):
            _require(member.tree_.n_features == estimator.n_features_in_, "a tree for other features")
    elif isinstance(estimator, BaseHistGradientBoosting) and hasattr(estimator, "_predictors"):
        for tree in (tree for group in estimator._predictors for tree in group):  # noqa: SLF001
            _check_histogram_tree(tree, estimator)
    elif isinstance(estimator, BaseLibSVM) and hasattr(estimator, "support_vectors_"):
        _check_machine(estimator)


def _check_tree(tree: Any, n_features: int) -> None:
    _require(0 < tree.node_count <= tree.capacity, "a tree with fewer nodes than it says")
    _require(tree.n_features == n_features, "a tree for other features")
    _check_nodes(tree.children_left, tree.children_right, tree.feature, n_features)


def _check_histogram_tree(tree: Any, model: Any) -> None:
    nodes = tree.nodes
    left = np.where(nodes["is_leaf"] != 0, -1, nodes["left"].astype(np.int64))
    _check_nodes(left, nodes["right"], nodes["feature_idx"], model.n_features_in_)
    split = nodes[(nodes["is_leaf"] == 0) & (nodes["is_categorical"] != 0)]
    if len(split):
        categorical = np.asarray(model._bin_mapper.is_categorical_, dtype=bool)  # noqa: SLF001
        _require(categorical.shape == (model.n_features_in_,), "a bin mapper for other features")
        _require(bool(categorical[split["feature_idx"]].all()), "a category where numbers are")
        _require(bool((split["bitset_idx"] < len(tree.raw_left_cat_bitsets)).all()), "unknown categories")


def _check_machine(machine: Any) -> None:
    support, dual = np.asarray(machine._n_support), machine._dual_coef_  # noqa: SLF001
    counts = {int(support.sum()), len(machine.support_vectors_), len(machine.support_), dual.shape[1]}
    _require(len(counts) == 1 and bool((support >= 0).all()), "support vectors that do not match")
    widths = {machine.support_vectors_.shape[1], machine.n_features_in_, machine.shape_fit_[1]}
    _require(len(widths) == 1, "a machine for other features")
    pairs = len(support) * (len(support) - 1) // 2
    _require(len(dual) == len(support) - 1, "coefficients of other classes")
    _require(len(machine._intercept_) == pairs, "intercepts of other classes")
    _require({len(machine._probA), len(machine._probB)} <= {0, pairs}, "probabilities of other classes")  # noqa: SLF001


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"it holds {what}")
