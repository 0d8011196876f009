"""PeerClassifier, the recommended classifier for noisy labels, and its report."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from peerloss._classifier import MISSING, FitInput, all_or_nothing
from peerloss._device import resolve_device
from peerloss._probabilities import explain_nothing_learned, label_frequencies
from peerloss._progress import announce, show_progress
from peerloss._validation import MAX_STANDARDISED, METRICS, BoolArray, FloatArray, check_choice
from peerloss.datasets.tables.table_encoder import Views
from peerloss.estimators.folds import (
    Folds,
    TableClassifier,
    folds_of_copies,
    held_out_folds,
    is_fold_count,
    labelled_copies,
    merge_copies,
    replace_by_gold,
)
from peerloss.estimators.portfolio import GPU_FEATURES, Portfolio, fit_portfolio
from peerloss.exceptions import IdentifiabilityWarning, warn_caller
from peerloss.metrics import peer_score
from peerloss.posterior.decision import LEVEL, CleanMap, check_alpha_or_auto

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Up to this many rows the folds are drawn twice, which reduces the noise of the choice at a small cost.
FEW_ROWS = 2000
#: The message for labels that the noise model does not explain.
MISFIT = (
    "class-conditional noise at the estimated rates does not explain the labels. The noise depends on the "
    "row, or its rates cannot be estimated from these data. Do not rely on the estimates of noise and "
    "accuracy, and compare with plain training, alpha=0. A second label of some hundred rows shows whether "
    "the noise depends on the row: peerloss.posterior.check_row_noise."
)
#: If more than this share of the rows have the features of another row, the accuracy is hardly known.
MANY_REPEATED = 0.2
#: If the interval of a flip rate is wider than this, the rates are hardly known.
WIDE_INTERVAL = 0.25


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
    """A 90 % interval, valid if the noise depends on the true class alone
    (``results/accuracy_peer_classifier.md`` has its measured coverage). It is widened to include the interval
    that takes the labels as clean if the noise model does not fit, or if many rows are repeated."""
    diverged: tuple[str, ...] = ()
    """Networks that were left out because their weights became NaN or infinite."""
    misfit: float = 0.0
    """Log-likelihood per noisy label, out of fold, that is lost if the estimated noise explains the labels;
    negative if the estimated noise predicts them better."""
    misfit_p_value: float = 1.0
    """P-value of the hypothesis that at most 1e-4 per label is lost (a paired, one-sided z-test)."""
    n_unlabelled: int = 0
    """Number of rows without a label."""
    noise_low: FloatArray | None = None
    """Lower ends of the 90 % intervals of the entries of T, shape (K, K)."""
    noise_high: FloatArray | None = None
    """Upper ends of these intervals."""
    repeated_rows: float = 0.0
    """Share of the rows that have the same features as another row. If equal rows have different labels, the
    data do not tell whether a label is wrong or the classes overlap."""
    nothing_learned: str = ""
    """Why the model is useless, if it predicts held-out labels no better than their frequencies do. Then
    ``accuracy`` is at most that of a constant prediction."""
    classes: tuple[str, ...] = ()
    """The labels in the order of T, as text."""

    @property
    def fits(self) -> bool:
        """Whether the estimated class-conditional noise explains the labels (``misfit_p_value`` ≥ .01).

        ``False`` means that the noise depends on the row, or that its rates cannot be estimated from these
        data. ``True`` is not a proof: whatever the noise, one label per row has the same distribution as
        correct labels of classes that overlap. With two labels per row,
        :func:`~peerloss.posterior.check_row_noise` tests the model.
        """
        return self.misfit_p_value >= LEVEL

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons why the estimates of noise and accuracy are uncertain; empty if there are none."""
        found = [f"{text[0].upper()}{text[1:]}." for text in (self.nothing_learned,) if text]
        found += [] if self.fits else [f"{MISFIT[0].upper()}{MISFIT[1:]}"]
        if self.repeated_rows > MANY_REPEATED:
            found.append(
                f"{self.repeated_rows:.0%} of the rows have the features of another row, so wrong labels "
                "cannot be told from classes that overlap."
            )
        if self.noise_low is not None and self.noise_high is not None:
            low, high = 1.0 - np.diag(self.noise_high), 1.0 - np.diag(self.noise_low)
            widest = int((high - low).argmax())
            if high[widest] - low[widest] > WIDE_INTERVAL:
                found.append(
                    f"The noise rates are uncertain: the 90 % interval of one class is {low[widest]:.2f} to "
                    f"{high[widest]:.2f}. More rows or some clean labels (`gold`) would help."
                )
        return tuple(found)

    def _repr_html_(self) -> str:
        """Return the view in a notebook."""
        from peerloss.estimators._report_view import report_card  # noqa: PLC0415 - only notebooks need it

        return report_card(self)

    def __str__(self) -> str:
        best = self.candidates["weight"].idxmax()
        chosen = int((self.candidates["weight"] > 0).sum())
        return (
            f"{chosen} of {len(self.candidates)} candidates are averaged; {best!r} has the largest weight "
            f"({self.candidates['weight'].max():.2f}). Estimated noise: {self.noise!r}"
            + ("" if np.isnan(self.alpha) else f"; alpha {self.alpha:.3g}")
            + f". Estimated {self.metric.replace('_', ' ')} on clean labels: "
            f"{self.accuracy:.3f} ({self.accuracy_low:.3f} to {self.accuracy_high:.3f}), if the noise "
            f"depends on the true class alone.{''.join(f' {doubt}' for doubt in self.doubts)}"
            + (f" Diverged and left out: {', '.join(self.diverged)}." if self.diverged else "")
            + (f" Rows without a label: {self.n_unlabelled:,}." if self.n_unlabelled else "")
        )


