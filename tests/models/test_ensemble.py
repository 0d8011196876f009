"""Networks that share batches in training and predict together."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from peerloss.exceptions import InvalidInputError
from peerloss.losses import PeerLoss
from peerloss.models import MLP, Ensemble
from peerloss.training import DeepRecipe, Sieve, predict_logits, train_deep


def members(count=2, *, n_outputs=3):
    """Return small networks with different weights, in float64."""
    torch.manual_seed(0)
    return [MLP(4, (5,), n_outputs).double() for _ in range(count)]


@pytest.mark.parametrize("n_rows", [6, 7])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_in_training_each_member_computes_its_own_rows(n_rows, n_outputs):
    """Row i of the outputs is that of member i modulo M, also if M does not divide the number of rows."""
    networks, x = members(3, n_outputs=n_outputs), torch.randn(n_rows, 4, dtype=torch.float64)
    found = Ensemble(networks).train()(x)
    expected = torch.stack([networks[i % 3](x[i : i + 1])[0] for i in range(n_rows)])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_otherwise_probabilities_are_averaged(n_outputs):
    """The logits give the mean of the members' probabilities, for K outputs and for one."""
    networks, x = members(3, n_outputs=n_outputs), torch.randn(5, 4, dtype=torch.float64)
    to_proba = torch.sigmoid if n_outputs == 1 else lambda z: z.softmax(dim=1)
    expected = torch.stack([to_proba(network(x)) for network in networks]).mean(dim=0)
    torch.testing.assert_close(to_proba(Ensemble(networks).eval()(x)), expected)


def test_one_member_is_that_network():
    """Training outputs are equal, and predicted probabilities too."""
    (network,), x = members(1), torch.randn(5, 4, dtype=torch.float64)
    alone = Ensemble([network])
    torch.testing.assert_close(alone.train()(x), network(x))
    torch.testing.assert_close(alone.eval()(x), network(x).log_softmax(dim=1))


def test_every_member_takes_the_steps_of_one_network():
    """With M times the batch size and learning rate and 1/M of the weight decay, as if it were alone."""
    networks, alone = members(2), members(2)
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    together = Ensemble(networks).train()
    settings = {"momentum": 0.9, "nesterov": True}
    optimizer = torch.optim.SGD(together.parameters(), lr=0.2, weight_decay=0.05, **settings)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(together(x), y).backward()
        optimizer.step()
    for first, network in enumerate(alone):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, weight_decay=0.1, **settings)
        for _ in range(3):
            optimizer.zero_grad()
            cross_entropy(network(x[first::2]), y[first::2]).backward()
            optimizer.step()
        for one, other in zip(networks[first].parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(one, other)


def test_trains_with_a_sieve_and_predicts_together():
    """`train_deep` needs nothing else; its averaged weights are those of all members."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = (3.0 * np.eye(4)[y] + rng.normal(size=(300, 4))).astype(np.float32)
    noisy = np.where(rng.random(300) < 0.3, rng.integers(3, size=300), y)
    model = Ensemble(network.float() for network in members(2))
    recipe = DeepRecipe(epochs=12, batch_size=64, learning_rate=0.2, sieve=Sieve(start=0.5))
    result = train_deep(model, PeerLoss(), X, noisy, recipe=recipe, device="cpu")
    model.load_state_dict(result.weights["average"])
    predicted = predict_logits(model, torch.as_tensor(X)).argmax(dim=1).numpy()
    assert (predicted == y).mean() > (noisy == y).mean() + 0.05


def test_bad_sizes_are_named():
    """No member, or fewer rows than members in training mode; the messages say what to do."""
    with pytest.raises(InvalidInputError, match="`members` must have at least one network"):
        Ensemble([])
    with pytest.raises(InvalidInputError, match=r"at least one row for each of the 2 members.*Use larger"):
        Ensemble(members(2)).train()(torch.zeros(1, 4, dtype=torch.float64))
