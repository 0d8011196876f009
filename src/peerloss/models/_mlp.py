"""The small, fully connected network of the paper's tables."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from torch import Tensor, nn

from peerloss._deprecation import renamed_parameters
from peerloss._validation import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence


class MLP(nn.Module):
    """Fully connected layers with ReLU between them; one output means binary logits of shape (n,).

    Parameters
    ----------
    n_features
        Number of inputs.
    hidden_layer_sizes
        Widths of the hidden layers.
    n_outputs
        1 for two classes, K otherwise.
    """

    @renamed_parameters(hidden="hidden_layer_sizes")
    def __init__(
        self, n_features: int, hidden_layer_sizes: Sequence[int] = (8, 8), n_outputs: int = 1
    ) -> None:
        super().__init__()
        sizes = [check_count(n_features, "n_features")]
        sizes += [check_count(size, "hidden_layer_sizes") for size in hidden_layer_sizes]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], check_count(n_outputs, "n_outputs")))
        self.n_outputs = n_outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of the rows ``x``, (n,) for one output and (n, K) otherwise."""
        logits: Tensor = self.layers(x)
        return logits.squeeze(1) if self.n_outputs == 1 else logits
