"""Several processes that train one model together, as ``torchrun`` starts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from peerloss._device import count_ranks
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


class Ranks:
    """The processes of ``torch.distributed``; without them every method does what one process needs.

    All processes have the same data, draw the same batches and hold the same weights. Each computes the
    gradient of its share of a batch, and the gradients are added.
    """

    def __init__(self) -> None:
        self.count = count_ranks()
        self.number = distributed.get_rank() if self.count > 1 else 0

    def share(self, rows: T) -> T:
        """Return every ``count``-th row, from the one with the number of this process on."""
        return rows[self.number :: self.count] if self.count > 1 else rows  # type: ignore[index]

    def add(self, tensor: Tensor) -> Tensor:
        """Return the sum over processes, which replaces the tensor."""
        if self.count > 1:
            distributed.all_reduce(tensor)
        return tensor

    def add_gradients(self, weights: Iterable[Tensor]) -> None:
        """Replace the gradients by their sums, in one operation. Each process must use the same weights."""
        if self.count > 1:
            _add_together([weight.grad for weight in weights if weight.grad is not None])

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace floating-point tensors by their means over processes."""
        numbers = [tensor for tensor in tensors if tensor.is_floating_point()]
        if self.count > 1 and numbers:
            _add_together(numbers)
            torch._foreach_div_(numbers, float(self.count))

    def copy_first(self, model: nn.Module) -> None:
        """Give all processes the weights of the first one."""
        if self.count > 1:
            for tensor in model.state_dict().values():
                part = tensor.contiguous()
                distributed.broadcast(part, src=0)
                tensor.copy_(part)

    def block(self, n: int, device: torch.device) -> Tensor:
        """Return the rows that this process predicts. All blocks are equally long; the last wraps around."""
        length = -(-n // self.count)
        return (torch.arange(length, device=device) + self.number * length) % n

    def join_blocks(self, probs: Tensor, n: int) -> Tensor:
        """Return the predictions (views, n, K) of all rows from those of the blocks."""
        if self.count == 1:
            return probs
        blocks = [torch.empty_like(probs) for _ in range(self.count)]
        distributed.all_gather(blocks, probs.contiguous())
        return torch.cat(blocks, dim=1)[:, :n]

    def any(self, flag: bool, device: torch.device) -> bool:
        """Return whether the flag is set in any process."""
        return bool(self.add(torch.tensor(float(flag), device=device)) > 0) if self.count > 1 else flag

    def collect(self, value: T) -> list[T]:
        """Return the values of all processes."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def on_first(self, call: Callable[[], T]) -> T:
        """Call a function in the first process only; return its result, or raise its error, in all."""
        if self.count == 1:
            return call()
        outcome: list[Any] = [None, None]
        if self.number == 0:
            try:
                outcome[0] = call()
            except Exception as error:  # noqa: BLE001 (raised below, in every process)
                outcome[1] = error
        distributed.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result

    def check_equal(self, settings: dict[str, Any]) -> None:
        """Refuse processes that were called with other data or settings."""
        for number, other in enumerate(self.collect(settings)):
            for name, value in settings.items():
                if other.get(name) != value:
                    raise InvalidInputError(
                        f"All processes must be called with the same data and settings; {name} is "
                        f"{value!r} in process {self.number} and {other.get(name)!r} in process {number}. "
                        "Pass all rows, in the same order, in every process."
                    )

    def check_batch(self, batch_size: int) -> None:
        """Refuse a batch in which some process would have no row."""
        if batch_size < self.count:
            raise InvalidInputError(
                f"A batch must have at least one row per process; got {batch_size} rows for {self.count} "
                "processes. Raise `batch_size`, or start fewer processes."
            )

    def weight_of_share(
        self, loss: Any, targets: Tensor, batch_size: int, *, has_ignored: bool
    ) -> Tensor | float:
        """Return the weight of this process's loss in that of the whole batch, of ``batch_size`` rows.

        For a mean it is the share of the rows, or of what the loss divides by: the labels that are not
        ignored, times their class weights. A sum has the weight 1.
        """
        if getattr(loss, "reduction", "mean") == "sum":
            return 1.0
        ignored = getattr(loss, "ignore_index", None)  # of the losses of torch and of this package
        weight = None if ignored is None else getattr(loss, "weight", None)
        if isinstance(loss, nn.CrossEntropyLoss) and targets.ndim == 2:
            weight = None  # for soft labels torch divides by the number of rows, whatever their weights
        if ignored is None or (weight is None and not has_ignored):
            return len(targets) / batch_size
        divisor = _divisor(targets, weight, ignored)
        total = self.add(divisor.clone())
        return torch.where(total > 0, divisor / total, 0.0)


def _divisor(targets: Tensor, weight: Tensor | None, ignored: int) -> Tensor:
    """Return what a mean divides by: the number of labels, or the sum of their class weights."""
    if targets.ndim == 2:
        return targets.double().sum() if weight is None else (targets.double() @ weight.double()).sum()
    valid = targets != ignored
    return valid.double().sum() if weight is None else weight[targets[valid]].double().sum()


def _add_together(tensors: list[Tensor]) -> None:
    """Sum tensors over processes, in place and as one vector: many small messages would be slow."""
    if not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    distributed.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    torch._foreach_copy_(tensors, [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)])
