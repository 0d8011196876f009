"""Folds that hold each row out, checked."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv

from peerloss._validation import IntArray, check_count
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput

Folds = list[tuple[IntArray, IntArray]]

#: Number of folds for ``cv=None``, as in scikit-learn.
DEFAULT_FOLDS = 5


def is_fold_count(cv: Any) -> bool:
    """Return whether ``cv`` is a number of folds, a NumPy integer or ``None`` (five) included."""
    return cv is None or (isinstance(cv, Integral) and not isinstance(cv, bool))


def check_cv_kind(cv: Any) -> None:
    """Refuse what scikit-learn does not accept as ``cv``, without splitting anything."""
    if is_fold_count(cv):
        check_count(DEFAULT_FOLDS if cv is None else cv, "cv", minimum=2)
    elif isinstance(cv, str | bool) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise InvalidInputError(
            f"`cv` must be a number of folds, a splitter, or an iterable of index pairs; got {cv!r}."
        )


def held_out_folds(
    cv: Any, data: FitInput, *, seed: int, groups: ArrayLike | None = None, X: Any = None
) -> Folds:
    """Return pairs of training and held-out rows; rows without weight never train.

    ``cv`` is what scikit-learn accepts: a number of folds, a splitter, or an iterable of index pairs. A
    number makes that many shuffled folds with the classes in proportion: of the rows that have weight (fewer
    folds if a class has fewer rows), or of whole groups. A splitter or an iterable is used as it is, and must
    hold each row out once.

    Parameters
    ----------
    cv
        Number of folds, splitter or index pairs; ``None`` is 5.
    data
        Checked input of ``fit``.
    seed
        Seed of the folds that a number makes.
    groups
        (n,) passed to the splitter; with a number of folds, rows of one group stay together.
    X
        What the splitter sees as features, if not those of ``data``.
    """
    rows = np.flatnonzero(data.weight > 0)
    counts = np.bincount(data.codes[rows], minlength=len(data.classes))
    rarest = int(counts.argmin())
    if counts[rarest] < 2:
        raise InvalidInputError(
            f"`y` must hold at least two rows (of positive weight) of each class, to hold one out; "
            f"class {_plain(data.classes[rarest])!r} has {counts[rarest]}. Drop the class or merge it."
        )
    check_cv_kind(cv)
    groups = check_groups(groups, len(data.codes))
    if not is_fold_count(cv):
        return _given_folds(cv, data, groups, data.X if X is None else X)
    n_folds = DEFAULT_FOLDS if cv is None else int(cv)
    if groups is not None:
        splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed % 2**31)
        return _given_folds(splitter, data, groups, data.X)
    if n_folds > counts[rarest]:
        warnings.warn(
            f"`cv`={n_folds} folds were asked for, but class {_plain(data.classes[rarest])!r} has only "
            f"{counts[rarest]} rows; {counts[rarest]} folds are used.",
            UserWarning,
            stacklevel=3,
        )
        n_folds = int(counts[rarest])
    stratified = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    return [(rows[a], rows[b]) for a, b in stratified.split(rows, data.codes[rows])]


def check_groups(groups: ArrayLike | None, n_rows: int) -> Any:
    """Return ``groups`` as an array of one group per row, or ``None``."""
    if groups is None:
        return None
    array = np.asarray(groups)
    if array.shape != (n_rows,):
        raise InvalidInputError(
            f"`groups` must hold one group for each of {n_rows} rows; got shape {array.shape}."
        )
    return array


def _plain(label: Any) -> Any:
    """Return a label as the user would write it, not as a NumPy scalar."""
    return label.item() if isinstance(label, np.generic) else label


def _given_folds(cv: Any, data: FitInput, groups: Any, X: Any) -> Folds:
    """Split by a splitter or by index pairs, and check the result."""
    n_rows = len(data.codes)
    try:
        labels = data.classes[data.codes]
        splits = list(check_cv(cv, labels, classifier=True).split(X, labels, groups))
        folds = [(np.arange(n_rows)[train], np.arange(n_rows)[test]) for train, test in splits]
    except (TypeError, ValueError, IndexError) as error:
        needs = "If the splitter needs groups, pass them as fit(..., groups=...)."
        remedy = needs if groups is None else "Use fewer folds than there are groups."
        raise InvalidInputError(
            f"`cv` must be a number of folds, a splitter, or index pairs for these {n_rows} rows; "
            f"{cv!r} failed: {error} {remedy}"
        ) from error
    held_out = np.concatenate([test for _, test in folds]) if folds else np.arange(0)
    times = np.bincount(held_out, minlength=n_rows)
    if (times[data.weight > 0] != 1).any():
        raise InvalidInputError(
            "`cv` must hold each row out exactly once; "
            f"{int((times[data.weight > 0] != 1).sum())} rows are held out never or several times. "
            "Use KFold, StratifiedKFold or GroupKFold, not random splits."
        )
    folds = [(train[data.weight[train] > 0], test) for train, test in folds]
    for number, (train, test) in enumerate(folds):
        if np.intersect1d(train, test).size:
            raise InvalidInputError(
                f"`cv` must not train on the rows that it holds out; fold {number} does. Use KFold, "
                "StratifiedKFold or GroupKFold."
            )
        absent = np.setdiff1d(np.arange(len(data.classes)), data.codes[train])
        if absent.size:
            raise InvalidInputError(
                f"`cv` must leave every class in each training part; fold {number} trains without class "
                f"{_plain(data.classes[absent[0]])!r}. Use stratified folds, or fewer."
            )
    return folds
