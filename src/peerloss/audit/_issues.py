"""Find wrong labels: from a table and its labels, or from probabilities, to a :class:`LabelAudit`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.model_selection import check_cv

from peerloss._deprecation import renamed_parameters
from peerloss._probabilities import (
    check_probabilities,
    encode,
    explain_nothing_learned,
    label_frequencies,
)
from peerloss._progress import announce, phase, shows_progress
from peerloss._validation import check_count
from peerloss.audit._annotations import ravel_single_column, read_annotations, unlabelled
from peerloss.audit._chosen_estimator import check_estimator, check_groups, cross_fit, splitter_of
from peerloss.audit._column_order import check_row_order, in_class_order
from peerloss.audit._contradictions import find_contradictions
from peerloss.audit._evidence import Evidence, check_folds, gold_codes, set_rare_classes_aside
from peerloss.audit._explanations import MAX_EXPLAINED
from peerloss.audit._label_audit import LabelAudit
from peerloss.audit._outlook import assess_training
from peerloss.audit._refit import check_refit
from peerloss.estimators import PeerClassifier, TableEncoder
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError, warn_caller
from peerloss.posterior.flags import FlagRule, flag_suspects, suspicious_first

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.audit._annotations import Annotations
    from peerloss.posterior.label_posterior import LabelPosterior


#: Typical share of the time after which out-of-fold probabilities are known.
FIT_END = 0.93


@renamed_parameters(y="labels")
@shows_progress("audit")
def find_label_issues(
    X: Any = None,
    labels: Any = None,
    *,
    estimator: Any = None,
    pred_proba: ArrayLike | None = None,
    cv: Any = 5,
    groups: ArrayLike | None = None,
    refit: bool = False,
    gold: Any = None,
    duplicates: str = "error",
    target: str = "auto",
    level: float = 0.8,
    min_class_rows: int | None = None,
    n_jobs: int | None = None,
    random_state: int | None = 0,
    verbose: bool = False,  # noqa: ARG001 - read by the decorator
) -> LabelAudit:
    """Find rows whose label is probably wrong.

    The score of a row is P(clean ≠ given | x, given label), computed from out-of-fold probabilities of the
    noisy labels and the noise estimated from them. "No label is wrong" is always one of the hypotheses; if it
    is probable, nothing is flagged by default.

    Parameters
    ----------
    X
        Features: a DataFrame (numbers and text, missing values allowed) or an array. Numbers that are learned
        from must not be infinite. Not needed with ``pred_proba``, or if several annotators labelled each row.
    labels
        Labels of any type, one per row, (n,) or (n, 1). Labels of several annotators are one column per
        annotator (missing if an annotator gave none), or a long table with columns task (or item), worker and
        label, in any order. The tasks of a long table are entries of the index of ``X`` or of ``pred_proba``;
        if both are arrays, they are positions of rows, from 0. The given label is then the majority label. If
        the columns are different binary labels, use :func:`~peerloss.audit.find_multilabel_issues`. -1 is a
        label like any other: leave rows without a label out.
    estimator
        A classifier with ``predict_proba`` to be cross-fitted; ``None`` uses the portfolio of
        :class:`PeerClassifier`.
    pred_proba
        *Out-of-fold* probabilities P(noisy label | x), one column per class in sorted order of the labels (or
        of the categories of a Categorical, or 0..K-1). The columns of a DataFrame may be in any order if they
        have the names of the classes. Arrays are not copied, so they may be a memory map.
    cv
        Number of folds, or a splitter.
    groups
        Group of each row, passed to ``cv``; with a number of folds, rows of one group stay together.
    refit
        Fit ``estimator``, which must accept sample weights, a second time, to the clean posterior of the
        first round, and rank by the result. This takes about twice the time (more with many classes) and
        misses fewer errors. If the noise rates cannot be estimated, or if labels flip near the boundary, the
        result of the first round is returned.
    gold
        Known labels of some rows: a Series whose index holds names of rows, or a dictionary; one entry per
        row, missing if the label is not known; or a mask of rows whose given label is right. Their
        ``p_error`` is 0 or 1, and they improve the estimated noise. The rows may have been selected by their
        features and labels, for example the most suspicious ones. :meth:`LabelAudit.update` adds known labels
        later, without training again.
    duplicates
        What to do if an annotator labelled a row of a long table more than once: ``"error"``, or keep the
        ``"first"`` or the ``"last"`` of the labels in the order of the table.
    target
        Which rows are flagged. ``"auto"``: the number of flags with the largest expected F1, but none if the
        labels are probably clean or the noise rates cannot be estimated. ``"f1"``: the same, always; use it
        if you know that some labels are wrong. ``"precision"``: as many as possible, so that the expected
        share of errors among them is at least ``level``.
    level
        The share for ``target="precision"``, above 0 and at most 1.
    min_class_rows
        Rows of classes with fewer rows are left out, with a warning: ``table`` does not have them, and
        ``set_aside`` counts them. ``None`` leaves out classes with fewer than 5 rows if together they have at
        most 5 % of the rows, as the command does. 1 keeps all classes. Only if a model is trained, and each
        row has one label.
    n_jobs
        Number of processes; ``None`` is one.
    random_state
        Seed of folds and models.
    verbose
        Whether to show the progress on stderr: phase, percentage, elapsed time, time left.

    Returns
    -------
    LabelAudit
        ``.table`` keeps the index of ``X`` or ``labels``.

    Raises
    ------
    InvalidInputError
        If labels are missing, features are infinite, probabilities are invalid, or lengths differ.

    Warns
    -----
    IdentifiabilityWarning
        If the noise rates cannot be estimated, for example because nothing can be learned from the columns:
        then rows are ranked by the model's confidence in their label, and none is flagged unless ``target``
        is ``"f1"``.
        If the model adds nothing to the labels of several annotators: their reports alone are used.

    Notes
    -----
    The reported noise is that of :func:`peerloss.posterior.estimate_class_noise`, the same estimate that
    :class:`PeerClassifier` reports. If two classes have noise near the boundary (``near_boundary`` above
    ½), noise is not class-conditional, and the reported rates are averages over rows.

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
    rule = FlagRule.checked(target, level)
    given, reports = _read_labels(X, labels, pred_proba, duplicates)
    _check_model(X, estimator, refit=refit, groups=groups, cv=cv, n_rows=len(given))
    set_aside: dict[Any, int] = {}
    if X is not None and pred_proba is None and reports is None:
        X, given, groups, gold, set_aside = set_rare_classes_aside(
            X, given, groups=groups, gold=gold, cv=cv, min_class_rows=min_class_rows
        )
    elif min_class_rows is not None:
        check_count(min_class_rows, "min_class_rows")
    columns = None if pred_proba is None else np.shape(pred_proba)[-1]
    classes, codes = encode(given, columns)
    if len(classes) < 2:
        raise InvalidInputError(f"`labels` must hold at least two classes; every label is {classes[0]!r}.")
    if X is not None and (refit or pred_proba is None):
        cv = check_folds(cv, codes, classes, groups)
        if refit:  # splits from a generator are needed twice
            cv = check_cv(splitter_of(cv, groups, random_state), codes, classifier=True)
    if pred_proba is not None:
        ordered = in_class_order(pred_proba, classes.tolist())
        proba = check_probabilities(ordered, len(codes), len(classes))
    elif X is not None:
        with phase("fitting", 0.0, FIT_END):
            proba = out_of_fold(X, codes, estimator, cv, groups, n_jobs, random_state)
        proba = _add_empty_classes(proba, codes, len(classes))
    elif reports is not None:
        proba = None
    else:
        raise InvalidInputError(
            "pass `X`, `pred_proba`, or labels of several annotators; got only one label per row."
        )
    announce("estimating the noise", FIT_END)
    # Only the probabilities of the portfolio are calibrated, as this test needs.
    is_tested = pred_proba is None and estimator is None
    evidence = Evidence(
        given,
        classes,
        codes,
        proba,
        reports,
        gold_codes(gold, given.index, classes, codes),
        rule=rule,
        useless=explain_nothing_learned(proba, codes) if proba is not None and is_tested else "",
    )
    found = evidence.posterior()
    if refit:
        announce("fitting again", FIT_END)
        splits = cv.split(X, codes, groups)
        evidence, found = evidence.refit(found, X, estimator=estimator, folds=splits, n_jobs=n_jobs)
    _warn(found, rule)
    return replace(make_audit(evidence, found, X), set_aside=set_aside)


