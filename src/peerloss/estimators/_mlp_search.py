"""Searches of RobustMLPClassifier on the noisy labels: folds, held-out rows, α."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.metrics import peer_score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss._validation import FloatArray, IntArray
    from peerloss.training import TrainedNets

#: The authors' grid with 0, for labels may be clean, and without 4.
ALPHA_GRID = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 3.0, 5.0, -5.0)


class AlphaSearch(NamedTuple):
    """What a search found."""

    alpha: float
    scores: tuple[float, ...]
    """Mean peer score over folds of every candidate; −inf for one that diverged."""


def search_alpha(
    train_candidates: Callable[[Sequence[float]], IntArray],
    scorer_alpha: float = 1.0,
    *,
    y: IntArray,
    weight: FloatArray | None,
    folds: IntArray,
    grid: Sequence[float] = ALPHA_GRID,
) -> AlphaSearch:
    """Choose α on held-out noisy labels, all candidates compared under one scorer α.

    Parameters
    ----------
    train_candidates
        From the grid to out-of-fold predictions (candidates, n), −1 where a candidate diverged.
    scorer_alpha
        α of the peer score: 1 for balanced accuracy, α* for accuracy. Never the candidate's own.
    y, weight, folds
        Noisy labels, weights (or ``None``) and fold numbers, (n,).
    grid
        Candidates. Of equal scores the one nearest to ``scorer_alpha`` wins.
    """
    predictions = train_candidates(grid)
    scores = tuple(_mean_score(row, y, weight, folds, scorer_alpha) for row in predictions)
    if max(scores) == -np.inf:
        raise DivergenceError(
            "every candidate of alpha='auto' left the finite numbers. Lower `learning_rate` or use a bounded "
            "`base` such as 'sigmoid'."
        )
    best = max(range(len(grid)), key=lambda i: (scores[i], -abs(grid[i] - scorer_alpha)))
    return AlphaSearch(float(grid[best]), scores)


def _mean_score(
    predicted: IntArray, y: IntArray, weight: FloatArray | None, folds: IntArray, alpha: float
) -> float:
    if (predicted < 0).any():
        return -np.inf
    parts = [folds == f for f in np.unique(folds)]
    scores = [
        peer_score(y[i], predicted[i], alpha=alpha, sample_weight=None if weight is None else weight[i])
        for i in parts
    ]
    return float(np.average(scores, weights=[part.sum() for part in parts]))


def assign_folds(codes: IntArray, n_folds: int, seed: int) -> IntArray:
    """Return fold numbers (n,), each class spread evenly; rare classes may miss folds."""
    if len(codes) < n_folds:
        raise InvalidInputError(
            f"`cv` must be at most the number of rows; got {n_folds} folds for {len(codes)} rows."
        )
    rng = np.random.default_rng((seed, 100))
    order = rng.permutation(len(codes))
    by_class = order[np.argsort(codes[order], kind="stable")]
    folds = np.empty(len(codes), dtype=np.int64)
    folds[by_class] = np.arange(len(codes)) % n_folds
    return folds


def hold_out(codes: IntArray, fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """Return rows to train on and rows held out, the classes in proportion."""
    n = len(codes)
    wanted = round(n * fraction)
    if not 1 <= wanted < n:
        raise InvalidInputError(
            f"`validation_fraction` {fraction:g} of {n} rows leaves {n - wanted} to train on and {wanted} to "
            "score; use more rows, another fraction or early_stopping=False."
        )
    rng = np.random.default_rng((seed, 101))
    order = rng.permutation(n)
    by_class = order[np.argsort(codes[order], kind="stable")]
    picked = np.zeros(n, dtype=bool)
    picked[by_class[np.floor((np.arange(wanted) + 0.5) * n / wanted).astype(np.int64)]] = True
    return np.flatnonzero(~picked), np.flatnonzero(picked)


def out_of_fold_probabilities(trained: TrainedNets, X: FloatArray, folds: IntArray) -> FloatArray:
    """Return probabilities (n, K) of each row by the net that has not seen its fold."""
    table = np.empty((len(X), trained.n_classes))
    for f in range(len(trained)):
        table[folds == f] = trained.mean_probabilities(X[folds == f], nets=[f])
    return table
