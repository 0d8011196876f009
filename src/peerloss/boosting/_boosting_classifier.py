"""Gradient boosted trees trained with the α-weighted peer loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from peerloss._classifier import NoisyLabelClassifier, all_or_nothing, no_overflow
from peerloss._probabilities import label_frequencies
from peerloss._random import RandomState, as_generator
from peerloss._validation import (
    FloatArray,
    IntArray,
    check_choice,
    check_count,
    check_finite,
    check_in_range,
    check_magnitude,
    check_varies,
)
from peerloss.boosting import libraries
from peerloss.boosting._objectives import BASES, PeerObjective, raw_to_proba
from peerloss.exceptions import InvalidInputError, warn_caller

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


class PeerBoostingClassifier(NoisyLabelClassifier):
    """Boost trees on the expected α-peer loss, with LightGBM or XGBoost.

    The loss is ``L[n, ỹ_n] − α Σ_k π̃_k L[n, k]``, where π̃ are the frequencies of the noisy labels; gradient
    and Hessian are those of :func:`peer_gradient`. Scores start at 0. At α = 0 this is the library's own
    classifier. At α ≥ 1 the loss with the logistic base is unbounded below: the scores keep growing with the
    rounds, so ``predict_proba`` becomes overconfident while its argmax stays correct. ``base="sigmoid"`` is
    bounded.

    Parameters
    ----------
    backend
        ``"lightgbm"`` or ``"xgboost"``; either comes with ``pip install "peerloss[boost]"``.
    alpha
        Weight of the peer term.
    base
        ``"logistic"`` (cross entropy) or ``"sigmoid"``.
    n_estimators, learning_rate, num_leaves, max_depth, min_child_samples
        As in LightGBM; ``max_depth=-1`` is unlimited. With XGBoost ``min_child_samples / 4`` is the minimum
        sum of Hessians in a leaf, which corresponds to the same number of rows in the first round.
    subsample, colsample_bytree
        Fractions of rows and columns that each tree is trained on.
    reg_lambda
        L2 penalty on leaf values.
    early_stopping_rounds
        Stop if the noisy peer score (at ``alpha``) of held-out rows has not improved for this many rounds,
        and keep the rounds up to the best one. ``None`` trains on all rows for ``n_estimators`` rounds.
    validation_fraction
        Fraction of the rows held out for early stopping, stratified by noisy label.
    categorical_features
        Names or positions of categorical columns. Columns of a DataFrame with dtype ``category`` are always
        categorical. Categories that do not occur in training are treated as missing.
    random_state
        Seed of the held-out rows and of the sampling.
    n_jobs
        Number of threads.

    Attributes
    ----------
    classes_
        The labels as given, sorted.
    noisy_prior_
        π̃, shape (K,).
    n_iter_
        Rounds that ``predict`` uses.
    validation_scores_
        Peer score of the held-out rows after each round; empty without early stopping.
    booster_
        The library's own ``Booster``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = PeerBoostingClassifier(n_estimators=20).fit(X, X[:, 0] > 0)
    >>> model.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    array([ True, False])
    """

    _checks_features = False  # they may contain NaN and text

    def __init__(
        self,
        *,
        backend: str = "lightgbm",
        alpha: float = 1.0,
        base: str = "logistic",
        n_estimators: int = 200,
        learning_rate: float = 0.05,
        num_leaves: int = 15,
        max_depth: int = -1,
        min_child_samples: int = 20,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        reg_lambda: float = 0.0,
        early_stopping_rounds: int | None = None,
        validation_fraction: float = 0.15,
        categorical_features: Sequence[int | str] | None = None,
        random_state: RandomState = None,
        n_jobs: int = 1,
    ) -> None:
        self.backend = backend
        self.alpha = alpha
        self.base = base
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.min_child_samples = min_child_samples
        self.subsample = subsample
        self.colsample_bytree = colsample_bytree
        self.reg_lambda = reg_lambda
        self.early_stopping_rounds = early_stopping_rounds
        self.validation_fraction = validation_fraction
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to features (n, d) and noisy labels (n,).

        Parameters
        ----------
        X, y
            Features, with NaN for missing values, and noisy labels of any dtype.
        sample_weight
            Non-negative weights of the rows.
        """
        with all_or_nothing(self):
            labels = self._check_fit(X, y, sample_weight)
            validate_data(self, X, skip_check_array=True)
            self._columns = libraries.CategoricalColumns.learn(X, self.categorical_features)
            used = np.flatnonzero(labels.weight)
            if len(np.unique(labels.codes[used])) < 2:
                raise InvalidInputError(
                    "`sample_weight` must leave at least two classes; all rows of positive weight are class "
                    f"{labels.classes[labels.codes[used[0]]]!r}. Use positive weights for another class."
                )
            features = self._features(X)
            check_varies(features)
            rows = libraries.Rows(features, labels.codes, labels.weight).take(used)
            self.classes_ = labels.classes
            self.noisy_prior_ = label_frequencies(rows.codes, len(labels.classes), rows.weight)
            self._settings = self._make_settings(as_generator(self.random_state))
            self._backend = check_choice(self.backend, "backend", libraries.BACKENDS)
            libraries.import_backend(self._backend)
            self._trained = self._train(rows)
            self.n_iter_ = self._trained.n_rounds
            self.validation_scores_ = self._trained.scores
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, the softmax of the scores, shape (n, K)."""
        check_is_fitted(self)
        return raw_to_proba(
            libraries.raw_scores(self._backend, self._trained, self._settings, self._features(X))
        )

    @property
    def booster_(self) -> Any:
        """The library's own ``Booster``, of ``n_iter_`` rounds."""
        check_is_fitted(self)
        return self._trained.booster

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.non_deterministic = False
        return tags

    def _features(self, X: ArrayLike) -> FloatArray:
        """Return checked features with categories as codes."""
        allowed = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        with no_overflow("`X`"):
            if self._columns.categories:
                validate_data(self, X, reset=False, skip_check_array=True)
                features: FloatArray = check_array(self._columns.encode(X), estimator=self, **allowed)
            else:
                features = validate_data(self, X, reset=False, **allowed)
        check_magnitude(features, names=getattr(self, "feature_names_in_", None))
        return features

    def _make_settings(self, generator: np.random.Generator) -> libraries.BoosterSettings:
        stop = self.early_stopping_rounds
        if self.max_depth != -1:
            check_count(self.max_depth, "max_depth")
        prior, base = tuple(self.noisy_prior_.tolist()), check_choice(self.base, "base", BASES)
        return libraries.BoosterSettings(
            objective=PeerObjective(check_finite(self.alpha, "alpha"), prior, base),
            n_classes=len(self.classes_),
            categorical=list(self._columns.categories),
            n_estimators=check_count(self.n_estimators, "n_estimators"),
            learning_rate=self._check_share("learning_rate"),
            num_leaves=check_count(self.num_leaves, "num_leaves", minimum=2),
            max_depth=int(self.max_depth),
            min_child_samples=check_count(self.min_child_samples, "min_child_samples"),
            subsample=self._check_share("subsample"),
            colsample_bytree=self._check_share("colsample_bytree"),
            reg_lambda=check_in_range(self.reg_lambda, "reg_lambda", 0.0, np.inf),
            early_stopping_rounds=None if stop is None else check_count(stop, "early_stopping_rounds"),
            seed=int(generator.integers(2**31 - 1)),
            n_jobs=check_count(self.n_jobs, "n_jobs"),
        )

    def _check_share(self, name: str, *, high_open: bool = False) -> float:
        return check_in_range(getattr(self, name), name, 0.0, 1.0, low_open=True, high_open=high_open)

    def _train(self, rows: libraries.Rows) -> libraries.TrainedBooster:
        validation = None
        if self._settings.early_stopping_rounds is not None:
            kept, held_out = self._hold_out(rows.codes)
            validation, rows = rows.take(held_out), rows.take(kept)
        trained = libraries.train(self._backend, self._settings, rows, validation)
        if trained.n_splits == 0:
            warn_caller(
                f"No tree could split the {len(rows.codes)} rows, so every prediction is {self.classes_[0]!r}"
                f" with equal probabilities. Lower `min_child_samples` (now {self.min_child_samples}), or "
                "check that the features vary.",
                UserWarning,
            )
        return trained

    def _hold_out(self, codes: IntArray) -> tuple[IntArray, IntArray]:
        share = self._check_share("validation_fraction", high_open=True)
        try:
            kept, held_out = train_test_split(
                np.arange(len(codes)), test_size=share, stratify=codes, random_state=self._settings.seed
            )
        except ValueError as error:
            raise InvalidInputError(
                f"`validation_fraction`={share:g} of {len(codes)} rows cannot be held out with every class "
                f"in both parts: {error} Use more rows, or `early_stopping_rounds=None`."
            ) from error
        return kept, held_out
