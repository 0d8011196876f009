"""Convert decision trees to arrays and back; indices are checked before a tree is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.tree._tree import NODE_DTYPE, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray


def tree_to_arrays(tree: Any) -> dict[str, NDArray[Any]]:
    """Return a tree as arrays: one per property of its nodes, the values of the nodes, and its sizes."""
    _, (n_features, n_classes, n_outputs), state = tree.__reduce__()
    nodes = state["nodes"]
    return {
        "sizes": np.array([n_features, n_outputs, state["max_depth"]], dtype=np.int64),
        "n_classes": np.asarray(n_classes),
        "values": state["values"],
        **{f"node_{name}": np.ascontiguousarray(nodes[name]) for name in nodes.dtype.names},
    }


def tree_from_arrays(arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the tree that :func:`tree_to_arrays` converted; indices are checked before it is built."""
    n_features, n_outputs, max_depth = (int(size) for size in arrays["sizes"])
    n_classes, values = arrays["n_classes"].astype(np.intp), arrays["values"]
    require(n_outputs > 0 and n_classes.shape == (n_outputs,), "a tree with other outputs than declared")
    require(bool((n_classes > 0).all()), "a tree without classes")
    found = {name.removeprefix("node_") for name in arrays if name.startswith("node_")}
    require(
        found == set(NODE_DTYPE.names or ()), "trees of another version of scikit-learn; install that version"
    )
    nodes = np.zeros(len(values), dtype=NODE_DTYPE)
    for name in found:
        require(arrays[f"node_{name}"].shape == nodes.shape, "a tree with fewer nodes than declared")
        nodes[name] = arrays[f"node_{name}"]
    check_nodes(nodes["left_child"], nodes["right_child"], nodes["feature"], n_features)
    depth = tree_depth(nodes["left_child"], nodes["right_child"])
    require(depth <= max_depth, "a tree that is deeper than declared")
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
    """Return the number of splits on the longest path of a tree that has passed :func:`check_nodes`."""
    depths = [0] * len(left)
    for node, children in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        if children[0] != -1:
            for child in children:
                depths[child] = max(depths[child], depths[node] + 1)
    return max(depths)


def check_nodes(left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], n_features: int) -> None:
    """Reject a tree with child indices out of range, with cycles, or with unknown features.

    The left child of a leaf is −1. Children come after their parent, so that every path ends.
    """
    require(len(left) > 0, "a tree without nodes")
    inner = np.flatnonzero(left != -1)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        require(
            bool(((child > inner) & (child < len(left))).all()), "a tree with nodes that point outside it"
        )
    used = feature[inner]
    require(bool(((used >= 0) & (used < n_features)).all()), "a tree with unknown features")


def require(condition: bool, what: str) -> None:
    """Raise ``ValueError`` with a description of the wrong content, unless the condition is true."""
    if not condition:
        raise ValueError(f"it contains {what}")
