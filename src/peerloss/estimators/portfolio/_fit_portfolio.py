"""Fit the portfolio: candidates with held-out probabilities, calibrated on them, weighted and averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from joblib.parallel import get_active_backend
from scipy.optimize import nnls

from peerloss._classifier import FitInput
from peerloss._device import n_workers, one_blas_thread
from peerloss._probabilities import as_rows
from peerloss._progress import announce, phase, tracker
from peerloss.estimators.portfolio._candidates import (
    candidate_models,
    features_for,
    fit_networks,
    is_boosting,
    is_forest,
    sparse_models,
)
from peerloss.estimators.portfolio._held_out_fits import (
    SHRINKAGES,
    common_rounds,
    fit_fold,
    fit_out_of_bag,
    fit_rounds,
    for_folds,
    join_folds,
    keep_rounds,
    n_folds_per_draw,
    shrink,
)
from peerloss.estimators.portfolio._kernel_ridge import (
    KernelRidge,
    KernelRidgeSettings,
    fit_kernel_ridge,
)
from peerloss.estimators.portfolio._spread_labels import SPREAD_LABELS, fit_spread_labels
from peerloss.posterior.calibrator import Calibrator, log_scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators.folds import Folds

#: Typical shares of the time of ``PeerClassifier.fit`` after which the models, and then the networks, are
#: fitted. The rest is calibration and the estimate of the noise.
MODELS_END, NETWORKS_END = 0.7, 0.92
#: Number of rows for which ``Averaging.ridge`` is given.
RIDGE_ROWS = 500
#: Candidates with a smaller weight are left out of the average.
MIN_WEIGHT = 0.01
#: The candidate that learns from rows without a label must improve the score by this many standard errors.
#: Its labels are guesses, and the choice of a weight by few labels is optimistic. The limit avoids losses of
#: up to .02 and gives up part of the gain (``docs/howto/partial-labels.md``).
MIN_GAIN = 1.5
#: Rows whose residuals are held in memory at a time.
_BLOCK_ROWS = 20_000


class Averaging(NamedTuple):
    """How candidates are calibrated and averaged (:func:`weigh`)."""

    rows_of_equal_trust: float
    """With this many rows, the two kinds of weights have the same share."""
    decay: float
    """A candidate t standard errors behind the best one has weight ∝ exp(−decay·t²)."""
    ridge: float
    """Penalty on the squared weights, which draws them to equal weights, for 500 rows; ∝ 1/√n."""
    bias_penalty: float
    """Penalty on the squared biases of a calibrated candidate, shared by the classes by their frequency."""


#: With more than two classes each label says more about a candidate. With few rows, biases of several
#: classes follow the noise of the labels; if many are wrong, probabilities are so flat that biases decide.
TWO_CLASSES = Averaging(rows_of_equal_trust=2000.0, decay=0.5, ridge=0.02, bias_penalty=0.0)
MORE_CLASSES = Averaging(rows_of_equal_trust=300.0, decay=1.0, ridge=0.006, bias_penalty=60.0)


def averaging(n_classes: int) -> Averaging:
    """Return the settings for a number of classes."""
    return TWO_CLASSES if n_classes == 2 else MORE_CLASSES


@dataclass(frozen=True)
class Member:
    """A candidate: its models, one per fold or one forest, and its calibration."""

    name: str
    models: list[Any]
    calibrator: Calibrator

    def proba(self, X: FloatArray, trees: FloatArray | None = None, wide: Any = None) -> FloatArray:
        """Return calibrated probabilities of the noisy label, the mean over the models, shape (n, K).

        ``trees`` are the features of a mixed table for trees, ``wide`` the sparse ones for linear models.
        """
        averaged = np.mean([m.predict_proba(features_for(m, X, trees, wide)) for m in self.models], axis=0)
        return self.calibrator.proba(log_scores(averaged))


class Fitted(NamedTuple):
    """A fitted candidate: its models and the held-out probabilities of all rows, (n, K)."""

    models: list[Any]
    proba: FloatArray
    shrinkage: float = 0.0
    """Penalty that is applied to forests if the candidate is used; each use needs a copy."""


@dataclass(frozen=True)
class Portfolio:
    """The fitted candidates."""

    fitted: dict[str, Fitted]
    """Candidates with a positive weight."""
    calibrators: list[Calibrator]
    weights: FloatArray
    """Their calibrations and weights, which sum to one."""
    oof_proba: FloatArray
    """Weighted average of the out-of-fold probabilities of the noisy label, (n, K)."""
    candidates: pd.DataFrame
    """One row per candidate that did not diverge: weight, brier, behind."""
    candidate_proba: list[FloatArray]
    """Out-of-fold probabilities of each row of ``candidates``, (n, K)."""
    diverged: tuple[str, ...]
    """Names of the networks that diverged."""

    def members(self) -> list[Member]:
        """Return the candidates with a positive weight, ready for new rows. Forests are copied and shrunk."""
        return [
            Member(name, [shrink(model, candidate.shrinkage) for model in candidate.models], calibrator)
            for (name, candidate), calibrator in zip(self.fitted.items(), self.calibrators, strict=True)
        ]


def fit_portfolio(
    data: FitInput,
    folds: Folds,
    *,
    seed: int,
    n_jobs: int | None,
    device: str,
    out_of_bag: bool = False,
    unlabelled: FloatArray | None = None,
) -> Portfolio:
    """Fit all candidates to the noisy labels of standardised features; ``folds`` may hold a row out twice.

    ``out_of_bag`` fits each forest once and uses its out-of-bag probabilities. It must be false if rows
    belong together, since a bootstrap sample may then contain a near copy of an out-of-bag row.
    ``unlabelled`` has standardised features of rows without a label, for one more candidate.
    """
    with phase("fitting models", 0.0, MODELS_END):
        fitted = _fit_models(data, folds, seed, n_jobs, out_of_bag=out_of_bag)
    with phase("training networks", MODELS_END, NETWORKS_END):
        networks = fit_networks(data, folds, seed=seed, device=device)
    fitted |= {name: _cross_fitted(folds, parts, data) for name, parts in networks.items() if parts}
    if unlabelled is not None:
        first_draw = folds[: n_folds_per_draw(folds)]
        if spread := fit_spread_labels(data, unlabelled, first_draw, seed=seed):
            fitted[SPREAD_LABELS] = _cross_fitted(first_draw, spread, data)
    announce("calibrating", NETWORKS_END)
    calibrators, held_out = [], []
    penalty, rows = averaging(len(data.classes)).bias_penalty, as_rows(data.weight)
    for candidate in fitted.values():
        scores = log_scores(candidate.proba)
        calibrators.append(Calibrator.fit(scores, data.codes, rows, bias_penalty=penalty))
        held_out.append(calibrators[-1].proba(scores))
    weights, brier, behind = weigh(held_out, data.codes, data.weight)
    if SPREAD_LABELS in fitted and not _last_clearly_helps(held_out, data):
        weights = np.append(weigh(held_out[:-1], data.codes, data.weight)[0], 0.0)
    return Portfolio(
        fitted={
            name: candidate for (name, candidate), w in zip(fitted.items(), weights, strict=True) if w > 0
        },
        calibrators=[calibrator for calibrator, w in zip(calibrators, weights, strict=True) if w > 0],
        weights=weights[weights > 0],
        oof_proba=_average(held_out, weights),
        candidates=pd.DataFrame(
            {"weight": weights, "brier": brier, "behind": behind},
            index=pd.Index(list(fitted), name="candidate"),
        ),
        candidate_proba=held_out,
        diverged=tuple(name for name, parts in networks.items() if not parts),
    )


def _last_clearly_helps(held_out: list[FloatArray], data: FitInput) -> bool:
    """Return whether the last candidate improves the score of the average by some standard errors."""
    onehot, losses = np.eye(len(data.classes)), []
    for parts in (held_out[:-1], held_out):
        average = _average(parts, weigh(parts, data.codes, data.weight)[0])
        losses.append(np.square(average - onehot[data.codes]).sum(axis=1))
    gain, share = losses[0] - losses[1], data.weight / data.weight.sum()
    mean = float(share @ gain)
    return mean > MIN_GAIN * float(np.sqrt(share**2 @ (gain - mean) ** 2))


def _average(parts: list[FloatArray], weights: FloatArray) -> FloatArray:
    total: FloatArray = np.sum([w * part for w, part in zip(weights, parts, strict=True) if w > 0], axis=0)
    return total


def _fit_models(
    data: FitInput, folds: Folds, seed: int, n_jobs: int | None, *, out_of_bag: bool
) -> dict[str, Fitted]:
    """Return models and held-out probabilities by the name of the candidate."""
    candidates = candidate_models(len(data.codes), data.X.shape[1], len(data.classes), seed=seed)
    if data.wide is not None:
        candidates |= sparse_models()
    n_once, shared = n_folds_per_draw(folds), _share(data)
    tasks: list[tuple[str, Any]] = []
    # Fold by fold: fast and slow candidates alternate, so that the estimated remaining time is reliable.
    for i, (train, test) in enumerate(folds):
        for j, (name, model) in enumerate(candidates.items()):
            in_turn = i == j % len(folds)  # for candidates with one task for all folds
            call: tuple[Any, ...] | None
            if is_boosting(model):
                call = (fit_rounds, model, shared, train, test) if i < n_once else None
            elif isinstance(model, KernelRidgeSettings):
                call = (fit_kernel_ridge, model, shared, folds) if in_turn else None
            elif is_forest(model) and out_of_bag:
                call = (fit_out_of_bag, model, shared) if in_turn else None
            else:
                call = fit_fold, for_folds(model), shared, train, test
            tasks += [(name, delayed(_with_data)(*call))] if call else []
    return _collect(candidates, tasks, folds, data, n_jobs, out_of_bag=out_of_bag)


def _collect(
    candidates: dict[str, Any],
    tasks: list[tuple[str, Any]],
    folds: Folds,
    data: FitInput,
    n_jobs: int | None,
    *,
    out_of_bag: bool,
) -> dict[str, Fitted]:
    """Run the tasks, each with the name of its candidate, and join their results."""
    results: dict[str, list[tuple[Any, Any]]] = {name: [] for name in candidates}
    for (name, _), result in zip(tasks, _run([task for _, task in tasks], n_jobs), strict=True):
        results[name].append(result)
    fitted: dict[str, Fitted] = {}
    for name, model in candidates.items():
        parts = results[name]
        if is_boosting(model):
            fitted[name] = _boosted(folds[: len(parts)], parts, data)
        elif isinstance(model, KernelRidgeSettings):
            fitted |= _ridges(name, model.penalties, folds, *parts[0], data)
        elif is_forest(model):
            proba = parts[0][1] if out_of_bag else _joined(folds, parts, data)
            fitted |= _shrunk(name, [forest for forest, _ in parts], proba)
        else:
            fitted[name] = Fitted([part for part, _ in parts], _joined(folds, parts, data)[0])
    return fitted


def _cross_fitted(folds: Folds, parts: list[tuple[Any, FloatArray]], data: FitInput) -> Fitted:
    """Join the models and the held-out probabilities of the folds."""
    return Fitted([model for model, _ in parts], join_folds(folds, [proba for _, proba in parts], data))


def _share(data: FitInput) -> Any:
    """Put the data into Ray's object store if Ray runs the tasks, since each task would carry a copy."""
    backend, _ = get_active_backend()
    if type(backend).__name__ != "RayBackend":
        return data
    import ray  # noqa: PLC0415 - an optional dependency

    return ray.put(data)


