"""Searches of RobustMLPClassifier on the noisy labels: folds, held-out rows, α."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from peerloss.estimators._clean import AutomaticAlpha, automatic_alpha
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.metrics import peer_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss._validation import FloatArray, IntArray
    from peerloss.training import TrainedNets

#: The authors' grid without 4 and with 0, which comes first: the rates are read off plain training.
ALPHA_GRID = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 3.0, 5.0, -5.0)


class AlphaSearch(NamedTuple):
    """What a search found."""

    alpha: float
    scores: tuple[float, ...]
    """Mean peer score over folds of every candidate; −inf for one that diverged."""


def search_alpha(
    probabilities: FloatArray,
    scoring_alpha: float,
    *,
    y: IntArray,
    weight: FloatArray | None,
    folds: IntArray,
    grid: Sequence[float] = ALPHA_GRID,
) -> AlphaSearch:
    """Choose α on held-out noisy labels, all candidates compared under one scorer α.

    Parameters
    ----------
    probabilities
        Out-of-fold probabilities of every candidate (candidates, n, K), NaN where one diverged.
    scoring_alpha
        α of the peer score: α* for accuracy, 1 for balanced accuracy of two classes. Never the candidate's
        own.
    y, weight, folds
        Noisy labels, weights (or ``None``) and fold numbers, (n,).
    grid
        The α of the candidates. Of equal scores the one nearest to the scorer's wins.
    """
    scores = tuple(_mean_score(table, y, weight, folds, scoring_alpha) for table in probabilities)
    if max(scores) == -np.inf:
        raise DivergenceError(
            "every candidate of alpha='auto' left the finite numbers. Lower `learning_rate` or use a bounded "
            "`base` such as 'sigmoid'."
        )
    best = max(range(len(grid)), key=lambda i: (scores[i], -abs(grid[i] - scoring_alpha)))
    return AlphaSearch(float(grid[best]), scores)


def rule_for_alpha(plain: FloatArray, y: IntArray, weight: FloatArray | None) -> AutomaticAlpha | None:
    """Apply :func:`automatic_alpha` to plain training, out of fold; ``None`` if that diverged."""
    if np.isnan(plain).any():
        return None
    weights = np.ones(len(y)) if weight is None else weight
    prior = np.bincount(y, weights, minlength=plain.shape[1]) / weights.sum()
    return automatic_alpha(plain, y, weights, prior)


def _mean_score(
    proba: FloatArray, y: IntArray, weight: FloatArray | None, folds: IntArray, alpha: float
) -> float:
    if np.isnan(proba).any():
        return -np.inf
    predicted = proba.argmax(axis=1)
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
    """Return probabilities of each row by the net that has not seen its fold, (settings, n, K).

    Nets come setting by setting, one a fold. NaN fills the table of a setting with a net that diverged.
    """
    n_folds = int(folds.max()) + 1
    tables = np.full((len(trained) // n_folds, len(X), trained.n_classes), np.nan)
    for i, table in enumerate(tables):
        nets = range(i * n_folds, (i + 1) * n_folds)
        if not trained.diverged[list(nets)].any():
            for f, net in enumerate(nets):
                table[folds == f] = trained.mean_probabilities(X[folds == f], nets=[net])
    return tables
