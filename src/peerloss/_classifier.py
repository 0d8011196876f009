"""What every classifier here shares: checked input, encoded labels, all-or-nothing fitting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
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
    """What ``fit`` computes with."""

    X: FloatArray
    """(n, d), finite."""
    codes: IntArray
    """(n,) class codes 0..K-1."""
    weight: FloatArray
    """(n,) non-negative, not all zero."""
    classes: NDArray[Any]
    """(K,) the labels as the caller wrote them, sorted."""


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator, ABC):
    """Base of the classifiers: ``predict`` is the argmax of ``predict_proba``, labels may be of any dtype."""

    classes_: NDArray[Any]
    n_features_in_: int

    def _check_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        check_features: bool = True,
    ) -> FitInput:
        """Check what ``fit`` was given; call it inside :func:`all_or_nothing`.

        With ``check_features=False`` labels and weights are checked beside zeros in the place of ``X``, of
        which the number of rows alone counts: for estimators whose ``X`` may be of another kind.
        """
        given = X if check_features else np.zeros((_num_samples(X), 1))
        with no_overflow("`X` and `y`"):
            features, y = validate_data(self, given, y, dtype=np.float64)
        classes, codes = sorted_labels(y)
        check_classification_targets(y)
        if len(classes) < 2:
            raise InvalidInputError(
                f"`y` must hold at least two classes; every label is class {classes.tolist()[0]!r}. "
                "A classifier cannot be trained on one class."
            )
        if check_features:
            check_magnitude(features, names=getattr(self, "feature_names_in_", None))
            check_varies(features)
        with no_overflow("`sample_weight`"):
            weight = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        check_magnitude(weight, name="sample_weight", advice="Divide all weights by the largest.")
        if not weight.any():
            raise InvalidInputError("`sample_weight` must not be zero throughout; give some row weight.")
        return FitInput(features, np.asarray(codes, dtype=np.int64), weight, classes)

    def _check_predict(self, X: ArrayLike) -> FloatArray:
        """Check what ``predict`` was given against what ``fit`` saw."""
        check_is_fitted(self)
        with no_overflow("`X`"):
            checked: FloatArray = validate_data(self, X, dtype=np.float64, reset=False)
        check_magnitude(checked, names=getattr(self, "feature_names_in_", None))
        return checked

    @abstractmethod
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K)."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the likeliest clean class of each row, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)  # first, so that an unfitted classifier says so
        predicted: NDArray[Any] = self.classes_[best]
        return predicted


@contextmanager
def no_overflow(names: str) -> Iterator[None]:
    """Name the argument that holds an integer which no float can hold, such as 10**400."""
    try:
        yield
    except OverflowError as error:
        raise InvalidInputError(
            f"{names} must hold numbers that fit float64; could not convert them: {error}. Correct or "
            "rescale such entries."
        ) from error


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Undo every attribute set inside the block if it raises, so that nothing half-fitted is left behind."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
