"""Logits and probabilities of many rows, and the moving average of weights."""

import pytest
import torch
from torch import nn

from peerloss.training import predict_logits, predict_mirrored
from peerloss.training.deep._predict import WeightAverage
from tests.training.deep.toy import images, small_net


def test_predictions_do_not_depend_on_the_batches():
    """Filling up the last batch does not change the result."""
    X, _, _ = images()
    model = small_net().eval()
    inputs = torch.as_tensor(X)
    torch.testing.assert_close(predict_logits(model, inputs, batch_size=100), predict_logits(model, inputs))


def test_mirrored_predictions_are_the_mean_of_both_views():
    """Images are also predicted mirrored, other inputs once."""
    X, _, _ = images()
    model = small_net().eval()
    inputs = torch.as_tensor(X)
    one, other = (torch.softmax(predict_logits(model, view), dim=1) for view in (inputs, inputs.flip(2)))
    torch.testing.assert_close(predict_mirrored(model, inputs), (one + other) / 2)
    rows = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(predict_mirrored(torch.nn.Identity(), rows), torch.softmax(rows, dim=1))


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