class PeerClassifier(TableClassifier):
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
    verbose
        Whether ``fit`` shows its progress on stderr: phase, percentage, elapsed time, time left.

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
        Out-of-fold (forests: out-of-bag) probabilities of the noisy labels, calibrated, shape (n, K). Those
        of rows without a label are from all models.

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

    _accepts_partial_labels = True

    def __init__(
        self,
        *,
        metric: str = "accuracy",
        alpha: float | str = "auto",
        cv: Any = 5,
        n_jobs: int | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.alpha = alpha
        self.cv = cv
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        gold: ArrayLike | None = None,
    ) -> Self:
        """Fit to features (n, d) and noisy labels (n,), or soft labels (n, K).

        Parameters
        ----------
        X
            Features. A DataFrame may have categories, free text and missing values
            (:class:`~peerloss.estimators.TableEncoder` describes the columns). Trees use categories and
            missing values as they are; linear models and networks use the encoded columns. With free text,
            some linear models use its TF-IDF matrix, which stays sparse. So does a sparse matrix ``X``; the
            other models use its leading components, or all columns if there are at most 256.
        y
            Noisy labels of any dtype. NaN, None and ``pandas.NA`` mean that a row has no label. So does -1 if
            all other labels are non-negative integers; only -1 and 1 alone are two classes. Rows without a
            label count for the standardisation, and one more candidate learns from them.

            Soft labels are a table with one column per class, such as the shares of crowd votes. Each row
            sums to one, or is NaN if it has no label. The columns of a DataFrame name the classes; those of
            an array are 0..K-1. A row is trained as one copy per class, weighted by its share. A ``gold``
            label replaces the soft label.
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
        with all_or_nothing(self), show_progress("PeerClassifier", show=bool(self.verbose)):
            check_choice(self.metric, "metric", METRICS)
            alpha = check_alpha_or_auto(self.alpha)
            rows, pairs, verified = replace_by_gold(self._check_fit(X, y, sample_weight), gold)
            device = str(resolve_device(self.device, width=rows.X.shape[1], gpu_width=GPU_FEATURES))
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            folds = self._folds(rows, groups, seed)
            self.scaler_ = StandardScaler().fit(rows.X, sample_weight=rows.weight)
            scaled, unlabelled = self._standardise(rows.X), rows.codes == MISSING
            data, source = labelled_copies(rows._replace(X=scaled))
            verified = None if verified is None else verified[source]
            portfolio = fit_portfolio(
                data,
                folds_of_copies(folds, source, len(rows.codes)),
                seed=seed,
                n_jobs=self.n_jobs,
                device=device,
                # A bootstrap sample could contain another copy of an out-of-bag row with a soft label.
                out_of_bag=groups is None and is_fold_count(self.cv) and rows.shares is None,
                unlabelled=scaled[unlabelled & (rows.weight > 0)] if unlabelled.any() else None,
            )
            self.members_, self.weights_ = portfolio.members, portfolio.weights
            self.noisy_prior_ = label_frequencies(data.codes, len(data.classes), data.weight)
            announce("estimating the noise", 0.94)
            useless = explain_nothing_learned(portfolio.oof_proba, data.codes, data.weight, rows=source)
            with warnings.catch_warnings():
                if useless:  # more would be said about rates that cannot be estimated
                    warnings.simplefilter("ignore", IdentifiabilityWarning)
                self.clean_map_ = CleanMap.fit(
                    portfolio.oof_proba,
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
            self.oof_proba_ = merge_copies(portfolio.oof_proba, source, len(rows.codes))
            if unlabelled.any():  # no model has seen a label of these rows
                views = (None if part is None else part[unlabelled] for part in (rows.trees, rows.wide))
                self.oof_proba_[unlabelled] = self._noisy_proba(Views(scaled[unlabelled], *views))
            self.report_ = _make_report(
                data,
                portfolio,
                self.clean_map_,
                seed=seed,
                verified=verified,
                unlabelled=int(unlabelled.sum()),
                repeated=float(pd.DataFrame(rows.X).duplicated(keep=False).mean()),
                useless=useless,
            )
            if useless:
                warn_caller(f"{useless}. Use other columns or more rows.", IdentifiabilityWarning)
            elif not self.report_.fits:
                warn_caller(f"{MISFIT} (p = {self.report_.misfit_p_value:.2g})", IdentifiabilityWarning)
        return self

    def predict_noisy_proba(self, X: ArrayLike) -> FloatArray:
        """Return estimates of P(noisy label | x), shape (n, K)."""
        views = self._views(X)
        return self._noisy_proba(views._replace(features=self._standardise(views.features)))

    def _noisy_proba(self, views: Views) -> FloatArray:
        parts = [w * member.proba(*views) for w, member in zip(self.weights_, self.members_, strict=True)]
        return np.asarray(np.sum(parts, axis=0))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K)."""
        noisy = self.predict_noisy_proba(X)  # first, as it raises NotFittedError
        return self.clean_map_.transform(noisy)

    def _standardise(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.asarray(np.clip(self.scaler_.transform(X), -MAX_STANDARDISED, MAX_STANDARDISED))

    def _folds(self, data: FitInput, groups: ArrayLike | None, seed: int) -> Folds:
        n_labelled = int((data.codes != MISSING).sum())
        repeats = 2 if groups is None and n_labelled <= FEW_ROWS and is_fold_count(self.cv) else 1
        draws = [
            held_out_folds(self.cv, data, seed=(seed + i) % 2**31, groups=groups, warn=i == 0)
            for i in range(repeats)
        ]
        return [fold for folds in draws for fold in folds]


def _make_report(
    data: FitInput,
    portfolio: Portfolio,
    clean_map: CleanMap,
    *,
    seed: int,
    verified: BoolArray | None,
    unlabelled: int,
    repeated: float,
    useless: str,
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
        candidates,
        clean_map.metric,
        implied,
        clean_map.noise,
        *accuracy,
        portfolio.diverged,
        loss,
        p_value,
        unlabelled,
        *clean_map.noise_posterior.interval(),
        repeated,
        useless,
        tuple(map(str, data.classes)),
    )
    if useless:
        return _as_constant(report, clean_map.noisy_prior)
    if report.fits and repeated <= MANY_REPEATED:
        return report
    _, low, high = clean_map.accuracy(*held_out, seed=seed, as_labelled=True)
    return replace(
        report, accuracy_low=min(report.accuracy_low, low), accuracy_high=max(report.accuracy_high, high)
    )


def _as_constant(report: PeerReport, noisy_prior: FloatArray) -> PeerReport:
    """Limit the estimates to those of a constant prediction, whose accuracy on clean labels is not known."""
    limit = float(noisy_prior.max()) if report.metric == "accuracy" else 1.0 / len(noisy_prior)
    return replace(report, accuracy=min(report.accuracy, limit), accuracy_low=0.0, accuracy_high=limit)
