"""Folds that hold each row out, checked."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, check_cv

from peerloss._validation import IntArray, check_count
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._classifier import FitInput


def held_out_folds(cv: Any, data: FitInput, *, seed: int) -> list[tuple[IntArray, IntArray]]:
    """Return pairs of training and held-out rows; rows without weight never train.

    A number makes that many stratified, shuffled folds of the rows that have weight (fewer where a class has
    fewer rows); a splitter or an iterable of index pairs is taken as it is, if it holds each row out once.
    """
    rows = np.flatnonzero(data.weight > 0)
    counts = np.bincount(data.codes[rows], minlength=len(data.classes))
    rarest = int(counts.argmin())
    if counts[rarest] < 2:
        raise InvalidInputError(
            f"`y` must hold at least two rows (of positive weight) of each class, to hold one out; "
            f"class {_plain(data.classes[rarest])!r} has {counts[rarest]}. Drop the class or merge it."
        )
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        n_folds = check_count(cv, "cv", minimum=2)
        if n_folds > counts[rarest]:
            warnings.warn(
                f"`cv`={n_folds} folds were asked for, but class {_plain(data.classes[rarest])!r} has only "
                f"{counts[rarest]} rows; {counts[rarest]} folds are used.",
                UserWarning,
                stacklevel=3,
            )
            n_folds = int(counts[rarest])
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
        return [(rows[a], rows[b]) for a, b in splitter.split(rows, data.codes[rows])]
    return _given_folds(cv, data)


def _plain(label: Any) -> Any:
    """Return a label as the user would write it, not as a NumPy scalar."""
    return label.item() if isinstance(label, np.generic) else label


def _given_folds(cv: Any, data: FitInput) -> list[tuple[IntArray, IntArray]]:
    try:
        splits = list(check_cv(cv, data.codes, classifier=True).split(data.codes, data.codes))
        folds = [
            (np.arange(len(data.codes))[train], np.arange(len(data.codes))[test]) for train, test in splits
        ]
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(
            f"`cv` must be a number of folds, a splitter, or index pairs for these {len(data.codes)} rows; "
            f"{cv!r} failed: {error} Where a splitter needs groups, pass list(splitter.split(X, y, groups))."
        ) from error
    times = np.bincount(np.concatenate([test for _, test in folds]), minlength=len(data.codes))
    if (times[data.weight > 0] != 1).any():
        raise InvalidInputError(
            "`cv` must hold each row out exactly once; "
            f"{int((times[data.weight > 0] != 1).sum())} rows are held out never or several times. "
            "Use KFold, StratifiedKFold or GroupKFold, not random splits."
        )
    folds = [(train[data.weight[train] > 0], test) for train, test in folds]
    for number, (train, _) in enumerate(folds):
        absent = np.setdiff1d(np.arange(len(data.classes)), data.codes[train])
        if absent.size:
            raise InvalidInputError(
                f"`cv` must leave every class in each training part; fold {number} trains without class "
                f"{_plain(data.classes[absent[0]])!r}. Use stratified folds, or fewer."
            )
    return folds
