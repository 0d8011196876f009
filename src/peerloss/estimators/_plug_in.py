"""PeerPlugInClassifier: calibrate any probabilistic classifier, then decide with α."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from peerloss._classifier import (
    MAX_REPEATS,
    MISSING,
    check_given_features,
    contains_pipeline,
    is_mixed_table,
    table_of_gaps,
)
from peerloss._probabilities import label_frequencies
from peerloss._progress import announce, phase, reporter
from peerloss._random import RandomState, as_generator
from peerloss._validation import METRICS, check_choice
from peerloss.datasets.tables.sparse_encoder import as_dense, encoder_for
from peerloss.datasets.tables.table_encoder import TableEncoder
from peerloss.estimators.folds import (
    FoldClassifier,
    folds_of_copies,
    held_out_folds,
    labelled_copies,
    merge_copies,
)
from peerloss.exceptions import InvalidInputError
from peerloss.posterior.calibrator import Calibrator, as_score_columns, log_scores
from peerloss.posterior.decision import CleanMap, automatic_alpha, check_alpha_or_auto, clean_proba

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray


class PeerPlugInClassifier(FoldClassifier):
    """Turn a probabilistic classifier into the minimiser of the α-peer risk.

    The population minimiser of the α-weighted peer 0-1 risk is ``argmax_k (η̃_k(x) − α·π̃_k)``, where η̃ is
    the probability of the *noisy* label. Any classifier with calibrated probabilities therefore becomes a
    peer classifier after its fit. For two classes the decision is the threshold (1 + α(π̃_1 − π̃_0))/2 on η̃_1:
    the noisy prior at α = 1 (Menon et al., 2015) and (1 + e_neg − e_pos)/2 at α* (Natarajan et al., 2013).
    The probabilities of the estimator are calibrated on out-of-fold predictions, with one slope and K − 1
    biases on their logarithms (Platt's method for two classes). Then the estimator is fitted to all rows.

    Labels may be missing or soft, as in :meth:`peerloss.PeerClassifier.fit`. Rows without a label are not
    passed to ``estimator``. With soft labels it must accept ``sample_weight``, because each row becomes one
    copy per class, weighted by its share.

    ``predict_proba`` stretches η̃ so that the point at which all classes tie, u = 1/K + α(π̃ − 1/K), becomes
    the uniform vector: each ray from u to the border of the simplex is mapped linearly to the parallel ray
    from the uniform vector. For two classes it is piecewise linear through (0, 0), (threshold, ½) and (1, 1).
    At α = 0 it is the identity. Its argmax is that of η̃ − απ̃ for every K. These probabilities are cautious:
    α does not determine the amount of noise, so they are not stretched as far as T would allow.

    Parameters
    ----------
    estimator
        A classifier with ``predict_proba`` or ``decision_function``; it is cloned. ``X`` is passed to it
        unchanged if it accepts it, so it may be a pipeline that takes a DataFrame. If it cannot be fitted to
        a DataFrame with text or missing values, and is not a pipeline, the columns are encoded by
        :class:`~peerloss.estimators.TableEncoder`. A sparse matrix that it does not accept is made dense, or
        reduced to its components if it has more than 256 columns. ``sample_weight`` is passed on if given.
    alpha
        Weight of the peer term: any number, see :func:`peerloss.theory.optimal_alpha`. ``"auto"``: chosen
        from the noisy labels for accuracy, as α* at the noise rates estimated from the out-of-fold
        probabilities. 1 (the default) aims at balanced accuracy for two classes. Three or more classes have
        an α* only under special noise; without one, ``"auto"`` is 1.
    metric
        The metric to maximise on clean labels, instead of a number for ``alpha``: ``"accuracy"``, the same as
        ``alpha="auto"``, or ``"balanced_accuracy"``. The latter is α = 1 for two classes. For more classes it
        is argmax(η/π), clean posterior over clean prior, with the noise estimated from the out-of-fold
        probabilities (:func:`peerloss.theory.balanced_decision` explains why it is needed). Leave ``alpha``
        at its default if you set ``metric``.
    cv
        Number of shuffled, stratified folds, a splitter, or an iterable of index pairs. If a class has fewer
        rows than there are folds, fewer folds are made.
    random_state
        Seed of the shuffled folds: an integer, a generator, or ``None`` for different folds in each fit.
    verbose
        Whether ``fit`` shows its progress on stderr: phase, percentage, elapsed time, time left.

    Attributes
    ----------
    classes_
        The labels as given, sorted.
    estimator_
        The estimator, fitted to all rows.
    calibrator_
        Turns its scores into probabilities of the noisy label.
    noisy_prior_
        π̃, the weighted frequencies of the labels, shape (K,).
    alpha_
        The α in use; NaN if no α describes the decision (balanced accuracy of three or more classes).
    label_weights_
        Weights of the noisy labels to which ``alpha_`` refers, (K,). They are 1, unless ``alpha="auto"`` is
        used with labels so nearly balanced that no α* exists without weights.
    clean_map_
        The decision if no α describes it, with the estimated noise as ``clean_map_.noise``; else ``None``.
    oof_proba_
        Calibrated out-of-fold probabilities of the noisy label, (n, K), one row per training row.
    table_
        The fitted encoder of ``X``, such as a :class:`~peerloss.estimators.TableEncoder`; ``None`` if ``X``
        is passed on.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = PeerPlugInClassifier(LogisticRegression()).fit(X, np.where(X[:, 0] > 1, "rare", "common"))
    >>> model.predict([[0.0, 0.0], [2.0, 0.0]])
    array(['common', 'rare'], dtype='<U6')

    References
    ----------
    Menon, van Rooyen, Ong, Williamson (2015), Learning from corrupted binary labels via class-probability
    estimation, ICML.

    Natarajan, Dhillon, Ravikumar, Tewari (2013), Learning with noisy labels, NeurIPS.
    """

    clean_map_: CleanMap | None
    _checks_features = False  # the estimator checks them
    _accepts_partial_labels = True
    _usual_weights = (1.0 / MAX_REPEATS, MAX_REPEATS)

    def __init__(
        self,
        estimator: Any,
        *,
        alpha: float | str = 1.0,
        metric: str | None = None,
        cv: Any = 5,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.metric = metric
        self.cv = cv
        self.random_state = random_state
        self.verbose = verbose

    def _check_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> FitInput:
        self._check_alpha()
        data = super()._check_fit(X, y, sample_weight)
        validate_data(self, X, skip_check_array=True)
        if data.shares is not None:
            self._check_estimator(needs_weights="`y` has soft labels")
        else:
            self._check_estimator(needs_weights="`sample_weight` was given" if data.weighted else "")
        table = table_of_gaps(X)
        if is_mixed_table(table):
            self.table_ = None if self._accepts(X, data) else TableEncoder().fit(table)
        elif not self._accepts_sparse:
            self.table_ = encoder_for(X)
            self.table_ = None if self.table_ is None else self.table_.fit(X)
        return data._replace(X=indexable(self._as_accepted(X))[0])

    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
        given, folds = data, held_out_folds(self.cv, data, seed=self._seed(), groups=groups)
        data, source = labelled_copies(given)
        folds = folds_of_copies(folds, source, len(given.codes))
        self.noisy_prior_ = label_frequencies(data.codes, len(data.classes), data.weight)
        scores = np.zeros((len(data.codes), len(data.classes)))
        with phase("cross-fitting", 0.0, 0.8):
            report = reporter(len(folds))
            for number, (train, test) in enumerate(folds, start=1):
                scores[test] = self._scores(self._fit_clone(data, train), _safe_indexing(data.X, test))
                report(number)
        announce("fitting to all rows", 0.8)
        used = np.flatnonzero(data.weight > 0)
        self.calibrator_ = Calibrator.fit(
            scores[used], data.codes[used], data.weight[used], scale=1.0 if self._probabilistic else None
        )
        self.estimator_ = self._fit_clone(data, used)
        unseen = np.flatnonzero(data.weight == 0)
        if unseen.size:  # the final fit has not seen rows of weight zero, so it is out of fold for them
            scores[unseen] = self._scores(self.estimator_, _safe_indexing(data.X, unseen))
        proba = self.calibrator_.proba(scores)
        self._decide(data, proba)
        self.oof_proba_ = merge_copies(proba, source, len(given.codes))
        unlabelled = np.flatnonzero(given.codes == MISSING)
        if unlabelled.size:
            X = _safe_indexing(given.X, unlabelled)
            self.oof_proba_[unlabelled] = self.calibrator_.proba(self._scores(self.estimator_, X))

    def predict_noisy_proba(self, X: ArrayLike) -> FloatArray:
        """Return calibrated probabilities of the *noisy* label, η̃, shape (n, K)."""
        check_is_fitted(self)
        return self.calibrator_.proba(self._scores(self.estimator_, self._as_accepted(X)))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K); their argmax is the decision.

        With ``metric="balanced_accuracy"`` the classes are taken to be equally frequent.
        """
        noisy = self.predict_noisy_proba(X)
        if self.clean_map_ is not None:
            return self.clean_map_.transform(noisy)
        noisy = noisy * self.label_weights_
        prior = self.noisy_prior_ * self.label_weights_
        return clean_proba(noisy / noisy.sum(axis=1, keepdims=True), self.alpha_, prior / prior.sum())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "__sklearn_tags__"):
            return tags  # `fit` raises the error, or the estimator is not scikit-learn's
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        tags.non_deterministic = inner.non_deterministic
        if inner.classifier_tags is not None:
            tags.classifier_tags.multi_class = inner.classifier_tags.multi_class
        return tags

    def _check_alpha(self) -> float | None:
        """Return the α to use, or ``None`` if it is chosen automatically."""
        alpha = check_alpha_or_auto(self.alpha)
        if self.metric is None:
            return alpha
        check_choice(self.metric, "metric", METRICS)
        if alpha not in (None, 1.0):
            raise InvalidInputError(
                "`metric` chooses the decision instead of a number for `alpha`; got "
                f"metric={self.metric!r} and alpha={self.alpha!r}. Leave one of them out."
            )
        return None

    def _decide(self, data: FitInput, proba: FloatArray) -> None:
        """Set ``alpha_``, ``label_weights_`` and ``clean_map_``."""
        alpha = self._check_alpha()
        self.label_weights_, self.clean_map_ = np.ones(len(data.classes)), None
        if alpha is not None:
            self.alpha_ = alpha
        elif self.metric != "balanced_accuracy":
            found = automatic_alpha(proba, data.codes, data.weight, self.noisy_prior_)
            self.alpha_, self.label_weights_ = found.alpha, found.label_weights
        elif len(data.classes) == 2:
            self.alpha_ = 1.0
        else:
            self.clean_map_ = CleanMap.fit(
                proba,
                data.codes,
                data.weight,
                metric="balanced_accuracy",
                alpha=None,
                noisy_prior=self.noisy_prior_,
            )
            self.alpha_ = self.clean_map_.implied_alpha()

    def _check_estimator(self, *, needs_weights: str) -> None:
        """Check the estimator; ``needs_weights`` says why it must accept weights, empty if it need not."""
        estimator = self.estimator
        if isinstance(estimator, type) or not hasattr(estimator, "fit"):
            raise InvalidInputError(
                f"`estimator` must be a classifier object with `fit`; got {estimator!r}. "
                "Pass, for example, LogisticRegression()."
            )
        if not (hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")):
            raise InvalidInputError(
                "`estimator` must have `predict_proba` or `decision_function`; "
                f"{type(estimator).__name__} has neither. Enable its probabilities, or use another one."
            )
        if needs_weights and not has_fit_parameter(estimator, "sample_weight"):
            raise InvalidInputError(
                f"{needs_weights}, but {type(estimator).__name__}.fit does not accept `sample_weight`. "
                "Leave them out, or use an estimator that does (of a pipeline, wrap the last step)."
            )

    def _as_accepted(self, X: Any) -> Any:
        """Return features that the estimator accepts."""
        if self.table_ is not None:  # which checks the columns that it uses
            return self.table_.transform(self._as_fitted(X))
        check_given_features(X, self.estimator)
        return X if self._accepts_sparse else as_dense(X)

    @property
    def _accepts_sparse(self) -> bool:
        return not hasattr(self.estimator, "__sklearn_tags__") or get_tags(self.estimator).input_tags.sparse

    def _accepts(self, X: Any, data: FitInput) -> bool:
        """Return whether the estimator can be fitted to a table as it is; pipelines answer for themselves."""
        if contains_pipeline(self.estimator):
            return True
        known = np.flatnonzero(data.is_used)
        some = [row for code in np.unique(data.codes[known]) for row in known[data.codes[known] == code][:50]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit to all rows repeats them
            try:
                clone(self.estimator).fit(_safe_indexing(X, some), data.classes[data.codes[some]])
            except (TypeError, ValueError):
                return False
        return True

    def _seed(self) -> int:
        """Return the seed of the folds; an integer is used directly."""
        generator = as_generator(self.random_state)
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state) % 2**31
        return int(generator.integers(2**31 - 1))

    @property
    def _probabilistic(self) -> bool:
        return hasattr(self.estimator, "predict_proba")

    def _fit_clone(self, data: FitInput, rows: IntArray) -> Any:
        weights = {"sample_weight": data.weight[rows]} if data.weighted else {}
        labels = data.classes[data.codes[rows]]
        subset = data.X if len(rows) == len(data.codes) else _safe_indexing(data.X, rows)
        return clone(self.estimator).fit(subset, labels, **weights)

    def _scores(self, model: Any, X: Any) -> FloatArray:
        n_classes = len(self.noisy_prior_)
        if self._probabilistic:
            scores = log_scores(np.asarray(model.predict_proba(X), dtype=np.float64))
        else:
            scores = as_score_columns(model.decision_function(X))
        if scores.shape[1] != n_classes:
            raise InvalidInputError(
                f"`estimator` must return one score per class, {n_classes} columns; got shape "
                f"{scores.shape}. Check that each fold has every class, or use fewer folds."
            )
        if not np.isfinite(scores).all():
            row = int(np.argwhere(~np.isfinite(scores))[0, 0])
            raise InvalidInputError(
                f"`estimator` must return finite scores; {type(self.estimator).__name__} returned "
                f"{scores[row].tolist()} for row {row} of a fold. Standardise the features: put a "
                "StandardScaler before it in a pipeline."
            )
        return scores
