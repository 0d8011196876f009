"""The state of a deep training and its epochs: what :func:`train_deep` drives, saves and loads."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.functional.batch import as_columns
from peerloss.losses import AlphaSchedule, PeerLoss
from peerloss.metrics import peer_score
from peerloss.training._augment import Augment, crop_and_flip, distort, to_inputs
from peerloss.training._average import WeightAverage
from peerloss.training._predict import is_images, precision, predict_logits, predict_mirrored
from peerloss.training._rows import (
    check_changes,
    check_label_range,
    class_count,
    largest_label,
    training_rows,
)
from peerloss.training._settings import settings_of
from peerloss.training._sieve import check_shares, mix_pairs, sieve_targets, soft_loss

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from peerloss._validation import IntArray
    from peerloss.training._log import Record
    from peerloss.training._recipe import DeepRecipe

_REMEDY = (
    "Training has diverged: lower the learning rate, keep the clip of the loss (eps=1e-5) or take a bounded "
    "base, raise α later and less (`recipe.alpha`), or clip gradients (`clip_norm`)."
)

#: A mean loss below −α times this is taken for divergence: a clipped or bounded loss stays above −12·α, and
#: where log-probabilities are that low, p is 0 or 1 to every digit and the model of no use.
LOSS_LIMIT = 1e3

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class DeepResult:
    """What a training leaves behind."""

    history: list[Record]
    """One record an epoch: loss, rate, α, seconds, noisy validation scores, share of labels kept."""
    weights: dict[str, Weights]
    """State dicts by name: ``"last"``; ``"average"`` (the running mean); ``"best"`` on noisy validation.
    With a sieve also ``"before_sieve"``, what the loss alone had reached, and ``"settled"``: the average, or
    the last where there is none, with batch statistics taken anew from images changed as the recipe says. A
    student that saw stronger changes only finds plain images strange without that."""
    best_epoch: int | None


class Run:
    """Everything that changes during a training, so that it is saved and loaded as one."""

    def __init__(
        self, model: nn.Module, loss: Any, X: Any, y: Any, recipe: DeepRecipe, device: torch.device
    ) -> None:
        self.recipe, self.device, self.loss = recipe, device, loss
        self.X, self.y = training_rows(X, y, model, device)
        check_changes(self.X, recipe)
        self.model = model.to(device)
        if is_images(self.X):
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if isinstance(loss, nn.Module):
            loss.to(device).train()
        self.forward: Any = model
        self.judge, self.compare = loss, soft_loss
        if recipe.compile:  # on a GPU with CUDA graphs: launching the kernels of a small step costs most
            mode = "reduce-overhead" if device.type == "cuda" else None
            self.forward = torch.compile(model, dynamic=False, mode=mode)
            logits = torch.bfloat16 if recipe.half_precision else torch.float32
            if not (isinstance(loss, PeerLoss) and loss.has_kernels(device, logits)):
                self.judge = torch.compile(loss, dynamic=False)
            self.compare = torch.compile(soft_loss, dynamic=False)
        self.optimizer = torch.optim.SGD(
            model.parameters(),
            lr=recipe.learning_rate,
            momentum=recipe.momentum,
            nesterov=True,
            weight_decay=recipe.weight_decay,
            fused=device.type == "cuda",
        )
        self.all_rows = torch.arange(len(self.y), device=device)
        self.labelled = self.all_rows[self.y >= 0]
        self.taught: Tensor | None = None  # answers for the rows, on which targets rest
        knots = [(share * recipe.epochs * self.steps, alpha) for share, alpha in recipe.alpha]
        self.schedule = AlphaSchedule(loss, knots) if knots else None
        self.average = None if recipe.average is None else WeightAverage(model, recipe.average)
        self.decisions = [] if recipe.sieve is None else recipe.sieve.decisions(recipe.epochs)
        self.renewals = [] if recipe.sieve is None else recipe.sieve.renewals(recipe.epochs)
        self.settings = settings_of(recipe, model, loss, self.X, self.y)
        self.largest_label = largest_label(self.y, ignored=getattr(loss, "ignore_index", None))
        self.before_sieve: Weights | None = None
        self.history: list[Record] = []
        self.epoch = 0
        self.best: tuple[int, float, Weights] | None = None
        self.generator = torch.Generator(device)

    @property
    def rows(self) -> Tensor:
        """What an epoch draws from: rows without a label join once targets take the labels' place."""
        return self.labelled if self.taught is None else self.all_rows

    @property
    def batch(self) -> int:
        return min(self.recipe.batch_size, len(self.rows))

    @property
    def steps(self) -> int:
        """So many an epoch; it leaves out the rows that fill no batch."""
        return len(self.rows) // self.batch

    @property
    def finished(self) -> bool:
        if self.recipe.patience is None or self.best is None:
            return self.epoch >= self.recipe.epochs
        since = max([self.best[0], *self.decisions[:1]])  # a sieve is waited for
        return self.epoch >= min(self.recipe.epochs, since + self.recipe.patience)

    def train_epoch(self) -> Record:
        """Go through the data once and return the epoch's figures."""
        started = time.perf_counter()
        self.generator.manual_seed(
            _mix(self.recipe.seed, self.epoch)
        )  # the epoch's draws need no saved state
        if self.epoch in self.decisions:
            if self.taught is None:
                self.before_sieve = _copy(self.model)
            self.taught = self._teach()
        elif self.epoch in self.renewals:
            self.taught = self._renewed()
        targets, kept = self._targets()
        augment = self.recipe.augment
        if targets is not None and self.recipe.sieve is not None:
            augment = self.recipe.sieve.augment
        order = self._order()
        total = torch.zeros((), device=self.device)
        self.model.train()
        with _fastest_kernels():
            for step, (rows, inputs) in enumerate(self._batches(order, augment)):
                total += self._step(step, inputs, rows, targets)
        self.epoch += 1
        # The last step can break the weights after a finite loss. Here the device is waited for.
        mean, size = torch.stack((total / self.steps, _weights_norm(self.model))).tolist()
        if self._ran_away(mean):
            raise DivergenceError(
                f"the mean loss is {mean:g} at α = {self.alpha:g}: it is not bounded below. {_REMEDY}"
            )
        if not math.isfinite(mean + size):
            raise DivergenceError(f"the mean loss is {mean:g}, the norm of the weights {size:g}. {_REMEDY}")
        return {
            "epoch": self.epoch,
            "loss": mean,
            "rate": self.optimizer.param_groups[0]["lr"],
            "alpha": self.alpha,
            "kept": float(kept.sum() / len(self.labelled)),
            "seconds": time.perf_counter() - started,
        }

    def _order(self) -> Tensor:
        """Draw the rows of an epoch; those that fill no batch are left out."""
        order = torch.randperm(len(self.rows), device=self.device, generator=self.generator)
        return self.rows[order[: self.steps * self.batch]]

    def _batches(self, order: Tensor, augment: Augment) -> Iterator[tuple[Tensor, Tensor]]:
        images = is_images(self.X)
        epoch = crop_and_flip(self.X, order, augment, generator=self.generator) if images else self.X[order]
        for rows, inputs in zip(order.split(self.batch), epoch.split(self.batch), strict=True):
            yield rows, distort(to_inputs(inputs), augment, generator=self.generator) if images else inputs

    def _step(self, step: int, inputs: Tensor, rows: Tensor, targets: Tensor | None) -> Tensor:
        alpha = 0.0 if targets is not None else self.alpha
        self.optimizer.param_groups[0]["lr"] = self.recipe.rate(self._share_done(step), alpha)
        if targets is None:
            logits = self._forward(inputs)
            if step == 0:
                self._check_outputs(logits)
            loss = self._judge(logits, rows)
        else:
            taught = targets[rows]
            if self.recipe.sieve is not None and self.recipe.sieve.mixup:
                inputs, taught = mix_pairs(inputs, taught, generator=self.generator)
            loss = self.compare(self._forward(inputs), taught)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.recipe.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        if self.schedule is not None:
            self.schedule.step()
        return loss.detach()

    def _forward(self, inputs: Tensor) -> Tensor:
        inputs = self._laid_out(inputs)
        if self.recipe.compile:
            torch.compiler.cudagraph_mark_step_begin()
        with precision(self.device, self.recipe.half_precision):
            logits: Tensor = self.forward(inputs)
        return logits

    def _laid_out(self, inputs: Tensor) -> Tensor:
        """Return images channels-last: augmentation may change that, and a compiler would compile anew."""
        return inputs.contiguous(memory_format=torch.channels_last) if is_images(self.X) else inputs

    def _judge(self, logits: Tensor, rows: Tensor) -> Tensor:
        try:
            loss: Tensor = self.judge(logits, self.y[rows])
        except InvalidInputError as error:  # on the CPU a loss refuses logits that are not finite
            if bool(torch.isfinite(logits).all()):
                raise
            raise DivergenceError(f"the model's outputs are not finite. {_REMEDY}") from error
        if loss.ndim:
            raise InvalidInputError(
                f"`loss` must return one number a batch; got shape {tuple(loss.shape)}. Use reduction='mean'."
            )
        return loss

    def _check_outputs(self, logits: Tensor) -> None:
        n_classes = class_count(logits)
        if self.recipe.sieve is not None and n_classes is not None:
            check_shares(self.recipe.sieve, n_classes)
        check_label_range(self.largest_label, logits, "y")

    @property
    def alpha(self) -> float:
        """The weight of the loss's peer term, 0 where it has none."""
        return float(getattr(self.loss, "alpha", 0.0))

    def _ran_away(self, mean: float) -> bool:
        """Whether a loss that has no lower bound has gone down so far that the weights are worth nothing."""
        is_mean = getattr(self.loss, "reduction", "mean") == "mean"
        return is_mean and self.alpha >= 1 and mean < -LOSS_LIMIT * self.alpha

    def _share_done(self, step: int) -> float:
        """Return how far training is; with a sieve, the round that goes on."""
        first = max((epoch for epoch in self.decisions if epoch <= self.epoch), default=0)
        end = min((epoch for epoch in self.decisions if epoch > self.epoch), default=self.recipe.epochs)
        return ((self.epoch - first) * self.steps + step + 1) / ((end - first) * self.steps + 1)

    def _teach(self) -> Tensor:
        """Show all rows to the averaged model, or to the model as it is; return its probabilities.

        Where the loss was taught mirrored images, the teacher looks at each image from both sides.
        """
        self.model.eval()
        with self._averaged():
            if self.recipe.augment.flip:
                return predict_mirrored(self.forward, self.X, **self._reading)
            return self._probabilities(self.X)

    def _renewed(self) -> Tensor:
        """Let the student answer too, plainly as it happens often; return the mean with earlier answers."""
        assert self.taught is not None and self.recipe.sieve is not None  # noqa: S101, PT018 (decided before)
        with self._averaged():
            return torch.lerp(self._probabilities(self.X), self.taught, self.recipe.sieve.memory)

    def _averaged(self) -> AbstractContextManager[None]:
        """Put the averaged weights into the model for a while, where there are any."""
        return nullcontext() if self.average is None else self.average.in_use()

    def _settle(self) -> Weights:
        """Return the averaged weights with batch statistics of one ordinary epoch."""
        self.generator.manual_seed(_mix(self.recipe.seed, self.epoch))
        batches = self._batches(self._order(), self.recipe.augment)
        with self._averaged(), precision(self.device, self.recipe.half_precision):
            update_bn((self._laid_out(inputs) for _, inputs in batches), self.model)
            return _copy(self.model)

    def _targets(self) -> tuple[Tensor | None, Tensor]:
        """Return what the rows are taught, ``None`` for their labels, and which labels are kept."""
        if self.taught is None or self.recipe.sieve is None:
            return None, self.y >= 0
        known = self.y[self.labelled]
        noisy_prior = torch.bincount(known, minlength=self.taught.shape[1]) / len(known)
        return sieve_targets(self.taught, self.y, noisy_prior, self.recipe.sieve)

    def _probabilities(self, X: Tensor) -> Tensor:
        self.model.eval()
        return torch.softmax(as_columns(predict_logits(self.forward, X, **self._reading)), dim=1)

    @property
    def _reading(self) -> dict[str, Any]:
        return {"batch_size": 4 * self.recipe.batch_size, "half_precision": self.recipe.half_precision}

    def score(self, X: Tensor, y: IntArray) -> Record:
        """Take the noisy validation score, of the average where there is one; keep the best weights."""
        with self._averaged():
            answers = self._probabilities(X)
            check_label_range(int(y.max()), answers, "validation[1]")
            predicted = answers.argmax(dim=1).cpu().numpy()
            score = peer_score(y, predicted, alpha=self.recipe.scoring_alpha)
            if self.best is None or score > self.best[1]:
                self.best = (self.epoch, score, _copy(self.model))
        return {"score": score}

    def state_dict(self) -> dict[str, Any]:
        generator = getattr(self.loss, "generator", None)
        return {
            "settings": self.settings,
            "epoch": self.epoch,
            "history": self.history,
            "model": self.model.state_dict(),
            "loss": self.loss.state_dict() if isinstance(self.loss, nn.Module) else {},
            "loss_generator": None if generator is None else generator.get_state(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "taught": self.taught,
            "before_sieve": self.before_sieve,
            "best": None if self.best is None else list(self.best),
            "random": torch.get_rng_state(),  # a model may draw too, as dropout does
            "random_device": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.history = state["epoch"], state["history"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if isinstance(self.loss, nn.Module):
            self.loss.load_state_dict(state["loss"])
        if state["loss_generator"] is not None:
            self.loss.generator.set_state(state["loss_generator"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        taught, best = state["taught"], state["best"]
        self.taught = None if taught is None else taught.to(self.device)
        self.best = None if best is None else (best[0], best[1], best[2])
        self.before_sieve = state["before_sieve"]
        torch.set_rng_state(state["random"])
        if state["random_device"] is not None:
            torch.cuda.set_rng_state(state["random_device"], self.device)

    def result(self) -> DeepResult:
        weights = {"last": _copy(self.model)}
        if self.average is not None:
            with self.average.in_use():
                weights["average"] = _copy(self.model)
        if self.best is not None:
            weights["best"] = self.best[2]
        if self.before_sieve is not None:
            weights |= {"before_sieve": self.before_sieve, "settled": self._settle()}
            self.model.load_state_dict(weights["last"])
        self.model.eval()
        return DeepResult(self.history, weights, None if self.best is None else self.best[0])


def _copy(model: nn.Module) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@torch.no_grad()
def _weights_norm(model: nn.Module) -> Tensor:
    """Return the sum of the norms of all weights and buffers: not finite if one of them is not."""
    floats = [tensor for tensor in model.state_dict().values() if tensor.is_floating_point()]
    return torch.stack([tensor.norm() for tensor in floats]).sum()


def _mix(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)[0]) >> 1


@contextmanager
def _fastest_kernels() -> Iterator[None]:
    """Let cuDNN try its kernels: batches have one shape, so it pays."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
