"""Decision trees as arrays and back; their indices are checked before a tree is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
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
    require(n_outputs > 0 and n_classes.shape == (n_outputs,), "a tree with other outputs than it says")
    require(bool((n_classes > 0).all()), "a tree without classes")
    found = {name.removeprefix("node_") for name in arrays if name.startswith("node_")}
    require(
        found == set(NODE_DTYPE.names or ()),
        "trees in the form of another version of scikit-learn; use that one",
    )
    nodes = np.zeros(len(values), dtype=NODE_DTYPE)
    for name in found:
        require(arrays[f"node_{name}"].shape == nodes.shape, "a tree with fewer nodes than it says")
        nodes[name] = arrays[f"node_{name}"]
    check_nodes(nodes["left_child"], nodes["right_child"], nodes["feature"], n_features)
    depth = tree_depth(nodes["left_child"], nodes["right_child"])
    require(depth <= max_depth, "a tree that is deeper than it says")
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


def tree_depth(left: NDArray[Any], right: NDArray[Any]) -> int:
    """Return the number of splits on the longest path of a tree that :func:`check_nodes` has checked."""
    depths = [0] * len(left)
    for node, children in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        if children[0] != -1:
            for child in children:
                depths[child] = max(depths[child], depths[node] + 1)
    return max(depths)


def check_nodes(left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], n_features: int) -> None:
    """Refuse a tree that leaves itself, runs in circles or asks for features that are not there.

    A leaf has −1 in the place of its left child. Children come after their parent, so that every path ends.
    """
    require(len(left) > 0, "a tree without nodes")
    inner = np.flatnonzero(left != -1)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        require(bool(((child > inner) & (child < len(left))).all()), "a tree whose nodes point outside it")
    asked = feature[inner]
    require(bool(((asked >= 0) & (asked < n_features)).all()), "a tree that asks for absent features")


def require(holds: bool, what: str) -> None:
    """Raise ``ValueError`` with what a file holds unless the condition ``holds``."""
    if not holds:
        raise ValueError(f"it holds {what}")
