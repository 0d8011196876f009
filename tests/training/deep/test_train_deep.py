"""The loop for deep networks, with small images and a small network."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from peerloss import DMILoss, PeerLoss, PlainLoss
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.models import MLP, ResNet
from peerloss.training import DeepRecipe, Sieve, predict_logits, train_deep
from tests.training.deep.toy import RECIPE, REFRESHING, N, accuracy, have_equal_tensors, images, small_net


@pytest.mark.parametrize(
    ("loss", "recipe"),
    [
        (PlainLoss(), replace(RECIPE, alpha=(), average=None)),
        (PeerLoss(), RECIPE),
        (PeerLoss("sigmoid", peers="sampled"), replace(RECIPE, schedule="cosine", clip_norm=None)),
        (PeerLoss(), replace(RECIPE, epochs=6, sieve=Sieve(start=0.5, refresh_every=0))),
        (PeerLoss(), replace(RECIPE, epochs=6, sieve=Sieve(start=0.5, mixup=True), average=None)),
        (PeerLoss(), replace(RECIPE, epochs=8, sieve=REFRESHING)),
    ],
    ids=["plain", "peer", "sampled", "fixed targets", "mixup and no average", "refreshed targets"],
)
def test_it_learns_through_the_noise(loss, recipe):
    """Every variant learns the classes although a third of the labels are noisy, and records each epoch."""
    X, noisy, y = images()
    model = small_net()
    result = train_deep(model, loss, X[:192], noisy[:192], recipe=recipe, validation=(X[192:], noisy[192:]))
    assert len(result.history) == recipe.epochs
    assert result.best_epoch in range(1, recipe.epochs + 1)
    expected = {"last", "best"} | ({"average"} if recipe.average else set())
    assert set(result.weights) == expected | ({"before_sieve", "settled"} if recipe.sieve else set())
    assert accuracy(model, X[192:], y[192:]) > 0.9
    for weights in result.weights.values():
        model.load_state_dict(weights)
        assert accuracy(model, X[192:], y[192:]) > 0.9
    if recipe.sieve is not None:
        assert result.history[0]["kept"] == 1
        agreeing = float((noisy[:192] == y[:192]).mean())
        assert result.history[-1]["kept"] == pytest.approx(agreeing, abs=0.1)


def test_the_loss_ignores_rows_without_a_label():
    """Rows with label −1 do not change the weights, wherever they are."""
    X, noisy, _ = images()
    labels = noisy.copy()
    labels[::4] = -1
    known = labels >= 0
    with_them = train_deep(small_net(), PeerLoss(), X, labels, recipe=RECIPE)
    without = train_deep(small_net(), PeerLoss(), X[known], noisy[known], recipe=RECIPE)
    assert have_equal_tensors(with_them.weights["average"], without.weights["average"])
    assert [record["kept"] for record in with_them.history] == [1.0] * RECIPE.epochs


def test_a_sieve_trains_rows_without_a_label():
    """Other images without a label change nothing before the first round, and the weights afterwards."""
    X, noisy, y = images(noise=0.1)
    labels = np.where(np.arange(N) % 4 == 0, -1, noisy)
    others = np.where((labels < 0)[:, None, None, None], 255 - X, X)
    # Without balance, which is over all rows: other images would matter even if they were not trained on.
    recipe = replace(RECIPE, epochs=8, sieve=replace(REFRESHING, balance=False))
    these, those = (
        train_deep(small_net(), PeerLoss(), inputs, labels, recipe=recipe) for inputs in (X, others)
    )
    assert have_equal_tensors(these.weights["before_sieve"], those.weights["before_sieve"])
    assert not have_equal_tensors(these.weights["last"], those.weights["last"])
    known = labels >= 0
    assert these.history[-1]["kept"] == pytest.approx((noisy == y)[known].mean(), abs=0.05)


def test_class_shares_are_checked_before_the_first_step():
    """The error comes long before the sieve starts and leaves the model unchanged."""
    X, noisy, _ = images()
    model = small_net()
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    recipe = replace(RECIPE, sieve=Sieve(start=1.0, balance=(0.5, 0.5)))
    with pytest.raises(InvalidInputError, match=r"`balance` must have 3 entries"):
        train_deep(model, PeerLoss(), X, noisy, recipe=recipe)
    assert have_equal_tensors(before, dict(model.named_parameters()))


@pytest.mark.parametrize("sieve", [None, Sieve(start=0.5, balance=(0.5, 0.5))], ids=["loss", "sieve"])
@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 1), lambda: MLP(4, (8,), n_outputs=1)])
def test_one_logit_stands_for_two_classes(make, sieve):
    """As in every loss, validation and sieve interpret it as the columns (0, z)."""
    rng = np.random.default_rng(0)
    X, noisy = rng.normal(size=(200, 4)), rng.random(200) < 0.1
    y = (X[:, 0] > 0).astype(int)
    noisy = np.where(noisy, 1 - y, y)
    torch.manual_seed(0)
    model = make()
    recipe = DeepRecipe(epochs=20, batch_size=20, sieve=sieve)
    result = train_deep(model, PeerLoss(), X, noisy, recipe=recipe, validation=(X, noisy))
    predicted = predict_logits(model, torch.as_tensor(X, dtype=torch.float32)).flatten() > 0
    assert (predicted.numpy() == y).mean() > 0.95
    assert max(record["score"] for record in result.history) > 0.3


def test_training_continues_with_a_second_loss():
    """DMI needs a warm-up with another loss, on the same model."""
    X, noisy, y = images()
    model = small_net()
    train_deep(model, PlainLoss(), X, noisy, recipe=replace(RECIPE, alpha=()))
    gentle = replace(RECIPE, alpha=(), learning_rate=0.005, epochs=1)
    train_deep(model, DMILoss(eps=0.0), X, noisy, recipe=gentle)
    assert accuracy(model, X, y) > 0.9


def test_other_inputs_than_images_are_not_changed():
    """Any module can be trained, here on plain features."""
    X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    y = (X[:, 0] > 0).long()
    torch.manual_seed(0)
    model = MLP(4, n_outputs=2)
    train_deep(model, PeerLoss(), X, y, recipe=replace(RECIPE, epochs=20, learning_rate=0.5))
    assert float((predict_logits(model, X).argmax(dim=1) == y).float().mean()) > 0.9


def test_training_is_reproducible():
    """Equal seeds give equal weights, other seeds other weights; the arrays of the caller do not change."""
    X, noisy, _ = images()
    before = X.copy(), noisy.copy()
    runs = []
    for seed in (1, 1, 2):
        recipe = replace(RECIPE, epochs=1, random_state=seed)
        result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe)
        runs.append(result.weights["last"])
        torch.rand(7)
    assert have_equal_tensors(runs[0], runs[1])
    assert not have_equal_tensors(runs[0], runs[2])
    assert np.array_equal(X, before[0])
    assert np.array_equal(noisy, before[1])


def test_the_best_weights_are_those_of_the_best_score():
    """The score of the kept weights, computed independently, is the best of the history."""
    X, noisy, _ = images()
    model = small_net()
    held = slice(150, N)
    result = train_deep(
        model,
        PlainLoss(),
        X[:150],
        noisy[:150],
        recipe=replace(RECIPE, alpha=(), epochs=4),
        validation=(X[held], noisy[held]),
    )
    model.load_state_dict(result.weights["best"])
    predicted = predict_logits(model, torch.as_tensor(X[held])).argmax(dim=1).numpy()
    agreement = (predicted == noisy[held]).mean()
    chance = sum((predicted == k).mean() * (noisy[held] == k).mean() for k in range(3))
    scores = [record["score"] for record in result.history]
    assert max(scores) == pytest.approx(agreement - chance)
    assert scores.index(max(scores)) + 1 == result.best_epoch


def test_patience_is_counted_from_the_start_of_the_sieve():
    """The sieve is reached even if the score stopped rising before."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=20, learning_rate=1e-9, patience=2, sieve=Sieve(start=0.4))
    result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, validation=(X, noisy))
    assert "before_sieve" in result.weights
    assert len(result.history) == max(8, result.best_epoch) + 2 < 20


