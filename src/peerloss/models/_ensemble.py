"""Several networks that train side by side and predict together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid

from peerloss._validation import short_repr
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
        The networks: at least one, with the same inputs and the same outputs: (n,) or (n, 1) for two classes,
        (n, K) or (n, K, d₁, …) otherwise. They should have different initial weights.

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
        networks = [] if isinstance(members, nn.Module) else list(members)
        if not networks or not all(isinstance(network, nn.Module) for network in networks):
            got = type(members).__name__ if isinstance(members, nn.Module) else short_repr(networks)
            raise InvalidInputError(f"`members` must have at least one network, in a list; got {got}.")
        self.members = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the rows ``x``: of one member each in training mode, else of the mean."""
        count = len(self.members)
        if self.training:
            if len(x) < count:
                raise InvalidInputError(
                    f"`x` must have at least one row for each of the {count} members in training mode; got "
                    f"{len(x)}. Use larger batches."
                )
            parts = _outputs_of(self.members, [x[first::count] for first in range(count)])
            shared = parts[0].new_empty((len(x), *parts[0].shape[1:]))
            for first, part in enumerate(parts):
                shared[first::count] = part
            return shared
        outputs = torch.stack(_outputs_of(self.members, [x] * count))
        if outputs.ndim == 2 or outputs.shape[2] == 1:  # one logit for two classes
            return torch.logsumexp(logsigmoid(outputs), 0) - torch.logsumexp(logsigmoid(-outputs), 0)
        return torch.logsumexp(log_softmax(outputs, dim=2), 0) - math.log(count)


def _outputs_of(members: Iterable[nn.Module], inputs: list[Tensor]) -> list[Tensor]:
    """Return the logits of each member for its inputs; all must have the same columns."""
    outputs = [member(rows) for member, rows in zip(members, inputs, strict=True)]
    if not all(isinstance(output, Tensor) for output in outputs):
        raise InvalidInputError(
            f"`members` must return a tensor of logits; got {type(outputs[0]).__name__}. Wrap them in a "
            "module that returns only the logits."
        )
    if len({output.shape[1:] for output in outputs}) > 1:
        shapes = ", ".join(str(tuple(output.shape)) for output in outputs)
        raise InvalidInputError(f"`members` must have the same outputs; got the shapes {shapes}.")
    return outputs
