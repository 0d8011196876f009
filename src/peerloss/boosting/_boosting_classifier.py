"""Gradient boosted trees for noisy labels: the noise is undone after the fit, or the peer loss is boosted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from peerloss._classifier import MAX_REPEATS, NoisyLabelClassifier, all_or_nothing, numbers_only
from peerloss._probabilities import label_frequencies
from peerloss._progress import announce, phase, show_progress
from peerloss._random import RandomState, as_generator
from peerloss._validation import (
    FloatArray,
    IntArray,
    check_choice,
    check_count,
    check_in_range,
    check_magnitude,
    check_varies,
)
from peerloss.boosting import libraries
from peerloss.boosting._cross_fit import LEAVES, cross_fit, hold_out, stratified_folds
from peerloss.boosting._eval_set import read_eval_set
from peerloss.boosting._objectives import BASES, PeerObjective, raw_to_proba
from peerloss.boosting._table_input import checked_dense, encode, fit_encoder
from peerloss.exceptions import InvalidInputError, warn_caller
from peerloss.posterior.decision import CleanMap, check_alpha_or_auto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss.noise import NoiseModel

#: Rounds without improvement after which ``alpha="auto"`` stops.
PATIENCE = 30
#: Leaves of ``num_leaves="auto"`` with a number for ``alpha``.
PEER_LOSS_LEAVES = 15


class PeerBoostingClassifier(NoisyLabelClassifier):
    """Boost trees on noisy labels, with LightGBM or XGBoost.

    With ``alpha="auto"`` (the default) the booster predicts the *noisy* label with the cross entropy of the
    library, and the decision undoes the noise:

    1. Boosters are cross-fitted. Their log loss on held-out noisy labels chooses the number of rounds and of
       leaves. Noisy labels need far fewer rounds and smaller trees than clean ones.
    2. The noise is estimated from the out-of-fold probabilities
       (:func:`peerloss.posterior.estimate_class_noise`).
    3. The booster is fitted to all rows with the chosen settings. Its probabilities of the noisy label are
       mapped to clean ones, averaged over the candidates for T, as in :class:`~peerloss.PeerClassifier`.

    With a number for ``alpha`` the booster minimises the expected peer loss
    ``L[n, ỹ_n] − α Σ_k π̃_k L[n, k]``, where π̃ are the frequencies of the noisy labels; gradient and Hessian
    are those of :func:`peer_gradient`. Scores start at 0. At α = 0 this is the library's own classifier. At
    α ≥ 1 the loss with the logistic base is unbounded below: the scores keep growing with the rounds, so
    ``predict_proba`` becomes overconfident while its argmax stays correct. ``base="sigmoid"`` is bounded.

    Parameters
    ----------
    backend
        ``"lightgbm"`` or ``"xgboost"``; either comes with the extra ``boost``.
    alpha
        ``"auto"``, or a number: the weight of the peer term in the loss.
    base
        ``"logistic"`` (cross entropy), or ``"sigmoid"``, which needs a number for ``alpha``.
    n_estimators
        Number of rounds; the maximum with early stopping.
    num_leaves
        Number of leaves of a tree. ``"auto"`` compares 31 and 7 by the held-out noisy log loss; with a number
        for ``alpha`` it is 15.
    learning_rate, max_depth, min_child_samples
        As in LightGBM; ``max_depth=-1`` is unlimited. With XGBoost ``min_child_samples / 4`` is the minimum
        sum of Hessians in a leaf, which corresponds to the same number of rows in the first round.
    subsample, colsample_bytree
        Fractions of rows and columns that each tree is trained on.
    reg_lambda
        L2 penalty on leaf values.
    early_stopping_rounds
        Stop if the held-out metric has not improved for this many rounds, and keep the rounds up to the best
        one. ``None`` always trains ``n_estimators`` rounds. The metric is the noisy log loss of the folds for
        ``alpha="auto"``, and the noisy peer score (at ``alpha``) of a held-out part for a number. ``"auto"``
        is 30 for ``alpha="auto"`` and ``None`` for a number.
    validation_fraction
        Fraction of the rows held out for early stopping with a number for ``alpha``, stratified by noisy
        label.
    n_folds
        Number of stratified folds for ``alpha="auto"``. If a class has fewer rows, there are fewer folds.
    categorical_features
        Names or positions of categorical columns. Columns of a DataFrame with dtype ``category`` are always
        categorical. Categories that do not occur in training are treated as missing.
    random_state
        Seed of the held-out rows and of the sampling.
    n_jobs
        Number of threads.
    verbose
        Whether ``fit`` shows its progress on stderr: phase, percentage, elapsed time, time left.

    Attributes
    ----------
    classes_
        The labels as given, sorted.
    noisy_prior_
        π̃, shape (K,).
    n_iter_
        Rounds that ``predict`` uses.
    num_leaves_
        Largest number of leaves of a tree.
    validation_scores_
        Metric of the held-out rows after each round, the mean over the folds for ``alpha="auto"``; empty if
        no rows were held out.
    evals_result_
        For the i-th pair of ``eval_set``, under ``"valid_i"``: the name of the metric → its value after each
        round. The metric is ``"log_loss"`` for ``alpha="auto"`` and ``"peer_score"`` for a number. It is that
        of the booster alone, before the noise is undone.
    table_
        The fitted :class:`~peerloss.estimators.TableEncoder` of a DataFrame with text, else ``None``.
    booster_
        The library's own ``Booster``; :meth:`encode_features` returns the features it takes.
    alpha_
        The number given as ``alpha``, or α* at the estimated noise (NaN if none exists).
    noise_, clean_map_
        The estimated noise, and the map from noisy to clean probabilities; ``None`` with a number for
        ``alpha``.
    oof_proba_
        Out-of-fold probabilities of the noisy label, (n, K), one row per training row; ``None`` with a number
        for ``alpha``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = PeerBoostingClassifier(n_estimators=20, random_state=0).fit(X, X[:, 0] > 0)
    >>> model.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    array([ True, False])
    """

    _checks_features = False  # they may contain NaN and text
    _usual_weights = (1.0, MAX_REPEATS)
    clean_map_: CleanMap | None
    noise_: NoiseModel | None
    oof_proba_: FloatArray | None

    def __init__(
        self,
        *,
        backend: str = "lightgbm",
        alpha: float | str = "auto",
        base: str = "logistic",
        n_estimators: int = 200,
        learning_rate: float = 0.05,
        num_leaves: int | str = "auto",
        max_depth: int = -1,
        min_child_samples: int = 20,
        subsample: float = 1.0,
        colsample_bytree: float = 1.0,
        reg_lambda: float = 0.0,
        early_stopping_rounds: int | str | None = "auto",
        validation_fraction: float = 0.15,
        n_folds: int = 5,
        categorical_features: Sequence[int | str] | None = None,
        random_state: RandomState = None,
        n_jobs: int = 1,
        verbose: bool = False,
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
        self.n_folds = n_folds
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        eval_set: Sequence[tuple[ArrayLike, ArrayLike]] | None = None,
    ) -> Self:
        """Fit to features (n, d) and noisy labels (n,).

        Parameters
        ----------
        X, y
            Features, with NaN for missing values, and noisy labels of any dtype. Text columns of a DataFrame
            are categories, or, if they contain sentences, the components of their TF-IDF matrix
            (:class:`~peerloss.estimators.TableEncoder`). A sparse matrix with more than 256 columns is
            reduced to its leading components.
        sample_weight
            Non-negative weights of the rows. If their mean is below 1, they are divided by it.
        eval_set
            Pairs (features, labels) whose metric is recorded in ``evals_result_``. They do not influence the
            model.
        """
        with all_or_nothing(self), show_progress("PeerBoostingClassifier", show=bool(self.verbose)):
            labels = self._check_fit(X, y, sample_weight)
            validate_data(self, X, skip_check_array=True)
            self.table_ = fit_encoder(X, self.categorical_features)
            native = checked_dense(X) if self.table_ is None else None
            self._columns = libraries.CategoricalColumns.learn(
                native, None if native is None else self.categorical_features
            )
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
            watched = read_eval_set(eval_set, self.classes_, encode=self._features)
            libraries.import_backend(self._backend)
            if self._settings.objective is None:
                history = self._fit_noisy_posterior(rows, features, used, watched)
            else:
                history = self._fit_peer_loss(rows, watched)
            self.evals_result_ = {f"valid_{i}": values for i, values in enumerate(history)}
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K).

        With a number for ``alpha`` they are the softmax of the scores.
        """
        check_is_fitted(self)
        if self.clean_map_ is None:
            return raw_to_proba(self._raw(self._features(X)))
        return self.clean_map_.transform(self.predict_noisy_proba(X))

    def predict_noisy_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the *noisy* label, shape (n, K); needs ``alpha="auto"``."""
        check_is_fitted(self)
        if self.clean_map_ is None:
            raise InvalidInputError(
                f"`alpha` must be 'auto' for probabilities of the noisy label; got {self.alpha!r}. "
                "Use `predict_proba`, or fit with alpha='auto'."
            )
        return raw_to_proba(self._raw(self._features(X)))

    def encode_features(self, X: ArrayLike) -> FloatArray:
        """Return the features as ``booster_`` takes them, shape (n, d): categories are replaced by codes.

        Use it for SHAP values: ``model.booster_.predict(model.encode_features(X), pred_contrib=True)``, or
        ``shap.TreeExplainer(model.booster_).shap_values(model.encode_features(X))``.
        """
        check_is_fitted(self)
        return self._features(X)

    @property
    def booster_(self) -> Any:
        """The library's own ``Booster``, of ``n_iter_`` rounds."""
        check_is_fitted(self)
        return self._trained.booster

    @property
    def feature_importances_(self) -> FloatArray:
        """Share of each feature in the total gain of all splits, shape (d,)."""
        check_is_fitted(self)
        return libraries.feature_importances(self._backend, self._trained)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.sparse = True
        tags.non_deterministic = False
        return tags

    def _features(self, X: ArrayLike) -> FloatArray:
        """Return checked features with categories as codes."""
        if self.table_ is not None:
            return encode(self.table_, X, self.categorical_features)
        X = checked_dense(X)
        allowed = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        with numbers_only("`X`"):
            if self._columns.categories:
                validate_data(self, X, reset=False, skip_check_array=True)
                features: FloatArray = check_array(self._columns.encode(X), estimator=self, **allowed)
            else:
                features = validate_data(self, X, reset=False, **allowed)
        check_magnitude(features, names=getattr(self, "feature_names_in_", None))
        return features

    def _make_settings(self, generator: np.random.Generator) -> libraries.BoosterSettings:
        alpha, base = check_alpha_or_auto(self.alpha), check_choice(self.base, "base", BASES)
        if alpha is None and base != "logistic":
            raise InvalidInputError(
                f"`base` must be 'logistic' for alpha='auto'; got {base!r}. Pass a number for `alpha`."
            )
        if self.max_depth != -1:
            check_count(self.max_depth, "max_depth")
        prior = tuple(self.noisy_prior_.tolist())
        leaves, stop = self.num_leaves, self.early_stopping_rounds
        if leaves == "auto":
            leaves = LEAVES[0] if alpha is None else PEER_LOSS_LEAVES
        if stop == "auto":
            stop = PATIENCE if alpha is None else None
        return libraries.BoosterSettings(
            objective=None if alpha is None else PeerObjective(alpha, prior, base),
            n_classes=len(self.classes_),
            categorical=list(self._columns.categories if self.table_ is None else self.table_.categorical()),
            n_estimators=check_count(self.n_estimators, "n_estimators"),
            learning_rate=self._check_share("learning_rate"),
            num_leaves=check_count(leaves, "num_leaves", minimum=2),
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

    def _fit_noisy_posterior(
        self, rows: libraries.Rows, features: FloatArray, used: IntArray, watched: list[libraries.Rows]
    ) -> list[dict[str, list[float]]]:
        """Fit the booster to the noisy labels, and the decision to its out-of-fold probabilities."""
        leaves = LEAVES if self.num_leaves == "auto" else (self._settings.num_leaves,)
        n_folds = check_count(self.n_folds, "n_folds", minimum=2)
        folds = stratified_folds(rows.codes, self.classes_, n_folds=n_folds, seed=self._settings.seed)
        with phase("cross-fitting", 0.0, 0.85):
            found = cross_fit(self._backend, self._settings, rows, folds=folds, leaves=leaves)
        announce("fitting to all rows", 0.85)
        self._settings, self.validation_scores_ = found.settings, found.losses
        history = self._train(rows, watched=watched)
        self.oof_proba_ = np.empty((len(features), len(self.classes_)))
        self.oof_proba_[used] = found.proba
        unseen = np.setdiff1d(np.arange(len(features)), used)
        if unseen.size:  # rows of weight zero were not trained on: the final booster is out of fold for them
            self.oof_proba_[unseen] = raw_to_proba(self._raw(features[unseen]))
        self.clean_map_ = CleanMap.fit(
            found.proba,
            rows.codes,
            rows.weight,
            metric="accuracy",
            alpha=None,
            noisy_prior=self.noisy_prior_,
        )
        self.noise_, self.alpha_ = self.clean_map_.noise, self.clean_map_.implied_alpha()
        return history

    def _fit_peer_loss(
        self, rows: libraries.Rows, watched: list[libraries.Rows]
    ) -> list[dict[str, list[float]]]:
        """Minimise the peer loss, with early stopping on held-out rows if requested."""
        self.alpha_ = self._settings.objective.alpha  # type: ignore[union-attr]  # the caller has checked it
        self.clean_map_ = self.noise_ = self.oof_proba_ = None
        held_out = None
        if self._settings.early_stopping_rounds is not None:
            share = self._check_share("validation_fraction", high_open=True)
            kept, rest = hold_out(rows.codes, share=share, seed=self._settings.seed)
            held_out, rows = rows.take(rest), rows.take(kept)
        history = self._train(rows, watched=watched, held_out=held_out)
        self.validation_scores_ = self._trained.scores
        return history

    def _train(
        self, rows: libraries.Rows, *, watched: list[libraries.Rows], held_out: libraries.Rows | None = None
    ) -> list[dict[str, list[float]]]:
        trained, history = libraries.train(
            self._backend, self._settings, rows, held_out=held_out, eval_rows=watched
        )
        if trained.n_splits == 0:
            warn_caller(
                f"No tree could split the {len(rows.codes)} rows, so all rows get the same prediction. Lower "
                f"`min_child_samples` (now {self.min_child_samples}), or check that the features vary.",
                UserWarning,
            )
        self._trained = trained if held_out is None else libraries.truncate(self._backend, trained)
        self.n_iter_, self.num_leaves_ = trained.n_rounds, self._settings.num_leaves
        return history

    def _raw(self, features: FloatArray) -> FloatArray:
        return libraries.raw_scores(self._backend, self._trained, self._settings, features)
