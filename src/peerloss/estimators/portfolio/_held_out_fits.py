"""Fit one candidate such that every row gets a probability from models that have not seen its label."""

from __future__ import annotations

from copy import deepcopy
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import log_loss

from peerloss._probabilities import label_frequencies
from peerloss.estimators.portfolio._candidates import (
    TREES_PER_FOLD,
    FoldBooster,
    LightGBMSettings,
    features_for,
    is_forest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sklearn.base import BaseEstimator
    from sklearn.ensemble import HistGradientBoostingClassifier

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators.folds import Folds

#: Numbers of rounds of scikit-learn's boosting that are compared, until the held-out loss increases.
ROUNDS = (10, 15, 20, 30, 40, 60, 80, 110, 150, 200)
#: Most trees of scikit-learn's boosting with more than so many rounds; a round has one tree per class.
MAX_BOOSTED_TREES, LEAST_ROUNDS = 800, 40
#: Penalties of hierarchical shrinkage, in rows: each forest is a candidate once per penalty.
SHRINKAGES = (0.0, 20.0, 200.0)


def n_folds_per_draw(folds: Folds) -> int:
    """Return how many folds hold out every row once, if the folds are drawn several times."""
    held_out = np.cumsum([len(test) for _, test in folds])
    n_rows = len(np.unique(np.concatenate([test for _, test in folds])))
    return int(np.searchsorted(held_out, n_rows)) + 1


def for_folds(model: Any) -> Any:
    """Return a forest with fewer trees, because each fold has one and their predictions are averaged."""
    return clone(model).set_params(n_estimators=TREES_PER_FOLD) if is_forest(model) else model


def fit_fold(
    estimator: BaseEstimator, data: FitInput, train: IntArray, test: IntArray
) -> tuple[Any, list[FloatArray]]:
    """Fit to the rows ``train``; return the model and its probabilities of the rows ``test``.

    A forest has one array of probabilities per entry of ``SHRINKAGES``, any other model has one.
    """
    model: Any = clone(estimator)
    X = features_for(model, data.X, data.trees, data.wide)
    model.fit(X[train], data.codes[train], **_weights(model, data.weight[train]))
    if not is_forest(model):
        return model, [model.predict_proba(X[test])]
    total, _ = _tree_sums(model, X[test], repeat(np.arange(len(test))))
    return model, list(total / len(model.estimators_))


def fit_out_of_bag(forest: BaseEstimator, data: FitInput) -> tuple[Any, list[FloatArray]]:
    """Fit a forest to all rows of positive weight; return it and out-of-bag probabilities per shrinkage.

    The probability of a row averages the trees whose bootstrap sample does not contain it, so one fit
    replaces a fit per fold. Rows in every sample, and rows of weight zero, get the label frequencies.
    """
    model: Any = clone(forest)
    rows = np.flatnonzero(data.weight > 0)
    X = features_for(model, data.X, data.trees)[rows]
    model.fit(X, data.codes[rows], **_weights(model, data.weight[rows]))
    outside = (_not_in(sample, len(rows)) for sample in model.estimators_samples_)
    total, n_trees = _tree_sums(model, X, outside)
    prior = label_frequencies(data.codes, len(data.classes), data.weight)
    has_tree = n_trees > 0
    found = []
    for part in total:
        proba = np.tile(prior, (len(data.codes), 1))
        proba[rows[has_tree]] = part[has_tree] / n_trees[has_tree, None]
        found.append(proba)
    return model, found


def _not_in(sample: IntArray, n_rows: int) -> IntArray:
    outside = np.ones(n_rows, dtype=bool)
    outside[sample] = False
    return np.flatnonzero(outside)


def _tree_sums(forest: Any, X: FloatArray, rows_of_trees: Iterable[IntArray]) -> tuple[FloatArray, IntArray]:
    """Add the probabilities of each tree for its rows; return sums (S, n, K) and numbers of trees (n,)."""
    total = np.zeros((len(SHRINKAGES), len(X), len(forest.classes_)))
    n_trees = np.zeros(len(X), dtype=np.int64)
    single = X.astype(np.float32)  # what scikit-learn's trees compute with
    for estimator, rows in zip(forest.estimators_, rows_of_trees, strict=False):
        leaves = estimator.tree_.apply(single[rows])
        total[:, rows] += shrunk_values(estimator.tree_, SHRINKAGES)[:, leaves]
        n_trees[rows] += 1
    return total, n_trees


def shrunk_values(tree: Any, penalties: tuple[float, ...]) -> FloatArray:
    """Return the class frequencies of all nodes after hierarchical shrinkage, shape (S, nodes, K).

    The difference of a node from its parent is divided by 1 + penalty / rows of the parent. A leaf with few
    labels is thereby drawn to the frequencies of larger nodes above it (Agarwal et al., 2022). One fit covers
    the range of smoothing that would otherwise need a fit per size of the leaves.
    """
    raw, left, right = tree.value[:, 0, :], tree.children_left, tree.children_right
    rows = tree.n_node_samples  # distinct rows of the bootstrap sample, whatever the scale of the weights
    values = np.repeat(raw[None], len(penalties), axis=0)
    parents = np.array([0])
    while (parents := parents[left[parents] >= 0]).size:  # one level of the tree per turn
        keep = 1.0 / (1.0 + np.array(penalties)[:, None] / rows[parents])
        for children in (left[parents], right[parents]):
            values[:, children] = values[:, parents] + keep[:, :, None] * (raw[children] - raw[parents])
        parents = np.concatenate([left[parents], right[parents]])
    positive: FloatArray = np.maximum(values, 0.0)  # rounding
    return positive


def shrink(forest: Any, penalty: float) -> Any:
    """Return a copy of a fitted forest whose trees predict the shrunk frequencies."""
    if not penalty:
        return forest
    shrunk = deepcopy(forest)
    for estimator in shrunk.estimators_:
        estimator.tree_.value[:, 0, :] = shrunk_values(estimator.tree_, (penalty,))[0]
    return shrunk


def join_folds(folds: Folds, parts: list[FloatArray], data: FitInput) -> FloatArray:
    """Average the held-out probabilities of each row; a row that is never held out gets the frequencies."""
    total = np.zeros((len(data.codes), len(data.classes)))
    times = np.zeros(len(data.codes))
    for (_, test), part in zip(folds, parts, strict=True):
        total[test] += part
        times[test] += 1
    prior = label_frequencies(data.codes, len(data.classes), data.weight)
    joined: FloatArray = np.where(times[:, None] > 0, total / np.maximum(times, 1)[:, None], prior)
    return joined


def fit_rounds(
    candidate: LightGBMSettings | HistGradientBoostingClassifier,
    data: FitInput,
    train: IntArray,
    test: IntArray,
) -> tuple[Any, list[float]]:
    """Fit boosting; return the model and the log loss of the held-out noisy labels after some rounds.

    Entry i is the loss after ``i + 1`` rounds of LightGBM, or ``ROUNDS[i]`` of scikit-learn's boosting.
    """
    if not data.weight[test].any():
        data = data._replace(weight=np.where(np.isin(np.arange(len(data.codes)), test), 1.0, data.weight))
    if isinstance(candidate, LightGBMSettings):
        return _fit_lightgbm(candidate, data, train, test)
    return _fit_scikit_learn(clone(candidate), data, train, test)


def _max_rounds(n_classes: int, max_trees: int, least_rounds: int) -> int:
    return min(ROUNDS[-1], max(least_rounds, max_trees // n_classes))


def _fit_lightgbm(
    settings: LightGBMSettings, data: FitInput, train: IntArray, test: IntArray
) -> tuple[FoldBooster, list[float]]:
    import lightgbm  # noqa: PLC0415 - an optional dependency

    X, categorical = features_for(settings, data.X, data.trees), list(data.categorical)
    rows = lightgbm.Dataset(
        X[train], data.codes[train], weight=data.weight[train], categorical_feature=categorical
    )
    held_out = rows.create_valid(X[test], data.codes[test], weight=data.weight[test])
    losses: dict[str, dict[str, list[float]]] = {}
    booster = lightgbm.train(
        settings.parameters,
        rows,
        num_boost_round=_max_rounds(len(data.classes), settings.max_trees, settings.least_rounds),
        valid_sets=[held_out],
        keep_training_booster=True,  # otherwise the rounds after the best one are lost
        callbacks=[
            lightgbm.early_stopping(settings.patience, verbose=False),
            lightgbm.record_evaluation(losses),
        ],
    )
    (curve,) = losses["valid_0"].values()
    # From text: the booster of a fit holds its training data.
    return FoldBooster(lightgbm.Booster(model_str=booster.model_to_string(num_iteration=-1))), curve


def _fit_scikit_learn(model: Any, data: FitInput, train: IntArray, test: IntArray) -> tuple[Any, list[float]]:
    X, y, weights = features_for(model, data.X, data.trees), data.codes, _weights(model, data.weight[train])
    # Codes of categories are ordered numbers here: a model with `categorical_features` could not be saved.
    losses: list[float] = []
    max_rounds = _max_rounds(len(data.classes), MAX_BOOSTED_TREES, LEAST_ROUNDS)
    for rounds in (rounds for rounds in ROUNDS if rounds <= max_rounds):
        model.set_params(max_iter=rounds).fit(X[train], y[train], **weights)
        proba, labels = model.predict_proba(X[test]), np.arange(len(data.classes))
        losses.append(log_loss(data.codes[test], proba, sample_weight=data.weight[test], labels=labels))
        if losses[-1] > min(losses):
            break
    return model, losses


def common_rounds(losses: list[list[float]]) -> int:
    """Return the entry of the smallest mean loss; a fold that stopped keeps its last loss.

    The number is the same for all folds. The best number of each fold, chosen on the rows that it holds out,
    would make the probabilities of these rows optimistic, and boosting would get too much weight.
    """
    length = max(map(len, losses))
    curves = np.array([[*fold, *[fold[-1]] * (length - len(fold))] for fold in losses])
    return int(curves.mean(axis=0).argmin())


def keep_rounds(model: Any, entry: int) -> Any:
    """Return the boosting of :func:`fit_rounds` with the rounds that belong to an entry of its losses."""
    if isinstance(model, FoldBooster):
        return model.first(entry + 1)
    rounds = min(ROUNDS[entry], len(model._predictors))  # noqa: SLF001 - faster than a fit with fewer rounds
    del model._predictors[rounds:]  # noqa: SLF001
    return model.set_params(max_iter=rounds)


def _weights(model: Any, weight: FloatArray) -> dict[str, FloatArray]:
    """Return the argument of ``fit`` for sample weights."""
    if not np.ptp(weight):  # weighted binning of equal weights would make boosting ten times slower
        return {}
    step = f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""
    return {f"{step}sample_weight": weight}
