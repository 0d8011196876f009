"""Draw the peers of the sampled peer loss from the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from peerloss.exceptions import InvalidInputError
from peerloss.functional.batch import values_are_checkable

if TYPE_CHECKING:
    from peerloss.functional.batch import Batch


def draw_peers(batch: Batch, *, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Draw for each row two *different* rows n₁ ≠ n₂, uniformly among the rows that are not ignored.

    Returns
    -------
    Two index vectors (n,). Ignored rows are never drawn; nothing waits for the device.
    """
    y, valid = batch.target, batch.valid
    n = y.shape[0]
    if n < 2 or (valid is not None and values_are_checkable(y) and int(valid.sum()) < 2):
        raise InvalidInputError(
            f"`target` must hold at least 2 labelled rows for sampled peers; got a batch of {n}"
            f"{'' if valid is None else f' with {int(valid.sum())} not ignored'}. Use a larger batch "
            "(DataLoader(drop_last=True) avoids a last batch of one) or peers='expected'."
        )
    # Modulo of 62 random bits: integers on every device, bias under 2^-40.
    bits = torch.randint(1 << 62, (2, n), generator=generator, device=y.device)
    if valid is None:
        first = bits[0] % n
        return first, (first + 1 + bits[1] % (n - 1)) % n
    count = valid.sum()
    labelled_first = torch.argsort(valid, descending=True, stable=True)
    first = bits[0] % count.clamp(min=1)
    second = (first + 1 + bits[1] % (count - 1).clamp(min=1)) % count.clamp(min=1)
    return labelled_first[first], labelled_first[second]
