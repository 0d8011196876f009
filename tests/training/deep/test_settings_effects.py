"""Every setting of the deep loop has its effect on steps, inputs, scores and files."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn

from peerloss import PeerLoss
from peerloss.exceptions import DivergenceError
from peerloss.metrics import peer_score
from peerloss.training import Augment, DeepRecipe, Sieve, predict_logits, train_deep
from peerloss.training.deep import _training_output
from peerloss.training.deep._sieve_targets import soft_loss
from tests.training.deep.toy import RECIPE, N, have_equal_tensors, images, small_net

CPU = {"device": "cpu"}  # sums have a fixed order there
# With all rows in one batch an epoch is one step, and the order of the rows does not matter.
STEPWISE = DeepRecipe(epochs=3, batch_size=N, learning_rate=0.5, warm_up=0.25, average=None)
BARE = replace(STEPWISE, weight_decay=0.0, clip_norm=None, divide_rate=False)


def features():
    """Return rows of four numbers in three classes."""
    X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return X, X[:, :3].argmax(dim=1)


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 3, dtype=torch.float64)


def watch(model):
    """Return a list that collects the inputs of the model in training mode."""
    seen = []
    model.register_forward_pre_hook(lambda module, args: seen.extend(args if module.training else ()))
    return seen


def before_each_step(model, call):
    """Call ``call(steps)`` before each training step, with the number of steps done."""
    steps = count()
    model.register_forward_pre_hook(lambda module, _: call(next(steps)) if module.training else None)


def three_steps_by_hand(model, loss, X, y, recipe):
    """Run SGD with Nesterov momentum; a warm-up of a quarter gives 1, 2/3 and 1/3 of the learning rate."""
    weights = list(model.parameters())
    velocities = [torch.zeros_like(weight) for weight in weights]
    for share in (1.0, 2 / 3, 1 / 3):
        rate = recipe.learning_rate * share / (1 + loss.alpha if recipe.divide_rate else 1)
        gradients = torch.autograd.grad(loss(model(X), y), weights)
        norm = float(torch.cat([gradient.flatten() for gradient in gradients]).norm())
        shrink = 1.0 if recipe.clip_norm is None else min(1.0, recipe.clip_norm / norm)
        with torch.no_grad():
            for weight, velocity, gradient in zip(weights, velocities, gradients, strict=True):
                downhill = shrink * gradient + recipe.weight_decay * weight
                velocity.mul_(recipe.momentum).add_(downhill)
                weight.sub_(rate * (downhill + recipe.momentum * velocity))
    return model.state_dict()


@pytest.mark.parametrize(
    "setting",
    [{"momentum": 0.5}, {"weight_decay": 0.3}, {"clip_norm": 0.01}, {"divide_rate": True}],
    ids=lambda setting: next(iter(setting)),
)
def test_steps_are_those_written_out_by_hand(setting):
    """Momentum, weight decay, clipping and division of the rate by 1 + α give the expected steps."""
    X, y = features()
    recipe = replace(BARE, **setting)
    trained = train_deep(linear(), PeerLoss(alpha=1.5), X, y, recipe=recipe, **CPU).weights["last"]
    expected, without = (
        three_steps_by_hand(linear(), PeerLoss(alpha=1.5), X, y, settings) for settings in (recipe, BARE)
    )
    torch.testing.assert_close(trained, expected, rtol=1e-4, atol=1e-7)
    assert not torch.allclose(trained["weight"], without["weight"], rtol=1e-2)


def test_the_loss_is_put_into_training_mode():
    """In evaluation mode it would not count labels, and use each batch as the prior."""
    recipe = replace(STEPWISE, batch_size=16)
    losses = PeerLoss(), PeerLoss().eval()
    first, second = (train_deep(linear(), loss, *features(), recipe=recipe, **CPU).weights for loss in losses)
    assert have_equal_tensors(first["last"], second["last"])


def test_invalid_weights_after_the_last_step_are_detected():
    """The loss of the only step is 0 and its gradient NaN: the epoch ends with an error."""
    recipe = replace(STEPWISE, epochs=1)
    with pytest.raises(DivergenceError, match=r"epoch 1: the mean loss is 0, the norm of the weights nan"):
        train_deep(linear(), lambda z, _: (0.0 * z.sum()).sqrt(), *features(), recipe=recipe, **CPU)


def test_each_round_of_the_sieve_restarts_the_learning_rate():
    """Two rounds repeat the rates of the first phase, not divided because α is not used there."""
    recipe = replace(STEPWISE, epochs=6, sieve=Sieve(start=1 / 3, rounds=2))
    history = train_deep(linear(), PeerLoss(alpha=1.0), *features(), recipe=recipe, **CPU).history
    falling = [0.5 * (2 / 3) / 0.75, 0.5 * (1 / 3) / 0.75]
    expected = [*(rate / 2 for rate in falling), *falling, *falling]
    assert [record["rate"] for record in history] == pytest.approx(expected)


def test_adamw_does_not_decay_biases_and_norms():
    """Three steps equal those of torch's AdamW, with decay of matrices only; the rates are those of SGD."""
    X, y = features()

    def normed():
        return nn.Sequential(linear(), nn.LayerNorm(3, dtype=torch.float64))

    recipe = replace(BARE, optimizer="adamw", learning_rate=0.05, weight_decay=0.3, momentum=0.8)
    weights = train_deep(normed(), PeerLoss(), X, y, recipe=recipe, **CPU).weights["last"]
    model, loss = normed(), PeerLoss()
    groups = [
        {"params": [model[0].weight], "weight_decay": 0.3},
        {"params": [model[0].bias, *model[1].parameters()], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.8, 0.999))
    for share in (1.0, 2 / 3, 1 / 3):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * share
        optimizer.zero_grad()
        loss(model(X), y).backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(weights[name], tensor)


