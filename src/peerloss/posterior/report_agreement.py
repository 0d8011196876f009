"""Test whether the noise depends on the row, from the agreement of several labels per row.

Let h_a(x) = P(report = a | x) and P_ab(x) = P(two reports on a row are a and b | x). If the noise is
class-conditional, h_a = Σ_k η_k·T[k, a] and P_ab = Σ_k η_k·T[k, a]·T[k, b], where η(x) = P(clean | x). If T
is invertible, η is a linear function of h. So P_ab is a *linear* function of h, with the same coefficients
c_ab in all rows. This holds for every η, also if classes overlap, and for annotators of different quality,
as long as who labels a row does not depend on its features.

The shares of the reports of a row and of its pairs estimate h and P_ab without bias, so
``u = pairs − shares @ c`` has mean 0 given x. This is a moment condition of instrumental variables. The
instruments are predictions of h by a forest that has not seen the row. c is estimated with them, and the
condition is refused if one more function of the features is correlated with u (the over-identification test
of Sargan and Hansen). Three such functions are tried: a forest's prediction of disagreement, its predictions
of all pairs, and ĥ_a·ĥ_b, which is P_ab if the class of a row is certain.

One label per row does not suffice. Take any P(x, noisy label), and let the noisy label be the clean one: this
is a world without noise and with the same distribution of what is observed. So a test that refuses true
class-conditional noise with probability at most p refuses any other noise with probability at most p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from peerloss._random import as_generator
from peerloss._validation import FloatArray, as_float_array, check_count, check_magnitude, check_same_length
from peerloss.exceptions import InvalidInputError
from peerloss.posterior.decision import LEVEL

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._random import RandomState
    from peerloss._validation import IntArray

#: Rows with two or more labels that the test needs, and the number of rows that it uses at most.
MIN_ROWS, MAX_ROWS = 100, 10_000
#: Rows times pairs of classes that it uses at most: with 26 classes 2,849 rows.
MAX_PAIRS = 1_000_000
#: Size of the forests, least number of rows in a leaf, share of the features that a split may use.
N_TREES, LEAF_ROWS, FEATURE_SHARE = 50, 10, 0.5
#: Number of times that the rows are divided into two halves. Each half tests what the other one learned.
N_SPLITS = 2
#: Sums of squares below this are rounding errors.
ROUNDING = 1e-9


@dataclass(frozen=True)
class RowNoiseCheck:
    """Result of :func:`check_row_noise`."""

    p_value: float
    """P-value of the hypothesis that the noise is class-conditional."""
    n_rows: int
    """Number of rows with two or more labels that were used."""
    disagreement: float
    """Share of pairs of labels that differ, averaged over these rows."""

    @property
    def refused(self) -> bool:
        """Whether class-conditional noise is refused (``p_value`` < .01).

        ``False`` is not a proof: with few rows, or if the features do not show which rows are difficult, the
        test has little power.
        """
        return self.p_value < LEVEL

    def __str__(self) -> str:
        tested = f"p = {self.p_value:.2g}, {self.n_rows:,} rows with two or more labels"
        if not self.refused:
            return f"Class-conditional noise is not refused ({tested}). This is not a proof."
        return (
            f"The noise depends on the row ({tested}): annotators disagree more on some rows than noise that "
            "depends on the true class alone allows. Estimated noise rates are averages over rows. Train on "
            "all labels of a row, as soft labels, and get more labels of rows on which annotators disagree."
        )


def check_row_noise(
    X: ArrayLike, reports: ArrayLike, *, n_classes: int | None = None, random_state: RandomState = None
) -> RowNoiseCheck:
    """Test whether the noise depends on the row, from two or more labels per row.

    Under class-conditional noise the probability of each pair of labels is a linear function of the
    probabilities of single labels. The test is whether the features say more about pairs than this function
    does. Clean labels are not needed, and classes may overlap.

    Parameters
    ----------
    X
        Features, shape (n, d). Out-of-fold probabilities of the labels also serve.
    reports
        Class codes 0..K-1, one column per annotator, shape (n, m); −1 if an annotator did not label the row.
        It must not depend on the features who labels a row, and annotators must not copy from each other.
    n_classes
        K; by default the largest code plus one, at least two.
    random_state
        Seed of the forests and of the split into halves.

    Returns
    -------
    RowNoiseCheck
        With ``refused``, ``p_value``, and advice if it is printed.

    Raises
    ------
    InvalidInputError
        If fewer than 100 rows have two labels.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(1000, 2))
    >>> clean = (X[:, :1] > 0).astype(int)
    >>> by_class = rng.random((1000, 2)) < 0.1 + 0.2 * clean
    >>> near_boundary = rng.random((1000, 2)) < 0.5 * np.exp(-2 * np.abs(X[:, :1]))
    >>> [check_row_noise(X, clean ^ wrong, random_state=0).refused for wrong in (by_class, near_boundary)]
    [False, True]
    """
    features = as_float_array(X, "X", ndim=2)
    check_magnitude(features)
    votes = count_votes(reports, n_classes)
    check_same_length(X=features, reports=votes)
    found = check_votes(features, votes, random_state=random_state)
    if found is None:
        raise InvalidInputError(
            f"`reports` must have at least {MIN_ROWS} rows with two or more labels; got "
            f"{(votes.sum(axis=1) >= 2).sum()}. Have some rows labelled again: one label per row cannot show "
            "whether the noise depends on the row."
        )
    return found


def check_votes(
    features: FloatArray, votes: IntArray, *, random_state: RandomState = None
) -> RowNoiseCheck | None:
    """Return the result of :func:`check_row_noise` for counted votes (n, K); ``None`` for too few rows."""
    several = np.flatnonzero(votes.sum(axis=1) >= 2)
    if len(several) < MIN_ROWS:
        return None
    rng = as_generator(random_state, stream="peerloss.row_noise")
    n_used = int(votes[several].any(axis=0).sum())
    limit = min(MAX_ROWS, MAX_PAIRS // len(_same(n_used)))
    if len(several) > limit:
        several = np.sort(rng.choice(several, max(limit, MIN_ROWS), replace=False))
    features, votes = features[several], votes[several]
    # Classes without a label change nothing, but the number of pairs grows with the square of their number.
    votes = votes[:, votes.any(axis=0)]
    total = votes.sum(axis=1)
    shares, pairs, weight = votes / total[:, None], pair_shares(votes), total - 1.0
    p_values = []
    for _ in range(N_SPLITS):
        half = rng.permutation(len(votes)) < len(votes) // 2
        for train in (half, ~half):
            p_values += _p_values(features, shares, pairs, weight, train, rng)
    is_mixed = ~_same(votes.shape[1])
    disagreement = float((pairs[:, is_mixed] * np.sqrt(2.0)).sum(axis=1).mean())
    return RowNoiseCheck(cauchy_combination(np.array(p_values)), len(votes), disagreement)


def count_votes(reports: ArrayLike, n_classes: int | None = None) -> IntArray:
    """Return how many annotators gave each label to each row, (n, K), from class codes (n, m)."""
    table = as_float_array(reports, "reports", ndim=2, advice="Use -1 where an annotator gave no label.")
    codes = table.astype(np.int64)
    if (codes != table).any() or (codes < -1).any():
        raise InvalidInputError(
            "`reports` must hold class codes 0..K-1, or -1 if an annotator did not label the row; found "
            f"{table[(codes != table) | (codes < -1)][0]:g}."
        )
    k = max(2, int(codes.max()) + 1)
    if n_classes is not None:
        k = check_count(n_classes, "n_classes", minimum=k)
    return np.stack([(codes == label).sum(axis=1) for label in range(k)], axis=1)


def pair_shares(votes: IntArray) -> FloatArray:
    """Return the shares of the pairs of labels of each row, (n, K(K + 1)/2), for counted votes (n, K).

    Columns are those of the upper triangle. Pairs of different labels count once and are multiplied by √2, so
    that the inner product of two rows is that of the (K, K) matrices.

    Examples
    --------
    >>> pair_shares(np.array([[2, 1]])).round(3).tolist()  # labels 0, 0 and 1: one pair of three agrees
    [[0.333, 0.471, 0.0]]
    """
    first, second = np.triu_indices(votes.shape[1])
    same, total = _same(votes.shape[1]), votes.sum(axis=1)[:, None]
    ordered = votes[:, first] * (votes[:, second] - same)
    return np.asarray(ordered / (total * (total - 1)) * np.where(same, 1.0, np.sqrt(2.0)))


def cauchy_combination(p_values: FloatArray) -> float:
    """Return one p-value for several dependent tests (Liu and Xie, 2020).

    Examples
    --------
    >>> round(cauchy_combination(np.array([0.001, 0.5, 0.9])), 4)
    0.003
    """
    angles = np.tan((0.5 - np.clip(p_values, 1e-15, 1.0 - 1e-15)) * np.pi)
    return float(0.5 - np.arctan(angles.mean()) / np.pi)


def _same(k: int) -> Any:
    """Return which columns of :func:`pair_shares` are pairs of equal labels."""
    first, second = np.triu_indices(k)
    return first == second


def _p_values(
    X: FloatArray, shares: FloatArray, pairs: FloatArray, weight: FloatArray, train: Any, rng: Any
) -> list[float]:
    """Return the p-values of the three tests on the rows that the forests are not trained on."""
    k, test = shares.shape[1], ~train
    first, second = np.triu_indices(k)
    scale = np.where(_same(k), 1.0, np.sqrt(2.0))
    differ = pairs[:, ~_same(k)].sum(axis=1, keepdims=True) * np.sqrt(2.0)
    predicted = _forest(X, np.column_stack([shares, differ]), weight, train, rng)
    predicted_pairs = _forest(X, pairs, weight, train, rng)
    h = predicted[:, :k]
    data = shares[test], weight[test], h
    z_values = (
        _z_value(*data, differ[test], predicted[:, k:]),
        _z_value(*data, pairs[test], predicted_pairs),
        _z_value(*data, pairs[test], h[:, first] * h[:, second] * scale),
    )
    return [float(norm.sf(z)) for z in z_values]


def _forest(X: FloatArray, outcome: FloatArray, weight: FloatArray, train: Any, rng: Any) -> FloatArray:
    """Return the predictions of a forest for the rows that it is not trained on."""
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 (slow to import)

    forest = RandomForestRegressor(
        N_TREES,
        min_samples_leaf=LEAF_ROWS,
        max_features=FEATURE_SHARE,
        random_state=int(rng.integers(2**31)),
    )
    forest.fit(X[train], outcome[train], sample_weight=weight[train])
    return np.asarray(forest.predict(X[~train])).reshape(-1, outcome.shape[1])


def _z_value(
    shares: FloatArray, weight: FloatArray, h: FloatArray, outcome: FloatArray, extra: FloatArray
) -> float:
    """Return whether ``extra`` predicts what is left of ``outcome`` after its linear function of the shares.

    The coefficients are estimated with the instruments ``h``. From ``extra``, the part that these instruments
    explain is removed, so that the error of the coefficients has no first-order effect. Several outcomes are
    summed within a row, and the sum over rows is divided by its heteroskedasticity-robust standard error.
    """
    weighted = h * weight[:, None]
    solve = np.linalg.lstsq
    coefficients = solve(weighted.T @ shares, weighted.T @ outcome, rcond=1e-6)[0]
    residuals = outcome - shares @ coefficients
    explained = weighted @ solve(shares.T @ weighted, shares.T @ (weight[:, None] * extra), rcond=1e-6)[0]
    row = ((weight[:, None] * extra - explained) * residuals).sum(axis=1)
    error = float(np.sqrt((row**2).sum()))
    return 0.0 if error < ROUNDING else float(row.sum()) / error
