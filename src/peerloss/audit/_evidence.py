"""What an audit is computed from, so that it can be computed again with known labels and without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.audit._refit import fit_to_posterior, with_refitted
from peerloss.exceptions import InvalidInputError
from peerloss.posterior.label_posterior import class_probabilities, label_posterior

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from peerloss._validation import FloatArray, IntArray
    from peerloss.audit._annotations import Annotations
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
    precision: float | None = None
    """The least expected precision of the flags; ``None`` for the best expected F1."""
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
        values = np.asarray(values)
        if values.shape != codes.shape:
            raise InvalidInputError(
                f"`gold` must have one entry per row, {len(codes)} in all; got shape {values.shape}. Use "
                "None or NaN for unknown labels, or a Series or a dictionary by the names of the rows."
            )
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