def test_images_and_filters_are_channels_last():
    """The model gets channels-last images after augmentation, mixup and in predictions."""
    X, noisy, _ = images()
    model, strides = small_net(), []
    model.register_forward_pre_hook(lambda _, args: strides.append(args[0].stride()))
    strong = Augment(cutout=2, affine=20.0, colour=0.4, share=0.5)
    recipe = replace(RECIPE, epochs=2, augment=strong, sieve=Sieve(start=0.5, mixup=True, augment=strong))
    train_deep(model, PeerLoss(), X, noisy, recipe=recipe, validation=(X, noisy), **CPU)
    assert set(strides) == {(3 * 8 * 8, 1, 3 * 8, 3)}
    filters = [weight for weight in model.parameters() if weight.ndim == 4]
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in filters)


@pytest.mark.parametrize("kernels", [False, True], ids=["loss without kernels", "loss with kernels"])
def test_compiled_functions_are_used(kernels, monkeypatch):
    """Model, loss and soft loss are compiled, except a loss with its own kernels."""
    compiled, used = [], []

    def fake_compile(function, **_):
        compiled.append(function)

        def run(*args):
            used.append(function)
            return function(*args)

        return run

    monkeypatch.setattr(torch, "compile", fake_compile)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)  # imports the compiler
    monkeypatch.setattr(PeerLoss, "has_kernels", lambda *_: kernels)
    model, loss = small_net(), PeerLoss()
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=2, sieve=Sieve(start=0.5))
    train_deep(model, loss, X, noisy, recipe=recipe, **CPU)
    assert compiled == []
    train_deep(model, loss, X, noisy, recipe=replace(recipe, compile=True), **CPU)
    expected = {model, soft_loss} if kernels else {model, loss, soft_loss}
    assert set(compiled) == set(used) == expected


def test_the_validation_score_uses_the_alpha_of_the_recipe():
    """``scoring_alpha`` is the weight of the chance agreement in the score of each epoch."""
    X, y = features()
    model = linear()
    recipe = replace(STEPWISE, scoring_alpha=0.3)
    score = train_deep(model, PeerLoss(), X, y, recipe=recipe, validation=(X, y), **CPU).history[-1]["score"]
    predicted = predict_logits(model, X).argmax(dim=1)
    assert score == pytest.approx(peer_score(y, predicted, alpha=0.3))
    assert score != pytest.approx(peer_score(y, predicted, alpha=1.0))


