"""Soft labels in the loop for deep networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from peerloss import BackwardLoss, ForwardLoss, PeerLoss, PlainLoss
from peerloss.exceptions import InvalidInputError
from peerloss.models import MLP
from peerloss.training import DeepRecipe, Sieve, train_deep

RECIPE = DeepRecipe(epochs=4, batch_size=32, learning_rate=0.05, average=0.9, half_precision=False)
T3 = np.full((3, 3), 0.15) + 0.55 * np.eye(3)
LOSSES = {
    "plain": PlainLoss,
    "peer": PeerLoss,
    "backward": lambda: BackwardLoss(T3),
    "forward": lambda: ForwardLoss(T3),
}


def task(n=160):
    """Return features, class codes and the shares of five noisy votes on each row."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    X = np.eye(3)[y] * 3 + rng.normal(size=(n, 3))
    votes = np.array([rng.choice(3, p=T3[label], size=5) for label in y])
    return X, y, np.eye(3)[votes].mean(axis=1)


def net():
    torch.manual_seed(0)
    return MLP(3, (8,), 3)


def weights(loss, X, y, **options):
    return train_deep(net(), loss, X, y, device="cpu", **{"recipe": RECIPE, **options}).weights["average"]


@pytest.mark.parametrize("name", LOSSES)
def test_one_hot_labels_train_as_class_codes(name):
    """The same weights up to rounding, for every loss that accepts soft targets."""
    X, y, _ = task()
    soft, hard = (weights(LOSSES[name](), X, labels) for labels in (np.eye(3)[y], y))
    for key, value in soft.items():
        torch.testing.assert_close(value, hard[key], rtol=1e-4, atol=1e-5)


def test_shares_of_votes_are_learned():
    """Peer loss on the votes predicts the class, and counts the mean share as its prior."""
    X, y, shares = task()
    model, loss = net(), PeerLoss(alpha=0.5)
    result = train_deep(model, loss, X, shares, recipe=replace(RECIPE, epochs=20), device="cpu")
    predicted = model(torch.tensor(X, dtype=torch.float32)).argmax(dim=1).numpy()
    assert (predicted == y).mean() > 0.9
    assert len(result.history) == 20
    np.testing.assert_allclose(loss.current_prior().cpu().numpy(), shares.mean(axis=0), atol=1e-4)


def test_rows_of_nan_have_no_label():
    """They do not change the weights."""
    X, _, shares = task()
    known = np.arange(160) % 4 > 0
    with_them = weights(PeerLoss(), X, np.where(known[:, None], shares, np.nan))
    without = weights(PeerLoss(), X[known], shares[known])
    assert all(torch.equal(with_them[key], without[key]) for key in without)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_soft_labels_may_be_in_half_precision(dtype):
    """As from a teacher under autocast: rounded rows train almost as exact ones; NaN means no label."""
    X, _, shares = task()
    shares[::5] = np.nan
    exact = weights(PeerLoss(alpha=0.5), X, shares)
    rounded = weights(PeerLoss(alpha=0.5), X, torch.tensor(shares, requires_grad=True).to(dtype))
    for key, value in rounded.items():
        torch.testing.assert_close(value, exact[key], rtol=0, atol=0.02)


def test_training_resumes_with_soft_labels(tmp_path):
    """Sums of soft targets are in the checkpoint; other soft labels are refused."""
    X, _, shares = task()
    path, expected = tmp_path / "run.pt", weights(PeerLoss(), X, shares)
    recipe = replace(RECIPE, epochs=4)

    class StoppedError(Exception):
        pass

    class Stopping(PeerLoss):
        """Stop in the third epoch, after two checkpoints."""

        steps = 0

        def forward(self, logits, target):
            self.steps += 1
            if self.steps > 12:
                raise StoppedError
            return super().forward(logits, target)

        def _get_name(self):
            return "PeerLoss"

    with pytest.raises(StoppedError):
        weights(Stopping(), X, shares, recipe=recipe, checkpoint=path)
    resumed = weights(PeerLoss(), X, shares, recipe=recipe, checkpoint=path)
    assert all(torch.equal(resumed[key], expected[key]) for key in expected)
    with pytest.raises(InvalidInputError, match="fingerprint of y"):
        weights(PeerLoss(), X, shares[::-1].copy(), recipe=recipe, checkpoint=path)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (np.full((160, 3), 0.5), {}, r"`y` must hold class probabilities.*row 0 sums to 1\.5"),
        (
            np.full((160, 4), 0.25),
            {},
            "column for each of the 3 classes of the model's outputs; got soft labels",
        ),
        (
            np.full((160, 3), 1 / 3),
            {"recipe": replace(RECIPE, sieve=Sieve())},
            r"one label per row for a `sieve`.*argmax\(axis=1\)",
        ),
        (np.full((100, 3), 1 / 3), {}, "equally long"),
    ],
)
def test_wrong_soft_labels_are_refused(y, options, message):
    """Before training, with what to do."""
    X, _, _ = task()
    with pytest.raises(InvalidInputError, match=message):
        weights(PeerLoss(), X, y, **options)
