"""Old names of the functions work for one release and warn with the new name."""

from importlib import import_module

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


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("base", "loss_matrix", "loss_matrix"),
        ("base", "check_base", "base.as_base"),
        ("peer", "base_loss", "plain_loss"),
        ("divergence", "f_divergence_loss", "information.f_divergence_loss"),
    ],
)
def test_names_of_modules_resolve(module, old, new):
    """What a module used to hold is the object at its new place."""
    home, _, name = f"peerloss.functional.{new}".rpartition(".")
    with pytest.warns(DeprecationWarning, match=rf"functional\.{module}\.{old}` is deprecated .*{new}`"):
        found = getattr(import_module(f"peerloss.functional.{module}"), old)
    assert found is getattr(import_module(home), name)
