"""PAM: the perceptron algorithm with margin, tuned on noisy labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.linear_model import SGDClassifier

from peerloss._classifier import FitInput, NoisyLabelClassifier, all_or_nothing
from peerloss._random import RandomState, as_generator
from peerloss._validation import FloatArray, as_float_array, check_choice, check_count, check_finite
from peerloss.estimators._folds import held_out_folds
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score
from peerloss.posterior.calibrator import Calibrator, as_score_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss._validation import IntArray

#: The grid of the paper's code.
MARGINS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
AVERAGES = ("last", "averaged")


class MarginPerceptron(NoisyLabelClassifier):
    """PAM (Khardon and Wachman, 2007), a baseline that the paper describes.

    One row after another, ``w += y·x`` and ``b += y`` wherever ``y(w·x + b) ≤ margin``. The margin is the one
    of ``margin_grid`` whose held-out predictions agree best with the noisy labels. More than two classes are
    told apart one against the rest.

    Parameters
    ----------
    margin_grid
        Margins to try, in units of the features; 0 is the perceptron. Of equally good ones the first is
        taken.
    n_epochs
        Passes over the rows.
    average
        Which hypothesis predicts: ``"last"``, as in the paper's code, or ``"averaged"`` over all steps,
        which is the steadier one.
    shuffle
        Whether each pass takes the rows in a random order.
    cv
        Number of stratified folds, a splitter, or an iterable of index pairs.
    scoring_alpha
        α of the peer score that compares margins: 0 is noisy accuracy, 1 orders by balanced
        accuracy (two classes).
    random_state
        Seed of the folds and of the orders.

    Attributes
    ----------
    classes_
        The labels as given, sorted.
    coef_, intercept_
        The hypothesis, (1, d) and (1,) for two classes and (K, d) and (K,) for more.
    margin_
        The chosen margin.
    scores_
        The held-out noisy peer score of each margin in the grid.

    Notes
    -----
    The passes are compiled: hinge loss max(0, 1 − y·f) has the subgradient −y·x where y·f ≤ 1, so that
    scikit-learn's stochastic gradient with the constant rate 1/margin is this algorithm for w/margin.
    ``predict_proba`` is the softmax of the scores times a slope fitted to held-out noisy labels; its argmax
    is the perceptron's decision.

    References
    ----------
    R. Khardon, G. Wachman: *Noise tolerant variants of the perceptron algorithm*, JMLR 8, 2007.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> MarginPerceptron(random_state=0).fit(X, X[:, 0] > 0).predict([[1.5, 0.0], [-1.5, 0.0]])
    array([ True, False])
    """

    coef_: FloatArray
    intercept_: FloatArray
    margin_: float
    scores_: FloatArray

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
    ) -> None:
        self.margin_grid = margin_grid
        self.n_epochs = n_epochs
        self.average = average
        self.shuffle = shuffle
        self.cv = cv
        self.scoring_alpha = scoring_alpha
        self.random_state = random_state

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
            Features, best standardised, and noisy labels of any dtype.
        sample_weight
            Non-negative weights of the rows, which multiply their updates.
        groups
            Group of each row, passed to ``cv``; with a number of folds, rows of one group stay together.
        """
        with all_or_nothing(self):
            data = self._check_fit(X, y, sample_weight)
            alpha = check_finite(self.scoring_alpha, "scoring_alpha")
            grid = self._check_grid()
            seed = int(as_generator(self.random_state).integers(2**31 - 1))
            scores = np.zeros((len(grid), len(data.codes), len(data.classes)))
            for train, test in held_out_folds(self.cv, data, seed=seed, groups=groups):
                for i, margin in enumerate(grid):
                    coef, intercept = self._run(data, train, margin, seed)
                    scores[i, test] = _score_columns(data.X[test], coef, intercept)
            predicted = scores.argmax(axis=2)
            self.scores_ = np.array(
                [peer_score(data.codes, p, alpha=alpha, sample_weight=data.weight) for p in predicted]
            )
            best = int(self.scores_.argmax())
            self.margin_ = float(grid[best])
            rows = np.flatnonzero(data.weight > 0)
            self.coef_, self.intercept_ = self._run(data, rows, self.margin_, seed)
            self._calibrator = Calibrator.fit(
                scores[best][rows], data.codes[rows], data.weight[rows], with_bias=False
            )
            self.classes_ = data.classes
        return self

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
        check_choice(self.average, "average", AVERAGES)
        grid = as_float_array(np.asarray(self.margin_grid), "margin_grid", ndim=1)
        if (grid < 0).any():
            raise InvalidInputError(
                f"`margin_grid` must hold margins of at least 0; got {grid.min():g}. 0 is the perceptron."
            )
        return grid

    def _run(self, data: FitInput, rows: IntArray, margin: float, seed: int) -> tuple[FloatArray, FloatArray]:
        """Run the algorithm from zero; returns (coef, intercept)."""
        machine = SGDClassifier(
            loss="hinge" if margin > 0 else "perceptron",  # perceptron: update where y·f ≤ 0
            penalty=None,
            learning_rate="constant",
            eta0=1.0 / margin if margin > 0 else 1.0,
            max_iter=self.n_epochs,
            tol=None,
            shuffle=bool(self.shuffle),
            average=self.average == "averaged",
            random_state=seed,
        )
        machine.fit(data.X[rows], data.codes[rows], sample_weight=data.weight[rows])
        unit = margin if margin > 0 else 1.0
        return unit * machine.coef_, unit * machine.intercept_


def _score_columns(X: FloatArray, coef: FloatArray, intercept: FloatArray) -> FloatArray:
    scores = X @ coef.T + intercept
    return as_score_columns(scores.ravel() if len(coef) == 1 else scores)
