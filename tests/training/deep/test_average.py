"""The moving average of weights."""

import pytest
import torch
from torch import nn

from peerloss.training.deep._predict import WeightAverage


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def test_the_average_is_exponential_with_a_faster_start():
    """Compared with a naive loop, including buffers."""
    net = model()
    average = WeightAverage(net, 0.9)
    expected = {name: tensor.clone().double() for name, tensor in net.state_dict().items()}
    for t in range(200):
        for tensor in net.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.1 * t)
        average.update()
        decay = min(0.9, (1 + t) / (10 + t))
        for name, tensor in net.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * tensor.double()
    for name, mean in average.state_dict()["mean"].items():
        torch.testing.assert_close(mean.double(), expected[name], rtol=1e-4, atol=1e-4)


def test_the_weights_of_the_model_are_restored():
    """The model has the average inside the context and its own weights afterwards, also after an error."""
    net = model()
    average = WeightAverage(net, 0.5)
    with torch.no_grad():
        net[0].weight.fill_(5.0)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}

    def fail():
        with average.in_use():
            assert not torch.equal(net[0].weight, before["0.weight"])
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_the_state_can_be_restored():
    """A loaded average equals the saved one."""
    net = model()
    first = WeightAverage(net, 0.9)
    first.update()
    second = WeightAverage(model(), 0.9)
    second.load_state_dict(first.state_dict())
    assert second.updates == 1
    assert torch.equal(second.state_dict()["mean"]["0.weight"], first.state_dict()["mean"]["0.weight"])
