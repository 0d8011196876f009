"""CostSensitiveSVC: an RBF support vector machine (C-SVM), its class weight tuned on noisy labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit
from sklearn.svm import SVC

from peerloss._random import RandomState, as_generator
from peerloss._validation import FloatArray, as_float_array, check_finite, check_in_range
from peerloss.estimators.folds import FoldClassifier, held_out_folds
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score
from peerloss.posterior.calibrator import Calibrator, as_score_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput

#: The grid in the code of the paper.
CLASS_WEIGHTS = (0.1, 0.2, 0.25, 0.33, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)


class CostSensitiveSVC(FoldClassifier):
    """C-SVM (Liu et al., 2003), a baseline of the paper: two classes, one of them reweighted.

    The weight of class 0 is 1. The weight of class 1 (the larger label) is chosen from ``class_weight_grid``:
    the one whose held-out predictions agree best with the noisy labels. The kernel is RBF with γ = 1/d. The
    code of the paper contains this tuning but never runs it.

    Parameters
    ----------
    C
        Inverse of the regularisation strength.
    gamma
        Coefficient γ of the kernel: ``"auto"`` (1/d), ``"scale"`` or a positive number.
    class_weight_grid
        Weights of class 1 to try; the nearest to 1 of equally good weights is chosen.
    cv
        Number of stratified folds, a splitter, or an iterable of index pairs.
    scoring_alpha
        α of the peer score that compares candidates on held-out noisy labels: 0 is noisy accuracy, 1 orders
        by balanced accuracy.
    tol
        Tolerance of the solver's stopping criterion.
    random_state
        Seed of the folds.

    Attributes
    ----------
    classes_
        The two labels as given, sorted.
    svc_
        The fitted ``sklearn.svm.SVC``.
    class_weight_
        The chosen weight of class 1.
    scores_
        The held-out noisy peer score of each weight in the grid.

    Notes
    -----
    ``predict_proba`` is σ(slope · decision) with a slope fitted to held-out noisy labels: a probability of
    the noisy label. Its argmax is the decision of the machine.

    References
    ----------
    B. Liu, Y. Dai, X. Li, W. S. Lee, P. S. Yu: *Building text classifiers using positive and unlabeled
    examples*, ICDM 2003.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> CostSensitiveSVC(random_state=0).fit(X, X[:, 0] > 0).predict([[1.5, 0.0], [-1.5, 0.0]])
    array([ True, False])
    """

    svc_: SVC
    class_weight_: float
    scores_: FloatArray

    def __init__(
        self,
        *,
        C: float = 1.0,
        gamma: str | float = "auto",
        class_weight_grid: Sequence[float] = CLASS_WEIGHTS,
        cv: Any = 5,
        scoring_alpha: float = 0.0,
        tol: float = 1e-3,
        random_state: RandomState = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.class_weight_grid = class_weight_grid
        self.cv = cv
        self.scoring_alpha = scoring_alpha
        self.tol = tol
        self.random_state = random_state

    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
        if len(data.classes) > 2:
            raise InvalidInputError(
                "Only binary classification is supported. The type of the target is multiclass: `y` must "
                f"have two classes for CostSensitiveSVC; got {len(data.classes)}. Wrap it in "
                "sklearn.multiclass.OneVsRestClassifier, or use MarginPerceptron or PeerPlugInClassifier."
            )
        alpha = check_finite(self.scoring_alpha, "scoring_alpha")
        grid = self._check_grid()
        decisions = self._held_out_decisions(data, grid, groups)
        self.scores_ = np.array(
            [peer_score(data.codes, d > 0, alpha=alpha, sample_weight=data.weight) for d in decisions]
        )
        best = min(range(len(grid)), key=lambda i: (-self.scores_[i], abs(np.log(grid[i]))))
        self.class_weight_ = float(grid[best])
        rows = np.flatnonzero(data.weight > 0)
        self.svc_ = self._fit_machine(data, rows, self.class_weight_)
        self._calibrator = Calibrator.fit(
            as_score_columns(decisions[best][rows]), data.codes[rows], data.weight[rows], with_bias=False
        )

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return signed distances, positive for the larger label, shape (n,)."""
        features = self._check_predict(X)
        decision: FloatArray = self.svc_.decision_function(features)
        return decision

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return σ(∓ slope · decision), shape (n, 2)."""
        decision = self.decision_function(X)
        log_odds = decision * self._calibrator.slope / self._calibrator.scale
        return np.column_stack([expit(-log_odds), expit(log_odds)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _check_grid(self) -> FloatArray:
        check_in_range(self.C, "C", 0.0, np.inf, low_open=True)
        check_in_range(self.tol, "tol", 0.0, np.inf, low_open=True)
        if not (isinstance(self.gamma, str) and self.gamma in {"auto", "scale"}):
            check_in_range(self.gamma, "gamma", 0.0, np.inf, low_open=True)
        grid = as_float_array(np.asarray(self.class_weight_grid), "class_weight_grid", ndim=1)
        if (grid <= 0).any():
            raise InvalidInputError(f"`class_weight_grid` must contain positive weights; got {grid.min():g}.")
        return grid

    def _held_out_decisions(self, data: FitInput, grid: FloatArray, groups: ArrayLike | None) -> FloatArray:
        seed = int(as_generator(self.random_state).integers(2**31 - 1))
        decisions = np.zeros((len(grid), len(data.codes)))
        for train, test in held_out_folds(self.cv, data, seed=seed, groups=groups):
            for i, class_weight in enumerate(grid):
                machine = self._fit_machine(data, train, class_weight)
                decisions[i, test] = machine.decision_function(data.X[test])
        return decisions

    def _fit_machine(self, data: FitInput, rows: Any, class_weight: float) -> SVC:
        machine = SVC(C=self.C, gamma=self.gamma, tol=self.tol, class_weight={0: 1.0, 1: float(class_weight)})
        return machine.fit(data.X[rows], data.codes[rows], sample_weight=data.weight[rows])