def _read_labels(
    X: Any, labels: Any, pred_proba: Any, duplicates: str
) -> tuple[pd.Series, Annotations | None]:
    """Return one label per row and, if several annotators labelled the rows, their aggregated reports."""
    if labels is None:
        raise InvalidInputError("`labels` must be given, one per row or one column per annotator; got None.")
    index = X.index if isinstance(X, pd.DataFrame | pd.Series) else None
    if X is not None and index is None and np.ndim(X) != 2:
        raise InvalidInputError(f"`X` must have one row per example, 2 dimensions; got shape {np.shape(X)}.")
    if isinstance(pred_proba, pd.DataFrame):
        check_row_order(index, pred_proba)
    reports = None
    if np.ndim(labels) == 2:
        labels = ravel_single_column(labels)
    if np.ndim(labels) == 2:
        reports = read_annotations(labels, X, pred_proba, duplicates=duplicates)
        if reports.is_single:  # nothing to combine: the labels of one annotator are one label per row
            labels, reports = reports.given, None
    given = check_labels(labels, index) if reports is None else reports.given
    rows = len(given) if X is None else np.shape(X)[0]  # a sparse matrix has no length
    if rows != len(given):
        raise InvalidInputError(f"`X` and `labels` must be equally long; got {rows} and {len(given)} rows.")
    return given, reports


