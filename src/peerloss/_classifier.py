"""Base of all classifiers: checks the input, encodes the labels, and leaves nothing after a failed fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _num_samples, check_is_fitted, validate_data

from peerloss._validation import check_magnitude, check_varies, sorted_labels
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from peerloss._validation import FloatArray, IntArray


class FitInput(NamedTuple):
    """Checked input of ``fit``."""

    X: FloatArray
    """(n, d), finite."""
    codes: IntArray
    """(n,) class codes 0..K-1."""
    weight: FloatArray
    """(n,) non-negative, not all zero."""
    classes: NDArray[Any]
    """(K,) the distinct labels as given, sorted."""
    weighted: bool = False
    """Whether ``sample_weight`` was given."""
    trees: FloatArray | None = None
    """(n, columns) features of a mixed table for trees: codes of categories, NaN for missing values."""
    categorical: tuple[int, ...] = ()
    """Columns of ``trees`` that hold codes of categories."""


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base of the classifiers: ``predict`` is the argmax of ``predict_proba``; labels have any dtype."""

    classes_: NDArray[Any]
    n_features_in_: int
    #: If false, ``X`` may be of any kind: only its rows are counted, and the checked features are zeros.
    _checks_features = True

    def _check_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> FitInput:
        """Check the arguments of ``fit``; call it inside :func:`all_or_nothing`."""
        given = X if self._checks_features else np.zeros((_num_samples(X), 1))
        with no_overflow("`X` and `y`"):
            features, y = validate_data(self, given, y, dtype=np.float64)
        classes, codes = sorted_labels(y)
        check_classification_targets(y)
        if len(classes) < 2:
            raise InvalidInputError(
                f"`y` must have at least two classes; every label is class {classes.tolist()[0]!r}. "
                "A classifier cannot be trained on one class."
            )
        if self._checks_features:
            check_magnitude(features, names=getattr(self, "feature_names_in_", None))
            check_varies(features)
        with no_overflow("`sample_weight`"):
            weight = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        check_magnitude(weight, name="sample_weight", advice="Divide all weights by the largest.")
        if not weight.any():
            raise InvalidInputError(
                "`sample_weight` must not be zero for all rows; use at least one positive weight."
            )
        codes = np.asarray(codes, dtype=np.int64)
        return FitInput(features, codes, weight, classes, sample_weight is not None)

    def _check_predict(self, X: ArrayLike) -> FloatArray:
        """Check the argument of ``predict`` against the features of ``fit``."""
        check_is_fitted(self)
        with no_overflow("`X`"):
            checked: FloatArray = validate_data(self, X, dtype=np.float64, reset=False)
        check_magnitude(checked, names=getattr(self, "feature_names_in_", None))
        return checked

    @abstractmethod
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K)."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable clean class of each row, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)  # first, as it raises NotFittedError
        predicted: NDArray[Any] = self.classes_[best]
        return predicted


def is_mixed_table(X: Any) -> bool:
    """Return whether ``X`` is a DataFrame with missing values or with columns that are not numbers."""
    if not isinstance(X, pd.DataFrame):
        return False
    kinds = X.infer_objects().dtypes  # columns of type object may hold numbers
    return any(kind.kind not in "biuf" for kind in kinds) or bool(X.isna().any(axis=None))


@contextmanager
def no_overflow(names: str) -> Iterator[None]:
    """Name the argument if it contains an integer that does not fit a float, such as 10**400."""
    try:
        yield
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
