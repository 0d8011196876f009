"""Base of all classifiers: checks the input, encodes the labels, and leaves nothing after a failed fit.

Some classifiers accept partial labels. A label is *missing* if it is NaN, None or ``pandas.NA``. As in
scikit-learn's semi-supervised classifiers, -1 is a missing label too if all other labels are non-negative
integers, with one exception: -1 and 1 are two classes. *Soft* labels are a table with one column per class,
such as shares of crowd votes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from peerloss._infinite_features import check_no_infinity
from peerloss._probabilities import check_probabilities, normalise_rows
from peerloss._validation import check_magnitude, check_varies, is_minus_one_missing, sorted_labels
from peerloss.exceptions import InvalidInputError, warn_caller

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray

#: The code of a missing label.
MISSING = -1
#: A weight below this share of the largest is taken as zero, since sums in float64 cannot represent it.
NEGLIGIBLE_WEIGHT = 1e-12
#: Weights whose mean is larger are not numbers of rows.
MAX_REPEATS = 1e6


class FitInput(NamedTuple):
    """Checked input of ``fit``."""

    X: FloatArray
    """(n, d), finite."""
    codes: IntArray
    """(n,) class codes 0..K-1, or ``MISSING``. A row with a soft label has the class of its largest share
    relative to the frequency of the class, so that stratified folds contain rare classes."""
    weight: FloatArray
    """(n,) non-negative, not all zero, scaled by :func:`_relative_weights`."""
    classes: NDArray[Any]
    """(K,) the distinct labels as given, sorted."""
    weighted: bool = False
    """Whether rows have weights: ``sample_weight`` was given, or labels are soft."""
    shares: FloatArray | None = None
    """(n, K) soft labels, zero for missing labels; ``None`` if every label is one class."""
    trees: FloatArray | None = None
    """(n, columns) features of a mixed table for trees: codes of categories, NaN for missing values."""
    categorical: tuple[int, ...] = ()
    """Columns of ``trees`` that hold codes of categories."""
    wide: Any = None
    """(n, D) sparse features for linear models, if there is free text or ``X`` is sparse."""

    @property
    def is_used(self) -> BoolArray:
        """(n,) whether a row has a label and a positive weight."""
        return np.asarray((self.weight > 0) & (self.codes != MISSING))


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base of the classifiers: ``predict`` is the argmax of ``predict_proba``; labels have any dtype."""

    classes_: NDArray[Any]
    n_features_in_: int
    #: If false, ``X`` may be of any kind: only its rows are counted, and the checked features are zeros.
    _checks_features = True
    #: If true, labels may be missing or soft.
    _accepts_partial_labels = False
    #: The unit of the weights is kept if the mean of the positive ones is in this interval, because a weight
    #: of 2 means two equal rows. Otherwise the weights are divided by it: only their ratios matter.
    _usual_weights: tuple[float, float] = (1.0, 1.0)

    def _check_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> FitInput:
        """Check the arguments of ``fit``; call it inside :func:`all_or_nothing`."""
        given = X if self._checks_features else np.zeros((_num_samples(X), 1))
        check_no_infinity(given)
        if not self._accepts_partial_labels:
            _check_complete(y)
        labels = _partial_labels(y) if self._accepts_partial_labels else None
        with numbers_only("`X` and `y`"):
            if labels is None:
                features, targets = validate_data(self, given, y, dtype=np.float64)
                labels = _complete_labels(targets)
            else:
                features = validate_data(self, given, dtype=np.float64)
                check_consistent_length(features, labels.codes)
        labels.check_two_classes()
        if self._checks_features:
            check_magnitude(features, names=getattr(self, "feature_names_in_", None))
            check_varies(features)
        with numbers_only("`sample_weight`"):
            weight = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        check_magnitude(weight, name="sample_weight", advice="Divide all weights by the largest.")
        weighted = sample_weight is not None or labels.shares is not None
        weight = _relative_weights(weight, *self._usual_weights)
        data = FitInput(features, labels.codes, weight, labels.classes, weighted, labels.shares)
        if not data.is_used.any():
            raise InvalidInputError(
                "`sample_weight` must not be zero for all rows that have a label; use at least one positive "
                "weight."
            )
        return data

    def _check_predict(self, X: ArrayLike) -> FloatArray:
        """Check the argument of ``predict`` against the features of ``fit``."""
        check_is_fitted(self)
        check_no_infinity(X)
        medians: Any = getattr(self, "medians_", None)
        finite = True if medians is None else "allow-nan"
        with numbers_only("`X`"):
            checked: FloatArray = validate_data(
                self, X, dtype=np.float64, reset=False, ensure_all_finite=finite
            )
        check_magnitude(checked, names=getattr(self, "feature_names_in_", None))
        missing = np.isnan(checked)
        return np.where(missing, medians, checked) if missing.any() else checked

    @abstractmethod
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K)."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable clean class of each row, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)  # first, as it raises NotFittedError
        predicted: NDArray[Any] = self.classes_[best]
        return predicted


