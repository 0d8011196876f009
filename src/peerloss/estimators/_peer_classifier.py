"""PeerClassifier, the recommended classifier for noisy labels, and its report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from peerloss._classifier import FitInput, NoisyLabelClassifier, all_or_nothing, is_mixed_table
from peerloss._device import resolve_device
from peerloss._probabilities import label_frequencies
from peerloss._validation import MAX_STANDARDISED, BoolArray, FloatArray, IntArray, check_choice
from peerloss.estimators._table_encoder import TableEncoder
from peerloss.estimators.folds import Folds, held_out_folds, is_fold_count
from peerloss.estimators.portfolio import GPU_FEATURES, Portfolio, fit_portfolio
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError, warn_caller
from peerloss.metrics import peer_score
from peerloss.posterior.decision import LEVEL, METRICS, CleanMap, check_alpha_or_auto

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Up to this many rows the folds are drawn twice, which reduces the noise of the choice at a small cost.
FEW_ROWS = 2000
#: The message for labels that the noise model does not explain.
MISFIT = (
    "class-conditional noise at the estimated rates does not explain the labels. The noise depends on the "
    "row, or its rates cannot be estimated from these data. Do not rely on the estimates of noise and "
    "accuracy, and compare with plain training, alpha=0."
)


@dataclass(frozen=True)
class PeerReport:
    """The candidates that PeerClassifier tried, its choice, and estimates of noise and clean accuracy."""

    candidates: pd.DataFrame
    """One row per candidate: weight, brier (noisy), behind (standard errors), peer_score (noisy)."""
    metric: str
    alpha: float
    noise: Any
    """The estimated :class:`~peerloss.NoiseModel`."""
    accuracy: float
    """Estimate of the metric on *clean* labels, from noisy labels alone."""
    accuracy_low: float
    accuracy_high: float
    """A 90 % interval, valid if the noise depends on the true class alone. If the score itself levels off,
    the interval is too narrow: ``results/accuracy_peer_classifier.md`` has its measured coverage. If the
    noise model does not fit, the interval is widened to include the one that takes the labels as clean."""
    diverged: tuple[str, ...] = ()
    """Networks that were left out because their weights became NaN or infinite."""
    misfit: float = 0.0
    """Log-likelihood per noisy label, out of fold, that is lost if the estimated noise explains the labels;
    negative if the estimated noise predicts them better."""
    misfit_p_value: float = 1.0
    """P-value of the hypothesis that nothing is lost, or, with more than two classes, at most 1e-4 per label
    (a paired, one-sided z-test)."""

    @property
    def fits(self) -> bool:
        """Whether the estimated class-conditional noise explains the labels (``misfit_p_value`` ≥ .01).

        ``False`` means that the noise depends on the row, or that its rates cannot be estimated from these
        data. ``True`` is not a proof: noise that follows the features closely looks like clean labels.
        """
        return self.misfit_p_value >= LEVEL

    def __str__(self) -> str:
        best = self.candidates["weight"].idxmax()
        chosen = int((self.candidates["weight"] > 0).sum())
        return (
            f"{chosen} of {len(self.candidates)} candidates are averaged; {best!r} has the largest weight "
            f"({self.candidates['weight'].max():.2f}). Estimated noise: {self.noise!r}"
            + ("" if np.isnan(self.alpha) else f"; alpha {self.alpha:.3g}")
            + f". Estimated {self.metric.replace('_', ' ')} on clean labels: "
            f"{self.accuracy:.3f} ({self.accuracy_low:.3f} to {self.accuracy_high:.3f}), if the noise "
            f"depends on the true class alone.{'' if self.fits else f' But {MISFIT}'}"
            + (f" Diverged and left out: {', '.join(self.diverged)}." if self.diverged else "")
        )


class PeerClassifier(NoisyLabelClassifier):
    """A classifier for noisy labels that chooses everything from the noisy labels themselves.

    A portfolio of models estimates the probability of the *noisy* label of each row without having seen this
    label: forests out of bag, the others out of fold. The models are calibrated, and averaged with the
    weights that minimise a proper score on the noisy labels. The noise rates are estimated
    from the levels at which the average flattens out, and the result is averaged over the rates that the
    data allow. For accuracy the decision is that of the clean posterior. For balanced accuracy of two classes
    it is peer loss at α = 1, which needs no rates. For balanced accuracy of more classes it is argmax(η/π),
    clean posterior over clean prior, which needs the estimated noise
    (:func:`~peerloss.theory.balanced_decision` explains why).

    Parameters
    ----------
    metric
        The metric to maximise on clean labels: ``"accuracy"`` or ``"balanced_accuracy"``.
    alpha
        ``"auto"``: the decision is chosen from the noisy labels for ``metric``, as described above. A number
        is the α of the decision ``argmax_k (η̃_k − α·π̃_k)``.
    cv
        Number of folds, a splitter, or an iterable of index pairs, as in scikit-learn. A number of folds is
        drawn twice if there are at most 2,000 rows. Forests use out-of-bag probabilities instead of folds if
        ``cv`` is a number and no ``groups`` are given.
    n_jobs
        Processes for the portfolio; ``None`` is one.
    device
        Device of the networks: ``"cpu"``, ``"cuda"``, or ``"auto"``, which is the GPU if there is one and the
        table has at least 2,048 features. With fewer features a CPU is faster, since the networks are small.
    random_state
        Seed of folds and models.

    Attributes
    ----------
    report_
        A :class:`~peerloss.estimators.PeerReport`: the candidates and their weights, the estimated noise, an
        estimate of clean accuracy with an interval, and whether class-conditional noise explains the labels
        (``report_.fits``). If not, ``fit`` warns.
    alpha_, noise_, noisy_prior_
        The α of the decision (NaN if no α describes it, which is common with more than two classes), the
        estimated noise, and the frequencies of the noisy labels.
    oof_proba_
        Out-of-fold (forests: out-of-bag) probabilities of the noisy labels, calibrated, shape (n, K).

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
        """Fit to features (n, d) and noisy labels (n,).

        Parameters
        ----------
        X, y
            Features and noisy labels of any dtype. A DataFrame may have categories, free text and missing
            values (:class:`~peerloss.estimators.TableEncoder` describes the columns). Trees use categories
            and missing values as they are; linear models and networks use the encoded columns.
        sample_weight
            Non-negative weights of the rows.
        groups
            Group of each row, passed to ``cv``; with a number of folds, rows of one group stay together.
        gold
            Known clean labels, missing (NaN or None) for the other rows; or a boolean mask of rows whose
            ``y`` is known to be correct. Gold rows train with their gold label. They also improve the
            estimated noise: only the other rows are explained by noise, and the pairs of gold and noisy
            labels are counted.
        """
        with all_or_nothing(self):
            check_choice(self.metric, "metric", METRICS)
            alpha = check_alpha_or_auto(self.alpha)
            data, pairs, verified = _with_gold(self._check_fit(X, y, sample_weight), gold)
            device = str(resolve_device(self.device, width=data.X.shape[1], gpu_width=GPU_FEATURES))
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            folds = self._folds(data, groups, seed)
            self.scaler_ = StandardScaler().fit(data.X, sample_weight=data.weight)
            scaled = data._replace(X=self._standardise(data.X))
            portfolio = fit_portfolio(
                scaled,
                folds,
                seed=seed,
                n_jobs=self.n_jobs,
                device=device,
                out_of_bag=groups is None and is_fold_count(self.cv),
            )
            self.members_, self.weights_ = portfolio.members, portfolio.weights
            self.oof_proba_ = portfolio.oof_proba
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
            self.report_ = _make_report(data, portfolio, self.clean_map_, seed=seed, verified=verified)
            if not self.report_.fits:
                warn_caller(f"{MISFIT} (p = {self.report_.misfit_p_value:.2g})", IdentifiabilityWarning)
        return self

    def predict_noisy_proba(self, X: ArrayLike) -> FloatArray:
        """Return estimates of P(noisy label | x), shape (n, K)."""
        features, trees = self._views(X)
        scaled = self._standardise(features)
        members = zip(self.weights_, self.members_, strict=True)
        parts = [w * member.proba(scaled, trees) for w, member in members]
        total: FloatArray = np.sum(parts, axis=0)
        return total

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K)."""
        noisy = self.predict_noisy_proba(X)  # first, as it raises NotFittedError
        return self.clean_map_.transform(noisy)

    def _check_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> FitInput:
        """Check the arguments of ``fit``; columns of a mixed table are encoded for each kind of model."""
        self.table_: TableEncoder | None = None
        if not is_mixed_table(X):
            return super()._check_fit(X, y, sample_weight)
        self.table_ = TableEncoder().fit(X)
        features, trees = self.table_.views(X)
        data = super()._check_fit(features, y, sample_weight)
        validate_data(self, X, skip_check_array=True)  # the names and number of the columns as given
        return data._replace(trees=trees, categorical=self.table_.categorical())

    def _views(self, X: Any) -> tuple[FloatArray, FloatArray | None]:
        """Check the argument of ``predict``; return its features and those for trees of a mixed table."""
        check_is_fitted(self)
        if self.table_ is None:
            return self._check_predict(X), None
        return self.table_.views(X)

    def _standardise(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            standard: FloatArray = np.clip(self.scaler_.transform(X), -MAX_STANDARDISED, MAX_STANDARDISED)
        return standard

    def _folds(self, data: FitInput, groups: ArrayLike | None, seed: int) -> Folds:
        repeats = 2 if groups is None and len(data.codes) <= FEW_ROWS and is_fold_count(self.cv) else 1
        draws = [
            held_out_folds(self.cv, data, seed=(seed + i) % 2**31, groups=groups, warn=i == 0)
            for i in range(repeats)
        ]
        return [fold for folds in draws for fold in folds]


def _with_gold(
    data: FitInput, gold: ArrayLike | None
) -> tuple[FitInput, tuple[IntArray, IntArray] | None, BoolArray | None]:
    """Replace noisy labels by gold labels; also return the pairs (clean, noisy) and a mask of gold rows."""
    if gold is None:
        return data, None, None
    given = np.asarray(gold)
    if given.shape != data.codes.shape:
        raise InvalidInputError(
            f"`gold` must have one entry per row, {len(data.codes)} in all; got shape {given.shape}. "
            "Use NaN or None if the clean label is not known."
        )
    if given.dtype == bool:
        return data, None, given  # perhaps selected because they are correct, so not usable to count noise
    known = ~pd.isna(given)
    place = pd.Index(data.classes).get_indexer(pd.Index(given[known]))
    if (place < 0).any():
        unknown = given[known][place < 0][0]
        raise InvalidInputError(
            f"`gold` must contain labels that occur in `y`, {data.classes.tolist()[:10]}; found {unknown!r}."
        )
    codes = data.codes.copy()
    codes[known] = place
    pairs = np.asarray(place, dtype=np.int64), data.codes[known]
    return data._replace(codes=codes), pairs if known.any() else None, known


def _make_report(
    data: FitInput, portfolio: Portfolio, clean_map: CleanMap, *, seed: int, verified: BoolArray | None
) -> PeerReport:
    """Score every candidate under one α and estimate the clean accuracy of their average."""
    implied = clean_map.implied_alpha()
    alpha = implied if np.isfinite(implied) else 1.0
    decisions = [(p - alpha * clean_map.noisy_prior).argmax(axis=1) for p in portfolio.candidate_proba]
    scores = [peer_score(data.codes, d, alpha=alpha, sample_weight=data.weight) for d in decisions]
    used = data.weight > 0
    held_out = portfolio.oof_proba[used], data.codes[used], data.weight[used]
    accuracy = clean_map.accuracy(*held_out, seed=seed)
    noisy_weight = data.weight if verified is None else np.where(verified, 0.0, data.weight)
    loss, p_value = clean_map.misfit(portfolio.oof_proba, data.codes, noisy_weight)
    candidates = portfolio.candidates.assign(peer_score=scores)
    report = PeerReport(
        candidates, clean_map.metric, implied, clean_map.noise, *accuracy, portfolio.diverged, loss, p_value
    )
    if report.fits:
        return report
    _, low, high = clean_map.accuracy(*held_out, seed=seed, as_labelled=True)
    return replace(
        report, accuracy_low=min(report.accuracy_low, low), accuracy_high=max(report.accuracy_high, high)
    )
