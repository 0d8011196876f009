"""A candidate that learns from rows without a label: trees on labels that are spread over a neighbour graph.

Rows are connected to their nearest neighbours, and the noisy labels flow along these edges (Zhou et al.,
2004, Learning with local and global consistency, NeurIPS). The unlabelled rows then have soft labels, on
which trees are trained together with the labelled rows. This helps if classes form clusters. On most
other data the portfolio leaves the candidate out. ``docs/howto/partial-labels.md`` has the measurements, also
of other ways to use such rows, which did not help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import diags_array
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.neighbors import kneighbors_graph

from peerloss._probabilities import label_frequencies, normalise_rows

if TYPE_CHECKING:
    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators.folds import Folds

#: The most rows of the graph. With more, a sample of the unlabelled rows is used. If the labelled rows alone
#: are as many, there is no candidate: unlabelled rows help if labels are few.
MAX_GRAPH_ROWS = 10_000
#: Neighbours of each row, the share of its label that a row takes from them, and the number of steps.
N_NEIGHBOURS, FLOW, N_STEPS = 10, 0.9, 40
#: Smaller shares of a spread label are left out of the training.
MIN_SHARE = 0.02
#: Trees per fold, and the least number of rows per leaf.
N_TREES, LEAF_SIZE = 40, 5
#: The name of the candidate.
SPREAD_LABELS = "extra trees, spread labels"


def fit_spread_labels(
    data: FitInput, unlabelled: FloatArray, folds: Folds, *, seed: int
) -> list[tuple[Any, FloatArray]]:
    """Return the trees and the held-out probabilities of each fold; empty if there are too many labels.

    ``unlabelled`` has the features of the rows without a label, standardised like ``data.X``. The labels of
    the held-out rows of a fold are not spread in that fold.
    """
    n_labelled = len(data.codes)
    room = MAX_GRAPH_ROWS - n_labelled
    if room <= 0 or not len(unlabelled):
        return []
    if len(unlabelled) > room:
        unlabelled = unlabelled[np.random.default_rng(seed).permutation(len(unlabelled))[:room]]
    # Equal rows are one node: they would otherwise be each other's only neighbours.
    nodes, node = np.unique(np.r_[data.X, unlabelled], axis=0, return_inverse=True)
    labelled_node, unlabelled_node = node[:n_labelled], node[n_labelled:]
    spread = _spread(nodes, [_node_labels(data, train, labelled_node, len(nodes)) for train, _ in folds])
    parts = []
    for (train, test), found in zip(folds, spread, strict=True):
        prior = label_frequencies(data.codes[train], len(data.classes), data.weight[train])
        shares = _with_class_shares(found, prior)[unlabelled_node]
        rows, codes = np.nonzero(shares >= MIN_SHARE)
        trees = ExtraTreesClassifier(N_TREES, min_samples_leaf=LEAF_SIZE, random_state=seed)
        mean_weight = data.weight[train].mean()
        trees.fit(
            np.r_[data.X[train], unlabelled[rows]],
            np.r_[data.codes[train], codes],
            sample_weight=np.r_[data.weight[train], shares[rows, codes] * mean_weight],
        )
        parts.append((trees, trees.predict_proba(data.X[test])))
    return parts


def _node_labels(data: FitInput, rows: IntArray, node: IntArray, n_nodes: int) -> FloatArray:
    """Add up the weighted labels of some rows at their nodes, shape (n_nodes, K)."""
    labels = np.zeros((n_nodes, len(data.classes)))
    np.add.at(labels, (node[rows], data.codes[rows]), data.weight[rows])
    return labels


def _spread(nodes: FloatArray, labels: list[FloatArray]) -> FloatArray:
    """Spread several sets of labels (n_nodes, K) at once; the result has shape (sets, n_nodes, K)."""
    graph = kneighbors_graph(nodes, min(N_NEIGHBOURS, len(nodes) - 1))
    graph = graph.maximum(graph.T)
    scale = diags_array(1.0 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    graph = scale @ graph @ scale
    start = np.hstack(labels)
    flowing = start
    for _ in range(N_STEPS):
        flowing = FLOW * (graph @ flowing) + (1.0 - FLOW) * start
    return np.stack(np.split(flowing, len(labels), axis=1))


def _with_class_shares(labels: FloatArray, prior: FloatArray) -> FloatArray:
    """Scale the classes to their frequencies and return the shares of each row, (n, K)."""
    scaled = labels / np.maximum(labels.sum(axis=0), 1e-300) * prior
    return normalise_rows(scaled + 1e-9 * prior)  # a row that no label reaches has the frequencies