def _relative_weights(weight: FloatArray, low: float, high: float) -> FloatArray:
    """Divide weights by the mean of the positive ones, unless it lies between ``low`` and ``high``.

    Learners compare sums of weights with fixed numbers, such as the least weight of a leaf. Weights that are
    negligible compared with the largest become 0.
    """
    kept = np.where(weight < NEGLIGIBLE_WEIGHT * weight.max(), 0.0, weight)
    mean = float(kept[kept > 0].mean()) if kept.any() else 1.0
    return kept if low <= mean <= high or math.isclose(mean, 1.0, rel_tol=1e-12) else kept / mean


def table_of_gaps(X: Any) -> Any:
    """Return an array of numbers of which some are missing as a table, and anything else as it is."""
    if not isinstance(X, np.ndarray | list | tuple):
        return X
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths, which are refused later
        return X
    if array.ndim != 2 or array.dtype.kind != "f" or not np.isnan(array).any() or np.isinf(array).any():
        return X
    return pd.DataFrame(array)


def contains_pipeline(estimator: Any) -> bool:
    """Return whether an estimator is a pipeline, or a search or a calibration around one."""
    while estimator is not None:
        if isinstance(estimator, Pipeline):
            return True
        estimator = getattr(estimator, "estimator", None)
    return False


def check_given_features(X: Any, estimator: Any) -> None:
    """Refuse infinite features that ``estimator`` gets as they are; a pipeline may replace them."""
    if not contains_pipeline(estimator):
        check_no_infinity(X)


def is_mixed_table(X: Any) -> bool:
    """Return whether ``X`` is a DataFrame with gaps, sparse columns, or columns that are not numbers."""
    if not isinstance(X, pd.DataFrame):
        return False
    kinds = X.infer_objects().dtypes  # columns of type object may hold numbers
    is_plain = all(kind.kind in "biuf" and not isinstance(kind, pd.SparseDtype) for kind in kinds)
    return not is_plain or bool(X.isna().any(axis=None))


class _Labels(NamedTuple):
    """Encoded labels; the fields are those of :class:`FitInput`."""

    classes: NDArray[Any]
    codes: IntArray
    shares: FloatArray | None = None

    def check_two_classes(self) -> None:
        """Refuse labels of one class."""
        known = self.codes != MISSING
        counts = np.bincount(self.codes[known], minlength=len(self.classes))
        present = np.flatnonzero(counts if self.shares is None else self.shares.sum(axis=0))
        if len(present) >= 2:
            return
        without = f" ({int((~known).sum())} of {len(known)} rows have no label)" if not known.all() else ""
        raise InvalidInputError(
            "`y` must have at least two classes; every label is class "
            f"{self.classes[present].tolist()[0]!r}{without}. A classifier cannot be trained on one class."
        )


def _check_complete(y: Any) -> None:
    """Refuse missing labels; scikit-learn accepts None and NaT."""
    array = np.asarray(y, dtype=object if isinstance(y, list | tuple) else None)
    if array.ndim not in (1, 2) or array.dtype.kind not in "fMmO":
        return
    missing = np.asarray(pd.isna(array))
    if missing.any():
        raise InvalidInputError(
            "`y` must hold labels of one type in every row; the number of missing labels (NaN, NaT or None) "
            f"is {int(missing.sum())} of {missing.size}. Leave these rows out, or use PeerClassifier, which "
            "accepts them. If a missing label is a class of its own, use `y.astype(str)`."
        )


def _complete_labels(y: NDArray[Any]) -> _Labels:
    """Encode one label per row."""
    classes, codes = sorted_labels(y)
    check_classification_targets(y)
    return _Labels(classes, np.asarray(codes, dtype=np.int64))


