"""PeerClassifier: what a user with noisy labels should reach for."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from joblib import delayed
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from peerloss._classifier import FitInput, NoisyLabelClassifier, all_or_nothing
from peerloss._probabilities import label_frequencies
from peerloss._validation import FARTHEST, BoolArray, FloatArray, IntArray, check_choice
from peerloss.estimators._folds import Folds, held_out_folds, is_fold_count
from peerloss.estimators._mlp_checks import choose_device
from peerloss.estimators._progress import in_parallel
from peerloss.estimators.portfolio._candidates import portfolio
from peerloss.estimators.portfolio._networks import GPU_FEATURES, fit_networks
from peerloss.estimators.portfolio._weighting import weigh
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError
from peerloss.metrics import peer_score
from peerloss.posterior.calibrator import Calibrator, log_scores
from peerloss.posterior.decision import METRICS, CleanMap, check_alpha_or_auto
from peerloss.posterior.misfit import LEVEL
from peerloss.training._device import usable_device

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from sklearn.base import BaseEstimator

#: Up to this many rows, folds are drawn twice: the noise of the choice falls, and the cost is small.
FEW_ROWS = 2000
#: Candidates with less weight than this are left out of the average.
LEAST_WEIGHT = 0.01


#: What is said where the noise model does not fit.
MISFIT = (
    "the labels are not explained by noise of that kind at the estimated rates. The noise depends on the "
    "row, or its rates cannot be estimated from these data. Do not rely on the estimates of noise and "
    "accuracy, and compare with plain training, alpha=0."
)


@dataclass(frozen=True)
class PeerReport:
    """What PeerClassifier tried, what it chose and why."""

    candidates: pd.DataFrame
    """One row a candidate: weight, brier (noisy), behind (standard errors), peer_score (noisy)."""
    metric: str
    alpha: float
    noise: Any
    """The estimated :class:`~peerloss.NoiseModel`."""
    accuracy: float
    """Estimate of the metric on *clean* labels, from noisy ones alone."""
    accuracy_low: float
    accuracy_high: float
    """A 90 % interval, if the noise depends on the true class alone. Where the score itself levels off it is
    too narrow: see ``results/accuracy_peer_classifier.md`` for how often it held. Where the noise model does
    not fit it is widened to what holds if the labels are taken as they are."""
    diverged: tuple[str, ...] = ()
    """Networks whose numbers became NaN or infinite, and which were dropped."""
    misfit: float = 0.0
    """Log-likelihood per noisy label that is lost, out of fold, by explaining the labels through the
    estimated noise; negative where nothing is lost."""
    misfit_p_value: float = 1.0
    """Of the hypothesis that nothing is lost (a paired, one-sided z-test)."""

    @property
    def fits(self) -> bool:
        """Whether the estimated class-conditional noise explains the labels (``misfit_p_value`` of .01).

        ``False`` says that the noise depends on the row, or that its rates cannot be estimated from these
        data. ``True`` proves nothing: noise that follows the features closely looks like clean labels.
        """
        return self.misfit_p_value >= LEVEL

    def __str__(self) -> str:
        best = self.candidates["weight"].idxmax()
        chosen = int((self.candidates["weight"] > 0).sum())
        return (
            f"{chosen} of {len(self.candidates)} candidates are averaged, {best!r} counts most "
            f"({self.candidates['weight'].max():.2f}). Estimated noise: {self.noise!r}"
            + ("" if np.isnan(self.alpha) else f"; alpha {self.alpha:.3g}")
            + f". Estimated {self.metric.replace('_', ' ')} on clean labels: "
            f"{self.accuracy:.3f} ({self.accuracy_low:.3f} to {self.accuracy_high:.3f}), if the noise "
            f"depends on the true class alone.{'' if self.fits else f' But {MISFIT}'}"
            + (f" Diverged and dropped: {', '.join(self.diverged)}." if self.diverged else "")
        )


class PeerClassifier(NoisyLabelClassifier):
    """A classifier for noisy labels that chooses everything from the noisy labels themselves.

    A portfolio of models estimates the probability of the *noisy* label out of fold. They are calibrated,
    weighed by a proper score on the noisy labels and averaged; the noise rates are estimated from where the
    average levels off, and averaged over as far as the data leave them open. For accuracy the decision is
    that of the clean posterior. For balanced accuracy of two classes it is peer loss at α = 1, which needs no
    rates; of more classes it is argmax(η/π), clean posterior over clean prior, which needs the estimated
    noise (:func:`~peerloss.theory.balanced_decision` says why).

    Parameters
    ----------
    metric
        What to be good at, on clean labels: ``"accuracy"`` or ``"balanced_accuracy"``.
    alpha
        ``"auto"``, the rule for ``metric`` described above, or the α of the decision
        ``argmax_k (η̃_k − α·π̃_k)``.
    cv
        Number of folds, a splitter, or an iterable of index pairs, as in scikit-learn. Up to 2,000 rows a
        number of folds is drawn twice.
    n_jobs
        Processes for the portfolio; ``None`` is one.
    device
        Where the networks train: ``"cpu"``, ``"cuda"``, or ``"auto"``: the GPU if there is one and the table
        has 2,048 features or more; for fewer a CPU is faster, since the networks are small.
    random_state
        Seed of folds and models.

    Attributes
    ----------
    report_
        What was tried and chosen, the estimated noise, an estimate of clean accuracy with an interval, and
        whether class-conditional noise explains the labels (``report_.fits``). If not, ``fit`` warns.
    alpha_, noise_, noisy_prior_
        The α of the decision (NaN where no α describes it: most often with more than two classes), the
        estimated noise, the label frequencies.
    oof_proba_
        Out-of-fold probabilities of the noisy labels, calibrated, shape (n, K).

    Examples
    --------
    >>> from peerloss import NoiseModel, flip_labels
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> noisy = flip_labels(y, NoiseModel.binary(0.1, 0.4), random_state=0)
    >>> model = PeerClassifier(random_state=0).fit(X, noisy)
    >>> bool((model.predict(X) == y).mean() > 0.9)
    True
    """

    def __init__(
        self,
        *,
        metric: str = "accuracy",
        alpha: float | str = "auto",
        cv: Any = 5,
        n_jobs: int | None = None,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.alpha = alpha
        self.cv = cv
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        gold: ArrayLike | None = None,
    ) -> Self:
        """Fit to noisy labels.

        Parameters
        ----------
        X, y
            Features (n, d) and noisy labels (n,).
        sample_weight
            Weights of the rows.
        groups
            Group of each row, passed to ``cv``. With a number of folds, rows of one group are never split
            between training and held-out parts.
        gold
            Clean labels where known, missing (NaN or None) elsewhere; or a boolean mask of rows whose ``y``
            is known to be right. Gold rows train with their gold label. With two classes they also sharpen
            the rates: the noise explains the other rows alone, and pairs of gold and noisy labels count it.
        """
        with all_or_nothing(self):
            alpha = self._check_parameters()
            data = self._check_fit(X, y, sample_weight)
            data, pairs, verified = _with_gold(data, gold)
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            folds = self._folds(data, groups, seed)
            self.scaler_ = StandardScaler().fit(data.X, sample_weight=data.weight)
            scaled = data._replace(X=self._standardise(data.X))
            self._fit_portfolio(scaled, folds, seed)
            self.noisy_prior_ = label_frequencies(data.codes, len(data.classes), data.weight)
            self.clean_map_ = CleanMap.fit(
                self.oof_proba_,
                data.codes,
                data.weight,
                metric=self.metric,
                alpha=alpha,
                noisy_prior=self.noisy_prior_,
                gold=pairs,
                verified=verified,
            )
            self.classes_ = data.classes
            self.noise_ = self.clean_map_.noise
            self.alpha_ = self.clean_map_.implied_alpha()
            self.report_ = self._report(data, seed, verified)
            if not self.report_.fits:
                warnings.warn(
                    f"{MISFIT} (p = {self.report_.misfit_p_value:.2g})", IdentifiabilityWarning, stacklevel=2
                )
        return self

    def predict_noisy_proba(self, X: ArrayLike) -> FloatArray:
        """Return estimates of P(noisy label | x), shape (n, K)."""
        scaled = self._standardise(self._check_predict(X))
        parts = [w * member.proba(scaled) for w, member in zip(self.weights_, self.members_, strict=True)]
        total: FloatArray = np.sum(parts, axis=0)
        return total

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K)."""
        self._check_predict(X)
        return self.clean_map_.transform(self.predict_noisy_proba(X))

    def _standardise(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            standard: FloatArray = np.clip(self.scaler_.transform(X), -FARTHEST, FARTHEST)
        return standard

    def _check_parameters(self) -> float | None:
        check_choice(self.metric, "metric", METRICS)
        if self.device != "auto":
            usable_device(self.device)  # before the training, which takes seconds or minutes
        return check_alpha_or_auto(self.alpha)

    def _folds(self, data: FitInput, groups: ArrayLike | None, seed: int) -> Folds:
        repeats = 2 if groups is None and len(data.codes) <= FEW_ROWS and is_fold_count(self.cv) else 1
        return [
            fold
            for i in range(repeats)
            for fold in held_out_folds(self.cv, data, seed=(seed + i) % 2**31, groups=groups)
        ]

    def _fit_portfolio(self, data: FitInput, folds: Folds, seed: int) -> None:
        candidates = portfolio(len(data.codes), data.X.shape[1], seed=seed)
        # Fold by fold, so that quick and slow candidates alternate and the time left can be foretold.
        tasks = [delayed(_fit_fold)(model, data, *fold) for fold in folds for model in candidates.values()]
        fitted = in_parallel(tasks, self.n_jobs, further=1)
        by_name = {name: fitted[i :: len(candidates)] for i, name in enumerate(candidates)}
        device = choose_device(self.device, data.X.shape[1], least=GPU_FEATURES)
        by_name |= fit_networks(data, folds, seed=seed, device=device)
        self._diverged = tuple(name for name, parts in by_name.items() if not parts)
        members, held_out = [], []
        for name, parts in by_name.items():
            if not parts:
                continue
            scores = log_scores(_join(folds, [proba for _, proba in parts], data))
            calibrator = Calibrator.fit(scores, data.codes, data.weight)
            held_out.append(calibrator.proba(scores))
            members.append(_Member(name, [model for model, _ in parts], calibrator))
        weights, brier, behind = weigh(held_out, data.codes, data.weight)
        weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
        weights /= weights.sum()
        self.oof_proba_ = np.tensordot(weights, np.array(held_out), axes=1)
        self.weights_ = weights[weights > 0]
        self.members_ = [member for member, w in zip(members, weights, strict=True) if w > 0]
        self._table = pd.DataFrame(
            {"weight": weights, "brier": brier, "behind": behind},
            index=pd.Index([member.name for member in members], name="candidate"),
        )
        self._held_out = held_out

    def _report(self, data: FitInput, seed: int, verified: BoolArray | None) -> PeerReport:
        """Score every candidate under one α and estimate the clean accuracy of the average."""
        alpha = self.alpha_ if np.isfinite(self.alpha_) else 1.0
        table = self._table.assign(
            peer_score=[
                peer_score(
                    data.codes,
                    (p - alpha * self.noisy_prior_).argmax(axis=1),
                    alpha=alpha,
                    sample_weight=data.weight,
                )
                for p in self._held_out
            ]
        )
        diverged = self._diverged
        del self._table, self._held_out, self._diverged
        held_out = self.oof_proba_[data.weight > 0]
        level, low, high = self.clean_map_.accuracy(held_out, seed=seed)
        noisy = data.weight if verified is None else np.where(verified, 0.0, data.weight)
        loss, p_value = self.clean_map_.misfit(self.oof_proba_, data.codes, noisy)
        report = PeerReport(
            table, self.metric, self.alpha_, self.noise_, level, low, high, diverged, loss, p_value
        )
        if report.fits:
            return report
        _, plain_low, plain_high = self.clean_map_.accuracy(held_out, seed=seed, as_labelled=True)
        return replace(report, accuracy_low=min(low, plain_low), accuracy_high=max(high, plain_high))


@dataclass(frozen=True)
class _Member:
    """A candidate's fold models and its calibration."""

    name: str
    models: list[Any]
    calibrator: Calibrator

    def proba(self, X: FloatArray) -> FloatArray:
        averaged = np.mean([model.predict_proba(X) for model in self.models], axis=0)
        return self.calibrator.proba(log_scores(averaged))


def _fit_fold(
    estimator: BaseEstimator, data: FitInput, train: IntArray, test: IntArray
) -> tuple[Any, FloatArray]:
    model = clone(estimator)
    with threadpool_limits(1):  # fits this small run slower on several threads
        _fit_weighted(model, data.X[train], data.codes[train], data.weight[train])
        return model, model.predict_proba(data.X[test])


def _fit_weighted(model: Any, X: FloatArray, codes: IntArray, weight: FloatArray) -> None:
    if np.ptp(weight) == 0:  # weighted binning alone would make boosting ten times slower
        model.fit(X, codes)
    elif hasattr(model, "steps"):  # a pipeline hands weights to its last step
        model.fit(X, codes, **{f"{model.steps[-1][0]}__sample_weight": weight})
    else:
        model.fit(X, codes, sample_weight=weight)


def _join(folds: Folds, parts: list[FloatArray], data: FitInput) -> FloatArray:
    """Average the held-out probabilities of each row over repeated folds."""
    total = np.zeros((len(data.codes), len(data.classes)))
    times = np.zeros(len(data.codes))
    for (_, test), part in zip(folds, parts, strict=True):
        total[test] += part
        times[test] += 1
    prior = label_frequencies(data.codes, len(data.classes), data.weight)
    joined: FloatArray = np.where(times[:, None] > 0, total / np.maximum(times, 1)[:, None], prior)
    return joined


def _with_gold(
    data: FitInput, gold: ArrayLike | None
) -> tuple[FitInput, tuple[IntArray, IntArray] | None, BoolArray | None]:
    """Put gold labels in the place of noisy ones.

    Returns also the pairs (clean, noisy) where both are known, and which labels are now clean.
    """
    if gold is None:
        return data, None, None
    given = np.asarray(gold)
    if given.shape != data.codes.shape:
        raise InvalidInputError(
            f"`gold` must have one entry a row, {len(data.codes)} of them; got shape {given.shape}. "
            "Use NaN or None where the clean label is not known."
        )
    if given.dtype == bool:
        return data, None, given  # right as they are: chosen for it, perhaps, so they count no noise
    known = ~pd.isna(given)
    place = pd.Index(data.classes).get_indexer(pd.Index(given[known]))
    if (place < 0).any():
        odd = given[known][place < 0][0]
        raise InvalidInputError(
            f"`gold` must hold labels that occur in `y`, {data.classes.tolist()[:10]}; found {odd!r}."
        )
    codes = data.codes.copy()
    codes[known] = place
    pairs = np.asarray(place, dtype=np.int64), data.codes[known]
    return data._replace(codes=codes), pairs if known.any() and len(data.classes) == 2 else None, known
