"""MarginPerceptron: the perceptron algorithm with margin (PAM), tuned on noisy labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import SGDClassifier

from peerloss._random import RandomState, as_generator
from peerloss._validation import FloatArray, as_float_array, check_choice, check_count, check_finite
from peerloss.estimators.folds import FoldClassifier, held_out_folds
from peerloss.exceptions import InvalidInputError
from peerloss.metrics import peer_score
from peerloss.posterior.calibrator import Calibrator, as_score_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput
    from peerloss._validation import IntArray

#: The grid in the code of the paper.
MARGINS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0)
AVERAGES = ("last", "averaged")


class MarginPerceptron(FoldClassifier):
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
        The hypothesis that predicts: ``"last"``, as in the code of the paper, or ``"averaged"`` over all
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
    The passes are compiled: the hinge loss max(0, 1 − y·f) has the subgradient −y·x if y·f ≤ 1, so
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

    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
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
                f"`margin_grid` must contain margins of at least 0; got {grid.min():g}. 0 is the perceptron."
            )
        return grid

    def _run(self, data: FitInput, rows: IntArray, margin: float, seed: int) -> tuple[FloatArray, FloatArray]:
        """Run the algorithm from zero weights; return (coef, intercept)."""
        machine = SGDClassifier(
            loss="hinge" if margin > 0 else "perceptron",  # perceptron: update if y·f ≤ 0
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