def _partial_labels(y: Any) -> _Labels | None:
    """Encode labels if some of them are missing or if they are soft, else return ``None``."""
    # As objects, because NumPy would turn the list ["a", nan] into ["a", "nan"].
    array = np.asarray(y, dtype=object if isinstance(y, list | tuple) else None)
    if array.ndim == 2 and array.shape[1] > 1:
        return _soft_labels(y, array)
    if array.ndim not in (1, 2) or not array.size:
        return None
    values = array.reshape(-1)
    missing = _find_missing(values)
    if not missing.any():
        return None
    column_or_1d(array, warn=True)
    if missing.all():
        raise InvalidInputError(
            f"`y` must have a label in some rows; all {len(values)} labels are missing (NaN, None or -1). "
            "Pass the noisy labels, and leave only unknown ones missing."
        )
    known = _complete_labels(_plain_dtype(values[~missing]))
    codes = np.full(len(values), MISSING, dtype=np.int64)
    codes[~missing] = known.codes
    return _Labels(known.classes, codes)


def _plain_dtype(values: NDArray[Any]) -> NDArray[Any]:
    """Return objects that are numbers or truth values as an array of these; text stays as it is."""
    if values.dtype.kind != "O":
        return values
    plain = np.array(values.tolist())
    return plain if plain.dtype.kind in "biuf" else values


def _find_missing(values: NDArray[Any]) -> BoolArray:
    """Return which labels are missing, shape (n,); the rule is that of this module."""
    missing = np.zeros(len(values), dtype=bool)
    if values.dtype.kind in "fMmO":
        missing = np.asarray(pd.isna(values))
    known = _plain_dtype(values[~missing])
    if not is_minus_one_missing(known):
        return missing
    if np.unique(known).tolist() == [-1, 0, 1]:
        warn_caller(
            "`y` contains -1, 0 and 1; -1 is taken as a missing label. If it is a class, convert the labels "
            "to text, for example with `y.astype(str)`. If it is not, NaN avoids this warning.",
            UserWarning,
        )
    missing[~missing] = known == -1
    return missing


def _soft_labels(y: Any, array: NDArray[Any]) -> _Labels:
    """Encode a table with one column per class; rows of NaN are missing labels."""
    try:
        table = array.astype(np.float64)  # a copy, which is changed below
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "`y` must be one label per row, or soft labels with a column of numbers per class; got shape "
            f"{array.shape} with an entry that is not a number: {error}. Use NaN if a row has no label."
        ) from error
    names = np.asarray(y.columns) if hasattr(y, "columns") else np.arange(table.shape[1])
    classes, order = sorted_labels(names)
    if len(classes) < len(names):
        raise InvalidInputError(
            f"`y` must have unique column names, one per class; got {names.tolist()[:10]}. Add up the "
            "columns of the same class."
        )
    missing = np.isnan(table).all(axis=1)
    if missing.all():
        raise InvalidInputError(
            f"`y` must have a label in some rows; all {len(table)} rows of soft labels are missing (NaN). "
            "Pass the shares of the classes, and leave only unknown rows missing."
        )
    table[missing] = 1.0 / table.shape[1]
    check_probabilities(
        table,
        len(table),
        name="y",
        advice="Divide the votes on each row by their number. Use NaN in the whole row if there are none.",
    )
    table[missing] = 0.0
    shares = np.empty_like(table)
    shares[:, order] = normalise_rows(table)
    if ((shares == 0.0) | (shares == 1.0)).all():
        return _Labels(classes, np.where(missing, MISSING, shares.argmax(axis=1)))
    relative = shares / np.maximum(shares.sum(axis=0), 1e-300)
    return _Labels(classes, np.where(missing, MISSING, relative.argmax(axis=1)), shares)


@contextmanager
def numbers_only(names: str) -> Iterator[None]:
    """Name the argument if it holds text, or an integer that does not fit a float, such as 10**400."""
    try:
        yield
    except ValueError as error:
        if "could not convert string to float" not in str(error):
            raise
        raise InvalidInputError(
            f"{names} must contain numbers; {error}. Pass text and categories as columns of a DataFrame; "
            "`.to_frame()` makes one of a Series."
        ) from error
    except OverflowError as error:
        raise InvalidInputError(
            f"{names} must contain numbers that fit float64; conversion failed: {error}. Correct or rescale "
            "these entries."
        ) from error


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Restore all attributes if the block raises, so that a failed fit does not leave a partial state."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
