"""Out-of-fold probabilities of an estimator that the caller chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv, cross_val_predict

from peerloss._classifier import check_given_features
from peerloss.estimators.folds import DEFAULT_FOLDS, check_cv_kind, is_fold_count, shuffled_splitter
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray


def check_estimator(estimator: Any) -> None:
    """Refuse what is not an instance of a classifier with ``predict_proba``."""
    if isinstance(estimator, type):
        raise InvalidInputError(
            f"`estimator` must be an instance of a classifier; got the class {estimator.__name__}. Pass "
            f"{estimator.__name__}()."
        )
    missing = [name for name in ("fit", "predict", "get_params") if not hasattr(estimator, name)]
    if missing:
        raise InvalidInputError(
            f"`estimator` must be a classifier as in scikit-learn; {estimator!r} has no {missing[0]!r} "
            "before it is fitted. Pass another one, such as LogisticRegression(), or None for the portfolio "
            "of PeerClassifier. A StackingClassifier needs a final_estimator."
        )
    # A class may have the method only with certain parameters, or only after the fit: see `cross_fit`.
    if not hasattr(estimator, "predict_proba") and not hasattr(type(estimator), "predict_proba"):
        raise InvalidInputError(_without_probabilities(estimator))


def check_groups(groups: Any, n_rows: int, cv: Any) -> None:
    """Refuse groups that are not one per row, or fewer groups than folds."""
    if np.shape(groups) != (n_rows,):
        raise InvalidInputError(
            f"`groups` must have one entry for each of {n_rows} rows; got shape {np.shape(groups)}. Pass the "
            "group of each row, in the order of `X`."
        )
    n_folds = DEFAULT_FOLDS if cv is None else cv
    n_groups = len(set(np.asarray(groups).tolist()))
    if is_fold_count(n_folds) and n_groups < n_folds:
        raise InvalidInputError(
            f"`groups` must hold at least as many groups as there are folds, {n_folds}; got {n_groups}. Use "
            "fewer folds (`cv`), or smaller groups."
        )


def cross_fit(
    estimator: Any, X: Any, codes: IntArray, *, cv: Any, groups: Any, n_jobs: int | None, seed: int | None
) -> FloatArray:
    """Return out-of-fold probabilities of the codes that occur, one column for each."""
    check_estimator(estimator)
    check_given_features(X, estimator)
    folds = _checked_folds(cv, X, codes, groups, seed)
    found: FloatArray
    try:
        found = cross_val_predict(clone(estimator), X, codes, cv=folds, n_jobs=n_jobs, method="predict_proba")
    except AttributeError as error:
        if "predict_proba" not in str(error):
            raise
        raise InvalidInputError(_without_probabilities(estimator)) from error
    return found


def splitter_of(cv: Any, groups: Any, seed: int | None) -> Any:
    """Return shuffled stratified folds if ``cv`` is a number, else ``cv``."""
    check_cv_kind(cv)
    if not is_fold_count(cv):
        return cv
    return shuffled_splitter(DEFAULT_FOLDS if cv is None else int(cv), groups, seed)


def _checked_folds(
    cv: Any, X: Any, codes: IntArray, groups: Any, seed: int | None
) -> list[tuple[IntArray, IntArray]]:
    """Return pairs of training and held-out rows that hold out each row once."""
    splitter = splitter_of(cv, groups, seed)
    try:
        splits = list(check_cv(splitter, codes, classifier=True).split(X, codes, groups))
        rows = np.arange(len(codes))
        folds = [(rows[train], rows[test]) for train, test in splits]
    except (TypeError, ValueError, IndexError) as error:
        remedy = (
            "Use fewer folds, or pass `groups` if the splitter needs them."
            if groups is None
            else "Use fewer folds than there are groups."
        )
        raise InvalidInputError(
            f"`cv` must be a number of folds, a splitter, or index pairs for these {len(codes)} rows; {cv!r} "
            f"failed: {error} {remedy}"
        ) from error
    held_out = np.concatenate([rows[:0], *(test for _, test in folds)])
    times = np.bincount(held_out, minlength=len(codes))
    if (times != 1).any():
        raise InvalidInputError(
            f"`cv` must hold out each row exactly once; {int((times != 1).sum())} rows are held out never or "
            "several times. Use KFold, StratifiedKFold or GroupKFold, not random splits."
        )
    return folds


def _without_probabilities(estimator: Any) -> str:
    return (
        f"`estimator` must have `predict_proba`; {type(estimator).__name__} has none with these parameters. "
        "Use another classifier, or sklearn.calibration.CalibratedClassifierCV with this one."
    )
