"""Error rates that depend on the row, from the disagreement of annotators or from the margin of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import isotonic_regression

from peerloss._random import as_generator
from peerloss._validation import (
    FloatArray,
    as_float_array,
    as_labels,
    check_count,
    check_magnitude,
    check_same_length,
)
from peerloss.exceptions import InvalidInputError
from peerloss.posterior.report_agreement import count_votes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._random import RandomState

#: Size of the forest that predicts disagreement, and the least number of rows in a leaf.
N_TREES, LEAF_ROWS = 200, 20


def row_rates_from_annotators(
    X: ArrayLike, reports: ArrayLike, *, n_classes: int | None = None, random_state: RandomState = None
) -> FloatArray:
    """Estimate the probability that an annotator's label of a row is wrong, from their disagreement.

    Two annotators who err independently, with probability e(x) and equally often to each wrong class,
    disagree with probability ``D(x) = 2e − e²·K/(K − 1)``. A random forest regresses the share of disagreeing
    pairs on the features, and the out-of-bag prediction of D is solved for the smaller e. No clean labels and
    no aggregated labels are used, so the errors of an aggregate do not count as errors of the annotators.

    Parameters
    ----------
    X
        Features, shape (n, d).
    reports
        Class codes 0..K-1, one column per annotator, shape (n, m); −1 if an annotator did not label the row.
    n_classes
        K; by default the largest code plus one, at least two.
    random_state
        Seed of the forest.

    Returns
    -------
    e(x_n), shape (n,), at most (K − 1)/K. Annotators who copy from each other, or who are misled by the same
    rows, disagree less: then the rates are too small.

    Raises
    ------
    InvalidInputError
        If fewer than 40 rows have two reports.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 1))
    >>> wrong = rng.random((2000, 3)) < np.where(X > 0, 0.3, 0.05)
    >>> rates = row_rates_from_annotators(X, wrong.astype(int), random_state=0)  # the clean class is 0
    >>> float(rates[X[:, 0] > 0].mean().round(1)), float(rates[X[:, 0] < 0].mean().round(1))
    (0.3, 0.1)
    """
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 (slow to import)

    features = as_float_array(X, "X", ndim=2)
    check_magnitude(features)
    votes = count_votes(reports, n_classes)
    check_same_length(X=features, reports=votes)
    k, total = votes.shape[1], votes.sum(axis=1)
    several = total >= 2
    if several.sum() < 2 * LEAF_ROWS:
        raise InvalidInputError(
            f"`reports` must have at least {2 * LEAF_ROWS} rows with two or more labels; got {several.sum()}"
            ". For one label per row use row_rates_from_margins."
        )
    pairs = total * (total - 1)
    disagreement = 1.0 - (votes * (votes - 1)).sum(axis=1)[several] / pairs[several]
    seed = int(as_generator(random_state, stream="peerloss.row_rates").integers(2**31))
    forest = RandomForestRegressor(N_TREES, min_samples_leaf=LEAF_ROWS, oob_score=True, random_state=seed)
    forest.fit(features[several], disagreement, sample_weight=total[several] - 1.0)
    predicted = np.empty(len(features))
    predicted[several] = forest.oob_prediction_
    if not several.all():
        predicted[~several] = forest.predict(features[~several])
    c = k / (k - 1)
    return np.asarray((1.0 - np.sqrt(1.0 - np.clip(c * predicted, 0.0, 1.0))) / c)


def row_rates_from_margins(probabilities: ArrayLike, labels: ArrayLike) -> FloatArray:
    """Estimate how often labels are wrong as a decreasing function of the margin of a model.

    The margin of a row is the largest probability minus the second largest. Labels that differ from the
    predicted class count as wrong, and the rate is their isotonic regression on the margin.

    Parameters
    ----------
    probabilities
        Predictions (n, K) of models that have not seen the label of the row (out of fold).
    labels
        Noisy labels (n,).

    Returns
    -------
    The rates, shape (n,), at most (K − 1)/K. The errors of the model count as errors of the labels. So the
    rates are too large where the classes overlap, and right only if the model predicts the clean class.

    Examples
    --------
    >>> proba = [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]]
    >>> row_rates_from_margins(proba, [0, 0, 0, 1]).tolist()
    [0.0, 0.0, 0.5, 0.5]
    """
    table = as_float_array(probabilities, "probabilities", ndim=2)
    k = table.shape[1]
    if k < 2:
        raise InvalidInputError(
            f"`probabilities` must have one column per class, at least 2; got shape {table.shape}."
        )
    codes = as_labels(labels, "labels", n_classes=k)
    check_same_length(probabilities=table, labels=codes)
    top_two = np.partition(table, k - 2, axis=1)[:, -2:]
    _, place = np.unique(top_two[:, 1] - top_two[:, 0], return_inverse=True)
    rows = np.bincount(place).astype(float)
    wrong = np.bincount(place, weights=(table.argmax(axis=1) != codes)) / rows
    rates = isotonic_regression(wrong, weights=rows, increasing=False).x
    return np.asarray(np.minimum(rates, (k - 1) / k)[place])


def row_transitions(rates: ArrayLike, n_classes: int) -> FloatArray:
    """Return T(x_n), shape (n, K, K): errors with the rate of the row, equally often to each wrong class.

    Parameters
    ----------
    rates
        P(noisy ≠ clean) of each row, shape (n,).
    n_classes
        K.

    Examples
    --------
    >>> row_transitions([0.2], 3).round(2).tolist()
    [[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]]
    """
    errors = as_float_array(rates, "rates", ndim=1)
    k = check_count(n_classes, "n_classes", minimum=2)
    if ((errors < 0) | (errors > 1)).any():
        raise InvalidInputError(
            f"`rates` must lie in [0, 1]; got values from {errors.min():g} to {errors.max():g}."
        )
    wrong = (errors / (k - 1))[:, None, None]
    return np.asarray(wrong + (1.0 - k * wrong) * np.eye(k))
