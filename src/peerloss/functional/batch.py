"""Validate and canonicalise logits and targets, count labels, reduce rows: shared by all losses."""

from __future__ import annotations

import math
import operator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from peerloss._validation import SOFT_LABEL_TOLERANCE, check_choice, short_repr
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import values_are_checkable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

REDUCTIONS = ("none", "mean", "sum")
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


class Batch(NamedTuple):
    """Checked logits and targets in the one form that all losses use.

    Positions (of tokens or pixels) are rows. So are the L binary labels of an example: label l of example i
    is row i·L + l, with two classes.
    """

    logits: Tensor
    """(n, K) with K ≥ 2, float32 or float64."""
    target: Tensor
    """(n,) int64, where ignored entries hold 0; (n, K) in the dtype of the logits for soft targets, where
    rows without a label hold zeros."""
    valid: Tensor | None
    """(n,) bool, or ``None`` when it is known that every row has a label."""
    largest: float | None = None
    """Largest finite |logit|, or ``None`` if the values were not read."""
    may_be_masked: bool = True
    """Whether some logits may be −inf (a masked class), which has an infinite loss in some bases."""
    shape: torch.Size | None = None
    """The shape of the targets that were passed, or ``None`` if it was (n,)."""
    n_labels: int | None = None
    """L, the number of binary labels per example, or ``None`` if there is one label per row."""

    @property
    def is_soft(self) -> bool:
        """Whether targets are probabilities of the classes instead of class codes."""
        return self.target.ndim == 2

    def label_counts(self) -> Tensor:
        """Return how often each label occurs among the targets that are not ignored, int64.

        The shape is (K,), or (L, 2) for L binary labels. For soft targets it is their sum, in floating point;
        no gradient flows through it. Never waits for the device.
        """
        k, y = self.logits.shape[1], self.target
        if y.ndim == 2:
            total = y.detach().sum(dim=0)
            return total if total.device.type == "mps" else total.double()  # MPS has no float64
        if self.n_labels is not None:
            y = y + k * torch.arange(self.n_labels, device=y.device).repeat(len(y) // self.n_labels)
        size = k * (self.n_labels or 1)
        if self.valid is None and values_are_checkable(y):
            counts = torch.bincount(y, minlength=size)
        else:
            ones = torch.ones_like(y) if self.valid is None else self.valid.long()
            counts = y.new_zeros(size).scatter_add(0, y, ones)
        return counts if self.n_labels is None else counts.view(self.n_labels, k)

    def counted_prior(self) -> Tensor:
        """Return the frequencies of the labels in this batch, (K,), or (L, 2) for L binary labels."""
        return label_frequencies(self.label_counts(), self.logits.dtype)


def label_frequencies(counts: Tensor, dtype: torch.dtype) -> Tensor:
    """Return counts of labels as probabilities in the last dimension; zeros if nothing was counted."""
    if counts.is_floating_point():  # of soft targets
        counts = counts.to(dtype)
    total = counts.sum(dim=-1, keepdim=True).clamp(min=1)
    # A quotient of integers has the default dtype without a conversion.
    return (counts if dtype == torch.get_default_dtype() else counts.to(dtype)) / total


def as_columns(logits: Tensor) -> Tensor:
    """Return logits as (n, K), K ≥ 2, in at least float32; shapes (n,) and (n, 1) become columns (0, z)."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        got = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidInputError(f"`logits` must be a floating-point tensor; got {got}. Use `logits.float()`.")
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    if logits.ndim == 2 and logits.shape[1] >= 2:
        return logits
    if logits.ndim == 1 or (logits.ndim == 2 and logits.shape[1] == 1):
        z = logits.reshape(-1)
        return torch.stack((torch.zeros_like(z), z), dim=1)
    raise InvalidInputError(
        f"`logits` must have shape (n, K), or (n,) or (n, 1) for two classes; got {tuple(logits.shape)}. "
        "Flatten token or pixel logits first: logits.flatten(0, -2) with target.flatten(). Losses also "
        "accept (N, K, d) with targets (N, d): logits.movedim(-1, 1) if the classes are last."
    )


def has_positions(logits: Tensor, target: Tensor) -> bool:
    """Whether logits (N, K, d₁, …) and targets (N, d₁, …) have one label for each of several positions."""
    return (
        isinstance(logits, Tensor)
        and isinstance(target, Tensor)
        and logits.ndim > 2
        and target.shape == (*logits.shape[:1], *logits.shape[2:])
    )


def flatten_positions(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, K, d₁, …) and targets (N, d₁, …) with one row per position, (n, K) and (n,)."""
    return logits.movedim(1, -1).reshape(-1, logits.shape[1]), target.reshape(-1)


def has_binary_labels(logits: Tensor, target: Tensor) -> bool:
    """Whether logits and targets are both (n, L): L binary labels per example."""
    return (
        isinstance(logits, Tensor)
        and isinstance(target, Tensor)
        and logits.ndim == 2
        and logits.shape[1] > 0
        and target.shape == logits.shape
    )


def make_batch(logits: Tensor, target: Tensor, *, ignore_index: int, binary_labels: bool = False) -> Batch:
    """Check shapes (always) and values (on the CPU) and return the batch in canonical form.

    Logits (N, K, d₁, …) have one row per position. Floating-point targets of the shape of the logits are
    soft. With ``binary_labels``, logits and integer targets may also be (n, L): each of the L labels is then
    0 or 1.
    """
    if has_soft_targets(target):
        return _make_soft_rows(logits, target)
    if has_positions(logits, target):
        return _make_rows(*flatten_positions(logits, target), ignore_index, target.shape)
    if binary_labels and has_binary_labels(logits, target):
        rows = _make_rows(logits.reshape(-1), target.reshape(-1), ignore_index, target.shape)
        return rows._replace(n_labels=target.shape[1])
    return _make_rows(logits, target, ignore_index)


def _make_rows(logits: Tensor, target: Tensor, ignore_index: int, shape: torch.Size | None = None) -> Batch:
    z = as_columns(logits)
    if not isinstance(target, Tensor) or target.dtype not in _INTEGERS:
        got = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise InvalidInputError(
            f"`target` must be an integer tensor of class codes 0..K-1; got {got}. Use `target.long()`; "
            "soft targets, floating-point probabilities, have one column per class."
        )
    if target.shape != z.shape[:1]:
        raise InvalidInputError(
            f"`target` must have shape ({z.shape[0]},) to go with logits of shape {tuple(logits.shape)}; "
            f"got {tuple(target.shape)}."
        )
    _check_device(target, z)
    largest, masked = None, True
    if values_are_checkable(z):
        largest, masked = check_logits(z, shape) if len(z) else (None, False)
    y, valid = split_ignored(target.long(), z.shape[1], ignore_index)
    return Batch(z, y, valid, largest, masked, shape)


def has_soft_targets(target: Tensor) -> bool:
    """Whether targets are class probabilities: floating-point, with a column per class."""
    return isinstance(target, Tensor) and target.ndim >= 2 and target.is_floating_point()


def _make_soft_rows(logits: Tensor, target: Tensor) -> Batch:
    shape = None
    if isinstance(logits, Tensor) and logits.ndim > 2 and target.shape == logits.shape:
        shape = target[:, 0].shape
        logits, target = (t.movedim(1, -1).reshape(-1, t.shape[1]) for t in (logits, target))
    z = as_columns(logits)
    if target.shape != z.shape:
        raise InvalidInputError(
            f"`target` of dtype {target.dtype} must hold class probabilities of shape {tuple(z.shape)} to go "
            f"with logits of shape {tuple(logits.shape)}; got {tuple(target.shape)}. For class codes use an "
            "integer tensor: `target.long()`."
        )
    _check_device(target, z)
    # A row in half precision is rounded, so its sum is off by up to half a unit in the last place.
    tolerance = max(SOFT_LABEL_TOLERANCE, torch.finfo(target.dtype).eps)
    q = target.to(z.dtype)
    off = (q.detach().sum(dim=1) - 1.0).abs()
    if values_are_checkable(z):
        largest, masked = check_logits(z, shape) if len(z) else (None, False)
        if not len(z) or off.max().item() <= tolerance:  # false for NaN
            return Batch(z, q, None, largest, masked, shape)
        missing = _find_unlabelled(q, off, tolerance, shape)
        return Batch(z, q.masked_fill(missing[:, None], 0.0), ~missing, largest, masked, shape)
    # Values cannot be read: rows that do not sum to one become NaN, as their loss then does.
    missing = torch.isnan(q).all(dim=1)
    q = q.masked_fill(~(off <= tolerance)[:, None], torch.nan).masked_fill(missing[:, None], 0.0)
    return Batch(z, q, ~missing, shape=shape)


def _find_unlabelled(q: Tensor, off: Tensor, tolerance: float, shape: torch.Size | None) -> Tensor:
    """Return which soft targets are missing (all NaN), (n,) bool; refuse others that do not sum to one."""
    missing = torch.isnan(q).all(dim=1)
    wrong = ~missing & ~(off <= tolerance)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        place, total = _place(row, shape), q[row].sum().item()
        what = f"{place} sums to {total:g}" if math.isfinite(total) else f"{place} is {q[row].tolist()[:8]}"
        raise InvalidInputError(
            "`target` of a floating-point dtype must hold class probabilities that sum to 1 in each row; "
            f"{what}. Divide votes by their number; a row of NaN has no label. For class codes, or L binary "
            "labels, use an integer tensor: `target.long()`."
        )
    return missing


def _check_device(target: Tensor, z: Tensor) -> None:
    if target.device != z.device:
        raise InvalidInputError(
            f"`target` must be on the device of `logits` ({z.device}); got {target.device}. "
            "Use `target.to(logits.device)`."
        )


def _place(row: int, shape: torch.Size | None) -> str:
    if shape is None:
        return f"row {row}"
    return f"position {tuple(int(i) for i in torch.unravel_index(torch.tensor(row), shape))}"


def check_logits(
    z: Tensor, shape: torch.Size | None, *, name: str = "`logits`", first_row: int = 0
) -> tuple[float, bool]:
    """Return the largest finite |logit| and whether a logit is −inf; refuse NaN and +inf.

    Errors call the logits ``name``, and count rows from ``first_row``.
    """
    low, high = (extreme.item() for extreme in torch.aminmax(z.detach()))
    if not high < math.inf:  # comparisons with NaN are false; −inf (a masked class) is legal
        bad = torch.isnan(z) | torch.isposinf(z)
        row = int(bad.any(dim=1).nonzero()[0])
        raise InvalidInputError(
            f"{name} must not hold NaN or +inf; {_place(first_row + row, shape)} is {z[row].tolist()[:8]}. "
            "The model has diverged or its inputs are not finite: check the inputs and lower the learning "
            "rate."
        )
    masked = low == -math.inf
    return abs(high) if masked else max(high, -low), masked


def check_ignore_index(value: Any) -> int:
    """Return ``value`` as an integer that fits into 64 bits."""
    if type(value) is int and abs(value) < 2**63:
        return value
    if hasattr(value, "__index__") and not isinstance(value, bool | int):  # an integer of NumPy
        return operator.index(value)
    raise InvalidInputError(f"`ignore_index` must be a 64-bit integer; got {short_repr(value)}.")


def split_ignored(y: Tensor, k: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Return labels in which ignored entries hold 0, and which entries are not ignored, as in :class:`Batch`.

    On the CPU, labels outside 0..K-1 are refused.
    """
    ignore_index = check_ignore_index(ignore_index)
    if not values_are_checkable(y):
        valid = y != ignore_index
        return y.masked_fill(~valid, 0), valid
    if y.numel() == 0:
        return y, None
    first, last = (extreme.item() for extreme in torch.aminmax(y))
    if first >= 0 and last < k and not first <= ignore_index <= last:
        return y, None
    valid = y != ignore_index
    wrong = valid & ((y < 0) | (y >= k))
    if wrong.any():
        raise InvalidInputError(
            f"`target` must hold labels in 0..{k - 1}; found {int(y[wrong][0])}. Encode labels "
            f"first (−1/+1 becomes 0/1), or mark rows to exclude with ignore_index={ignore_index}. If -1 "
            "marks rows without a label, use ignore_index=-1."
        )
    return y.masked_fill(~valid, 0), None if bool(valid.all()) else valid


def fit_prior_to_batch(prior: Tensor, batch: Batch) -> Tensor:
    """Return a checked prior, (K,), or (L, 2) for L binary labels, like :func:`fit_to_batch`."""
    if batch.n_labels is None and prior.ndim == 1:
        return fit_to_batch(prior, "noisy_prior", batch)
    expected = (batch.logits.shape[1],) if batch.n_labels is None else (batch.n_labels, 2)
    if prior.shape != expected:
        raise InvalidInputError(
            f"`noisy_prior` must have shape {expected} for these logits"
            + ("" if batch.n_labels is None else ", P(0) and P(1) of each label")
            + f"; got {tuple(prior.shape)}."
        )
    return prior.to(device=batch.logits.device, dtype=batch.logits.dtype)


def fit_to_batch(tensor: Tensor, name: str, batch: Batch) -> Tensor:
    """Return a checked vector (K,) or matrix (K, K) in the dtype and on the device of the logits."""
    k = batch.logits.shape[1]
    if tensor.shape[0] != k or tensor.shape[-1] != k:
        raise InvalidInputError(
            f"`{name}` must have one entry for each of the {k} classes of the logits; got shape "
            f"{tuple(tensor.shape)}. Check the number of output units."
        )
    return tensor.to(device=batch.logits.device, dtype=batch.logits.dtype)


def without_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which logarithms and sums stay in float32, also inside an autocast region."""
    kind = tensor.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        return torch.autocast(device_type=kind, enabled=False)
    return nullcontext()


def reduce_rows(rows: Tensor, batch: Batch, weight: Tensor | None, reduction: str) -> Tensor:
    """Set ignored rows to 0, then reduce. Without a reduction the result has the shape of the targets."""
    check_choice(reduction, "reduction", REDUCTIONS)
    if batch.valid is not None:
        rows = rows.masked_fill(~batch.valid, 0.0)
    if reduction == "none":
        return rows if batch.shape is None else rows.view(batch.shape)
    return rows.sum() if reduction == "sum" else rows.sum() / mean_divisor(batch, weight)


def mean_divisor(batch: Batch, weight: Tensor | None) -> Tensor | int:
    """Return the sum of the targets' weights, by which a mean divides; Σ q·w for soft targets q.

    It is 1 for a batch without labels (empty, or every target ignored), whose mean loss and gradient are 0.
    """
    if weight is None:
        return max(len(batch.target), 1) if batch.valid is None else batch.valid.sum().clamp(min=1)
    if batch.is_soft:  # rows without a label hold zeros
        total = (batch.target.detach() @ weight).sum()
        if values_are_checkable(total) and total <= 0 and (batch.target < 0).any():
            raise InvalidInputError(
                f"`target` must have a positive sum of class weights, by which a mean divides; got {total:g} "
                'because entries are negative. Use reduction="sum".'
            )
    else:
        weights = weight[batch.target]
        total = weights.sum() if batch.valid is None else (weights * batch.valid).sum()
    return torch.where(total > 0, total, 1.0)
