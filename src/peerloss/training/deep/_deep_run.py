"""One training run of a deep network: model, optimiser, averaging and schedules, epoch by epoch."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.losses import AlphaSchedule, PeerLoss
from peerloss.metrics import peer_score
from peerloss.training.deep._batches import Batches, Epoch
from peerloss.training.deep._inputs import (
    check_outputs,
    check_trainable,
    largest_label,
    number_type,
    training_rows,
)
from peerloss.training.deep._predict import (
    AveragedPredictor,
    WeightAverage,
    call_model,
    precision,
)
from peerloss.training.deep._ranks import Ranks
from peerloss.training.deep._recipe import make_optimizer
from peerloss.training.deep._sieve_targets import (
    FixedTargets,
    GrownTargets,
    RefreshedTargets,
    SieveTargets,
    soft_loss,
)
from peerloss.training.deep._training_output import Record, training_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss._validation import IntArray
    from peerloss.training.deep._input_rows import InputRows, Inputs
    from peerloss.training.deep._recipe import DeepRecipe
    from peerloss.training.deep._sieve_targets import Targets

Weights = dict[str, Tensor]
REMEDY = (
    "Training has diverged: lower the learning rate, keep the clip of the loss (eps=1e-5) or use a bounded "
    "base, raise α later and less (`recipe.alpha`), or clip gradients (`clip_norm`)."
)
#: A mean loss below −α times this counts as divergence. A clipped or bounded loss stays above −12·α, and at
#: this limit all probabilities are 0 or 1 to machine precision.
LOSS_LIMIT = 1e3


@dataclass(frozen=True)
class DeepResult:
    """The result of :func:`train_deep`."""

    history: list[Record]
    """One record per epoch: loss, learning rate, α, seconds, noisy validation score, share of labels kept."""
    weights: dict[str, Weights]
    """State dicts by name. ``"last"`` are the weights after the last step, ``"average"`` their moving
    average, and ``"best"`` those with the best noisy validation score. With a sieve there are two more.
    ``"before_sieve"`` are the weights after training with the loss alone. ``"settled"`` is the average (or
    the last weights if there is none) with batch norm statistics recomputed on images that are augmented as
    in the recipe: a model that was trained on stronger changes needs them to predict plain images."""
    best_epoch: int | None
    """Epoch of the best noisy validation score; ``None`` without validation."""


class Run:
    """The state of a training run, which is saved and loaded as a whole, and its epochs."""

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        X: Any,
        y: Any,
        recipe: DeepRecipe,
        device: torch.device,
        *,
        data_on_device: bool | str = "auto",
        validation: tuple[InputRows, IntArray] | None = None,
    ) -> None:
        check_trainable(model, loss)
        self.recipe, self.device, self.loss = recipe, device, loss
        self.sieve_recipe = recipe.for_rounds()
        self.ranks = Ranks()
        ignored = getattr(loss, "ignore_index", None)
        self.X, self.y, self.targets = training_rows(X, y, model, recipe, device, data_on_device, ignored)
        self.batches = Batches(self.X, recipe, self.ranks)
        self.model = model.to(device)
        self.ranks.copy_first(model)
        if self.X.is_images:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if isinstance(loss, nn.Module):
            loss.to(device).train()
        self.forward: Any = model
        self.criterion, self.soft_criterion = loss, soft_loss
        if recipe.compile:  # on a GPU with CUDA graphs: a small step spends most time launching kernels
            mode = "reduce-overhead" if device.type == "cuda" else None
            self.forward = torch.compile(model, dynamic=False, mode=mode)
            logits = torch.bfloat16 if recipe.half_precision else torch.float32
            is_soft = self.targets.ndim == 2  # on a GPU there are no kernels for soft targets
            if is_soft or not (isinstance(loss, PeerLoss) and loss.has_kernels(device, logits)):
                self.criterion = torch.compile(loss, dynamic=False)
            self.soft_criterion = torch.compile(soft_loss, dynamic=False)
        self.optimizer = make_optimizer(model, recipe, fused=device.type == "cuda")
        self.all_rows = torch.arange(len(self.y), device=device)
        self.labelled = self.all_rows[self.y >= 0]
        self.average = None if recipe.average is None else WeightAverage(model, recipe.average)
        self.predictor = AveragedPredictor(
            model, self.forward, self.average, 4 * recipe.batch_size, recipe.half_precision, self.ranks
        )
        self.sieve = self._make_sieve()
        self.decisions = [] if self.sieve is None else self.sieve.decisions
        knots = [(share * recipe.epochs * self.steps, alpha) for share, alpha in recipe.alpha]
        self.schedule = AlphaSchedule(loss, knots) if knots else None
        self.settings = training_settings(recipe, model, loss, self.X, self.targets, validation)
        self.ranks.check_equal(self.settings)
        self.ranks.check_batch(self.batch)
        self.largest_label = largest_label(self.y, ignored=ignored)
        self.has_ignored = ignored is not None and bool((self.y == ignored).any())
        self.before_sieve: Weights | None = None
        self.history: list[Record] = []
        self.epoch = 0
        self.best: tuple[int, float, Weights] | None = None

    def _make_sieve(self) -> SieveTargets | None:
        recipe, sieve = self.recipe, self.recipe.sieve
        if sieve is None:
            return None
        kind: type[SieveTargets] = RefreshedTargets if sieve.refresh_every else FixedTargets
        # Not a method of this class: a reference cycle would keep the data on the device afterwards.
        predict = partial(self.predictor.probabilities, self.X)
        if sieve.growth is not None:
            kind, predict = GrownTargets, partial(self.predictor.views, self.X)
        return kind(sieve, self.y, epochs=recipe.epochs, predict=predict, mirrored=recipe.augment.flip)

    @property
    def rows(self) -> Tensor:
        """The rows of an epoch; those without a label are included once the sieve has targets for them."""
        return self.all_rows if self.sieve is not None and self.sieve.has_started else self.labelled

    @property
    def batch(self) -> int:
        return min(self.recipe.batch_size, len(self.rows))

    @property
    def steps(self) -> int:
        """Number of steps per epoch; an incomplete batch is dropped."""
        return len(self.rows) // self.batch

    @property
    def finished(self) -> bool:
        if self.recipe.patience is None or self.best is None:
            return self.epoch >= self.recipe.epochs
        since = max([self.best[0], *self.decisions[:1]])  # training does not stop before the sieve starts
        return self.epoch >= min(self.recipe.epochs, since + self.recipe.patience)

    @property
    def alpha(self) -> float:
        """The current α of the loss, 0 if it has none."""
        return float(getattr(self.loss, "alpha", 0.0))

    def train_epoch(self) -> Record:
        """Train one epoch and return its record."""
        started = time.perf_counter()
        if self.epoch in self.decisions[:1]:
            self.before_sieve = _copy(self.model)
        targets = None if self.sieve is None else self.sieve.targets_for(self.epoch)
        if self.average is not None and targets is not None:
            self.average.decay = self.sieve_recipe.average or 0.0
        # Peer losses have both signs: in float32 the rounding of a sum could exceed a mean near zero.
        wide = torch.float32 if self.device.type == "mps" else torch.float64  # MPS has no float64
        total = torch.zeros((), dtype=wide, device=self.device)
        self.model.train()
        with _fastest_kernels():
            epoch = self._epoch(targets)
            for step, (inputs, wanted) in enumerate(self.batches.of_epoch(epoch)):
                total += self._step(step, inputs, wanted, epoch)
        self.epoch += 1
        self.ranks.add(total)
        self.ranks.average(self.model.buffers())
        self.ranks.average(() if self.average is None else self.average.buffers)
        # The weights are checked too, because the last step can damage them after a finite loss. Both numbers
        # are read at once: each read waits for the device.
        mean, norm = torch.stack((total / self.steps, _total_norm(self.model).to(wide))).tolist()
        self._check_divergence(mean, norm)
        return {
            "epoch": self.epoch,
            "loss": mean,
            "rate": self.optimizer.param_groups[0]["lr"],
            "alpha": self.alpha,
            "kept": 1.0 if targets is None else float(targets.kept.sum() / len(self.labelled)),
            "seconds": time.perf_counter() - started,
        }

    def _check_divergence(self, mean_loss: float, weights_norm: float) -> None:
        is_mean = getattr(self.loss, "reduction", "mean") == "mean"
        if is_mean and self.alpha >= 1 and mean_loss < -LOSS_LIMIT * self.alpha:
            raise DivergenceError(
                f"the mean loss is {mean_loss:g} at α = {self.alpha:g}: it is not bounded below. {REMEDY}"
            )
        if not math.isfinite(mean_loss + weights_norm):
            raise DivergenceError(
                f"the mean loss is {mean_loss:g}, the norm of the weights {weights_norm:g}. {REMEDY}"
            )

    def _epoch(self, targets: Targets | None) -> Epoch:
        """Return the settings of the batches of this epoch, in which targets of the sieve replace labels."""
        if targets is None or self.sieve is None:
            return Epoch(self.epoch, self.rows, self.batch, self.targets)
        trusted = None if self.sieve.trusted is None else self.all_rows[self.sieve.trusted]
        return Epoch(self.epoch, self.rows, self.batch, targets.probs, self.recipe.sieve, trusted)

    def _step(self, step: int, inputs: Inputs, targets: Tensor, epoch: Epoch) -> Tensor:
        """Train on this process's share of a batch; return its part of the loss of the whole batch."""
        in_sieve = epoch.sieve is not None
        phase, alpha = (self.sieve_recipe, 0.0) if in_sieve else (self.recipe, self.alpha)
        for group in self.optimizer.param_groups:
            group["lr"] = phase.rate(self._share_done(step), alpha)
        logits = self._forward(inputs)
        if in_sieve:
            loss = self.soft_criterion(logits, targets)
        else:
            if step == 0:
                n_columns = targets.shape[1] if targets.ndim == 2 else None
                check_outputs(logits, self.largest_label, "y", sieve=self.recipe.sieve, n_columns=n_columns)
            loss = self._label_loss(logits, targets)
        if self.ranks.count > 1:
            criterion, has_ignored = (None, False) if in_sieve else (self.loss, self.has_ignored)
            rows = epoch.rows_per_step
            weight = self.ranks.weight_of_share(criterion, targets, rows, has_ignored=has_ignored)
            # Losses of torch are NaN if all rows are ignored.
            loss = loss * weight if isinstance(weight, float) else torch.where(weight > 0, loss * weight, 0.0)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.ranks.add_gradients(self.model.parameters())
        if self.recipe.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        if self.schedule is not None:
            self.schedule.step()
        return loss.detach()

    def _forward(self, inputs: Inputs) -> Tensor:
        if self.recipe.compile:
            torch.compiler.cudagraph_mark_step_begin()
        with precision(self.device, self.recipe.half_precision):
            return call_model(self.forward, self._channels_last(inputs))

    def _channels_last(self, inputs: Inputs) -> Inputs:
        """Return images channels-last; another layout, after augmentation, would cause a recompilation."""
        if isinstance(inputs, Tensor) and self.X.is_images:
            return inputs.to(number_type(self.model)).contiguous(memory_format=torch.channels_last)
        return inputs

    def _label_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        # On the CPU a loss refuses logits that are not finite. Other processes would wait for this one.
        if self.ranks.count > 1 and self.device.type == "cpu":
            is_finite = bool(torch.isfinite(logits).all())
            if self.ranks.any(not is_finite, self.device):
                raise DivergenceError(f"the model's outputs are not finite. {REMEDY}")
        try:
            loss: Tensor = self.criterion(logits, targets)
        except InvalidInputError as error:
            if bool(torch.isfinite(logits).all()):
                raise
            raise DivergenceError(f"the model's outputs are not finite. {REMEDY}") from error
        if loss.ndim:
            raise InvalidInputError(
                f"`loss` must return one number per batch; got shape {tuple(loss.shape)}. Use "
                "reduction='mean'."
            )
        return loss

    def _share_done(self, step: int) -> float:
        """Return the share of steps done: of the whole run, or of the current phase if there is a sieve."""
        first = max((epoch for epoch in self.decisions if epoch <= self.epoch), default=0)
        end = min((epoch for epoch in self.decisions if epoch > self.epoch), default=self.recipe.epochs)
        return ((self.epoch - first) * self.steps + step + 1) / ((end - first) * self.steps + 1)

    def _recompute_batchnorm(self) -> Weights:
        """Return the averaged weights with batch norm statistics of one epoch, augmented by the recipe."""
        batches = (self._channels_last(inputs) for inputs, _ in self.batches.of_epoch(self._epoch(None)))
        with self.predictor.averaged(), precision(self.device, self.recipe.half_precision):
            update_bn(batches, _WithOneArgument(self.model))
            self.ranks.average(self.model.buffers())
            return _copy(self.model)

    def score(self, X: InputRows, y: IntArray) -> Record:
        """Return the noisy validation score, of the averaged weights if there are any; keep the best."""
        probs = self.predictor.probabilities(X)
        check_outputs(probs, int(y.max()), "validation[1]")
        score = peer_score(y, probs.argmax(dim=1).cpu().numpy(), alpha=self.recipe.scoring_alpha)
        if self.best is None or score > self.best[1]:
            with self.predictor.averaged():
                self.best = (self.epoch, score, _copy(self.model))
        return {"score": score}

    def _parts(self) -> Iterator[tuple[str, Any]]:
        """Yield the parts that have a state of their own, by their names in a checkpoint."""
        yield "loss", self.loss if isinstance(self.loss, nn.Module) else None
        for name in ("model", "optimizer", "schedule", "average", "sieve"):
            yield name, getattr(self, name)

    def state_dict(self) -> dict[str, Any]:
        generator = getattr(self.loss, "generator", None)
        on_gpu = self.device.type == "cuda"
        return {
            "settings": self.settings,
            "epoch": self.epoch,
            "history": self.history,
            **{name: None if part is None else part.state_dict() for name, part in self._parts()},
            "loss_generator": self.ranks.collect(None if generator is None else generator.get_state()),
            "before_sieve": self.before_sieve,
            "best": None if self.best is None else list(self.best),
            # The model may draw random numbers, as dropout does, in each process others.
            "random": self.ranks.collect(torch.get_rng_state()),
            "random_device": self.ranks.collect(torch.cuda.get_rng_state(self.device) if on_gpu else None),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.history = state["epoch"], state["history"]
        for name, part in self._parts():
            if part is not None:
                part.load_state_dict(state[name])
        loss_generator = self._own_state(state["loss_generator"])
        if loss_generator is not None:
            self.loss.generator.set_state(loss_generator)
        self.best = None if state["best"] is None else tuple(state["best"])
        self.before_sieve = state["before_sieve"]
        random, random_device = (self._own_state(state[name]) for name in ("random", "random_device"))
        torch.set_rng_state(random)
        if random_device is not None:
            torch.cuda.set_rng_state(random_device, self.device)

    def _own_state(self, states: Any) -> Any:
        """Return the state of this process; checkpoints of earlier versions have that of one process."""
        return states[self.ranks.number % len(states)] if isinstance(states, list) else states

    def result(self) -> DeepResult:
        weights = {"last": _copy(self.model)}
        if self.average is not None:
            with self.average.in_use():
                weights["average"] = _copy(self.model)
        if self.best is not None:
            weights["best"] = self.best[2]
        if self.before_sieve is not None:
            weights |= {"before_sieve": self.before_sieve, "settled": self._recompute_batchnorm()}
            self.model.load_state_dict(weights["last"])
        self.model.eval()
        return DeepResult(self.history, weights, None if self.best is None else self.best[0])


class _WithOneArgument(nn.Module):
    """A model to which ``update_bn`` can pass a dictionary of inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Inputs) -> Tensor:
        return call_model(self.model, inputs)


def _copy(model: nn.Module) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@torch.no_grad()
def _total_norm(model: nn.Module) -> Tensor:
    """Return the sum of the norms of all weights and buffers; it is finite only if all of them are."""
    return torch.stack([t.norm() for t in model.state_dict().values() if t.is_floating_point()]).sum()


@contextmanager
def _fastest_kernels() -> Iterator[None]:
    """Let cuDNN choose the fastest kernels by trial. All batches have the same shape, so this is worth it."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
