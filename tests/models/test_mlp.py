"""The small network."""

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.models import MLP


def test_one_output_gives_binary_logits():
    """(n,) for one output, (n, K) for more."""
    assert MLP(5)(torch.zeros(3, 5)).shape == (3,)
    assert MLP(5, (4,), 3)(torch.zeros(3, 5)).shape == (3, 3)


def test_sizes_are_checked():
    """A layer of width zero is refused."""
    with pytest.raises(InvalidInputError, match="must be an integer of at least 1; got 0"):
        MLP(5, (0,))


def test_hidden_is_hidden_layer_sizes():
    """The old keyword works and warns with the new one."""
    with pytest.warns(DeprecationWarning, match="`hidden` is deprecated .* Use `hidden_layer_sizes`"):
        assert MLP(5, hidden=(4,)).layers[0].out_features == 4
