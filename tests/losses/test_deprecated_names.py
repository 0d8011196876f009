"""Old names of the modules work for one release and warn with the new name."""

import pytest

import peerloss
from peerloss import BackwardLoss, ForwardLoss, losses
from peerloss.exceptions import DivergenceError, DivergenceWarning

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


def test_a_watch_accepts_numbers():
    """``judge`` warns and raises as before, and its warnings point at the caller."""
    watch = losses.DivergenceWatch()
    with pytest.warns(DeprecationWarning, match=r"`DivergenceWatch\.judge` is deprecated") as deprecated:
        watch.judge(finite=True, largest=1.0, alpha=1.0)
    assert deprecated[0].filename == __file__
    with (
        pytest.warns(DeprecationWarning, match="judge"),
        pytest.warns(DivergenceWarning, match="logits have reached") as diverged,
    ):
        watch.judge(finite=True, largest=1e5, alpha=1.0, stacklevel=2)
    assert diverged[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="judge"), pytest.raises(DivergenceError, match="not finite"):
        watch.judge(finite=False, largest=1.0, alpha=1.0)