def test_training_stops_when_patience_is_exhausted():
    """No epoch is trained after ``patience`` epochs without a better score."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=50, learning_rate=1e-9, patience=2)
    result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, validation=(X, noisy))
    assert len(result.history) == result.best_epoch + 2 < 20


def test_alpha_follows_its_knots():
    """Knots are at shares of the steps, and α ends at the last one."""
    X, noisy, _ = images()
    loss = PeerLoss(alpha=7.0)
    result = train_deep(
        small_net(), loss, X, noisy, recipe=replace(RECIPE, epochs=4, alpha=((0.5, 0.0), (1.0, 2.0)))
    )
    assert [record["alpha"] for record in result.history] == pytest.approx([0.0, 0.0, 1.0, 2.0])


@pytest.mark.filterwarnings("ignore:logits have reached")  # they may, before the end
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_divergence_is_an_error_and_leaves_the_last_good_checkpoint(seed, tmp_path):
    """α = 5 without a clip at rate 1: the message says what to change, and the saved weights classify."""
    X, noisy, y = images()
    path = tmp_path / "run.pt"
    recipe = replace(
        RECIPE,
        epochs=60,
        learning_rate=1.0,
        alpha=((0.05, 0.0), (0.1, 5.0)),
        clip_norm=None,
        divide_rate=False,
        weight_decay=0.0,
    )
    with pytest.raises(DivergenceError) as caught:
        train_deep(small_net(seed), PeerLoss(eps=0.0), X, noisy, recipe=recipe, checkpoint=path)
    message = str(caught.value)
    assert "it is not bounded below" in message
    assert "lower the learning rate" in message
    assert f"The last good checkpoint is {path}" in message
    saved = torch.load(path, weights_only=True)
    assert message.startswith(f"epoch {saved['epoch'] + 1}: the mean loss is -")
    model = small_net()
    model.load_state_dict(saved["model"])
    assert accuracy(model, X, y) > 0.95


@pytest.mark.parametrize("loss", [PeerLoss(alpha=40.0), PeerLoss("sigmoid", reduction="sum", alpha=3.0)])
def test_a_bounded_loss_never_counts_as_diverged(loss):
    """It is far below zero, but within its bound."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=2, alpha=(), clip_norm=0.1, weight_decay=0.0)
    history = train_deep(small_net(), loss, X, noisy, recipe=recipe).history
    assert len(history) == 2
    assert history[-1]["loss"] < -10.0


