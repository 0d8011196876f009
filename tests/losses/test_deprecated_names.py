"""Old names of the modules work for one release and warn with the new name."""

import pytest

import peerloss
from peerloss import BackwardLoss, ForwardLoss, losses

T = [[0.8, 0.2], [0.4, 0.6]]


@pytest.mark.parametrize("package", [peerloss, losses])
def test_base_loss_is_plain_loss(package):
    """At the top level and in the package; the warning points at the caller."""
    with pytest.warns(
        DeprecationWarning, match=rf"`{package.__name__}\.BaseLoss` is deprecated .*PlainLoss"
    ) as caught:
        assert package.BaseLoss is losses.PlainLoss
    assert caught[0].filename == __file__


@pytest.mark.parametrize("module", [BackwardLoss, ForwardLoss])
def test_transition_is_noise(module):
    """The corrections accept the old keyword."""
    with pytest.warns(DeprecationWarning, match="`transition` is deprecated .* Use `noise`"):
        assert isinstance(module(transition=T), module)
