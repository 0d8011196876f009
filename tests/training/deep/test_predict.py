"""Logits and probabilities of many rows."""

import torch

from peerloss.training import predict_logits, predict_mirrored
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