def test_an_error_of_the_loss_names_the_epoch(monkeypatch):
    """The first epoch is epoch 1, at whatever step the outputs become NaN."""
    X, noisy, _ = images()
    monkeypatch.setattr(
        ResNet, "forward", lambda self, x: np.nan * self.classifier.weight.sum(1).repeat(len(x), 1)
    )
    with pytest.raises(DivergenceError, match=r"^epoch 1: the model's outputs are not finite"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE)


def test_divergence_without_a_checkpoint():
    """A plain function as loss has no checks of its own; NaN is detected at the end of the epoch."""
    X, noisy, _ = images()
    with pytest.raises(DivergenceError, match=r"epoch 1: the mean loss is nan, .* pass `checkpoint`"):
        train_deep(
            small_net(), lambda z, _: z.sum() * float("nan"), X, noisy, recipe=replace(RECIPE, alpha=())
        )


def test_batch_statistics_are_recomputed_without_an_incomplete_batch():
    """The last row of 65 is dropped; statistics of a batch of one would be wrong."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(65, 4)).astype(np.float32), rng.integers(2, size=65)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    recipe = DeepRecipe(epochs=2, batch_size=16, sieve=Sieve(start=0.5))
    result = train_deep(model, PeerLoss(), X, y, recipe=recipe, device="cpu")
    assert (result.weights["settled"]["1.running_var"] != result.weights["average"]["1.running_var"]).any()
    assert model[1].momentum == 0.1
