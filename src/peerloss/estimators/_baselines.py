"""MarginPerceptron (PAM) and CostSensitiveSVC (C-SVM): baselines of the paper, tuned on noisy labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import SGDClassifier
from sklearn.svm import SVC

from peerloss._classifier import MAX_REPEATS
from peerloss._progress import announce, phase, reporter
from peerloss._random import RandomState, as_generator
from peerloss._validation import as_float_array, check_choice, check_count, check_finite, check_in_range
from peerloss.estimators.folds import FoldClassifier, held_out_folds
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score
from peerloss.posterior.calibrator import Calibrator, as_score_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray

#: The grids in the code of the paper.
MARGINS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
CLASS_WEIGHTS = (0.1, 0.2, 0.25, 0.33, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)


class _TunedClassifier(FoldClassifier):
    """A classifier with one setting, chosen from a grid by the peer score on held-out noisy labels."""

    cv: Any
    scoring_alpha: float
    random_state: RandomState
    _usual_weights = (1.0 / MAX_REPEATS, MAX_REPEATS)

    def _tune(self, data: FitInput, groups: ArrayLike | None) -> tuple[float, Any]:
        """Return the best setting and the model trained with it; set ``scores_`` and the calibrator."""
        alpha = check_finite(self.scoring_alpha, "scoring_alpha")
        grid = self._check_grid()
        seed = int(as_generator(self.random_state).integers(2**31 - 1))
        scores = np.zeros((len(grid), len(data.codes), len(data.classes)))
        folds = held_out_folds(self.cv, data, seed=seed, groups=groups)
        with phase("comparing settings", 0.0, 0.97):
            report = reporter(len(folds) * len(grid))
            for number, (train, test) in enumerate(folds):
                for i, setting in enumerate(grid):
                    model = self._train(data, train, setting, seed)
                    scores[i, test] = as_score_columns(model.decision_function(data.X[test]))
                    report(number * len(grid) + i + 1)
        announce("fitting to all rows", 0.97)
        options: dict[str, Any] = {"alpha": alpha, "sample_weight": data.weight}
        self.scores_ = np.array([peer_score(data.codes, p, **options) for p in scores.argmax(axis=2)])
        best = min(range(len(grid)), key=lambda i: (-self.scores_[i], self._tie_break(float(grid[i]))))
        rows = np.flatnonzero(data.weight > 0)
        self._calibrator = Calibrator.fit(
            scores[best][rows], data.codes[rows], data.weight[rows], with_bias=False
        )
        return float(grid[best]), self._train(data, rows, grid[best], seed)

    @abstractmethod
    def _check_grid(self) -> FloatArray:
        """Check the parameters and return the settings to try."""

    @abstractmethod
    def _train(self, data: FitInput, rows: IntArray, setting: float, seed: int) -> Any:
        """Return a model of scikit-learn, trained on these rows."""

    def _tie_break(self, setting: float) -> float:  # noqa: ARG002 - the first of equally good settings
        return 0.0


class MarginPerceptron(_TunedClassifier):
    """PAM (Khardon and Wachman, 2007), a baseline that the paper describes.

    For one row after another, ``w += y·x`` and ``b += y`` if ``y(w·x + b) ≤ margin``. The margin is chosen
    from ``margin_grid``: the one whose held-out predictions agree best with the noisy labels. More than two
    classes are separated one against the rest.

    Parameters
    ----------
    margin_grid
        Margins to try, in units of the features; 0 is the perceptron. The first of equally good margins is
        chosen.
    n_epochs
        Passes over the rows.
    average
        The weights to predict with: ``"last"``, as in the code of the paper, or ``"averaged"`` over all
        steps, which varies less.
    shuffle
        Whether each pass visits the rows in a random order.
    cv
        Number of stratified folds, a splitter, or an iterable of index pairs.
    scoring_alpha
        α of the peer score that compares candidates on held-out noisy labels: 0 is noisy accuracy, 1 orders
        by balanced accuracy for two classes.
    random_state
        Seed of the folds and of the order of the rows.
    verbose
        Whether ``fit`` shows its progress on stderr: phase, percentage, elapsed time, time left.

    Attributes
    ----------
    classes_
        The labels as given, sorted.
    coef_, intercept_
        Weights and intercepts, (1, d) and (1,) for two classes, (K, d) and (K,) for more.
    margin_
        The chosen margin.
    scores_
        The held-out noisy peer score of each margin in the grid.

    Notes
    -----
    The passes run in compiled code: the hinge loss max(0, 1 − y·f) has the subgradient −y·x if y·f ≤ 1, so
    scikit-learn's stochastic gradient descent with the constant rate 1/margin is this algorithm for w/margin.
    ``predict_proba`` is the softmax of the scores times a slope fitted to held-out noisy labels. Its argmax
    is the decision of the perceptron.

    References
    ----------
    R. Khardon, G. Wachman: *Noise tolerant variants of the perceptron algorithm*, JMLR 8, 2007.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> MarginPerceptron(random_state=0).fit(X, X[:, 0] > 0).predict([[1.5, 0.0], [-1.5, 0.0]])
    array([ True, False])
    """

    def __init__(
        self,
        *,
        margin_grid: Sequence[float] = MARGINS,
        n_epochs: int = 10,
        average: str = "last",
        shuffle: bool = True,
        cv: Any = 5,
        scoring_alpha: float = 0.0,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.margin_grid = margin_grid
        self.n_epochs = n_epochs
        self.average = average
        self.shuffle = shuffle
        self.cv = cv
        self.scoring_alpha = scoring_alpha
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
        self.margin_, model = self._tune(data, groups)
        self.coef_, self.intercept_ = model.coef_, model.intercept_

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return w·x + b, shape (n,) for two classes and (n, K) for more."""
        decision: FloatArray = self._check_predict(X) @ self.coef_.T + self.intercept_
        return decision.ravel() if len(self.classes_) == 2 else decision

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the softmax of the scores times the fitted slope, shape (n, K)."""
        scores = as_score_columns(self.decision_function(X))
        return self._calibrator.proba(scores)

    def _check_grid(self) -> FloatArray:
        check_count(self.n_epochs, "n_epochs")
        check_choice(self.average, "average", ("last", "averaged"))
        grid = as_float_array(np.asarray(self.margin_grid), "margin_grid", ndim=1)
        if (grid < 0).any():
            raise InvalidInputError(
                f"`margin_grid` must contain margins of at least 0; got {grid.min():g}. 0 is the perceptron."
            )
        return grid

    def _train(self, data: FitInput, rows: IntArray, setting: float, seed: int) -> SGDClassifier:
        unit = setting if setting > 0 else 1.0
        model = SGDClassifier(
            loss="hinge" if setting > 0 else "perceptron",  # perceptron: update if y·f ≤ 0
            penalty=None,
            learning_rate="constant",
            eta0=1.0 / unit,
            max_iter=self.n_epochs,
            tol=None,
            shuffle=bool(self.shuffle),
            average=self.average == "averaged",
            random_state=seed,
        )
        model.fit(data.X[rows], data.codes[rows], sample_weight=data.weight[rows])
        model.coef_, model.intercept_ = unit * model.coef_, unit * model.intercept_
        return model


class CostSensitiveSVC(_TunedClassifier):
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
    verbose
        Whether ``fit`` shows its progress on stderr: phase, percentage, elapsed time, time left.

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
    the noisy label. Its argmax is the decision of the SVM.

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
        verbose: bool = False,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.class_weight_grid = class_weight_grid
        self.cv = cv
        self.scoring_alpha = scoring_alpha
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
        if len(data.classes) > 2:
            raise InvalidInputError(
                "Only binary classification is supported. The type of the target is multiclass: `y` must "
                f"have two classes for CostSensitiveSVC; got {len(data.classes)}. Wrap it in "
                "sklearn.multiclass.OneVsRestClassifier, or use MarginPerceptron or PeerPlugInClassifier."
            )
        self.class_weight_, self.svc_ = self._tune(data, groups)

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

    def _train(self, data: FitInput, rows: IntArray, setting: float, seed: int) -> SVC:  # noqa: ARG002
        model = SVC(C=self.C, gamma=self.gamma, tol=self.tol, class_weight={0: 1.0, 1: float(setting)})
        return model.fit(data.X[rows], data.codes[rows], sample_weight=data.weight[rows])

    def _tie_break(self, setting: float) -> float:
        return abs(float(np.log(setting)))
