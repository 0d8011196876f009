"""Wrong labels if each example has several binary labels: one audit per label, and one ranking of all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from peerloss._progress import phase, shows_progress
from peerloss.audit._chosen_estimator import check_groups
from peerloss.audit._column_order import in_class_order
from peerloss.audit._entry_audit import EntryAudit, rank_entries, summarise_examples
from peerloss.audit._evidence import Evidence
from peerloss.audit._issues import check_labels, make_audit, out_of_fold
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError, warn_caller

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray
    from peerloss.audit._label_audit import LabelAudit


@dataclass(frozen=True, eq=False)
class MultilabelAudit(EntryAudit):
    """Binary labels that are probably wrong; created by :func:`find_multilabel_issues`.

    ``table`` has one row per example and label: ``row`` (the caller's index), ``label`` (its name),
    ``given`` and ``suggested`` (the other of 0 and 1), ``p_error``, ``rank`` (1 is the most probable error of
    all labels) and ``flagged``.
    """

    audits: dict[Any, LabelAudit] = field(repr=False)
    """The audit of each label by its name, with its noise and its intervals."""

    @property
    def by_label(self) -> pd.DataFrame:
        """One row per label: shares of given and clean ones, the rates, and how many are wrong or flagged.

        ``e_neg`` is P(given = 1 | clean = 0) and ``e_pos`` is P(given = 0 | clean = 1), missing if they
        cannot be estimated; ``reason`` then says why.
        """
        flagged = self.table.groupby("label", sort=False)["flagged"].sum()
        lines = []
        for name, audit in self.audits.items():
            rates = (np.nan, np.nan) if audit.noise is None else tuple(audit.noise.flip_rates)
            lines.append(
                {
                    "given_share": audit.noisy_prior[1],
                    "clean_share": audit.clean_prior[1],
                    "e_neg": rates[0],
                    "e_pos": rates[1],
                    "expected_errors": float(audit.table["p_error"].sum()),
                    "flagged": int(flagged[name]),
                    "reason": audit.reason,
                }
            )
        return pd.DataFrame(lines, index=pd.Index(list(self.audits), name="label"))

    def relabel(self) -> pd.DataFrame:
        """Return the label matrix; labels that are more probably wrong than right are replaced."""
        columns = {}
        for name, audit in self.audits.items():
            table = audit.table
            columns[name] = table["given"].where(table["p_error"] <= 0.5, table["suggested"])
        return pd.DataFrame(columns)


@shows_progress("audit")
def find_multilabel_issues(
    X: Any = None,
    labels: Any = None,
    *,
    estimator: Any = None,
    pred_proba: ArrayLike | None = None,
    cv: Any = 5,
    groups: ArrayLike | None = None,
    n_jobs: int | None = None,
    random_state: int | None = 0,
    verbose: bool = False,  # noqa: ARG001 - read by the decorator
) -> MultilabelAudit:
    """Find wrong entries of a matrix of binary labels.

    Each label is audited as in :func:`~peerloss.find_label_issues`, with its own noise rates. All entries of
    the matrix are then ranked together, and flagged so that the expected F1 of all flags is as large as
    possible.

    Parameters
    ----------
    X
        Features, as in :func:`~peerloss.find_label_issues`. Not needed with ``pred_proba``.
    labels
        (n, L) of 0 and 1, one column per label: a DataFrame, whose columns are the names of the labels, an
        array, or a sparse matrix.
    estimator
        A classifier of two classes with ``predict_proba``, cross-fitted once per label; ``None`` uses the
        portfolio of :class:`~peerloss.PeerClassifier`.
    pred_proba
        *Out-of-fold* probabilities P(given label = 1 | x), (n, L), in the order of the labels. The columns of
        a DataFrame may be in any order if they have the names of the labels.
    cv, groups, n_jobs, random_state, verbose
        As in :func:`~peerloss.find_label_issues`.

    Returns
    -------
    MultilabelAudit
        ``.table`` has one row per example and label.

    Raises
    ------
    InvalidInputError
        If labels are missing or not 0 or 1, probabilities are invalid, or shapes differ.

    Warns
    -----
    IdentifiabilityWarning
        If the noise rates of some labels cannot be estimated, for example because a label is the same in all
        rows: their entries are ranked by the model's confidence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> clean = rng.random((500, 2)) < [0.5, 0.2]
    >>> proba = np.where(clean, 0.85, 0.1)
    >>> wrong = rng.random((500, 2)) < 0.05
    >>> audit = find_multilabel_issues(labels=pd.DataFrame(clean ^ wrong, columns=["cat", "dog"]),
    ...                                pred_proba=proba)
    >>> top = audit.table.sort_values("rank").head(20)
    >>> bool(wrong[top["row"], (top["label"] == "dog").astype(int)].all())
    True
    """
    matrix = _read_matrix(labels, X)
    if pred_proba is None and X is None:
        raise InvalidInputError("pass `X` or `pred_proba`; got neither.")
    if groups is not None and X is not None:
        check_groups(groups, len(matrix), cv)
    if isinstance(labels, pd.DataFrame):
        pred_proba = in_class_order(pred_proba, list(matrix.columns), of="columns of `labels`")
    positive = None if pred_proba is None else _check_positive(pred_proba, matrix)
    audits: dict[Any, LabelAudit] = {}
    for place, name in enumerate(matrix.columns):
        given = matrix[name]
        codes = given.to_numpy()
        if positive is not None:
            proba = np.column_stack([1.0 - positive[:, place], positive[:, place]])
        elif len(np.unique(codes)) < 2:
            raise InvalidInputError(
                f"`labels`: column {name!r} is {codes[0]} in every row, so no model can be fitted to it. "
                "Drop the column, or pass `pred_proba`."
            )
        else:
            n_labels = matrix.shape[1]
            with phase(f"label {place + 1} of {n_labels}", place / n_labels, (place + 1) / n_labels):
                proba = out_of_fold(X, codes, estimator, cv, groups, n_jobs, random_state)
        evidence = Evidence(given, np.arange(2), codes, proba)
        audits[name] = make_audit(evidence, evidence.posterior(), X)
    _warn_unknown_rates({name: audit.reason for name, audit in audits.items() if audit.reason})
    return _combine(matrix, audits)


def _read_matrix(labels: Any, X: Any) -> pd.DataFrame:
    """Return the labels as a frame of 0 and 1 with unique names and the index of the features."""
    if labels is None or np.ndim(labels) != 2 or np.shape(labels)[1] == 0:
        got = "None" if labels is None else f"shape {np.shape(labels)}"
        raise InvalidInputError(
            f"`labels` must have one row per example and one column of 0 and 1 per label; got {got}. For one "
            "label per example use find_label_issues."
        )
    if issparse(labels):
        labels = labels.toarray()  # type: ignore[attr-defined]
    frame = labels if isinstance(labels, pd.DataFrame) else pd.DataFrame(np.asarray(labels))
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InvalidInputError(f"`labels` must have a name for each column; {twice!r} occurs twice.")
    if X is not None and np.shape(X)[0] != len(frame):
        raise InvalidInputError(
            f"`X` and `labels` must be equally long; got {np.shape(X)[0]} and {len(frame)} rows."
        )
    index = X.index if isinstance(X, pd.DataFrame | pd.Series) else None
    columns = {}
    for name in frame.columns:
        values = frame[name] if isinstance(labels, pd.DataFrame) else frame[name].to_numpy()
        given = check_labels(values, index)
        is_binary = given.isin([0, 1])
        if not is_binary.all():
            row = given.index[~is_binary].tolist()[0]
            raise InvalidInputError(
                f"`labels` must be 0 or 1; found {given[~is_binary].tolist()[0]!r} in column {name!r}, row "
                f"{row!r}. Use one column per label, for example sklearn's MultiLabelBinarizer."
            )
        columns[name] = given.astype(np.int64)
    return pd.DataFrame(columns)


def _check_positive(pred_proba: Any, matrix: pd.DataFrame) -> FloatArray:
    """Return the probabilities of label 1, (n, L)."""
    try:
        positive = np.asarray(pred_proba, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"`pred_proba` must hold numbers: {error}.") from error
    if positive.shape != matrix.shape:
        raise InvalidInputError(
            f"`pred_proba` must have the shape of `labels`, {matrix.shape}: P(label = 1) of each example and "
            f"label; got {positive.shape}."
        )
    wrong = ~((positive >= 0.0) & (positive <= 1.0))
    if wrong.any():
        row, place = (int(i) for i in np.argwhere(wrong)[0])
        raise InvalidInputError(
            f"`pred_proba` must lie between 0 and 1; found {positive[row, place]:g} in row {row}, label "
            f"{matrix.columns[place]!r}. Pass probabilities, not scores: scipy.special.expit converts scores."
        )
    return positive


def _warn_unknown_rates(reasons: dict[Any, str]) -> None:
    if not reasons:
        return
    first, why = next(iter(reasons.items()))
    warn_caller(
        f"the noise rates of {len(reasons)} label(s) cannot be estimated, such as {first!r}: {why}. Their "
        "entries are ranked by the model's confidence instead. Use a better model or more rows.",
        IdentifiabilityWarning,
    )


def _combine(matrix: pd.DataFrame, audits: dict[Any, LabelAudit]) -> MultilabelAudit:
    """Rank the entries of all labels together, in the order of rows, then labels."""
    n, n_labels = matrix.shape
    columns = {
        name: np.stack([audit.table[name].to_numpy() for audit in audits.values()], axis=1).reshape(-1)
        for name in ("given", "suggested", "p_error")
    }
    no_noise = float(np.prod([audit.no_noise for audit in audits.values()]))
    rank, flagged = rank_entries(columns["p_error"], no_noise=no_noise)
    place = np.repeat(np.arange(n), n_labels)
    names = pd.Index(list(audits))
    table = pd.DataFrame(
        {"row": matrix.index[place], "label": names[np.tile(np.arange(n_labels), n)]}
        | columns
        | {"rank": rank, "flagged": flagged}
    )
    examples = summarise_examples(place, columns["p_error"], flagged, matrix.index)
    return MultilabelAudit(table=table, examples=examples, audits=audits)
