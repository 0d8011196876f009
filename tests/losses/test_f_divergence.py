"""f-divergence peers as a module."""

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.functional import f_divergence_loss
from peerloss.losses import FDivergenceLoss


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
@pytest.mark.parametrize("prior", [None, [0.5, 0.25, 0.25]])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_module_is_the_function(divergence, prior, reduction):
    """Same value with every option; the prior travels with the module."""
    torch.manual_seed(0)
    logits, y = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, -1, 1])
    options = {"divergence": divergence, "noisy_prior": prior, "ignore_index": -1, "reduction": reduction}
    module = FDivergenceLoss(**options)
    torch.testing.assert_close(module(logits, y), f_divergence_loss(logits, y, **options))
    assert ("noisy_prior" in module.state_dict()) == (prior is not None)
    assert divergence in repr(module)


def test_bad_options_are_named():
    """The message names the argument."""
    with pytest.raises(InvalidInputError, match="`divergence` must be one of"):
        FDivergenceLoss("kl")
    with pytest.raises(InvalidInputError, match="`noisy_prior` must be probabilities"):
        FDivergenceLoss(noisy_prior=[1.0, 1.0])
