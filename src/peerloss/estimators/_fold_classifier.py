"""Base of the classifiers that choose their settings on held-out rows of the training data."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

from peerloss._classifier import FitInput, NoisyLabelClassifier, all_or_nothing

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class FoldClassifier(NoisyLabelClassifier):
    """A classifier with a parameter ``cv``; subclasses implement ``_fit``."""

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to features (n, d) and noisy labels (n,).

        Parameters
        ----------
        X, y
            Features and noisy labels of any dtype.
        sample_weight
            Non-negative weights of the rows.
        groups
            Group of each row, passed to ``cv``; with a number of folds, rows of one group stay together.
        """
        with all_or_nothing(self):
            data = self._check_fit(X, y, sample_weight)
            self._fit(data, groups)
            self.classes_ = data.classes
        return self

    @abstractmethod
    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
        """Set the fitted attributes."""
