"""Which rows to label next: those whose label is expected to tell most about the clean class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._probabilities import blocks, check_probabilities
from peerloss._validation import check_in_range
from peerloss.audit._column_order import in_class_order
from peerloss.exceptions import InvalidInputError
from peerloss.posterior.label_gain import expected_gain

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import FloatArray
    from peerloss.audit._label_audit import LabelAudit
    from peerloss.posterior.label_posterior import LabelPosterior

#: Columns of the result.
COLUMNS = ("gain", "labelled", "given", "p_error", "suggested", "p_suggested")


def rank_next_labels(
    audit: LabelAudit, *, unlabelled: Any = None, annotator: float | ArrayLike | None = None
) -> pd.DataFrame:
    """Rank rows by the expected gain of one more label.

    With q the posterior of the clean class of a row and A[k, l] = P(the person labels class k as l), the gain
    is the expected reduction of the entropy of q, in bits: H(q A) − Σ_k q_k·H(A[k]). It is large where the
    audit is unsure, not where it is sure that a label is wrong, and 0 where the label is known.

    Parameters
    ----------
    audit
        The result of :func:`find_label_issues`, for one label per row or for several annotators.
    unlabelled
        Probabilities P(noisy label | x) of rows without a label, by the model whose probabilities were
        audited: an array or a frame with one column per class, in the order of ``audit.classes``. The
        columns of a frame may be in any order if they have the names of the classes.
    annotator
        Who labels next: the probability that the label is right, if all wrong labels are equally probable; or
        P(label | clean), shape (K, K). ``None`` is a person who errs like those who gave the labels: the
        estimated T or, with several annotators, their average.

    Returns
    -------
    A frame with the largest gain first, and the names of the rows as index: ``gain``, ``labelled``,
    ``given``, ``p_error``, ``suggested`` and ``p_suggested``. For rows without a label, ``suggested`` is the
    most probable class, and ``given`` and ``p_error`` are missing.

    Raises
    ------
    InvalidInputError
        If the audit was made by hand, or probabilities do not fit its classes.

    Examples
    --------
    >>> from peerloss import find_label_issues
    >>> rng = np.random.default_rng(0)
    >>> score = rng.uniform(size=300)
    >>> labels = (rng.uniform(size=300) < score).astype(int)
    >>> audit = find_label_issues(labels=labels, pred_proba=np.column_stack([1 - score, score]))
    >>> new = np.array([[0.02, 0.98], [0.5, 0.5]])
    >>> rank_next_labels(audit, unlabelled=new, annotator=0.9).query("not labelled").index.tolist()
    [1, 0]
    """
    if audit.evidence is None:
        raise InvalidInputError(
            "`audit` does not contain its probabilities. Create it with `find_label_issues`, not by hand."
        )
    k = len(audit.classes)
    table = audit.table
    ranked = table[["given", "p_error", "suggested", "p_suggested"]].assign(
        gain=table["gain"], labelled=True
    )[list(COLUMNS)]
    person = None if annotator is None else _check_annotator(annotator, k)
    if person is None and unlabelled is None:
        return ranked.sort_values("gain", ascending=False, kind="stable")
    found = audit.evidence.posterior()
    if person is None:
        person = found.annotator
    else:
        parts = [expected_gain(found.clean_given_label(rows), person) for rows in blocks(len(table), k)]
        ranked["gain"] = np.concatenate(parts)
    if unlabelled is not None:
        new = _unlabelled(found, audit.classes, unlabelled, person)
        ranked = pd.concat([ranked.astype({"given": object}), new])
    return ranked.sort_values("gain", ascending=False, kind="stable")


def _unlabelled(
    found: LabelPosterior, classes: NDArray[Any], unlabelled: Any, person: FloatArray | float
) -> pd.DataFrame:
    """Return the rows of the result for rows without a label."""
    if found.from_features is None:
        raise InvalidInputError(
            "`unlabelled` needs an audit of a model's probabilities; this one used the annotators' reports "
            "alone. Pass `X` or `pred_proba` to `find_label_issues`."
        )
    rows = np.shape(unlabelled)[0]
    ordered = in_class_order(unlabelled, classes.tolist(), name="unlabelled", of="classes of the audit")
    proba = check_probabilities(ordered, rows, len(classes), labels="audit.classes", name="unlabelled")
    clean = found.from_features(proba)
    index = unlabelled.index if isinstance(unlabelled, pd.DataFrame) else pd.RangeIndex(rows)
    return pd.DataFrame(
        {
            "gain": expected_gain(clean, person),
            "labelled": False,
            "given": None,
            "p_error": np.nan,
            "suggested": classes[clean.argmax(axis=1)],
            "p_suggested": clean.max(axis=1),
        },
        index=index,
    )


def _check_annotator(annotator: Any, k: int) -> FloatArray | float:
    if np.ndim(annotator) == 0:
        return check_in_range(annotator, "annotator", 0.0, 1.0)
    matrix = np.asarray(annotator, dtype=np.float64)
    if matrix.shape != (k, k):
        raise InvalidInputError(
            f"`annotator` must be a probability or a matrix P(label | clean) of shape ({k}, {k}); got shape "
            f"{matrix.shape}."
        )
    return np.asarray(check_probabilities(matrix, k, k, name="annotator"), dtype=np.float64)
