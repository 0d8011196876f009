"""What an audit is computed from: the rows in use, and what was learned about their labels.

An audit can be computed again from it with known labels and without training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils import _safe_indexing

from peerloss._pages import counted
from peerloss.audit._refit import fit_to_posterior, with_refitted
from peerloss.datasets.label_spelling import find_rare_labels
from peerloss.estimators.folds import DEFAULT_FOLDS, gold_array, is_fold_count
from peerloss.exceptions import InvalidInputError, warn_caller
from peerloss.posterior.flags import FlagRule
from peerloss.posterior.label_posterior import class_probabilities, label_posterior

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.audit._annotations import Annotations
    from peerloss.posterior import RowNoiseCheck
    from peerloss.posterior.label_posterior import LabelPosterior

#: Code of a row without a known label.
UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class Evidence:
    """Labels, probabilities and reports of the rows of an audit."""

    given: pd.Series
    """The given labels, with the caller's index."""
    classes: NDArray[Any]
    codes: IntArray
    """The code of each given label."""
    proba: NDArray[Any] | None = None
    """Out-of-fold probabilities of the given labels, (n, K)."""
    annotations: Annotations | None = None
    """The reports, if several annotators labelled the rows."""
    gold: IntArray | None = None
    """The code of the known label of each row, −1 if unknown."""
    refitted: FloatArray | None = None
    """P(clean = k | features) of the second round, if there was one."""
    rule: FlagRule = field(default_factory=FlagRule)
    """Which rows are flagged."""
    useless: str = ""
    """Why the probabilities of one label per row cannot be used, if that is known."""

    def posterior(self) -> LabelPosterior:
        """Return the posterior of the labels."""
        if self.annotations is not None:
            features = self.proba if self.refitted is None else self.refitted
            return replace(self.annotations.posterior(features, self.gold), refitted=self.refitted)
        if self.proba is None:
            raise InvalidInputError("an audit of one label per row needs probabilities; it has none.")
        found = label_posterior(self.proba, self.codes, gold=self.gold, reason=self.useless)
        if self.refitted is None:
            return found
        return with_refitted(found, self.refitted, self.codes, self.gold)

    def check_row_noise(self) -> RowNoiseCheck | None:
        """Test whether the noise depends on the row; ``None`` without probabilities or several labels."""
        if self.annotations is None or self.proba is None:
            return None
        return self.annotations.check_row_noise(self.proba)

    def refit(
        self,
        found: LabelPosterior,
        X: Any,
        *,
        estimator: Any,
        folds: Iterable[tuple[IntArray, IntArray]],
        n_jobs: int | None = None,
    ) -> tuple[Evidence, LabelPosterior]:
        """Fit the estimator to the posterior ``found``; return the evidence and posterior of this round.

        They are returned unchanged if the noise rates cannot be estimated, if labels flip near the boundary,
        or if the model's probabilities were not used. The estimated noise of one label per row is that of the
        first round.
        """
        if not found.is_class_conditional or found.model_ignored or self.proba is None:
            return self, found
        if self.annotations is None:
            targets = class_probabilities(found, self.proba, self.codes)
            if self.gold is not None:
                known = self.gold >= 0
                targets[known] = np.eye(len(self.classes))[self.gold[known]]
        else:
            targets = found.clean_given_label(slice(None))
        refitted = fit_to_posterior(targets, X, estimator, folds, n_jobs)
        again = replace(self, refitted=refitted)
        if self.annotations is None:
            return again, with_refitted(found, refitted, self.codes, self.gold)
        return again, again.posterior()

    def with_gold(self, gold: Any) -> Evidence:
        """Return the evidence with more known labels; for a row that had one, the new one counts."""
        codes = gold_codes(gold, self.given.index, self.classes, self.codes)
        if codes is None:
            return self
        before = np.full(len(codes), UNKNOWN) if self.gold is None else self.gold
        return replace(self, gold=np.where(codes >= 0, codes, before))


def gold_codes(gold: Any, index: pd.Index, classes: NDArray[Any], codes: IntArray) -> IntArray | None:
    """Return the code of the known label of each row, −1 if unknown.

    Parameters
    ----------
    gold
        A Series whose index holds names of rows, or a dictionary, with the known labels of some rows; one
        entry per row, missing if the label is not known; or a mask of the rows whose given label is right.
    index, classes, codes
        Names of the rows, the labels, and the code of the given label of each row.
    """
    if gold is None:
        return None
    known = np.full(len(codes), UNKNOWN, dtype=np.int64)
    by_name = isinstance(gold, pd.Series | Mapping)
    values = pd.Series(gold, dtype=None if len(gold) else object) if by_name else gold
    if not by_name or (len(values) == len(index) and values.index.equals(index)):
        values = gold_array(values)
        _check_one_per_row(values, len(codes))
        if values.dtype == bool:
            return np.where(values, codes, UNKNOWN)
        rows = np.flatnonzero(~pd.isna(values))
        labels = values[rows]
    else:
        values = values.dropna()
        rows, labels = _rows_by_name(values, index), values.to_numpy()
    place = pd.Index(classes).get_indexer(pd.Index(labels))
    if (place < 0).any():
        raise InvalidInputError(
            f"`gold` must hold labels of the audit, {classes.tolist()[:10]!r}; got "
            f"{np.asarray(labels, dtype=object)[place < 0][0]!r}. Check the spelling and the type."
        )
    known[rows] = place
    return known


