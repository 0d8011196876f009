"""Check indices and shapes of loaded objects that compiled code uses without a check; trees as arrays.

A crafted file could otherwise make it read or write anywhere in memory. Every loaded object is checked before
it can be used; a ``ValueError`` describes what is wrong.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn._loss.loss import BaseLoss
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder
from sklearn.svm._base import BaseLibSVM
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import NODE_DTYPE, Tree

from peerloss.boosting import PeerBoostingClassifier
from peerloss.boosting.libraries import BoosterSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

#: Largest number of threads that a file may request.
MAX_JOBS = 1024
#: Categories in a bit set of histogram boosting, and 32-bit words of that set.
_MAX_CATEGORIES, _BITSET_WORDS = 256, 8
#: Buffer sizes of the Mersenne Twister and Philox: the position must lie within the buffer.
_BUFFER_SIZES = {"MT19937": 624, "Philox": 4}


def check_loaded(value: Any) -> None:
    """Raise an error if the content of a loaded object is not safe for compiled code."""
    if isinstance(value, BaseEstimator):
        _check_attributes(value)
    for kind, check in _CHECKS.items():
        if isinstance(value, kind):
            check(value)


def _check_attributes(estimator: BaseEstimator) -> None:
    """Reject attributes that replace methods or constants of the class, and too many threads."""
    replaced = sorted(name for name in vars(estimator) if hasattr(type(estimator), name))
    require(not replaced, f"a {type(estimator).__name__} with another {', '.join(replaced)}")
    _check_jobs(getattr(estimator, "n_jobs", None))


def _check_jobs(n_jobs: Any) -> None:
    require(n_jobs is None or (_is_integer(n_jobs) and abs(n_jobs) <= MAX_JOBS), f"n_jobs={n_jobs!r}")


def _check_steps(pipeline: Any) -> None:
    steps = pipeline.steps
    pairs = isinstance(steps, list) and all(
        isinstance(step, tuple | list) and len(step) == 2 for step in steps
    )
    require(pairs and len(steps) > 0, "a pipeline without steps")


def _check_tree(estimator: Any) -> None:
    if hasattr(estimator, "tree_"):
        tree, n_features = estimator.tree_, _n_features(estimator)
        require(type(tree) is Tree, "a tree of another type")
        require(0 < tree.node_count <= tree.capacity, "a tree with fewer nodes than declared")
        require(tree.n_features == n_features, "a tree for other features")
        check_nodes(tree.children_left, tree.children_right, tree.feature, n_features)


def _check_members(ensemble: Any) -> None:
    """Check trees that an ensemble calls without checking their input again."""
    if hasattr(ensemble, "estimators_"):
        n_features = _n_features(ensemble)
        members = np.ravel(np.asarray(ensemble.estimators_, dtype=object))
        require(len(members) > 0, "an ensemble without trees")
        for member in members:
            require(isinstance(member, BaseDecisionTree), "an ensemble of objects that are not trees")
            require(type(member.tree_) is Tree, "a tree of another type")
            require(member.tree_.n_features == n_features, "a tree for other features")


def _check_boosting(boosting: Any) -> None:
    """Check that the array of scores has one column for each tree of a round."""
    _check_members(boosting)
    if hasattr(boosting, "estimators_"):
        trees = boosting.estimators_
        require(isinstance(trees, np.ndarray) and trees.ndim == 2, "boosting without rounds of trees")
        require(_is_integer(boosting.n_trees_per_iteration_), "boosting without a number of trees")
        width = trees.shape[1]
        require(boosting.n_trees_per_iteration_ == width, "boosting with another number of trees in a round")
        zero = isinstance(boosting.init_, str) and boosting.init_ == "zero"
        require(zero or type(boosting.init_) is DummyClassifier, "boosting that starts from another model")
        require(isinstance(boosting._loss, BaseLoss), "boosting with another loss")  # noqa: SLF001
        row = np.zeros((1, _n_features(boosting)), dtype=np.float32)
        first = boosting._raw_predict_init(row)  # noqa: SLF001 - its number of columns follows from the loss
        require(first.shape == (1, width), "boosting whose loss has another number of scores")


def _check_histogram_boosting(boosting: Any) -> None:
    if not hasattr(boosting, "_predictors"):
        return
    n_features = _n_features(boosting)
    require(not getattr(boosting, "_in_fit", False), "boosting with an unfinished fit")
    mapper = boosting._bin_mapper  # noqa: SLF001 - there is no public access to it
    require(type(mapper) is _BinMapper, "a bin mapper of another type")
    categorical = mapper.is_categorical_
    require(isinstance(categorical, np.ndarray) and categorical.dtype.kind in "bu", "a damaged bin mapper")
    require(categorical.shape == (n_features,), "a bin mapper for other features")
    for feature in np.flatnonzero(categorical):
        values = np.asarray(mapper.bin_thresholds_[feature], dtype=np.float64)
        require_range(values, _MAX_CATEGORIES, "categories out of range")
    _check_preprocessor(boosting._preprocessor, n_features)  # noqa: SLF001
    for group in boosting._predictors:  # noqa: SLF001
        require(len(group) == boosting.n_trees_per_iteration_, "boosting with another number of trees")
        for tree in group:
            _check_histogram_tree(tree, n_features, categorical.astype(bool))


def _check_preprocessor(preprocessor: Any, n_features: int) -> None:
    """Check that the preprocessor only reorders the columns."""
    if preprocessor is None:
        return
    require(type(preprocessor) is ColumnTransformer, "boosting with a preprocessor of another type")
    width = 0
    for _, step, columns in preprocessor.transformers_:
        if isinstance(step, str) and step == "drop":
            continue
        require(type(step) in {OrdinalEncoder, FunctionTransformer}, "boosting with another preprocessor")
        mask = np.asarray(columns)
        require(mask.dtype == bool and mask.shape == (n_features,), "a preprocessor for other features")
        width += int(mask.sum())
    require(width == n_features, "a preprocessor that drops features")


def _check_histogram_tree(tree: Any, n_features: int, categorical: Any) -> None:
    require(type(tree) is TreePredictor, "a tree of another type")
    nodes, bitsets = tree.nodes, tree.raw_left_cat_bitsets
    require(isinstance(nodes, np.ndarray) and nodes.ndim == 1, "a tree without a list of nodes")
    require(nodes.dtype == PREDICTOR_RECORD_DTYPE, "a tree with nodes of another dtype")
    left = np.where(nodes["is_leaf"] != 0, -1, nodes["left"].astype(np.int64))
    check_nodes(left, nodes["right"], nodes["feature_idx"], n_features)
    split = nodes[(nodes["is_leaf"] == 0) & (nodes["is_categorical"] != 0)]
    if len(split):
        require(categorical[split["feature_idx"]], "a category in a numeric feature")
        require(bitsets.ndim == 2 and bitsets.shape[1] == _BITSET_WORDS, "categories of another shape")
        require((split["bitset_idx"] < len(bitsets)), "unknown categories")


def _check_dummy(dummy: Any) -> None:
    if hasattr(dummy, "classes_"):
        require(np.array_equal(dummy.n_classes_, len(dummy.classes_)), "a model of other classes")


def _check_booster(classifier: Any) -> None:
    if hasattr(classifier, "_settings"):
        require(type(classifier._settings) is BoosterSettings, "a booster without settings")  # noqa: SLF001
        _check_jobs(classifier._settings.n_jobs)  # noqa: SLF001


def _check_machine(machine: Any) -> None:
    if not hasattr(machine, "support_vectors_"):
        return
    require(
        isinstance(machine.kernel, str) and machine.kernel in {"linear", "poly", "rbf", "sigmoid"},
        f"a support vector machine with kernel={machine.kernel!r}; use a built-in kernel",
    )
    require(machine._sparse is False, "a support vector machine fitted to sparse features")  # noqa: SLF001
    vectors, dual = machine.support_vectors_, machine._dual_coef_
    counts = np.asarray(machine._n_support, dtype=np.int64)  # noqa: SLF001
    n_classes, n_vectors = len(machine.classes_), len(vectors)
    require(counts.shape == (n_classes,) and n_classes > 1, "support vectors of other classes")
    same = counts.sum() == n_vectors and machine.support_.shape == (n_vectors,)
    require(same and (counts >= 0).all(), "support vectors that do not match")
    n_features = _n_features(machine)
    require(vectors.shape[1] == n_features == machine.shape_fit_[1], "a machine for other features")
    support = np.asarray(machine.support_)
    require_range(support, machine.shape_fit_[0], "support vectors out of range")
    pairs = n_classes * (n_classes - 1) // 2
    require(dual.shape == (n_classes - 1, n_vectors), "coefficients of other classes")
    require(machine._intercept_.shape == (pairs,), "intercepts of other classes")
    shapes = {machine._probA.shape, machine._probB.shape}  # noqa: SLF001
    require(shapes in ({(0,)}, {(pairs,)}), "probabilities of other classes")


def _check_one_hot(encoder: Any) -> None:
    """Check the values that determine positions in a sparse matrix, to which SciPy writes without a check."""
    if not hasattr(encoder, "categories_"):
        return
    categories, drop = encoder.categories_, encoder._drop_idx_after_grouping  # noqa: SLF001
    n_features = _n_features(encoder)
    require(len(categories) == n_features, "an encoder for other features")
    grouped: list[Any] = [None] * n_features
    if encoder._infrequent_enabled:  # noqa: SLF001
        grouped = list(zip(encoder._infrequent_indices, encoder._default_to_infrequent_mappings, strict=True))  # noqa: SLF001
        require(len(grouped) == n_features, "an encoder for other features")
    require(drop is None or np.shape(drop) == (n_features,), "an encoder for other features")
    widths = []
    for feature, values in enumerate(categories):
        _check_order(np.asarray(values))
        width = _grouped_width(len(values), grouped[feature])
        dropped = None if drop is None else drop[feature]
        require(dropped is None or (_is_integer(dropped) and 0 <= dropped < width), "an unknown category")
        widths.append(width - (dropped is not None))
    require(list(encoder._n_features_outs) == widths, "an encoder with another number of columns")  # noqa: SLF001


def _check_order(categories: Any) -> None:
    """Check that numbers are sorted, because they are searched by bisection."""
    if categories.dtype.kind in "OU" and all(isinstance(v, str) or v is None or v != v for v in categories):  # noqa: PLR0124 - NaN
        return
    known = [value for value in categories.tolist() if value == value]  # noqa: PLR0124
    require(all(a < b for a, b in pairwise(known)), "categories that are not sorted")
    require((categories[: len(known)] == categories[: len(known)]), "categories that are not sorted")


def _grouped_width(n_categories: int, grouped: Any) -> int:
    """Return the number of columns after infrequent categories are joined, before any is dropped."""
    if grouped is None or (grouped[0] is None and grouped[1] is None):
        return n_categories
    infrequent, mapping = (np.asarray(part) for part in grouped)
    width = n_categories - infrequent.size + 1
    require(
        infrequent.ndim == 1 and infrequent.size > 0 and infrequent.dtype.kind in "iu", "unknown categories"
    )
    require_range(infrequent, n_categories, "unknown categories")
    require(mapping.shape == (n_categories,) and mapping.dtype.kind in "iu", "unknown categories")
    require_range(mapping, width, "unknown categories")
    return width


def _check_vocabulary(vectorizer: Any) -> None:
    """Check the column indices of a sparse matrix of words."""
    if hasattr(vectorizer, "vocabulary_"):
        require(type(vectorizer.vocabulary_) is dict, "a damaged vocabulary")
        columns = vectorizer.vocabulary_.values()
        require(all(_is_integer(column) for column in columns), "a damaged vocabulary")
        require(sorted(columns) == list(range(len(columns))), "a vocabulary with columns out of range")


def _check_generator(generator: Any) -> None:
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator  # noqa: SLF001
    state = bits.state
    size = _BUFFER_SIZES.get(state["bit_generator"])
    if size is not None:
        position = state["buffer_pos"] if "buffer_pos" in state else state["state"]["pos"]
        require(0 <= position <= size, "a random generator with a position out of range")


def _n_features(estimator: Any) -> int:
    """Return the number of features that an estimator requires; without it, any input would be accepted."""
    n_features: Any = getattr(estimator, "n_features_in_", None)
    require(_is_integer(n_features) and n_features > 0, f"a {type(estimator).__name__} for unknown features")
    return int(n_features)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def require(condition: Any, what: str) -> None:
    """Raise ``ValueError`` with a description of the wrong content, unless all conditions are true."""
    if not np.all(condition):
        raise ValueError(f"it contains {what}")


def require_range(values: Any, end: float, what: str) -> None:
    """Require 0 ≤ value < ``end`` of every value."""
    array = np.asarray(values)
    require((array >= 0) & (array < end), what)


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
    require(n_classes > 0, "a tree without classes")
    found = {name.removeprefix("node_") for name in arrays if name.startswith("node_")}
    known = found == set(NODE_DTYPE.names or ())
    require(known, "trees of another version of scikit-learn; install that version")
    nodes = np.zeros(len(values), dtype=NODE_DTYPE)
    for name in found:
        require(arrays[f"node_{name}"].shape == nodes.shape, "a tree with fewer nodes than declared")
        nodes[name] = arrays[f"node_{name}"]
    check_nodes(nodes["left_child"], nodes["right_child"], nodes["feature"], n_features)
    depth = tree_depth(nodes["left_child"], nodes["right_child"])
    require(depth <= max_depth, "a tree that is deeper than declared")
    tree = Tree(n_features, n_classes, n_outputs)
    content = {"nodes": nodes, "values": np.ascontiguousarray(values, dtype=np.float64)}
    tree.__setstate__({"max_depth": max_depth, "node_count": len(nodes), **content})
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
        require((child > inner) & (child < len(left)), "a tree with nodes that point outside it")
    require_range(feature[inner], n_features, "a tree with unknown features")


_CHECKS: dict[Any, Callable[[Any], None]] = {
    BaseDecisionTree: _check_tree,
    BaseForest: _check_members,
    BaseLibSVM: _check_machine,
    CountVectorizer: _check_vocabulary,
    DummyClassifier: _check_dummy,
    GradientBoostingClassifier: _check_boosting,
    HistGradientBoostingClassifier: _check_histogram_boosting,
    OneHotEncoder: _check_one_hot,
    Pipeline: _check_steps,
    PeerBoostingClassifier: _check_booster,
    np.random.Generator: _check_generator,
    np.random.RandomState: _check_generator,
}