def _check_model(X: Any, estimator: Any, *, refit: bool, groups: Any, cv: Any, n_rows: int) -> None:
    """Check what is needed for training before the first round, which may take an hour."""
    if estimator is not None:
        check_estimator(estimator)
    if refit:
        check_refit(X, estimator)
    if groups is not None and X is not None:
        check_groups(groups, n_rows, cv)


def _warn(found: LabelPosterior, rule: FlagRule) -> None:
    advice = "Use a better model, more rows or better features."
    if found.model_ignored:
        message = (
            f"the features are not used: {found.model_ignored}. The audit is based on the annotators' "
            f"reports alone. {advice}"
        )
        warn_caller(message, IdentifiabilityWarning)
    if found.reason:
        result = "No row is flagged. Rows are ranked" if rule.needs_noise else "Rows are ranked and flagged"
        message = (
            f"the noise rates cannot be estimated from these data: {found.reason}. {result} by the model's "
            f"confidence in their label. {advice}"
        )
        warn_caller(message, IdentifiabilityWarning)


def make_audit(evidence: Evidence, found: LabelPosterior, X: Any) -> LabelAudit:
    """Return the audit from its evidence and the posterior computed from it."""
    given, classes, codes = evidence.given, evidence.classes, evidence.codes
    order = suspicious_first(found.p_error)
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(1, len(codes) + 1)
    table = pd.DataFrame(
        {
            "given": classes[codes],
            "suggested": classes[found.likeliest_other],
            "p_error": found.p_error,
            "p_suggested": found.p_other,
            "rank": rank,
            "flagged": _flags(evidence, found, order),
            "gain": found.gain,
        },
        index=given.index,
    )
    noisy_prior = label_frequencies(codes, len(classes))
    suspects = order[: min(int(table["flagged"].sum()), MAX_EXPLAINED)]
    return LabelAudit(
        table=table,
        classes=classes,
        noise=found.noise,
        noise_low=found.noise_low,
        noise_high=found.noise_high,
        noisy_prior=noisy_prior,
        clean_prior=found.clean_prior,
        outlook=assess_training(found, noisy_prior, len(codes)),
        reason=found.reason,
        near_boundary=found.near_boundary,
        no_noise=found.no_noise,
        error_rate_interval=found.error_rate_interval,
        X=X,
        label_name="label" if given.name is None else str(given.name),
        evidence=evidence,
        overlap=found.overlap,
        contradictions=find_contradictions(X, given, codes, len(classes)),
        row_noise=evidence.check_row_noise(),
        suspect_proba=found.clean_given_label(suspects),
    )