def test_the_validation_score_is_that_of_the_averaged_weights():
    """If there is an average, it predicts the validation rows and is kept as the best weights."""
    X, y = features()
    model, used = linear(), []
    model.register_forward_pre_hook(
        lambda module, _: None if module.training else used.append(module.weight.detach().clone())
    )
    recipe = replace(STEPWISE, epochs=1, average=0.9)
    weights = train_deep(model, PeerLoss(), X, y, recipe=recipe, validation=(X, y), **CPU).weights
    assert used
    assert all(torch.equal(weight, weights["average"]["weight"]) for weight in used)
    assert have_equal_tensors(weights["best"], weights["average"])
    assert not have_equal_tensors(weights["last"], weights["average"])


def test_the_sieve_has_its_own_augmentation():
    """Before the sieve, and for the batch statistics at the end, images are augmented as in the recipe.

    A blanked square of side 2 covers one to four pixels, one of side 6 at least nine, also in a corner.
    """
    grey, model = np.full((N, 8, 8, 3), 200, dtype=np.uint8), small_net()
    seen = watch(model)
    recipe = replace(
        RECIPE, epochs=2, augment=Augment(cutout=2), sieve=Sieve(start=0.5, augment=Augment(cutout=6))
    )
    train_deep(model, PeerLoss(), grey, images()[1], recipe=recipe, **CPU)
    blank = (torch.cat(seen) == 0).all(dim=1).sum(dim=(1, 2))
    of_loss, of_sieve, of_statistics = blank.view(3, N // 32 * 32)
    assert 1 <= of_loss.min() <= of_loss.max() <= 4
    assert of_sieve.min() >= 9
    assert 1 <= of_statistics.min() <= of_statistics.max() <= 4


@pytest.mark.parametrize("mixup", [True, False])
def test_the_sieve_mixes_images_with_mixup_only(mixup):
    """Mixed black and white images are grey; the first phase never mixes."""
    X, noisy, y = images()
    model, moved = small_net(), Augment()
    seen = watch(model)
    recipe = replace(RECIPE, epochs=2, augment=moved, sieve=Sieve(start=0.5, mixup=mixup, augment=moved))
    black_and_white = np.where((y == 0)[:, None, None, None], 0, np.full_like(X, 255))
    train_deep(model, PeerLoss(), black_and_white, noisy, recipe=recipe, **CPU)
    of_loss, of_sieve = torch.cat(seen).reshape(3, -1)[:2]  # the rest is for the batch statistics
    assert len(of_loss.unique()) == 2
    assert (len(of_sieve.unique()) > 2) is mixup


def with_dropout():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Dropout(), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


@pytest.mark.parametrize("stop", [1, 3], ids=["before the sieve", "in the sieve"])
def test_a_resumed_training_restores_the_global_generator(stop, tmp_path):
    """Dropout draws from it, so its state must not depend on the seed of the new process."""
    X, y = features()
    path = tmp_path / "run.pt"
    recipe = replace(STEPWISE, epochs=4, average=0.5, sieve=Sieve(start=0.5, refresh_every=1))

    def run(seed, checkpoint=None, stop=None):
        def interrupt(steps):
            if steps == stop:
                raise KeyboardInterrupt

        model = with_dropout()
        before_each_step(model, interrupt)
        torch.manual_seed(seed)
        result = train_deep(model, PeerLoss(), X.float(), y, recipe=recipe, checkpoint=checkpoint, **CPU)
        return result.weights

    whole, other = run(1), run(2)
    with pytest.raises(KeyboardInterrupt):
        run(1, path, stop)
    resumed = run(2, path)
    assert all(have_equal_tensors(resumed[name], whole[name]) for name in whole)
    assert not have_equal_tensors(other["last"], whole["last"])


def test_checkpoints_are_saved_at_the_interval_and_at_the_end(tmp_path, monkeypatch):
    """With ``checkpoint_every=2`` epochs 2 and 4 of five are saved, and finally the fifth; by default all."""
    saved = []
    monkeypatch.setattr(_training_output, "save_checkpoint", lambda _, state: saved.append(state["epoch"]))
    recipe = replace(STEPWISE, epochs=5)
    for options in ({"checkpoint_every": 2}, {}):
        train_deep(
            linear(), PeerLoss(), *features(), recipe=recipe, checkpoint=tmp_path / "a", **options, **CPU
        )
    assert saved == [2, 4, 5, 1, 2, 3, 4, 5]
