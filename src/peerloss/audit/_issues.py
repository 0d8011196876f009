"""Which labels are wrong: from a table and its labels, or from probabilities, to a :class:`LabelAudit`."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import check_cv, cross_val_predict

from peerloss._probabilities import check_probabilities, encode
from peerloss._validation import check_count
from peerloss.audit._annotations import is_several, read_annotations, unlabelled
from peerloss.audit._label_audit import LabelAudit
from peerloss.audit._outlook import look_ahead
from peerloss.audit._refit import ask_again, check_refit
from peerloss.estimators import PeerClassifier, TableEncoder
from peerloss.estimators.folds import shuffled_splitter
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError
from peerloss.posterior._label_posterior import (
    LabelPosterior,
    flag_suspects,
    label_posterior,
    posterior_of_reports,
    suspicious_first,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import FloatArray, IntArray


def find_label_issues(
    X: Any,
    y: Any,
    *,
    estimator: Any = None,
    pred_proba: ArrayLike | None = None,
    cv: Any = 5,
    groups: ArrayLike | None = None,
    refit: bool = False,
    duplicates: str = "error",
    n_jobs: int | None = None,
    random_state: int | None = 0,
) -> LabelAudit:
    """Find rows whose label is probably wrong.

    The score of a row is P(clean ≠ given | x, given label), from out-of-fold probabilities of the noisy
    labels and the noise that they reveal. Rows are flagged so that the expected F1 of the flags is greatest.

    Parameters
    ----------
    X
        Features: a DataFrame (numbers and text, gaps allowed) or an array. ``None`` with ``pred_proba``, or
        where several annotators labelled each row and nothing else is known.
    y
        Labels of any type, one per row. Or those of several annotators: one column each (missing where one
        gave none), or a long table with columns task (or item), worker and label, in any order. Its tasks are
        entries of the index of ``X``, or of ``pred_proba``; if both are arrays, positions of their rows, from
        0. The given label is then the majority's.
    estimator
        A classifier with ``predict_proba`` to be cross-fitted; ``None`` takes the portfolio of
        :class:`PeerClassifier`.
    pred_proba
        *Out-of-fold* probabilities P(noisy label | x), one column a class in sorted order of the labels (or
        of the categories of a Categorical, or 0..K-1). They are not copied, so they may be a memory map.
    cv
        Number of folds, or a splitter.
    groups
        Rows of one group are never split between training and held-out parts.
    refit
        Fit ``estimator``, which must take sample weights, once more to what its first round believes of the
        clean labels, and rank by that: about twice the time (more with many classes), fewer errors missed.
        Where the noise rates cannot be estimated, or labels flip near the boundary, the first round stands.
    duplicates
        What to do where an annotator labelled a row of a long table more than once: ``"error"``, or keep the
        ``"first"`` or the ``"last"`` of its labels in the order of the table.
    n_jobs
        Processes; ``None`` is one.
    random_state
        Seed of folds and models.

    Returns
    -------
    LabelAudit
        ``.table`` keeps the index of ``X`` or ``y``.

    Raises
    ------
    InvalidInputError
        For labels that are missing, probabilities that are none, or lengths that differ.

    Warns
    -----
    IdentifiabilityWarning
        If the noise rates cannot be estimated: rows are then ranked by the model's confidence in their label.
        If the model adds nothing to the labels of several annotators: their reports alone are used.

    Examples
    --------
    >>> from peerloss import NoiseModel, flip_labels
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> clean = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> noisy = flip_labels(clean, NoiseModel.binary(0.05, 0.3), random_state=0)
    >>> from sklearn.linear_model import LogisticRegression
    >>> audit = find_label_issues(X, noisy, estimator=LogisticRegression())
    >>> wrong = noisy != clean
    >>> bool(wrong[audit.table["flagged"]].mean() > 0.6)
    True
    """
    index = X.index if isinstance(X, pd.DataFrame | pd.Series) else None
    if X is not None and index is None and np.ndim(X) != 2:
        raise InvalidInputError(f"`X` must have one row an example, 2 dimensions; got shape {np.shape(X)}.")
    _check_same_order(index, pred_proba)
    several = read_annotations(y, X, pred_proba, duplicates=duplicates) if is_several(y) else None
    labels = _one_label(y, index) if several is None else several.given
    if refit:
        check_refit(X, estimator)  # what is missing should be said before an hour of fits
    rows = len(labels) if X is None else np.shape(X)[0]  # a sparse matrix has no length
    if rows != len(labels):
        raise InvalidInputError(f"`X` and `y` must be equally long; got {rows} and {len(labels)} rows.")
    columns = None if pred_proba is None else np.shape(pred_proba)[-1]
    classes, codes = encode(labels, columns)
    if len(classes) < 2:
        raise InvalidInputError(f"`y` must hold at least two classes; every label is {classes[0]!r}.")
    if refit:  # splits given one by one are needed twice
        cv = check_cv(_splitter(cv, groups, random_state), codes, classifier=True)
    if pred_proba is not None:
        proba = check_probabilities(pred_proba, len(codes), len(classes))
    elif X is not None:
        proba = _out_of_fold(X, codes, estimator, cv, groups, n_jobs, random_state)
        proba = _all_columns(proba, codes, len(classes))
    elif several is not None:
        return _audit(labels, classes, codes, posterior_of_reports(several.posterior, codes), None)
    else:
        raise InvalidInputError(
            "give `X`, or `pred_proba`, or labels of several annotators; got one label a row only."
        )
    likelihood, reported = (None, None) if several is None else (several.likelihood, several.posterior)
    found = label_posterior(proba, codes, likelihood=likelihood, reported=reported)
    if refit:
        splits = cv.split(X, codes, groups)
        found = ask_again(
            found, X, proba, codes, estimator=estimator, folds=splits, likelihood=likelihood, n_jobs=n_jobs
        )
    return _audit(labels, classes, codes, found, X)


def _check_same_order(index: pd.Index | None, pred_proba: Any) -> None:
    """Refuse probabilities that name the rows of ``X`` in another order: they are used by position."""
    if index is None or not isinstance(pred_proba, pd.DataFrame) or pred_proba.index.equals(index):
        return
    if len(index) == len(pred_proba) and index.isin(pred_proba.index).all():
        raise InvalidInputError(
            "`pred_proba` must have its rows in the order of `X`; its index has the same names in another "
            "order. Use pred_proba.loc[X.index], or pass an array."
        )


def _audit(
    labels: pd.Series, classes: NDArray[Any], codes: IntArray, found: LabelPosterior, X: Any
) -> LabelAudit:
    if found.model_ignored:
        warnings.warn(
            f"the features are not used: {found.model_ignored}. Labels are judged by the annotators' reports "
            "alone. Use a better model, more rows or better features.",
            IdentifiabilityWarning,
            stacklevel=3,
        )
    if found.reason:
        warnings.warn(
            f"the noise cannot be told from these data: {found.reason}. Rows are ranked by the model's "
            "confidence in their label instead. Use a better model, more rows or better features.",
            IdentifiabilityWarning,
            stacklevel=3,
        )
    order = suspicious_first(found.p_error)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(1, len(codes) + 1)
    table = pd.DataFrame(
        {
            "given": classes[codes],
            "suggested": classes[found.likeliest],
            "p_error": found.p_error,
            "rank": rank,
            "flagged": flag_suspects(found.p_error, order),
        },
        index=labels.index,
    )
    noisy_prior = np.bincount(codes, minlength=len(classes)) / len(codes)
    return LabelAudit(
        table=table,
        classes=classes,
        noise=found.noise,
        noise_low=found.noise_low,
        noise_high=found.noise_high,
        noisy_prior=noisy_prior,
        clean_prior=found.clean_prior,
        outlook=look_ahead(found, noisy_prior, len(codes)),
        reason=found.reason,
        near_boundary=found.near_boundary,
        X=X,
        label_name=str(labels.name) if labels.name is not None else "label",
    )


def _one_label(y: Any, index: pd.Index | None) -> pd.Series:
    if np.ndim(y) != 1:
        raise InvalidInputError(f"`y` must hold one label a row; got shape {np.shape(y)}.")
    labels = (
        y
        if isinstance(y, pd.Series)
        else pd.Series(np.asarray(y), index=index if index is not None and len(index) == len(y) else None)
    )
    if labels.empty:
        raise InvalidInputError("`y` is empty; pass at least one label.")
    missing = labels.isna()
    if missing.any():
        raise InvalidInputError(unlabelled(labels.index[missing]))
    if index is not None and len(index) == len(labels) and not labels.index.equals(index):
        raise InvalidInputError(
            "`X` and `y` must have the same index, or rows and labels cannot be told to belong together. Use "
            "`y.loc[X.index]`, or `y.to_numpy()` where the order is right."
        )
    return labels


def _out_of_fold(
    X: Any, codes: IntArray, estimator: Any, cv: Any, groups: Any, n_jobs: int | None, seed: int | None
) -> FloatArray:
    features = TableEncoder().fit_transform(X) if isinstance(X, pd.DataFrame) and estimator is None else X
    if estimator is None:
        model = PeerClassifier(cv=cv, n_jobs=n_jobs, random_state=seed).fit(features, codes, groups=groups)
        proba: FloatArray = model.oof_proba_
        return proba
    folds = _splitter(cv, groups, seed)
    found: FloatArray = cross_val_predict(
        clone(estimator), features, codes, cv=folds, groups=groups, n_jobs=n_jobs, method="predict_proba"
    )
    return found


def _splitter(cv: Any, groups: Any, seed: int | None) -> Any:
    """Return shuffled folds with all classes in each where ``cv`` is their number, else ``cv``."""
    if not isinstance(cv, Integral):
        return cv
    return shuffled_splitter(check_count(cv, "cv", minimum=2), groups, seed)


def _all_columns(proba: FloatArray, codes: IntArray, n_classes: int) -> FloatArray:
    """Give classes that no row has a column of zeros."""
    if proba.shape[1] == n_classes:
        return proba
    full = np.zeros((len(proba), n_classes))
    full[:, np.unique(codes)] = proba
    return full