def _with_data(fit: Callable[..., Any], model: Any, shared: Any, *rows: Any) -> Any:
    """Call ``fit`` with the data of :func:`_share`; runs in a worker."""
    if not isinstance(shared, FitInput):
        import ray  # noqa: PLC0415 - an optional dependency

        shared = ray.get(shared)
    with one_blas_thread():
        return fit(model, shared, *rows)


def _boosted(folds: Folds, parts: list[tuple[Any, list[float]]], data: FitInput) -> Fitted:
    """Choose the number of rounds of boosting for all folds, and predict the held-out rows."""
    entry = common_rounds([losses for _, losses in parts])
    models = [keep_rounds(model, min(entry, len(losses) - 1)) for model, losses in parts]
    X = features_for(models[0], data.X, data.trees)
    found = [model.predict_proba(X[test]) for model, (_, test) in zip(models, folds, strict=True)]
    return Fitted(models, join_folds(folds, found, data))


def _shrunk(name: str, forests: list[Any], proba: list[FloatArray]) -> dict[str, Fitted]:
    """Return one candidate per strength of shrinkage, all with the same forests."""
    return {
        f"{name}, shrinkage {penalty:g}" if penalty else name: Fitted(forests, part, penalty)
        for penalty, part in zip(SHRINKAGES, proba, strict=True)
    }


