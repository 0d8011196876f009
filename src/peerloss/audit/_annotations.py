"""Several labels per row, from people or rules: the majority label, and the evidence for each class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from peerloss._probabilities import normalise_rows, take
from peerloss.crowd.model_and_reports import CombinedLabels, combine_reports, majority_labels
from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel
from peerloss.noise.estimate import explain_chance_level
from peerloss.peer_prediction import Reports
from peerloss.posterior.label_gain import expected_gain
from peerloss.posterior.label_posterior import LabelPosterior, likeliest_other, overlap_of
from peerloss.posterior.many_classes import wilson_interval
from peerloss.posterior.report_agreement import check_votes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import IntArray
    from peerloss.posterior import RowNoiseCheck


#: z-value of the 90 % intervals.
Z = 1.645
#: A model is used if it explains the reports on a row better than the class frequencies by this, on average,
#: as a difference of log-likelihoods.
LEAST_EVIDENCE = 0.02
#: The probabilities are calibrated up to about this factor, which widens the interval of the share of errors.
CALIBRATION = 0.15


@dataclass(frozen=True, eq=False)
class Annotations:
    """The reports of several annotators on the rows."""

    given: pd.Series
    """The majority label of each row, a Categorical over all labels. Of tied labels it is the one that the
    reports of all rows make most probable."""
    reports: Reports
    place: IntArray
    """The position of each row among the tasks of the reports."""
    alone: CombinedLabels
    """What the reports say without features or gold labels."""

    @property
    def codes(self) -> IntArray:
        """The codes of the majority labels."""
        return np.asarray(self.given.cat.codes, dtype=np.int64)

    @property
    def is_single(self) -> bool:
        """Whether all reports are those of one annotator."""
        return len(np.unique(self.reports.worker_codes)) == 1

    def posterior(self, proba: NDArray[Any] | None = None, gold: IntArray | None = None) -> LabelPosterior:
        """Return the posterior of the majority labels.

        A model that predicts these labels no better than chance, or that explains the reports hardly better
        than the class frequencies do, is not used.

        Parameters
        ----------
        proba
            Out-of-fold probabilities of the labels, (n, K), or ``None``.
        gold
            The code of the known label of each row, −1 if unknown, or ``None``.
        """
        ignored = "" if proba is None else explain_chance_level(proba, self.codes)
        if proba is not None and not ignored:
            found = combine_reports(self.reports, proba=self._by_task(proba), gold=self._by_task(gold))
            if found.log_evidence > found.log_evidence_without + LEAST_EVIDENCE:
                return self._label_posterior(found, proba)
            ignored = (
                "the model explains the annotators' reports hardly better than the class frequencies do "
                f"(mean log-likelihood {found.log_evidence:.3f} and {found.log_evidence_without:.3f})"
            )
        found = self.alone if gold is None else combine_reports(self.reports, gold=self._by_task(gold))
        return replace(self._label_posterior(found, None), model_ignored=ignored)

    def check_row_noise(self, proba: NDArray[Any]) -> RowNoiseCheck | None:
        """Test whether the noise depends on the row; ``None`` if fewer than 100 rows have two labels.

        ``proba`` are out-of-fold probabilities of the labels, (n, K), which take the place of the features.
        """
        votes = self.reports.counts.toarray().astype(np.int64)[self.place]
        return check_votes(np.asarray(proba, dtype=np.float64), votes, random_state=0)

    def coded(self) -> IntArray:
        """Return the position of the row, the worker and the label of each report, shape (m, 3)."""
        row_of_task = np.empty(len(self.place), dtype=np.int64)
        row_of_task[self.place] = np.arange(len(self.place))
        reports = self.reports
        return np.column_stack([row_of_task[reports.task_codes], reports.worker_codes, reports.label_codes])

    @classmethod
    def from_codes(cls, coded: IntArray, given: pd.Series) -> Annotations:
        """Return the annotations of rows with majority labels ``given``, from the result of ``coded``."""
        k = len(given.cat.categories)
        table = pd.DataFrame(coded, columns=["task", "worker", "label"])
        reports = Reports.from_table(table, labels=range(k))
        place = np.asarray(pd.Index(reports.tasks).get_indexer(pd.RangeIndex(len(given))), dtype=np.int64)
        reports = replace(reports, labels=np.asarray(given.cat.categories))
        return cls(given, reports, place, combine_reports(reports))

    def _by_task(self, rows: Any) -> Any:
        """Return values of the rows in the order of the tasks."""
        if rows is None:
            return None
        tasks = np.empty_like(rows)
        tasks[self.place] = rows
        return tasks

    def _label_posterior(self, found: CombinedLabels, proba: NDArray[Any] | None) -> LabelPosterior:
        clean, codes = found.probabilities[self.place], self.codes
        n, k = clean.shape
        p_error = np.clip(1.0 - take(clean, codes), 0.0, 1.0)
        other, p_other = likeliest_other(clean, codes)
        counts = np.full((k, k), 1e-9)  # a class that no row has keeps its label
        counts[np.diag_indices(k)] = 1e-6
        np.add.at(counts.T, codes, clean)
        rows, transition = counts.sum(axis=1), normalise_rows(counts.copy())
        low, high = wilson_interval(transition, np.maximum(rows, 1.0)[:, None])
        share = float(p_error.mean())
        spread = Z * float(np.sqrt((p_error * (1.0 - p_error)).sum())) / n + CALIBRATION * share
        predicted = codes if proba is None else proba.argmax(axis=1)
        from_features = clean if found.from_features is None else found.from_features[self.place]
        best = from_features.argmax(axis=1)
        return LabelPosterior(
            p_error=p_error,
            likeliest_other=other,
            p_other=p_other,
            clean_given_label=lambda rows: clean[rows].copy(),
            clean_prior=rows / rows.sum(),
            noise=NoiseModel(transition),
            noise_low=low,
            noise_high=high,
            no_noise=float(np.exp(np.log1p(-np.minimum(p_error, 1.0 - 1e-12)).sum())),
            error_rate_interval=(max(share - spread, 0.0), min(share + spread, 1.0)),
            accuracy_as_labelled=float(take(clean, predicted).mean()),
            accuracy_corrected=float(take(clean, best).mean()),
            gain=expected_gain(clean, found.average_worker),
            annotator=found.average_worker,
            from_features=found.transform if found.curves else None,
            overlap=None if found.from_features is None else overlap_of(from_features, n),
        )


def ravel_single_column(labels: Any) -> Any:
    """Return labels (n, 1) as one label per row: a Series from a DataFrame; other labels unchanged."""
    shape = np.shape(labels)
    if issparse(labels):
        raise InvalidInputError(
            "`labels` must be dense: one label per row, or one column per annotator; got a sparse matrix of "
            f"shape {shape}. Pass `labels.toarray()`; for several binary labels per row use "
            "find_multilabel_issues."
        )
    if shape[1] != 1:
        return labels
    return labels.iloc[:, 0] if isinstance(labels, pd.DataFrame) else np.asarray(labels)[:, 0]


def read_annotations(
    labels: Any, X: Any = None, pred_proba: Any = None, *, duplicates: str = "error"
) -> Annotations:
    """Aggregate one column per annotator, or a long table with columns task (or item), worker and label.

    The rows of a wide table are those of ``X``, in the same order. The tasks of a long table are looked up by
    name: see :func:`_rows_of_tasks`.
    """
    table = labels if isinstance(labels, pd.DataFrame) else pd.DataFrame(np.asarray(labels))
    if {"worker", "label"} <= set(map(str, table.columns)):
        reports = Reports.from_table(table, duplicates=duplicates)
        rows, name = _rows_of_tasks(reports, X, pred_proba)
        return _aggregate(reports, _places(reports, rows, name), rows)
    rows = X.index if isinstance(X, pd.DataFrame | pd.Series) else table.index
    if len(rows) != len(table):
        raise InvalidInputError(
            f"`X` and `labels` must be equally long; got {len(rows)} and {len(table)} rows."
        )
    return _aggregate(_from_columns(table), np.arange(len(rows)), rows)


def _rows_of_tasks(reports: Reports, X: Any, pred_proba: Any) -> tuple[pd.Index, str]:
    """Return the names of the rows, among which tasks are looked up, and the argument they come from.

    The rows of an array are identified by position, so tasks must be integers 0..n-1. Without an index or an
    array, the tasks themselves are the rows.
    """
    tasks = pd.Index(reports.tasks)
    arguments = {"X": X, "pred_proba": pred_proba}
    for name, given in arguments.items():
        if isinstance(given, pd.DataFrame | pd.Series):
            return given.index, name
    array = next((name for name, given in arguments.items() if given is not None), None)
    if array is None:
        return tasks, "labels"
    tasks = tasks.infer_objects()
    if not pd.api.types.is_numeric_dtype(tasks) or pd.api.types.is_bool_dtype(tasks):
        raise InvalidInputError(
            f"`labels` names its tasks, such as {tasks.tolist()[0]!r}, but the rows of the array `{array}` "
            f"have no names. Pass `{array}` as a DataFrame whose index holds the tasks, or number the tasks "
            "by the position of their row, from 0."
        )
    return pd.RangeIndex(np.shape(arguments[array])[0]), array


def _places(reports: Reports, rows: pd.Index, name: str) -> IntArray:
    """Return the position of each row among the tasks."""
    if not rows.is_unique:
        raise InvalidInputError(
            f"the index of `{name}` must not repeat an entry, or tasks cannot be matched to rows; "
            f"{rows[rows.duplicated()].tolist()[0]!r} repeats. Give each row a unique name."
        )
    tasks = pd.Index(reports.tasks)
    unknown = tasks[rows.get_indexer(tasks) < 0]
    if len(unknown):
        advice = (
            f"Tasks must be positions of rows, 0 to {len(rows) - 1}; or pass `{name}` as a DataFrame whose "
            "index holds the tasks."
            if isinstance(rows, pd.RangeIndex)
            else f"Tasks must be entries of the index of `{name}`: use `{name}.set_index(...)`."
        )
        raise InvalidInputError(
            f"`labels` has labels for task {unknown.tolist()[0]!r}, which is not a row of `{name}`. {advice}"
        )
    place = np.asarray(tasks.get_indexer(rows), dtype=np.int64)
    answered: IntArray = np.asarray(reports.counts.sum(axis=1)).ravel()
    unanswered = np.flatnonzero((place < 0) | (answered[place] == 0))
    if unanswered.size:
        raise InvalidInputError(unlabelled(rows[unanswered]))
    return place


def _from_columns(table: pd.DataFrame) -> Reports:
    answered = table.notna().to_numpy()
    unanswered = np.flatnonzero(~answered.any(axis=1))
    if unanswered.size:
        raise InvalidInputError(unlabelled(table.index[unanswered]))
    row, column = np.nonzero(answered)  # row by row, so that tasks are in the order of the rows
    given = pd.Series(table.to_numpy(dtype=object)[row, column]).infer_objects()
    names = np.array([str(name) for name in table.columns], dtype=object)
    return Reports.from_table(pd.DataFrame({"task": row, "worker": names[column], "label": given}))


def _aggregate(reports: Reports, place: IntArray, rows: pd.Index) -> Annotations:
    alone = combine_reports(reports)
    votes = majority_labels(reports, alone.probabilities)[place]
    given = pd.Series(
        pd.Categorical.from_codes(votes, categories=pd.Index(reports.labels)), index=rows, name="label"
    )
    return Annotations(given, reports, place, alone)


def unlabelled(rows: pd.Index) -> str:
    """Return the message for rows without a label."""
    return (
        f"`labels` must hold a label for each row; {len(rows)} have none, the first is row "
        f"{rows.tolist()[0]!r}. Drop rows without a label: `X[labels.notna()]`, `labels.dropna()`."
    )
