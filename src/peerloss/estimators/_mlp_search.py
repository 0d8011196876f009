"""The searches of RobustMLPClassifier on noisy labels: folds, held-out rows, α."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peerloss._probabilities import label_frequencies
from peerloss.estimators.folds import DEFAULT_FOLDS, held_out_folds, is_fold_count
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.metrics import peer_score
from peerloss.posterior.decision import AutomaticAlpha, automatic_alpha

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators.folds import Folds
    from peerloss.training import TrainedNets

#: The grid of the paper without 4 and with 0. 0 is first, because the rates are estimated from it.
ALPHA_GRID = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 3.0, 5.0, -5.0)


class AlphaSearch(NamedTuple):
    """The result of a search."""

    alpha: float
    scores: tuple[float, ...]
    """Mean peer score of every candidate over the folds; −inf if it diverged."""


def search_alpha(
    probabilities: FloatArray,
    scoring_alpha: float,
    *,
    y: IntArray,
    weight: FloatArray | None,
    folds: Folds,
    grid: Sequence[float] = ALPHA_GRID,
) -> AlphaSearch:
    """Choose α on held-out noisy labels; all candidates are compared by the peer score at one α.

    Parameters
    ----------
    probabilities
        Out-of-fold probabilities of every candidate (candidates, n, K), NaN for a candidate that diverged.
    scoring_alpha
        α of the peer score: α* for accuracy, 1 for balanced accuracy of two classes. It is the same for all
        candidates.
    y, weight
        Noisy labels and weights (or ``None``), (n,).
    folds
        The folds that ``probabilities`` were held out in.
    grid
        The α of the candidates. Of equal scores, the one nearest to ``scoring_alpha`` is chosen.
    """
    scores = tuple(_mean_score(table, y, weight, folds, scoring_alpha) for table in probabilities)
    if max(scores) == -np.inf:
        raise DivergenceError(
            "every candidate of alpha='auto' became NaN or infinite. Lower `learning_rate` or use a bounded "
            "`base` such as 'sigmoid'."
        )
    best = max(range(len(grid)), key=lambda i: (scores[i], -abs(grid[i] - scoring_alpha)))
    return AlphaSearch(float(grid[best]), scores)


def rule_for_alpha(plain: FloatArray, y: IntArray, weight: FloatArray | None) -> AutomaticAlpha | None:
    """Apply :func:`automatic_alpha` to out-of-fold probabilities of plain nets; ``None`` if they diverged."""
    if np.isnan(plain).any():
        return None
    weights = np.ones(len(y)) if weight is None else weight
    prior = label_frequencies(y, plain.shape[1], weights)
    return automatic_alpha(plain, y, weights, prior)


def _mean_score(
    proba: FloatArray, y: IntArray, weight: FloatArray | None, folds: Folds, alpha: float
) -> float:
    if np.isnan(proba).any():
        return -np.inf
    predicted = proba.argmax(axis=1)
    parts = [test for _, test in folds if len(test)]  # a fold may hold out only rows of weight zero
    scores = [
        peer_score(y[i], predicted[i], alpha=alpha, sample_weight=None if weight is None else weight[i])
        for i in parts
    ]
    return float(np.average(scores, weights=[len(part) for part in parts]))


def search_folds(cv: Any, data: FitInput, groups: ArrayLike | None, seed: int) -> Folds:
    """Return the folds of ``cv`` as indices into the rows with positive weight, the only rows in training.

    Unlike in :func:`held_out_folds`, a class may have fewer rows than there are folds if ``cv`` is a number
    and there are no groups: the networks know the number of classes and can train without a class.
    """
    used = data.weight > 0
    if is_fold_count(cv) and groups is None:
        n_folds = DEFAULT_FOLDS if cv is None else int(cv)
        numbers = assign_folds(data.codes[used], n_folds, seed)
        return [(np.flatnonzero(numbers != f), np.flatnonzero(numbers == f)) for f in range(n_folds)]
    place = np.cumsum(used) - 1
    folds = held_out_folds(cv, data, seed=seed, groups=groups)
    return [(place[train], place[test[used[test]]]) for train, test in folds]


def assign_folds(codes: IntArray, n_folds: int, seed: int) -> IntArray:
    """Return fold numbers (n,) with each class spread evenly; a rare class may be absent from some folds."""
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
    """Return training rows and held-out rows, with the classes in proportion."""
    n = len(codes)
    wanted = round(n * fraction)
    if not 1 <= wanted < n:
        raise InvalidInputError(
            f"`validation_fraction` {fraction:g} of {n} rows leaves {n - wanted} for training and {wanted} "
            "for scoring; use more rows, another fraction or early_stopping=False."
        )
    rng = np.random.default_rng((seed, 101))
    order = rng.permutation(n)
    by_class = order[np.argsort(codes[order], kind="stable")]
    picked = np.zeros(n, dtype=bool)
    picked[by_class[np.floor((np.arange(wanted) + 0.5) * n / wanted).astype(np.int64)]] = True
    return np.flatnonzero(~picked), np.flatnonzero(picked)


def out_of_fold_probabilities(trained: TrainedNets, X: FloatArray, folds: Folds) -> FloatArray:
    """Return the probabilities of each row from the net that was not trained on it, (settings, n, K).

    The nets are ordered by setting, one per fold. If a net diverged, the table of its setting is NaN.
    """
    n_folds = len(folds)
    tables = np.full((len(trained) // n_folds, len(X), trained.n_classes), np.nan)
    for i, table in enumerate(tables):
        nets = range(i * n_folds, (i + 1) * n_folds)
        if not trained.diverged[list(nets)].any():
            for (_, test), net in zip(folds, nets, strict=True):
                table[test] = trained.mean_probabilities(X[test], nets=[net])
    return tables
