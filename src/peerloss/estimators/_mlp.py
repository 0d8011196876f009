"""RobustMLPClassifier: small nets trained on noisy labels, the loss is a parameter."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from peerloss._classifier import FitInput, NoisyLabelClassifier, all_or_nothing
from peerloss._device import resolve_device
from peerloss._random import RandomState, as_generator
from peerloss._validation import MAX_STANDARDISED
from peerloss.estimators._mlp_checks import check_parameters
from peerloss.estimators._mlp_search import (
    ALPHA_GRID,
    hold_out,
    out_of_fold_probabilities,
    rule_for_alpha,
    search_alpha,
    search_folds,
)
from peerloss.exceptions import DivergenceError, DivergenceWarning
from peerloss.functional.base import DEFAULT_EPS
from peerloss.losses import LOGIT_LIMIT
from peerloss.metrics import peer_score
from peerloss.noise import NoiseModel, as_noise_model, estimate_noise
from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators._folds import Folds

#: Points of the learning curves.
N_RECORDS = 20
#: So many rows are shown to the trained nets to see whether their logits ran away.
RUNAWAY_ROWS = 1000


class RobustMLPClassifier(NoisyLabelClassifier):
    """Small neural networks for noisy labels; features are standardised inside.

    Parameters
    ----------
    loss
        ``"peer"``; ``"plain"``; ``"surrogate"``, also called ``"backward"``, and ``"forward"``, which need
        ``noise``; ``"symmetric"``; ``"dmi"`` (after a warm start with cross entropy); ``"gce"``.
    alpha
        Weight of the peer term during training, or ``"auto"``: searched over a grid with 0 in it by
        cross-validation on the noisy labels, all candidates compared by the peer score at ``scoring_alpha``.
        It is not α* itself, as in :class:`~peerloss.PeerPlugInClassifier`.
    base
        Base loss of ``"peer"``, ``"plain"`` and ``"surrogate"``. For ``"symmetric"`` one of sigmoid,
        unhinged, mae, ramp; there the default of this argument stands for sigmoid.
    hidden_layer_sizes, batch_size, max_steps, learning_rate, weight_decay
        Architecture and training: AdamW on random batches without replacement.
    n_members
        Nets whose probabilities are averaged.
    peers
        ``"expected"`` or ``"sampled"`` inside the batch.
    noise
        :class:`~peerloss.NoiseModel` or transition matrix over the sorted classes, or ``"estimate"``: from
        out-of-fold probabilities of plain nets. The other losses make no use of it.
    eps
        Clip of cross entropy.
    early_stopping
        Keep each net's weights at the best peer score on a part of the noisy training rows held out.
    validation_fraction
        That part.
    scoring_alpha
        α of the peer score that the search and early stopping compare by: a number, such as 1, which orders
        by balanced accuracy if there are two classes; or ``"auto"``, for accuracy: α* at the rates that plain
        training suggests, 1 where more than two classes have no α*. Early stopping without a search has no
        rates to go by: there ``"auto"`` is 1.
    warm_start_fraction
        Share of the steps done with cross entropy before ``"dmi"`` begins.
    cv
        Folds of ``alpha="auto"`` and ``noise="estimate"``: a number of stratified folds, a splitter, or an
        iterable of index pairs.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``: the GPU where there is one and a layer is wide (512).
    random_state
        Seed, generator or ``None``.

    Attributes
    ----------
    alpha_
        α in use (``nan`` for losses without one).
    noise_
        Noise model in use, or ``None``.
    nets_
        The trained members, a :class:`~peerloss.training.TrainedNets`.
    loss_curve_, validation_score_curve_
        (members, points); the steps of the points are ``nets_.steps``. The second is ``None`` without early
        stopping.
    report_
        What was trained, what was searched, which members diverged and were left out.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where((X[:, 0] > 0) ^ (rng.random(300) < 0.3), "yes", "no")
    >>> model = RobustMLPClassifier(random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    def __init__(
        self,
        loss: str = "peer",
        *,
        alpha: float | str = 1.0,
        base: str = "cross_entropy",
        hidden_layer_sizes: Sequence[int] = (32, 32),
        batch_size: int = 64,
        max_steps: int = 1000,
        learning_rate: float = 7e-4,
        weight_decay: float = 1.0,
        n_members: int = 1,
        peers: str = "expected",
        noise: NoiseModel | ArrayLike | str | None = None,
        eps: float = DEFAULT_EPS,
        early_stopping: bool = False,
        validation_fraction: float = 0.15,
        scoring_alpha: float | str = "auto",
        warm_start_fraction: float = 0.5,
        cv: Any = 5,
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.loss = loss
        self.alpha = alpha
        self.base = base
        self.hidden_layer_sizes = hidden_layer_sizes
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_members = n_members
        self.peers = peers
        self.noise = noise
        self.eps = eps
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.scoring_alpha = scoring_alpha
        self.warm_start_fraction = warm_start_fraction
        self.cv = cv
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Train on features (n, d) and noisy labels (n,).

        Parameters
        ----------
        X, y
            Features and noisy labels of any dtype.
        sample_weight
            Non-negative weights of the rows, which multiply the losses and the counted prior.
        groups
            Group of each row, passed to ``cv``; with a number of folds, rows of one group stay together.
        """
        with all_or_nothing(self):
            given = self._check_fit(X, y, sample_weight)
            hidden = check_parameters(self, len(given.classes))
            self.classes_ = given.classes
            self._fit(given, hidden, groups)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K): the mean over the members."""
        features = self._check_predict(X)
        parts = [
            self.nets_.mean_probabilities(self._standardise(features[start : start + 65536]))
            for start in range(0, len(features), 65536)
        ]
        return np.concatenate(parts)

    def _fit(self, given: FitInput, hidden: tuple[int, ...], groups: ArrayLike | None) -> None:
        rng = as_generator(self.random_state)
        features, codes, weight = given.X, given.codes, given.weight
        if not weight.all():  # rows of weight zero are no rows
            counted = weight > 0
            features, codes, weight = features[counted], codes[counted], weight[counted]
        self.mean_, self.scale_ = _mean_and_scale(features, weight)
        seed = int(rng.integers(2**62))
        task = _Task(
            X=self._standardise(features),
            codes=codes,
            weight=None if np.ptp(weight) == 0 else weight,
            n_classes=len(given.classes),
            seed=seed,
            folds=search_folds(self.cv, given, groups, seed) if self._needs_folds else [],
            train=self._trainer(hidden, len(given.classes)),
        )
        self.report_: dict[str, Any] = {"loss": self.loss, "members": self.n_members, "diverged": []}
        self.noise_ = self._noise(task)
        self.alpha_ = self._alpha(task)
        self.report_ |= {"alpha": self.alpha_, "noise": None if self.noise_ is None else repr(self.noise_)}
        self.nets_ = self._train_members(task)
        self.loss_curve_, self.validation_score_curve_ = self.nets_.loss_curve, self.nets_.score_curve
        self.n_iter_ = int(self.nets_.best_step.max())
        self.report_ |= {"steps": self.nets_.best_step.tolist(), "backend": self.nets_.backend[0]}
        self._tell_divergence(task.X[:RUNAWAY_ROWS])

    def _train_members(self, task: _Task) -> TrainedNets:
        nets = [
            task.net(**self._loss_of_net(self.alpha_), random_state=(task.seed, 0, member))
            for member in range(self.n_members)
        ]
        every = max(1, self.max_steps // N_RECORDS)
        if not self.early_stopping:
            return task.train(task.X, nets, record_every=every)
        rows, held_out = hold_out(task.codes, self.validation_fraction, task.seed)
        nets = [
            task.net(**self._loss_of_net(self.alpha_), rows=rows, random_state=(task.seed, 0, member))
            for member in range(self.n_members)
        ]
        X_held, y_held = task.X[held_out], task.codes[held_out]
        alpha = self.report_.get("scoring_alpha", 1.0 if self.scoring_alpha == "auto" else self.scoring_alpha)
        w_held = None if task.weight is None else task.weight[held_out]

        def score(_: int, logits: Callable[[Any], Any]) -> float:
            predicted = logits(X_held).argmax(axis=1)
            return peer_score(y_held, predicted, alpha=alpha, sample_weight=w_held)

        return task.train(task.X, nets, record_every=every, monitor=score, keep_best=True)

    def _noise(self, task: _Task) -> NoiseModel | None:
        if self.loss not in ("surrogate", "backward", "forward"):
            return None
        if not (isinstance(self.noise, str) and self.noise == "estimate"):
            return as_noise_model(self.noise)  # type: ignore[arg-type]  # checked with the parameters
        plain = {**self._settings(), "loss": "peer", "base": "cross_entropy", "alpha": 0.0}
        nets = [
            task.net(**plain, rows=train, random_state=(task.seed, 1, f))
            for f, (train, _) in enumerate(task.folds)
        ]
        trained = task.train(task.X, nets)
        return estimate_noise(task.codes, out_of_fold_probabilities(trained, task.X, task.folds)[0])

    def _alpha(self, task: _Task) -> float:
        if self.loss != "peer":
            return float("nan")
        if not isinstance(self.alpha, str):
            return float(self.alpha)
        plain = self._out_of_fold(task, (0.0,))
        scoring_alpha = 1.0 if self.scoring_alpha == "auto" else float(self.scoring_alpha)
        if self.scoring_alpha == "auto":
            rule = rule_for_alpha(plain[0], task.codes, task.weight)
            if rule is not None:
                scoring_alpha = rule.alpha
                if np.ptp(rule.label_weights):  # balanced labels, which no α could tell apart: weigh them
                    task.weigh_labels(rule.label_weights)
                    plain = self._out_of_fold(task, (0.0,))
        others = self._out_of_fold(task, ALPHA_GRID[1:])
        found = search_alpha(
            np.concatenate([plain, others]), scoring_alpha, y=task.codes, weight=task.weight, folds=task.folds
        )
        self.report_["scoring_alpha"] = scoring_alpha
        self.report_["alpha_scores"] = dict(zip(ALPHA_GRID, found.scores, strict=True))
        return found.alpha

    @property
    def _needs_folds(self) -> bool:
        searches_alpha = self.loss == "peer" and isinstance(self.alpha, str)
        corrected = self.loss in ("surrogate", "backward", "forward")
        return searches_alpha or (corrected and isinstance(self.noise, str))

    def _out_of_fold(self, task: _Task, alphas: Sequence[float]) -> FloatArray:
        """Return out-of-fold probabilities (candidates, n, K) for some α."""
        settings = self._loss_of_net(1.0)
        parts = [
            task.net(**settings, rows=train, random_state=(task.seed, 2, f))
            for f, (train, _) in enumerate(task.folds)
        ]
        trained = task.train(task.X, [replace(part, alpha=a) for a in alphas for part in parts])
        return out_of_fold_probabilities(trained, task.X, task.folds)

    def _settings(self) -> dict[str, Any]:
        return {
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "eps": self.eps,
            "peers": self.peers,
        }

    def _loss_of_net(self, alpha: float) -> dict[str, Any]:
        """Translate the loss into the engine's terms."""
        settings = self._settings()
        if self.loss == "peer":
            return settings | {"loss": "peer", "base": self.base, "alpha": alpha}
        if self.loss in ("surrogate", "backward"):
            return settings | {"loss": "backward", "base": self.base, "noise": self.noise_}
        if self.loss == "forward":
            return settings | {"loss": "forward", "noise": self.noise_}
        if self.loss == "dmi":
            warm = min(self.max_steps, max(1, round(self.max_steps * self.warm_start_fraction)))
            return settings | {"loss": "dmi", "warm_up": warm}
        base = "gce" if self.loss == "gce" else self.base
        if self.loss == "symmetric" and base == "cross_entropy":
            base = "sigmoid"
        return settings | {"loss": "peer", "base": base, "alpha": 0.0, "peers": "expected"}

    def _trainer(self, hidden: tuple[int, ...], n_classes: int) -> Callable[..., TrainedNets]:
        device = resolve_device(self.device, width=max(hidden, default=0))

        def train(X: Any, nets: list[Net], **options: Any) -> TrainedNets:
            return train_nets(
                X,
                nets,
                n_classes=n_classes,
                hidden_layer_sizes=hidden,
                batch_size=self.batch_size,
                max_steps=self.max_steps,
                device=device,
                **options,
            )

        return train

    def _standardise(self, X: FloatArray) -> Any:
        with np.errstate(over="ignore"):
            standard = (X - self.mean_) / self.scale_
        return np.clip(standard, -MAX_STANDARDISED, MAX_STANDARDISED, out=standard).astype(np.float32)

    def _tell_divergence(self, X: Any) -> None:
        lost = np.flatnonzero(self.nets_.diverged).tolist()
        self.report_["diverged"] = lost
        remedy = "Lower `learning_rate`, use `alpha` below 1 or a bounded `base` such as 'sigmoid'."
        if len(lost) == self.n_members:
            raise DivergenceError(f"all {self.n_members} nets left the finite numbers. {remedy}")
        if lost:
            warnings.warn(
                f"members {lost} of {self.n_members} left the finite numbers and count no more. {remedy}",
                DivergenceWarning,
                stacklevel=4,
            )
        sane = np.flatnonzero(~self.nets_.diverged)
        largest = float(np.abs(self.nets_.logits(X, nets=sane)).max())
        if self.alpha_ >= 1 and largest > LOGIT_LIMIT:
            warnings.warn(
                f"logits have reached {largest:.3g} (limit {LOGIT_LIMIT:g}) at alpha = {self.alpha_:g} ≥ 1: "
                f"the loss is not bounded below and training runs away. {remedy}",
                DivergenceWarning,
                stacklevel=4,
            )


@dataclass(eq=False)
class _Task:
    """The training data in the engine's form."""

    X: Any
    codes: IntArray
    weight: FloatArray | None
    n_classes: int
    seed: int
    folds: Folds
    """Folds of the searches; empty where nothing is searched."""
    train: Callable[..., TrainedNets]

    def net(self, *, rows: IntArray | None = None, **settings: Any) -> Net:
        """Return a net for some of the rows."""
        chosen: Any = slice(None) if rows is None else rows
        weight = None if self.weight is None else self.weight[chosen]
        return Net(self.codes[chosen], rows=rows, weight=weight, **settings)

    def weigh_labels(self, label_weights: FloatArray) -> None:
        """Weigh the rows by their labels, beside their own weights."""
        own = 1.0 if self.weight is None else self.weight
        self.weight = own * label_weights[self.codes]


def _mean_and_scale(X: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return weighted means and standard deviations; a constant column gets 1."""
    share = weight / weight.sum()
    mean = share @ X
    spread = np.sqrt(np.maximum(share @ np.square(X) - mean**2, 0.0))
    constant = spread <= 1e-7 * np.maximum(np.abs(mean), 1e-30) + 1e-30
    return mean, np.where(constant, 1.0, spread)
