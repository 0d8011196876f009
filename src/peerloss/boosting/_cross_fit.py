"""Choose the rounds and the leaves of a booster by its log loss on held-out noisy labels."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold, train_test_split

from peerloss._progress import reporter
from peerloss.boosting._objectives import raw_to_proba
from peerloss.boosting.libraries import BoosterSettings, Rows, raw_scores, train
from peerloss.exceptions import InvalidInputError, warn_caller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray

    Folds = list[tuple[IntArray, IntArray]]

#: Numbers of leaves that ``num_leaves="auto"`` compares: LightGBM's default, and small trees, which overfit
#: noisy labels less.
LEAVES = (31, 7)
#: Rounds whose loss is larger than the smallest by at most this are equally good; the last of them is used.
#: The loss punishes confidence, and begins to increase before the accuracy of the decisions falls.
EQUAL_LOSS = 0.002


class CrossFit(NamedTuple):
    """The settings with the smallest held-out loss, and their predictions of held-out rows."""

    settings: BoosterSettings
    """With the chosen number of rounds and leaves."""
    proba: FloatArray
    """Out-of-fold probabilities of the noisy label, (n, K)."""
    losses: list[float]
    """Mean held-out noisy log loss after each round."""


def cross_fit(
    backend: str, settings: BoosterSettings, rows: Rows, *, folds: Folds, leaves: Sequence[int]
) -> CrossFit:
    """Train one booster per fold for each number of leaves, and keep the best number of rounds and leaves.

    Every fold stops early by itself. Among the numbers of rounds that all folds reached, the chosen one is
    the largest whose mean loss is the smallest or larger by at most ``EQUAL_LOSS``.
    """
    done, report = count(1), reporter(len(leaves) * len(folds))
    fits = [
        _fit_folds(backend, replace(settings, num_leaves=size), rows, folds, lambda: report(next(done)))
        for size in leaves
    ]
    return min(fits, key=lambda fit: min(fit.losses))


def _fit_folds(
    backend: str, settings: BoosterSettings, rows: Rows, folds: Folds, on_fold: Callable[[], None]
) -> CrossFit:
    """Train one booster per fold; ``on_fold`` is called after each of them."""
    fits = []
    for kept, rest in folds:
        fits.append(train(backend, settings, rows.take(kept), held_out=rows.take(rest))[0])
        on_fold()
    n_common = min(len(fit.scores) for fit in fits)
    sizes = [rows.weight[rest].sum() for _, rest in folds]
    losses = np.average([fit.scores[:n_common] for fit in fits], axis=0, weights=sizes)
    n_rounds = n_common
    if settings.early_stopping_rounds is not None:
        n_rounds = int(np.flatnonzero(losses <= losses.min() + EQUAL_LOSS)[-1]) + 1
    proba = np.empty((len(rows.codes), settings.n_classes))
    for fit, (_, rest) in zip(fits, folds, strict=True):
        raw = raw_scores(backend, fit, settings, rows.X[rest], n_rounds=n_rounds)
        proba[rest] = raw_to_proba(raw)
    return CrossFit(replace(settings, n_estimators=n_rounds), proba, losses.tolist())


def stratified_folds(codes: IntArray, classes: NDArray[Any], *, n_folds: int, seed: int) -> Folds:
    """Return shuffled, stratified folds, at most as many as the rarest class has rows, but at least two.

    The only row of a class is held out once, and its probability then comes from a model without the class.
    """
    counts = np.bincount(codes, minlength=len(classes))
    rarest = int(counts.argmin())
    if counts.max() < 2:
        raise InvalidInputError(
            "`y` must have at least two rows (of positive weight) of some class, so that one can be held "
            f"out; each of the {len(counts)} classes has at most one. Check that `y` holds labels and not "
            "identifiers, or merge classes."
        )
    if counts[rarest] < n_folds:
        wanted, n_folds = n_folds, max(2, int(counts[rarest]))
        warn_caller(
            f"`n_folds`={wanted} folds were requested, but class {classes.tolist()[rarest]!r} has only "
            f"{counts[rarest]} rows; {n_folds} folds are used.",
            UserWarning,
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")  # the warning above says it
        return list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(codes, codes))


def hold_out(codes: IntArray, *, share: float, seed: int) -> tuple[IntArray, IntArray]:
    """Return the rows to train on and a held-out share of them, stratified by label."""
    try:
        kept, held_out = train_test_split(
            np.arange(len(codes)), test_size=share, stratify=codes, random_state=seed
        )
    except ValueError as error:
        raise InvalidInputError(
            f"`validation_fraction`={share:g} of {len(codes)} rows cannot be held out with every class "
            f"in both parts: {error} Use more rows, or `early_stopping_rounds=None`."
        ) from error
    return kept, held_out
