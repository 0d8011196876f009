"""Several networks that train side by side and predict together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Ensemble(nn.Module):
    """Networks that share the rows of each batch in training and average their probabilities otherwise.

    In training mode, the first of M members computes rows 0, M, 2M, … of a batch, the second one rows 1,
    M + 1, and so on. So an epoch takes about as long as with one network, and every member sees 1/M of it.
    In evaluation mode each member computes all rows. With a :class:`~peerloss.training.Sieve`, whose targets
    are predictions, the members teach each other.

    A mean over the batch divides the gradient of each member by M. With M times the batch size and the
    learning rate of one network, and 1/M of its weight decay, SGD trains every member as it would train one
    network.

    Parameters
    ----------
    members
        The networks: at least one, with the same inputs and the same outputs, (n,) or (n, K). They should
        have different initial weights.

    Examples
    --------
    >>> import torch
    >>> from peerloss.models import Ensemble, pooled_resnet
    >>> pair = Ensemble(pooled_resnet(width=4) for _ in range(2))
    >>> pair(torch.rand(6, 3, 32, 32)).shape
    torch.Size([6, 10])
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not self.members:
            raise InvalidInputError("`members` must have at least one network; got none.")

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the rows ``x``: of one member each in training mode, else of the mean."""
        count = len(self.members)
        if self.training:
            if len(x) < count:
                raise InvalidInputError(
                    f"`x` must have at least one row for each of the {count} members in training mode; got "
                    f"{len(x)}. Use larger batches."
                )
            parts: list[Tensor] = [member(x[first::count]) for first, member in enumerate(self.members)]
            shared = parts[0].new_empty((len(x), *parts[0].shape[1:]))
            for first, part in enumerate(parts):
                shared[first::count] = part
            return shared
        outputs = torch.stack([member(x) for member in self.members])
        if outputs.ndim == 2:  # one logit for two classes
            return torch.logsumexp(logsigmoid(outputs), 0) - torch.logsumexp(logsigmoid(-outputs), 0)
        return torch.logsumexp(log_softmax(outputs, dim=-1), 0) - math.log(count)
