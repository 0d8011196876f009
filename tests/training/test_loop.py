"""The plain training loop."""

import pytest
import torch

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.models import MLP
from peerloss.training import train


def data(n=200):
    X = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    return X, (X[:, 0] > 0).long()


def test_the_loop_learns():
    """A separable problem is learned with peer loss, and the model returns in evaluation mode."""
    X, y = data()
    torch.manual_seed(0)
    model = train(MLP(3), PeerLoss("sigmoid"), X, y, max_steps=300, learning_rate=0.02)
    assert not model.training
    assert ((model(X) > 0) == y).float().mean() > 0.95


def test_the_same_seed_gives_the_same_weights():
    """Batches are drawn from the generator only."""
    X, y = data()
    weights = []
    for _ in range(2):
        torch.manual_seed(0)
        model = train(MLP(3), PeerLoss(), X, y, max_steps=20, generator=torch.Generator().manual_seed(1))
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        torch.rand(7)
    assert torch.equal(*weights)


def test_a_batch_may_be_larger_than_the_data():
    """Then all rows form the batch."""
    X, y = data(10)
    train(MLP(3), PeerLoss(), X, y, max_steps=3, batch_size=64)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "`max_steps` must be an integer"),
        ({"batch_size": 0}, "`batch_size` must be an integer"),
        ({"learning_rate": 0.0}, "`learning_rate` must lie in"),
    ],
)
def test_invalid_options_are_refused(options, message):
    """The message names the argument and the value."""
    with pytest.raises(InvalidInputError, match=message):
        train(MLP(3), PeerLoss(), *data(), **options)


def test_lengths_must_agree():
    """There must be one label per row."""
    X, y = data()
    with pytest.raises(InvalidInputError, match="`X` and `y` must be equally long"):
        train(MLP(3), PeerLoss(), X, y[:-1])
