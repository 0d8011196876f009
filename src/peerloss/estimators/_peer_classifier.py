"""PeerClassifier, the recommended classifier for noisy labels."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from peerloss._classifier import MISSING, FitInput, all_or_nothing
from peerloss._device import resolve_device
from peerloss._probabilities import explain_nothing_learned, label_frequencies
from peerloss._progress import announce, show_progress
from peerloss._validation import MAX_STANDARDISED, METRICS, FloatArray, check_choice, check_n_jobs
from peerloss.datasets.tables.table_encoder import Views
from peerloss.estimators._peer_report import MISFIT, make_report
from peerloss.estimators.folds import (
    Folds,
    TableClassifier,
    as_legacy_generator,
    folds_of_copies,
    held_out_folds,
    is_fold_count,
    labelled_copies,
    merge_copies,
    replace_by_gold,
)
from peerloss.estimators.portfolio import GPU_FEATURES, Portfolio, fit_portfolio
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError, warn_caller
from peerloss.posterior.decision import CleanMap, check_alpha_or_auto

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import IntArray

#: Up to this many rows the folds are drawn twice, which reduces the noise of the choice at a small cost.
FEW_ROWS = 2000


class PeerClassifier(TableClassifier):
    """A classifier for noisy labels that chooses everything from the noisy labels themselves.

    A portfolio of models estimates the probability of the *noisy* label of each row without having seen this
    label: forests out of bag, the others out of fold. The models are calibrated, and averaged with the
    weights that minimise a proper score on the noisy labels. The noise rates are estimated
    from the levels at which the average flattens out, and the result is averaged over the rates that the
    data allow. For accuracy the decision is that of the clean posterior; two classes also allow for labels
    that are wrong near the boundary, where the likeliest noisy label is right. For balanced accuracy of two
    classes it is peer loss at α = 1, which needs no rates. For balanced accuracy of more classes it is
    argmax(η/π), clean posterior over clean prior, which needs the estimated noise
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
        Processes for the portfolio; ``None`` is one, -1 uses all cores. There are at most as many as cores.
    device
        Device of the networks: ``"cpu"``, ``"cuda"``, or ``"auto"``, which is the GPU if there is one and the
        table has at least 2,048 features. With fewer features a CPU is faster, since the networks are small.
    random_state
        Seed of folds and models: an integer from 0 to 2**32 - 1, a ``RandomState``, or ``None``.
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
            Non-negative weights of the rows; only their ratios matter.
        groups
            Group of each row, passed to ``cv``; with a number of folds, rows of one group stay together.
        gold
            Known clean labels, missing (NaN or None) for the other rows; or a boolean mask of rows whose
            ``y`` is known to be correct. If ``X`` is a DataFrame, a Series is matched to its rows by the
            index. Gold rows train with their gold label. They also improve the
            estimated noise: only the other rows are explained by noise, and the pairs of gold and noisy
            labels are counted.
        """
        with all_or_nothing(self), show_progress("PeerClassifier", show=bool(self.verbose)):
            check_choice(self.metric, "metric", METRICS)
            check_n_jobs(self.n_jobs)
            generator = as_legacy_generator(self.random_state)
            alpha = check_alpha_or_auto(self.alpha)
            rows, pairs, verified = replace_by_gold(self._check_fit(X, y, sample_weight), gold, X)
            seed = int(generator.randint(2**31 - 1))
            scaled, unlabelled = self._fit_scaler(rows), rows.codes == MISSING
            data, source = labelled_copies(rows._replace(X=scaled))
            verified = None if verified is None else verified[source]
            portfolio = self._fit_portfolio(rows, data, source, groups, seed)
            self.members_, self.weights_ = portfolio.members(), portfolio.weights
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
            self.report_ = make_report(
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

    def cross_val_noisy_proba(
        self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> FloatArray:
        """Return ``oof_proba_`` of a fit to these data, without fitting this classifier.

        The noise is not estimated, so this takes less time than ``fit``. ``X``, ``y`` and ``groups`` are as
        in ``fit``, and every row needs a label.
        """
        check_n_jobs(self.n_jobs)
        generator = as_legacy_generator(self.random_state)
        model = clone(self)
        rows = model._check_fit(X, y)  # noqa: SLF001 - of the same class
        if n_missing := int((rows.codes == MISSING).sum()):
            raise InvalidInputError(
                f"`y` must have a label for every row; rows without one: {n_missing}. Leave them out, or use "
                "`fit`, which accepts them."
            )
        seed = int(generator.randint(2**31 - 1))
        data, source = labelled_copies(rows._replace(X=model._fit_scaler(rows)))  # noqa: SLF001
        portfolio = model._fit_portfolio(rows, data, source, groups, seed)  # noqa: SLF001
        return merge_copies(portfolio.oof_proba, source, len(rows.codes))

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

    def _fit_scaler(self, rows: FitInput) -> FloatArray:
        """Fit the scaler; return standardised features."""
        self.scaler_ = StandardScaler().fit(rows.X, sample_weight=rows.weight)
        return self._standardise(rows.X)

    def _fit_portfolio(
        self, rows: FitInput, data: FitInput, source: IntArray, groups: ArrayLike | None, seed: int
    ) -> Portfolio:
        """Fit the candidates to ``data``, copies of the labelled rows; ``source`` has their positions."""
        without_label = (rows.codes == MISSING) & (rows.weight > 0)
        return fit_portfolio(
            data,
            folds_of_copies(self._folds(rows, groups, seed), source, len(rows.codes)),
            seed=seed,
            n_jobs=self.n_jobs,
            device=str(resolve_device(self.device, width=rows.X.shape[1], gpu_width=GPU_FEATURES)),
            # A bootstrap sample could contain another copy of an out-of-bag row with a soft label.
            out_of_bag=groups is None and is_fold_count(self.cv) and rows.shares is None,
            unlabelled=self._standardise(rows.X[without_label]) if without_label.any() else None,
        )

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
