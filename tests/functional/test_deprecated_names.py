"""Old names of the functions work for one release and warn with the new name."""

import pytest
import torch

from peerloss import functional

Z, Y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
T = [[0.8, 0.2], [0.4, 0.6]]


def test_base_loss_is_plain_loss():
    """The old name returns the new function."""
    with pytest.warns(DeprecationWarning, match="`peerloss.functional.base_loss` is deprecated .*plain_loss"):
        assert functional.base_loss is functional.plain_loss


@pytest.mark.parametrize("loss", [functional.backward_loss, functional.forward_loss])
def test_transition_is_noise(loss):
    """The corrections accept the old keyword."""
    with pytest.warns(DeprecationWarning, match="`transition` is deprecated .* Use `noise`"):
        assert loss(Z, Y, transition=T) == loss(Z, Y, noise=T)
