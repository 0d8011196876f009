"""One label per task from the labels of several workers, as an estimator and as a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from peerloss._validation import check_choice, check_flag
from peerloss.crowd._copies import copy_weights
from peerloss.crowd._dawid_skene import DawidSkene, dawid_skene
from peerloss.crowd._report_matrix import ReportMatrix
from peerloss.crowd._shrunken_confusion import fit_one_coin, fit_shrunken, one_coin_matrix
from peerloss.crowd.gold_labels import gold_codes
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction.reports import as_reports

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray
    from peerloss.crowd.gold_labels import GoldLike
    from peerloss.peer_prediction import Reports
    from peerloss.peer_prediction.reports import ReportsLike

#: Values of ``method``.
METHODS = ("shrunken", "dawid_skene", "one_coin")


class LabelAggregator:
    """Combine the labels of several workers into one label per task, with calibrated probabilities.

    The default method is a weighted mean of two models (.3 each) and of the shares of the votes (.4). Both
    models estimate one confusion matrix per worker, as Dawid and Skene do. One shrinks it to the worker's own
    *one-coin* matrix (one accuracy, equally probable errors), and the marginal likelihood of the crowd's
    reports chooses how much; the other shrinks it to the crowd's average worker. EM stops after four rounds,
    before it drifts away from the votes. The votes make the probabilities less extreme, because real workers
    do not err independently of each other. Copies of one opinion count once: the reports of workers whom
    :func:`find_copiers` lists share the weight of one report if they agree.

    On five real crowds its labels are on average at least as often right as those of the majority, of Dawid
    and Skene and of the one-coin model, and its log loss is the smallest; `results/bench_annotators_cpu.md`
    has the table.

    The names ``fit``, ``fit_predict`` and ``fit_predict_proba``, the frame that they take and the fitted
    attributes are those of crowd-kit.

    Parameters
    ----------
    method
        ``"shrunken"``, the model above; ``"dawid_skene"`` (:func:`dawid_skene`); or ``"one_coin"``, by EM
        until convergence.
    discount_copies
        Whether copies of one opinion count once, for ``"shrunken"``.
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table.

    Attributes
    ----------
    probas_
        Soft labels: a frame with one row per task and one column per label.
    labels_
        The most probable label of each task, a Series.
    priors_
        The estimated frequency of each label among the tasks, a Series.
    errors_
        P(worker gives label | true label): a frame with one row per (worker, label) that occurs and one
        column per true label. :meth:`confusion_matrix` gives the complete matrix of a worker.
    reports_
        The coded :class:`~peerloss.peer_prediction.Reports`.
    n_iter_
        The number of EM iterations.

    See Also
    --------
    aggregate_labels : Labels, probabilities and votes in one frame.
    score_annotators : Scores, accuracies and payments of the workers.

    Examples
    --------
    >>> import pandas as pd
    >>> answers = {"ann": "aabbab", "bob": "aabbab", "cy": "babaab"}
    >>> rows = [(task, name, label) for name, labels in answers.items() for task, label in enumerate(labels)]
    >>> table = pd.DataFrame(rows, columns=["task", "worker", "label"])
    >>> crowd = LabelAggregator().fit(table)
    >>> crowd.labels_.tolist()
    ['a', 'a', 'b', 'b', 'a', 'b']
    >>> crowd.probas_.loc[0].round(2).to_dict()
    {'a': 0.85, 'b': 0.15}
    >>> LabelAggregator().fit_predict(table, gold={0: "b"}).tolist()
    ['b', 'a', 'b', 'b', 'a', 'b']
    """

    probas_: pd.DataFrame
    labels_: pd.Series
    priors_: pd.Series
    errors_: pd.DataFrame
    reports_: Reports
    n_iter_: int

    def __init__(
        self, *, method: str = "shrunken", discount_copies: bool = True, duplicates: str = "error"
    ) -> None:
        self.method = method
        self.discount_copies = discount_copies
        self.duplicates = duplicates

    def fit(self, data: Reports | ReportsLike, *, gold: GoldLike | None = None) -> Self:
        """Estimate the labels of the tasks and the confusion matrices of the workers.

        Parameters
        ----------
        data
            A frame with columns ``task`` (or ``item``), ``worker`` and ``label``; (task, worker, label)
            triples; or :class:`~peerloss.peer_prediction.Reports`.
        gold
            Known labels of some tasks, a Series whose index holds the tasks or a dictionary. Their
            probability is 1, so that they also improve the confusion matrices.

        Returns
        -------
        The fitted aggregator.

        Raises
        ------
        InvalidInputError
            If the table does not hold reports, a gold label does not match them, or an argument is not one of
            the allowed values.
        """
        check_choice(self.method, "method", METHODS)
        discount = check_flag(self.discount_copies, "discount_copies")
        coded = as_reports(data, duplicates=self.duplicates)
        if self.method == "dawid_skene":
            found = dawid_skene(coded, gold=gold)
            matrix = ReportMatrix(coded)
            probabilities, class_prior, n_rounds = found.probabilities, found.class_prior, found.n_iterations
            models: tuple[tuple[FloatArray, FloatArray], ...] = ((found.confusion, found.pooled_confusion),)
        else:
            weights = copy_weights(coded) if discount and self.method == "shrunken" else None
            matrix = ReportMatrix(coded, gold=gold_codes(gold, coded), weights=weights)
            fit = fit_shrunken(matrix) if self.method == "shrunken" else fit_one_coin(matrix)
            matrix.warn_of_inflated_classes(fit.class_prior)
            probabilities, class_prior, n_rounds = fit.probabilities, fit.class_prior, fit.n_rounds
            models = fit.models
        names = pd.Index(coded.labels, name="label")
        tasks = pd.Index(coded.tasks, name="task")
        self.reports_, self.n_iter_ = coded, n_rounds
        self.probas_ = pd.DataFrame(probabilities, index=tasks, columns=names)
        self.labels_ = pd.Series(coded.labels[probabilities.argmax(axis=1)], index=tasks, name="agg_label")
        self.priors_ = pd.Series(class_prior, index=names, name="prior")
        cells = [coded.workers[matrix.worker], coded.labels[matrix.label]]
        self.errors_ = pd.DataFrame(
            np.mean([confusion for confusion, _ in models], axis=0),
            index=pd.MultiIndex.from_arrays(cells, names=["worker", "label"]),
            columns=pd.Index(coded.labels, name="true label"),
        )
        self._matrix, self._models = matrix, models
        return self

    def fit_predict(self, data: Reports | ReportsLike, *, gold: GoldLike | None = None) -> pd.Series:
        """Fit, and return the most probable label of each task: ``labels_``.

        Parameters
        ----------
        data, gold
            As for :meth:`fit`.
        """
        return self.fit(data, gold=gold).labels_

    def fit_predict_proba(self, data: Reports | ReportsLike, *, gold: GoldLike | None = None) -> pd.DataFrame:
        """Fit, and return the probabilities of the labels of each task: ``probas_``.

        Parameters
        ----------
        data, gold
            As for :meth:`fit`.
        """
        return self.fit(data, gold=gold).probas_

    def confusion_matrix(self, worker: Any) -> pd.DataFrame:
        """Return P(label | true label) of a worker: one row per true label, one column per label given.

        Parameters
        ----------
        worker
            The name of a worker with at least one report.

        Raises
        ------
        InvalidInputError
            If no report is the worker's.
        """
        if not hasattr(self, "reports_"):
            raise NotFittedError("This LabelAggregator is not fitted. Call `fit` with the reports first.")
        coded, matrix = self.reports_, self._matrix
        code = pd.Index(coded.workers).get_indexer([worker])[0]
        cells = np.flatnonzero(matrix.worker == code)
        if not cells.size:
            raise InvalidInputError(
                f"`worker` must have given a label; got {worker!r}. The workers are in `reports_.workers`."
            )
        row = int(np.searchsorted(matrix.starts, cells[0]))
        tables = []
        for confusion, base in self._models:
            prior = one_coin_matrix(float(base[row]), matrix.n_labels) if base.ndim == 1 else base
            tables.append(_complete(confusion[cells].T, matrix.label[cells], prior))
        table = np.mean(tables, axis=0)
        return pd.DataFrame(
            table,
            index=pd.Index(coded.labels, name="true label"),
            columns=pd.Index(coded.labels, name="label"),
        )


def _complete(given: FloatArray, labels: IntArray, prior: FloatArray) -> FloatArray:
    """Fill a confusion matrix: columns ``labels`` are ``given``, others share the rest like ``prior``."""
    tiny = np.finfo(float).tiny
    table: FloatArray = np.zeros_like(prior)
    table[:, labels] = given
    absent = np.setdiff1d(np.arange(len(prior)), labels)
    shares = np.maximum(prior[:, absent], tiny)
    rest = np.maximum(1.0 - given.sum(axis=1, keepdims=True), 0.0)
    table[:, absent] = rest * shares / np.maximum(shares.sum(axis=1, keepdims=True), tiny)
    return table


def aggregate_labels(
    reports: Reports | ReportsLike | DawidSkene | LabelAggregator,
    *,
    method: str = "shrunken",
    gold: GoldLike | None = None,
    duplicates: str = "error",
) -> pd.DataFrame:
    """Give every task two labels: that of a model of the workers and that of the majority.

    Parameters
    ----------
    reports
        :class:`~peerloss.peer_prediction.Reports`, what ``Reports.from_table`` takes, a fitted
        :class:`LabelAggregator`, or the result of :func:`dawid_skene`.
    method
        As for :class:`LabelAggregator`; ignored if ``reports`` is fitted.
    gold
        Known labels of some tasks, a Series whose index holds the tasks or a dictionary.
    duplicates
        If a worker labelled a task more than once, raise an ``"error"``, or keep the ``"first"`` or the
        ``"last"`` of its labels in the order of the table.

    Returns
    -------
    A frame with one row per task in order of first appearance: ``label`` and its ``probability``, the quality
    of the suggested label; ``majority`` and its ``share`` of the votes (of tied labels the first in sorted
    order); and ``n_workers``. Tasks without an answer are excluded.

    Examples
    --------
    >>> answers = {"ann": "aabbab", "bob": "aabbab", "cy": "babaab"}
    >>> table = [(task, name, label) for name, labels in answers.items() for task, label in enumerate(labels)]
    >>> labels = aggregate_labels(table)
    >>> labels["label"].tolist(), labels["share"].round(2).tolist()
    (['a', 'a', 'b', 'b', 'a', 'b'], [0.67, 1.0, 1.0, 0.67, 1.0, 1.0])
    """
    fitted = isinstance(reports, DawidSkene | LabelAggregator)
    if fitted and gold is not None:
        raise InvalidInputError("`gold` must be passed when the model is fitted; these reports are fitted.")
    if isinstance(reports, DawidSkene):
        coded, probabilities = reports.reports, reports.probabilities
    else:
        if not isinstance(reports, LabelAggregator):
            reports = LabelAggregator(method=method, duplicates=duplicates).fit(reports, gold=gold)
        coded, probabilities = reports.reports_, reports.probas_.to_numpy()
    votes = coded.counts
    n_workers: IntArray = np.asarray(votes.sum(axis=1))
    majority: IntArray = np.asarray(votes.argmax(axis=1)).ravel()
    most_probable = probabilities.argmax(axis=1)
    rows = np.arange(len(coded.tasks))
    top: IntArray = votes.max(axis=1).toarray().ravel()
    table = pd.DataFrame(
        {
            "label": coded.labels[most_probable],
            "probability": probabilities[rows, most_probable],
            "majority": coded.labels[majority],
            "share": top / np.maximum(n_workers, 1),
            "n_workers": n_workers,
        },
        index=pd.Index(coded.tasks, name="task"),
    )
    return table[n_workers > 0]
