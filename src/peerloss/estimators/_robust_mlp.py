"""RobustMLPClassifier: small neural networks trained on noisy labels with a choice of losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from peerloss._deprecation import renamed_attribute, renamed_parameters
from peerloss._device import resolve_device
from peerloss._progress import phase, show_progress
from peerloss._random import RandomState, as_generator
from peerloss._validation import MAX_STANDARDISED
from peerloss.estimators._mlp_settings import (
    ALPHA_GRID,
    LossChoice,
    check_parameters,
    hold_out,
    out_of_fold_probabilities,
    rule_for_alpha,
    search_alpha,
    search_folds,
)
from peerloss.estimators.folds import FoldClassifier, Folds
from peerloss.exceptions import DivergenceError, DivergenceWarning, InvalidInputError, warn_caller
from peerloss.functional.base import DEFAULT_EPS
from peerloss.losses import LOGIT_LIMIT
from peerloss.metrics import peer_score
from peerloss.noise import NoiseModel, as_noise_model, estimate_noise
from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray

#: Typical share of the time after which α or the noise has been searched; the networks of the result follow.
SEARCH_END = 0.9
#: Points of the learning curves.
N_RECORDS = 20
#: The logits of this many rows are checked for divergence after training.
N_CHECKED_ROWS = 1000
#: Rows per block of a prediction.
BLOCK_ROWS = 65536


class RobustMLPClassifier(FoldClassifier):
    """Small neural networks for noisy labels; features are standardised inside.

    Rows without a label (NaN, None, or -1 as in :class:`PeerClassifier`) are left out.

    Parameters
    ----------
    loss
        ``"peer"``, which at ``alpha=0`` is plain training with ``base``; ``"backward"`` (the unbiased
        surrogate loss) and ``"forward"``, which need ``noise``; or ``"dmi"``, which starts after a warm-up
        with cross entropy.
    alpha
        Weight of the peer term of ``"peer"``. ``"auto"``: chosen from the noisy labels for accuracy, from a
        grid that contains 0, by cross-validation with the peer score at ``scoring_alpha``.
    base
        Base loss of ``"peer"`` and ``"backward"``: ``"cross_entropy"``, ``"gce"``, the symmetric
        ``"sigmoid"``, ``"unhinged"``, ``"mae"`` and ``"ramp"``, and others.
    hidden_layer_sizes, batch_size, max_steps, learning_rate, weight_decay
        Architecture and training: AdamW on random batches without replacement.
    n_members
        Number of nets whose probabilities are averaged.
    peers
        ``"expected"``, or ``"sampled"`` from the batch.
    noise
        Noise of ``"backward"`` and ``"forward"``: a :class:`~peerloss.NoiseModel` or a transition matrix over
        the sorted classes, or ``"estimate"``, from out-of-fold probabilities of plain nets.
    eps
        Clip of cross entropy.
    early_stopping
        Keep the weights of each net at the step with the best peer score on held-out noisy rows.
    validation_fraction
        Fraction of the rows that early stopping holds out.
    scoring_alpha
        α of the peer score that compares candidates on held-out noisy labels, in the search for ``alpha`` and
        in early stopping: a number such as 1, which orders by balanced accuracy for two classes; or
        ``"auto"``, which aims at accuracy: α* at the rates estimated from plain training, or 1 if there are
        more than two classes and no α* exists. Early stopping without a search does not estimate rates:
        ``"auto"`` is then 1.
    warm_up_fraction
        Fraction of the steps that train with cross entropy before ``"dmi"``.
    cv
        Folds of ``alpha="auto"`` and ``noise="estimate"``: a number of stratified folds, a splitter, or an
        iterable of index pairs.
    device
        ``"cpu"``, ``"cuda"``, or ``"auto"``, which is the GPU if there is one and a layer has at least 512
        units.
    random_state
        Seed, generator or ``None``.
    verbose
        Whether ``fit`` shows its progress on stderr: phase, percentage, elapsed time, time left.

    Attributes
    ----------
    alpha_
        α in use (``nan`` for losses other than ``"peer"``).
    noise_
        Noise model in use, or ``None``.
    nets_
        The trained members, a :class:`~peerloss.training.TrainedNets`.
    loss_curve_, validation_score_curve_
        Shape (members, points); ``nets_.steps`` has the steps of the points. The second is ``None`` without
        early stopping.
    report_
        The settings in use, the scores of the search, and the members that diverged and are excluded.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where((X[:, 0] > 0) ^ (rng.random(300) < 0.3), "yes", "no")
    >>> model = RobustMLPClassifier(random_state=0).fit(X, y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array(['yes', 'no'], dtype='<U3')
    """

    @renamed_parameters(warm_start_fraction="warm_up_fraction")
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
        warm_up_fraction: float = 0.5,
        cv: Any = 5,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: bool = False,
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
        self.warm_up_fraction = warm_up_fraction
        self.cv = cv
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    _accepts_partial_labels = True

    warm_start_fraction = renamed_attribute("warm_start_fraction", "warm_up_fraction")

    @renamed_parameters(warm_start_fraction="warm_up_fraction")
    def set_params(self, **params: Any) -> Self:
        """Set ``params`` by name, as in every estimator of scikit-learn."""
        super().set_params(**params)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return probabilities of the clean classes, shape (n, K): the mean over the members."""
        features = self._check_predict(X)
        parts = [
            self.nets_.mean_probabilities(self._standardise(features[start : start + BLOCK_ROWS]))
            for start in range(0, len(features), BLOCK_ROWS)
        ]
        return np.concatenate(parts)

    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
        hidden, loss = check_parameters(self, len(data.classes))
        if data.shares is not None:
            raise InvalidInputError(
                f"`y` must be one label per row; got soft labels of shape {data.shares.shape}. Use "
                "PeerClassifier, or train_nets, which accept them, or the most probable labels."
            )
        used: Any = slice(None) if data.is_used.all() else data.is_used
        features, codes, weight = data.X[used], data.codes[used], data.weight[used]
        self.mean_, self.scale_ = _mean_and_scale(features, weight)
        seed = int(as_generator(self.random_state).integers(2**62))
        needs_folds = loss.searches_alpha or (loss.uses_noise and isinstance(self.noise, str))
        task = _Task(
            loss=loss,
            X=self._standardise(features),
            codes=codes,
            weight=None if np.ptp(weight) == 0 else weight,
            seed=seed,
            folds=search_folds(self.cv, data, groups, seed) if needs_folds else [],
            train=partial(
                train_nets,
                n_classes=len(data.classes),
                hidden_layer_sizes=hidden,
                batch_size=self.batch_size,
                max_steps=self.max_steps,
                device=resolve_device(self.device, width=max(hidden, default=0)),
            ),
        )
        self.report_: dict[str, Any] = {"loss": self.loss, "members": self.n_members, "diverged": []}
        self.noise_: NoiseModel | None = None  # plain nets estimate it
        with show_progress("RobustMLPClassifier", show=bool(self.verbose)):
            searched = SEARCH_END if needs_folds else 0.0
            with phase("searching", 0.0, searched):
                self.noise_ = self._find_noise(task)
                self.alpha_ = self._find_alpha(task)
            self.report_ |= {
                "alpha": self.alpha_,
                "noise": None if self.noise_ is None else repr(self.noise_),
            }
            with phase("training networks", searched, 1.0):
                self.nets_ = self._train_members(task)
        self.loss_curve_, self.validation_score_curve_ = self.nets_.loss_curve, self.nets_.score_curve
        self.n_iter_ = int(self.nets_.best_step.max())
        self.report_ |= {"steps": self.nets_.best_step.tolist(), "backend": self.nets_.backend[0]}
        self._report_divergence(task.X[:N_CHECKED_ROWS])

    def _train_members(self, task: _Task) -> TrainedNets:
        rows = held_out = None
        if self.early_stopping:
            rows, held_out = hold_out(task.codes, self.validation_fraction, task.seed)
        options = self._net_options(task.loss, self.alpha_)
        nets = [task.net(**options, rows=rows, random_state=(task.seed, 0, i)) for i in range(self.n_members)]
        every = max(1, self.max_steps // N_RECORDS)
        if held_out is None:
            return task.train(task.X, nets, record_every=every)
        X_held, y_held = task.X[held_out], task.codes[held_out]
        alpha = self.report_.get("scoring_alpha", 1.0 if self.scoring_alpha == "auto" else self.scoring_alpha)
        w_held = None if task.weight is None else task.weight[held_out]

        def score(_: int, logits: Callable[[Any], Any]) -> float:
            predicted = logits(X_held).argmax(axis=1)
            return peer_score(y_held, predicted, alpha=alpha, sample_weight=w_held)

        return task.train(task.X, nets, record_every=every, monitor=score, keep_best=True)

    def _find_noise(self, task: _Task) -> NoiseModel | None:
        if not task.loss.uses_noise:
            return None
        if not isinstance(self.noise, str):
            return as_noise_model(self.noise)  # type: ignore[arg-type]  # checked with the parameters
        plain = LossChoice("peer", "cross_entropy", 0.0, task.loss.peers)
        return estimate_noise(task.codes, self._out_of_fold(task, plain, (0.0,), stream=1)[0])

    def _find_alpha(self, task: _Task) -> float:
        loss = task.loss
        if loss.loss != "peer":
            return float("nan")
        if not isinstance(loss.alpha, str):
            return float(loss.alpha)
        first = 1.0 / len(ALPHA_GRID)  # the share of plain training
        with phase("searching alpha", 0.0, first):
            plain = self._out_of_fold(task, loss, (0.0,), stream=2)
        is_auto = self.scoring_alpha == "auto"
        rule = rule_for_alpha(plain[0], task.codes, task.weight) if is_auto else None
        scoring_alpha = 1.0 if is_auto else float(self.scoring_alpha)
        if rule is not None:
            scoring_alpha = rule.alpha
            if np.ptp(rule.label_weights):  # balanced labels have no α* unless they are weighted
                task.weight = (1.0 if task.weight is None else task.weight) * rule.label_weights[task.codes]
                with phase("searching alpha", first, first):
                    plain = self._out_of_fold(task, loss, (0.0,), stream=2)
        with phase("searching alpha", first, 1.0):
            others = self._out_of_fold(task, loss, ALPHA_GRID[1:], stream=2)
        alpha, scores = search_alpha(
            np.concatenate([plain, others]), scoring_alpha, y=task.codes, weight=task.weight, folds=task.folds
        )
        self.report_["scoring_alpha"] = scoring_alpha
        self.report_["alpha_scores"] = dict(zip(ALPHA_GRID, scores, strict=True))
        return alpha

    def _out_of_fold(
        self, task: _Task, loss: LossChoice, alphas: Sequence[float], *, stream: int
    ) -> FloatArray:
        """Return out-of-fold probabilities (alphas, n, K); each search has its own ``stream`` of seeds."""
        options = self._net_options(loss, 1.0)
        parts = [
            task.net(**options, rows=train, random_state=(task.seed, stream, f))
            for f, (train, _) in enumerate(task.folds)
        ]
        trained = task.train(task.X, [replace(part, alpha=a) for a in alphas for part in parts])
        return out_of_fold_probabilities(trained, task.X, task.folds)

    def _net_options(self, loss: LossChoice, alpha: float) -> dict[str, Any]:
        """Return the loss and the settings of the optimiser as options of :class:`Net`."""
        by_loss: dict[str, dict[str, Any]] = {
            "peer": {"base": loss.base, "alpha": alpha},
            "backward": {"base": loss.base, "noise": self.noise_},
            "forward": {"noise": self.noise_},
            "dmi": {"warm_up": max(1, round(self.max_steps * self.warm_up_fraction))},
        }
        common = {name: getattr(self, name) for name in ("learning_rate", "weight_decay", "eps")}
        return {"loss": loss.loss, "peers": loss.peers, **common, **by_loss[loss.loss]}

    def _standardise(self, X: FloatArray) -> Any:
        with np.errstate(over="ignore"):
            standard = (X - self.mean_) / self.scale_
        return np.clip(standard, -MAX_STANDARDISED, MAX_STANDARDISED, out=standard).astype(np.float32)

    def _report_divergence(self, X: Any) -> None:
        """Warn of members that diverged, or whose logits are very large; raise an error if none is left."""
        lost = np.flatnonzero(self.nets_.diverged).tolist()
        self.report_["diverged"] = lost
        remedy = "Lower `learning_rate`, use `alpha` below 1 or a bounded `base` such as 'sigmoid'."
        if len(lost) == self.n_members:
            raise DivergenceError(f"all {self.n_members} nets became NaN or infinite. {remedy}")
        if lost:
            warn_caller(
                f"members {lost} of {self.n_members} became NaN or infinite and are excluded. {remedy}",
                DivergenceWarning,
            )
        finite = np.flatnonzero(~self.nets_.diverged)
        largest = float(np.abs(self.nets_.logits(X, nets=finite)).max())
        if self.alpha_ >= 1 and largest > LOGIT_LIMIT:
            warn_caller(
                f"logits have reached {largest:.3g} (limit {LOGIT_LIMIT:g}) at alpha = {self.alpha_:g} ≥ 1: "
                f"the loss is not bounded below and training diverges. {remedy}",
                DivergenceWarning,
            )


@dataclass(eq=False)
class _Task:
    """The training data in the form that :func:`train_nets` expects."""

    loss: LossChoice
    X: Any
    codes: IntArray
    weight: FloatArray | None
    seed: int
    folds: Folds
    """Folds of the searches; empty if nothing is searched."""
    train: Callable[..., TrainedNets]

    def net(self, *, rows: IntArray | None = None, **settings: Any) -> Net:
        """Return a net that trains on ``rows``, or on all rows."""
        chosen: Any = slice(None) if rows is None else rows
        weight = None if self.weight is None else self.weight[chosen]
        return Net(self.codes[chosen], rows=rows, weight=weight, **settings)


def _mean_and_scale(X: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return weighted means and standard deviations; a constant column gets 1."""
    share = weight / weight.sum()
    mean = share @ X
    spread = np.sqrt(np.maximum(share @ np.square(X) - mean**2, 0.0))
    constant = spread <= 1e-7 * np.maximum(np.abs(mean), 1e-30) + 1e-30
    return mean, np.where(constant, 1.0, spread)