def _rows_by_name(gold: pd.Series, index: pd.Index) -> IntArray:
    """Return the positions of the rows that a series names."""
    for names, owner in ((gold.index, "`gold`"), (index, "the index of the rows")):
        if not names.is_unique:
            raise InvalidInputError(
                f"{owner} must not repeat a name, or known labels cannot be matched to rows; "
                f"{names[names.duplicated()].tolist()[0]!r} repeats. Pass one entry per row instead, None if "
                "the label is not known."
            )
    place = index.get_indexer(gold.index)
    if (place < 0).any():
        raise InvalidInputError(
            f"`gold` must name rows of the audit, such as {index.tolist()[0]!r}; "
            f"{gold.index[place < 0].tolist()[0]!r} is not one. Check that the names have the same type."
        )
    return np.asarray(place, dtype=np.int64)


class Selected(NamedTuple):
    """The rows of an audit without those of rare classes."""

    X: Any
    given: pd.Series
    groups: Any
    gold: Any
    set_aside: dict[Any, int]
    """Label → number of rows that were left out."""


def set_rare_classes_aside(
    X: Any, given: pd.Series, *, groups: Any, gold: Any, cv: Any, min_class_rows: int | None
) -> Selected:
    """Leave out the rows of classes that have too few of them, and warn about it.

    Parameters
    ----------
    X, given, groups, gold
        Features, labels, groups and known labels of all rows, as in :func:`find_label_issues`.
    cv
        The folds. Nothing is left out if they are pairs of positions, which refer to all rows.
    min_class_rows
        As ``min_rows`` of :func:`peerloss.datasets.find_rare_labels`.
    """
    labels = pd.Series(given.to_numpy(dtype=object))
    rare = find_rare_labels(labels, min_class_rows)
    if rare and not (is_fold_count(cv) or hasattr(cv, "split")):
        if min_class_rows is None:
            rare = {}
        else:
            raise InvalidInputError(
                f"`min_class_rows`={min_class_rows} would leave out rows, but `cv` holds positions of rows. "
                "Pass a number of folds or a splitter, or min_class_rows=1."
            )
    if not rare:
        return Selected(X, given, groups, gold, {})
    kept = ~labels.isin(list(rare)).to_numpy()
    rows = np.flatnonzero(kept)
    chosen = given.iloc[rows]
    if isinstance(chosen.dtype, pd.CategoricalDtype):
        chosen = chosen.cat.remove_categories(list(rare))
    listed = " and ".join(f"{label!r} ({counted(n, 'row')})" for label, n in rare.items())
    warn_caller(
        f"{counted(len(rare), 'class has', 'classes have')} too few rows to learn from: {listed}. The audit "
        f"leaves these rows out. Pass `min_class_rows`={min(rare.values())} to keep them.",
        UserWarning,
    )
    return Selected(
        _safe_indexing(X, rows),
        chosen,
        None if groups is None else np.asarray(groups)[rows],
        _select_gold(gold, given.index, kept, rare),
        rare,
    )


def _select_gold(gold: Any, index: pd.Index, kept: BoolArray, rare: dict[Any, int]) -> Any:
    """Return the known labels of the rows that are kept."""
    if gold is None:
        return None
    if isinstance(gold, pd.Series | Mapping):
        known = pd.Series(gold, dtype=None if len(gold) else object)
        by_row = known.index.equals(index)  # names may then repeat
        chosen: Any = known[kept if by_row else ~known.index.isin(index[~kept])]
    else:
        chosen = gold_array(gold)
        _check_one_per_row(chosen, len(kept))
        chosen = chosen[kept]
    labels = pd.Series(chosen)
    unknown = [] if labels.dtype == bool else labels[labels.isin(list(rare))].tolist()
    if unknown:
        raise InvalidInputError(
            f"`gold` holds the label {unknown[0]!r}, but its class has too few rows and is left out. Pass "
            "`min_class_rows`=1 to keep it."
        )
    return chosen


def _check_one_per_row(gold: NDArray[Any], n_rows: int) -> None:
    if gold.shape != (n_rows,):
        raise InvalidInputError(
            f"`gold` must have one entry per row, {n_rows} in all; got shape {gold.shape}. Use None or NaN "
            "for unknown labels, or a Series or a dictionary by the names of the rows."
        )


def check_folds(cv: Any, codes: IntArray, classes: NDArray[Any], groups: Any) -> Any:
    """Return the folds to use: no more than the rarest class has rows.

    The estimator, which is fitted to codes, would name the code of a class instead of its label.
    """
    if not is_fold_count(cv) or groups is not None:
        return cv
    counts = np.bincount(codes, minlength=len(classes))
    present = np.flatnonzero(counts)
    rarest = present[counts[present].argmin()]
    rows, label = int(counts[rarest]), classes.tolist()[rarest]
    if rows < 2:
        raise InvalidInputError(
            f"every class must have at least two rows, so that one can be held out; {label!r} has one. "
            "Leave such classes out with `min_class_rows`=2, or merge them with others."
        )
    n_folds = DEFAULT_FOLDS if cv is None else cv
    if rows < n_folds:
        warn_caller(
            f"`cv`={n_folds} folds were requested, but the class {label!r} has only {counted(rows, 'row')}; "
            f"{rows} folds are used.",
            UserWarning,
        )
    return min(n_folds, rows)