def _ridges(
    name: str,
    penalties: tuple[float, ...],
    folds: Folds,
    models: list[KernelRidge],
    proba: list[list[FloatArray]],
    data: FitInput,
) -> dict[str, Fitted]:
    """Return one candidate per penalty of kernel ridge regression."""
    return {
        f"{name}, penalty {penalty:g}": Fitted([model], join_folds(folds, parts, data))
        for penalty, model, parts in zip(penalties, models, proba, strict=True)
    }


def _joined(folds: Folds, parts: list[tuple[Any, list[FloatArray]]], data: FitInput) -> list[FloatArray]:
    """Return the held-out probabilities of all rows, one array per entry of those of a fold."""
    columns = zip(*(proba for _, proba in parts), strict=True)
    return [join_folds(folds, list(column), data) for column in columns]


def _run(tasks: list[Any], n_jobs: int | None) -> list[Any]:
    """Run joblib's delayed calls and report each result."""
    report = tracker(len(tasks))
    workers = n_workers(n_jobs, len(tasks))
    if report is None:
        return list(Parallel(n_jobs=workers)(tasks))
    results: list[Any] = []
    for result in Parallel(n_jobs=workers, return_as="generator")(tasks):
        results.append(result)
        report(len(results))
    return results


def weigh(
    probabilities: list[FloatArray], codes: IntArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weight candidates by the Brier score of their probabilities on the noisy labels.

    Returns the weights, which sum to one, the Brier scores of the candidates, and their distances to the best
    candidate in standard errors.

    The noisy posterior minimises this score on noisy labels, and every peer classifier follows from the noisy
    posterior. The Brier score is a proper score of probabilities, so it has far less sampling noise than the
    0-1 peer score of decisions. The weights are a mean of two kinds. *Plausible*: a candidate t standard
    errors behind the best one has weight ∝ exp(−t²/2), or exp(−t²) with more than two classes, which averages
    what the labels cannot distinguish. *Best*: those for which the score of the average is smallest, with a
    small penalty that draws them to each other; with few rows they follow the noise of the labels. The share
    of the second kind grows with the rows. Weights below one in a hundred are set to zero.
    """
    share = weight / weight.sum()
    gram, losses = _residuals(probabilities, codes, share)
    brier = losses @ share
    n_rows = 1.0 / np.square(share).sum()  # the effective number, smaller if weights differ
    difference = losses - losses[brier.argmin()]
    mean = difference @ share
    error = np.sqrt((difference - mean[:, None]) ** 2 @ share / n_rows)
    behind = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    settings = averaging(probabilities[0].shape[1])
    plausible = np.exp(-settings.decay * behind**2)
    best = simplex_weights(gram, ridge=settings.ridge * np.sqrt(RIDGE_ROWS / n_rows))
    trust = n_rows / (n_rows + settings.rows_of_equal_trust)
    weights = trust * best + (1.0 - trust) * plausible / plausible.sum()
    weights = np.where(weights < min(MIN_WEIGHT, weights.max()), 0.0, weights)
    return weights / weights.sum(), brier, behind


def simplex_weights(gram: FloatArray, *, ridge: float) -> FloatArray:
    """Minimise wᵀ(gram + ridge·I)w over non-negative weights w that sum to one.

    ``gram`` has the mean products of the residuals of two candidates, so wᵀ gram w is the Brier score of the
    average. With H = gram + ridge·I, the minimiser of ½uᵀHu − Σu over u ≥ 0, divided by its sum, satisfies
    the optimality conditions of this problem. With H = LLᵀ it is a non-negative least squares problem.
    """
    lower = np.linalg.cholesky(gram + ridge * np.eye(len(gram)))
    u, _ = nnls(lower.T, np.linalg.solve(lower, np.ones(len(gram))))
    return np.asarray(u / u.sum(), dtype=np.float64)


def _residuals(
    probabilities: list[FloatArray], codes: IntArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the mean products of residuals, (M, M), and the squared residuals of the rows, (M, n)."""
    n_candidates, n_classes = len(probabilities), probabilities[0].shape[1]
    gram, losses = np.zeros((n_candidates, n_candidates)), np.empty((n_candidates, len(codes)))
    onehot = np.eye(n_classes)
    for start in range(0, len(codes), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        residual = np.array([p[rows] for p in probabilities]) - onehot[codes[rows]]
        losses[:, rows] = np.square(residual).sum(axis=2)
        scaled = (residual * np.sqrt(share[rows])[:, None]).reshape(n_candidates, -1)
        gram += scaled @ scaled.T
    return gram, losses
