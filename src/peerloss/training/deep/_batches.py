"""The batches of an epoch: random order, augmentation and mixing of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from peerloss.training.deep._augment import distort, draw_moves, mix_pairs, to_inputs
from peerloss.training.deep._input_rows import map_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss.training.deep._augment import Augment
    from peerloss.training.deep._input_rows import InputRows, Inputs
    from peerloss.training.deep._ranks import Ranks
    from peerloss.training.deep._recipe import DeepRecipe, Sieve


@dataclass(frozen=True)
class Epoch:
    """What determines the batches of an epoch."""

    number: int
    rows: Tensor
    """The rows to train on, which are put into random order. An incomplete batch is dropped."""
    batch_size: int
    targets: Tensor
    """The targets of all rows, including those that are not trained on."""
    sieve: Sieve | None = None
    """The sieve in its rounds, ``None`` before them."""
    trusted: Tensor | None = None
    """Rows of which a batch precedes each batch of a growing sieve."""

    @property
    def steps(self) -> int:
        return len(self.rows) // self.batch_size

    @property
    def rows_per_step(self) -> int:
        """Number of rows per step, including trusted ones."""
        return self.batch_size if self.trusted is None else 2 * self.batch_size


class Batches:
    """Draws the batches of a training run. The draws depend on seed and epoch only, so none must be saved.

    Of several processes each gets its share of a batch. What is drawn per batch must be the same as in one
    process, so strong changes of images and mixed rows are computed for the whole batch before it is shared.
    """

    def __init__(self, inputs: InputRows, recipe: DeepRecipe, ranks: Ranks) -> None:
        self.inputs, self.recipe, self.ranks = inputs, recipe, ranks
        self.generator = torch.Generator(inputs.device)

    def of_epoch(self, epoch: Epoch) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield the inputs and targets of each step."""
        seed = np.random.SeedSequence((self.recipe.random_state, epoch.number)).generate_state(1, np.uint64)
        self.generator.manual_seed(int(seed[0]) >> 1)
        settings: Any = epoch.sieve or self.recipe
        size, count = epoch.batch_size, epoch.steps * epoch.batch_size
        order = torch.randperm(len(epoch.rows), device=self.inputs.device, generator=self.generator)
        in_order, augment = epoch.rows[order[:count]], settings.augment
        mixes = epoch.trusted is not None or (epoch.sieve is not None and epoch.sieve.mixup)
        if not (mixes or (self.inputs.is_images and augment.has_strong_changes)):
            for rows, inputs in self._augmented(in_order, size, augment, shared=True):
                yield inputs, epoch.targets[rows]
            return
        for inputs, targets in self._mixed_batches(epoch, self._augmented(in_order, size, augment)):
            yield map_inputs(self.ranks.share, inputs), self.ranks.share(targets)

    def _mixed_batches(
        self, epoch: Epoch, batches: Iterator[tuple[Tensor, Inputs]]
    ) -> Iterator[tuple[Inputs, Tensor]]:
        """Yield inputs and targets of batches after mixup, or after a batch of trusted rows."""
        size = epoch.batch_size
        if epoch.trusted is None:
            for rows, inputs in batches:
                yield self._mixed(inputs, epoch.targets[rows], epoch.sieve)
            return
        # Both are generators: the draws of `batches`, the first in the zip, come first.
        trusted = self._trusted_batches(epoch.trusted, size, epoch.steps * size)
        for (rows, inputs), (sure, sure_inputs) in zip(batches, trusted, strict=True):
            yield self._with_trusted(sure_inputs, epoch.targets[sure], inputs, epoch.targets[rows])

    def _augmented(
        self, order: Tensor, size: int, augment: Augment, *, shared: bool = False
    ) -> Iterator[tuple[Tensor, Inputs]]:
        """Yield rows and inputs in this order, by batch; if ``shared``, only those of this process."""
        images, moves = self.inputs.is_images, None
        if images:
            moves = draw_moves(len(order), augment, device=self.inputs.device, generator=self.generator)
        if shared and self.ranks.count > 1:
            own = self.ranks.share(torch.arange(size, device=order.device))
            positions = (torch.arange(0, len(order), size, device=order.device)[:, None] + own).flatten()
            order, size = order[positions], len(own)
            moves = None if moves is None else moves.take(positions)
        batches: Iterator[Any] = self.inputs.epoch(order, size, moves)
        for rows, inputs in zip(order.split(size), batches, strict=True):
            yield rows, distort(to_inputs(inputs), augment, generator=self.generator) if images else inputs

    def _trusted_batches(self, trusted: Tensor, size: int, count: int) -> Iterator[tuple[Tensor, Inputs]]:
        """Yield ``count`` trusted rows and their inputs. Each comes once before any is repeated."""
        repeats = -(-count // len(trusted))
        orders = [
            torch.randperm(len(trusted), device=self.inputs.device, generator=self.generator)
            for _ in range(repeats)
        ]
        yield from self._augmented(trusted[torch.cat(orders)[:count]], size, self.recipe.augment)

    def _mixed(self, inputs: Any, targets: Tensor, sieve: Sieve | None) -> tuple[Inputs, Tensor]:
        """Apply mixup if the sieve has it."""
        if sieve is None or not sieve.mixup:
            return inputs, targets
        return mix_pairs(inputs, targets, generator=self.generator)

    def _with_trusted(
        self, trusted: Any, labels: Tensor, inputs: Any, targets: Tensor
    ) -> tuple[Inputs, Tensor]:
        """Mix the trusted rows in pairs, and put them before the others."""
        growth: Any = self.recipe.sieve and self.recipe.sieve.growth
        trusted, labels = mix_pairs(
            trusted, labels, generator=self.generator, beta=growth.mix, cut=growth.cut
        )
        # The losses of the two batches are added, so each row counts twice in the mean over both.
        return torch.cat((trusted, inputs)), 2.0 * torch.cat((labels, targets))
