"""A second round: fit the model to the clean posterior of the first one, and compute the posterior again.

A model of the noisy labels is trained on the errors that it should find. The second model is fitted, out of
fold again, to every class of a row in proportion to its posterior probability. It predicts the clean class
itself, and Bayes' rule with the noise of the first round gives the probability that a label is wrong. A third
round gained nothing on development sets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from peerloss._classifier import check_given_features
from peerloss._device import n_workers
from peerloss._probabilities import normalise_rows, take
from peerloss.exceptions import InvalidInputError
from peerloss.posterior.label_gain import expected_gain
from peerloss.posterior.label_posterior import decide_gold, likeliest_other, overlap_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerloss._validation import FloatArray, IntArray
    from peerloss.posterior.label_posterior import LabelPosterior

#: Classes of a row that are less probable than this are excluded from the fit.
MIN_PROBABILITY = 0.01
#: Predicted probabilities are kept this far from 0.
FLOOR = 1e-4


def check_refit(X: Any, estimator: Any) -> None:
    """Refuse a second round without features or without an estimator that accepts weights."""
    if X is None:
        raise InvalidInputError("`refit` needs the features; got `X=None`. Pass `X`, or use `refit=False`.")
    weight_argument(estimator)
    check_given_features(X, estimator)


def weight_argument(estimator: Any) -> str:
    """Return the name under which ``fit`` of the estimator accepts sample weights."""
    last, prefix = estimator, ""
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        prefix += f"{name}__"
    if last is None or not has_fit_parameter(last, "sample_weight"):
        raise InvalidInputError(
            "`refit` needs an `estimator` whose `fit` accepts `sample_weight`; "
            f"got {'none' if last is None else type(last).__name__}. Use another one, or `refit=False`."
        )
    return f"{prefix}sample_weight"


def with_refitted(
    found: LabelPosterior, refitted: FloatArray, codes: IntArray, gold: IntArray | None = None
) -> LabelPosterior:
    """Return the posterior with P(clean = k | x) from the second round, ``refitted``, (n, K)."""
    if not found.is_class_conditional or found.noise is None:
        return found
    posterior = normalise_rows(refitted * found.noise.transition.T[codes])
    other, p_other = likeliest_other(posterior, codes)
    second = replace(
        found,
        p_error=np.clip(1.0 - take(posterior, codes), 0.0, 1.0),
        likeliest_other=other,
        p_other=p_other,
        clean_given_label=lambda rows: posterior[rows].copy(),
        gain=expected_gain(posterior, found.noise.transition),
        overlap=overlap_of(refitted, len(codes)),
        refitted=refitted,
    )
    return second if gold is None else decide_gold(second, codes, gold)


def fit_to_posterior(
    targets: FloatArray,
    X: Any,
    estimator: Any,
    folds: Iterable[tuple[IntArray, IntArray]],
    n_jobs: int | None,
) -> FloatArray:
    """Predict the clean class out of fold, from fits to every probable class of each row."""
    argument = weight_argument(estimator)
    features = X.tocsr() if issparse(X) else X  # type: ignore[attr-defined]
    predicted = np.zeros_like(targets)

    def held_out(train: IntArray, test: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        row, label = np.nonzero(targets[train] >= MIN_PROBABILITY)
        rows = np.asarray(train)[row]
        weights = {argument: targets[rows, label]}
        model = clone(estimator).fit(_safe_indexing(features, rows), label, **weights)
        return test, model.classes_, model.predict_proba(_safe_indexing(features, test))

    splits = list(folds)
    workers = n_workers(n_jobs, len(splits))
    for test, classes, proba in Parallel(n_jobs=workers)(delayed(held_out)(*split) for split in splits):
        predicted[np.ix_(test, classes)] = proba
    if not predicted.any(axis=1).all():
        raise InvalidInputError("`cv` must hold out every row; some rows are in no held-out part.")
    return normalise_rows(predicted + FLOOR)