def update_audit(audit: LabelAudit, gold: Any) -> LabelAudit:
    """Return the audit with more known labels, from its own evidence."""
    if audit.evidence is None:
        raise InvalidInputError(
            "this audit does not contain its probabilities and cannot be updated. Create it with "
            "`find_label_issues`."
        )
    evidence = audit.evidence.with_gold(gold)
    again = make_audit(evidence, evidence.posterior(), audit.X)
    return replace(again, shown=audit.shown, set_aside=audit.set_aside)


def _flags(evidence: Evidence, found: LabelPosterior, order: IntArray) -> BoolArray:
    """Flag suspects; a row with a known label is flagged if its given label is wrong."""
    gold, p_error, rule = evidence.gold, found.p_error, evidence.rule
    is_silent = bool(found.reason) and rule.needs_noise
    if gold is None:
        if is_silent:
            return np.zeros(len(p_error), dtype=bool)
        return flag_suspects(p_error, order, rule, no_noise=found.no_noise)
    flagged: BoolArray = (gold >= 0) & (gold != evidence.codes)
    rest = np.flatnonzero(gold < 0)
    if len(rest) and not is_silent:
        among_rest = suspicious_first(p_error[rest])
        no_noise = found.no_noise if found.no_noise_elsewhere is None else found.no_noise_elsewhere
        flagged[rest] = flag_suspects(p_error[rest], among_rest, rule, no_noise=no_noise)
    return flagged


def check_labels(labels: Any, index: pd.Index | None) -> pd.Series:
    """Return one label per row, none missing, as a series with the index of the features."""
    if np.ndim(labels) != 1:
        raise InvalidInputError(f"`labels` must hold one label per row; got shape {np.shape(labels)}.")
    if isinstance(labels, pd.Series):
        given = labels
    else:
        same_length = index is not None and len(index) == len(labels)
        given = pd.Series(np.asarray(labels), index=index if same_length else None)
    if given.empty:
        raise InvalidInputError("`labels` is empty; pass at least one label.")
    missing = given.isna()
    if missing.any():
        raise InvalidInputError(unlabelled(given.index[missing]))
    if index is not None and len(index) == len(given) and not given.index.equals(index):
        raise InvalidInputError(
            "`X` and `labels` must have the same index, or rows and labels cannot be matched. Use "
            "`labels.loc[X.index]`, or `labels.to_numpy()` if the order is right."
        )
    return given


def out_of_fold(
    X: Any, codes: IntArray, estimator: Any, cv: Any, groups: Any, n_jobs: int | None, seed: int | None
) -> FloatArray:
    """Return out-of-fold probabilities of the labels that occur, one column for each."""
    if estimator is not None:
        return cross_fit(estimator, X, codes, cv=cv, groups=groups, n_jobs=n_jobs, seed=seed)
    features = TableEncoder(output="table").fit_transform(X) if isinstance(X, pd.DataFrame) else X
    model = PeerClassifier(cv=cv, n_jobs=n_jobs, random_state=seed)
    found: FloatArray = model.cross_val_noisy_proba(features, codes, groups=groups)
    return found


def _add_empty_classes(proba: FloatArray, codes: IntArray, n_classes: int) -> FloatArray:
    """Insert a column of zeros for each class without rows."""
    if proba.shape[1] == n_classes:
        return proba
    full = np.zeros((len(proba), n_classes))
    full[:, np.unique(codes)] = proba
    return full
