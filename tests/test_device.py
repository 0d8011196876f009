"""Where to train."""

import pytest
import torch

from peerloss import PeerLoss
from peerloss._device import resolve_device
from peerloss.exceptions import InvalidInputError
from peerloss.training import train_deep
from tests.training.deep.toy import RECIPE, images, small_net


def test_a_device_that_can_be_used_is_returned():
    """By name or as torch has it; without one, a GPU where there is one."""
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")
    assert resolve_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99", 3.5])
def test_a_device_that_is_not_there_is_named(device):
    """Not one of torch's names, one without memory, one of a hundred GPUs, no name at all."""
    X, noisy, _ = images()
    with pytest.raises(InvalidInputError, match=f"`device` must be 'auto', .*{device}'? cannot be used"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, device=device)
