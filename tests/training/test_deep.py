"""The loop for deep networks, on small images and a small network."""

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from peerloss import BaseLoss, DMILoss, PeerLoss
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.models import MLP, ResNet
from peerloss.training import (
    Augment,
    DeepRecipe,
    Sieve,
    _deep_run,
    predict_logits,
    predict_mirrored,
    train_deep,
)
from peerloss.training._sieve import sieve_targets

N = 240
RECIPE = DeepRecipe(epochs=3, batch_size=32, learning_rate=0.05, alpha=((0.3, 0.0), (1.0, 1.0)), average=0.9)
RENEWING = Sieve(start=0.5, renew=1, balance=True, augment=Augment(cutout=2, share=0.5))


def images(noise=0.3):
    """Three classes told by colour; a share of the labels is wrong."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    X = rng.integers(120, size=(N, 8, 8, 3), dtype=np.uint8)
    X[np.arange(N), :, :, y] += 60
    return X, np.where(rng.random(N) < noise, rng.integers(3, size=N), y), y


def small_net(seed=0):
    torch.manual_seed(seed)
    return ResNet((1, 1), n_classes=3, width=8)


def accuracy(model, X, y):
    return float((predict_logits(model.eval(), torch.as_tensor(X)).argmax(dim=1).numpy() == y).mean())


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("loss", "recipe"),
    [
        (BaseLoss(), replace(RECIPE, alpha=(), average=None)),
        (PeerLoss(), RECIPE),
        (PeerLoss("sigmoid", peers="sampled"), replace(RECIPE, schedule="cosine", clip_norm=None)),
        (PeerLoss(), replace(RECIPE, epochs=6, sieve=Sieve(start=0.5, renew=0))),
        (PeerLoss(), replace(RECIPE, epochs=6, sieve=Sieve(start=0.5, mixup=True), average=None)),
        (PeerLoss(), replace(RECIPE, epochs=8, sieve=RENEWING)),
    ],
    ids=["plain", "peer", "sampled", "sieve", "sieve with mixup and no average", "sieve that renews"],
)
def test_it_learns_through_the_noise(loss, recipe):
    """Every variety finds the classes that a third of the labels deny, and reports each epoch."""
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


def test_the_loss_leaves_out_rows_without_a_label():
    """With −1 among the labels training gives the weights it gives without these rows, in any order."""
    X, noisy, _ = images()
    labels = noisy.copy()
    labels[::4] = -1
    known = labels >= 0
    with_them = train_deep(small_net(), PeerLoss(), X, labels, recipe=RECIPE)
    without = train_deep(small_net(), PeerLoss(), X[known], noisy[known], recipe=RECIPE)
    assert same(with_them.weights["average"], without.weights["average"])
    assert [record["kept"] for record in with_them.history] == [1.0] * RECIPE.epochs


def test_a_sieve_teaches_rows_without_a_label():
    """Until it decides, other images without a label change nothing; from then on they do."""
    X, noisy, y = images(noise=0.1)
    labels = np.where(np.arange(N) % 4 == 0, -1, noisy)
    others = np.where((labels < 0)[:, None, None, None], 255 - X, X)
    # Balance is over all rows: with it other images would count even if they were not taught.
    recipe = replace(RECIPE, epochs=8, sieve=replace(RENEWING, balance=False))
    these, those = (
        train_deep(small_net(), PeerLoss(), inputs, labels, recipe=recipe) for inputs in (X, others)
    )
    assert same(these.weights["before_sieve"], those.weights["before_sieve"])
    assert not same(these.weights["last"], those.weights["last"])
    known = labels >= 0
    assert these.history[-1]["kept"] == pytest.approx((noisy == y)[known].mean(), abs=0.05)  # of the labels


def test_the_prior_of_a_sieve_is_counted_over_labels_alone(monkeypatch):
    """Rows without a label say nothing of how common labels are."""
    X, noisy, _ = images()
    labels = np.where(np.arange(N) % 4 == 0, -1, noisy)
    seen = []

    def watched(answers, y, noisy_prior, sieve):
        seen.append(noisy_prior)
        return sieve_targets(answers, y, noisy_prior, sieve)

    monkeypatch.setattr(_deep_run, "sieve_targets", watched)
    recipe = replace(RECIPE, epochs=2, sieve=Sieve(start=0.5, renew=0))
    train_deep(small_net(), PeerLoss(), X, labels, recipe=recipe)
    known = labels[labels >= 0]
    assert seen[0].tolist() == pytest.approx((np.bincount(known) / len(known)).tolist())


def test_batches_grow_with_the_rows_that_a_sieve_adds():
    """Few labels make small batches; once the other rows join, they are as large as the recipe says."""
    X, noisy, _ = images()
    labels = np.where(np.arange(N) < 20, noisy, -1)
    recipe = replace(RECIPE, epochs=2, sieve=Sieve(start=0.5))
    run = _deep_run.Run(small_net(), PeerLoss(), X, labels, recipe, torch.device("cpu"))
    assert (run.batch, run.steps) == (20, 1)
    run.train_epoch()
    run.train_epoch()
    assert (run.batch, run.steps) == (32, N // 32)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(N, -1), "`y` must have labels of more classes than one.*-1 marks rows without a label"),
        (np.resize([-1, 0], N), "more classes than one; got"),
        (np.resize([-1, 1], N), "If -1 and 1 are two classes, encode them as 0 and 1"),
        (np.resize([-100, 0, 1], N), "found -100. Set such rows to -1"),
        (np.resize([0.0, np.nan], N), "`y` must hold integer class codes"),
        (np.resize([0.5, 1.0], N), "`y` must hold integer class codes"),
        (np.zeros((N, 3), dtype=int), "`y` must be one-dimensional"),
        (np.resize(["cat", "dog"], N), "`y` must hold integer class codes"),
        (np.resize([0, 1], N - 1), "equally long"),
    ],
    ids=[
        "none at all",
        "one class",
        "-1 and 1",
        "-100",
        "missing",
        "fractions",
        "one-hot",
        "words",
        "too few",
    ],
)
def test_labels_that_cannot_be_meant_are_refused(y, message):
    """Before anything is trained, with a message that says what −1 means here."""
    with pytest.raises(InvalidInputError, match=message):
        train_deep(small_net(), PeerLoss(), images()[0], y, recipe=RECIPE)


@pytest.mark.parametrize(("wrong", "message"), [([-1] * 9, "found -1"), ([0] * 8, "equally long")])
def test_held_out_labels_are_all_there(wrong, message):
    """A row without a label cannot judge an epoch."""
    X, noisy, _ = images()
    with pytest.raises(InvalidInputError, match=rf"validation\[1\].*{message}"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, validation=(X[:9], wrong))


def test_a_second_loss_goes_on_from_the_first():
    """DMI needs a warm start: the same model is trained on."""
    X, noisy, y = images()
    model = small_net()
    train_deep(model, BaseLoss(), X, noisy, recipe=replace(RECIPE, alpha=()))
    gentle = replace(RECIPE, alpha=(), learning_rate=0.005, epochs=1)
    train_deep(model, DMILoss(eps=0.0), X, noisy, recipe=gentle)
    assert accuracy(model, X, y) > 0.9


def test_inputs_that_are_no_images_are_taken_as_they_are():
    """Any module, here on plain features."""
    X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    y = (X[:, 0] > 0).long()
    torch.manual_seed(0)
    model = MLP(4, n_outputs=2)
    train_deep(model, PeerLoss(), X, y, recipe=replace(RECIPE, epochs=20, learning_rate=0.5))
    assert float((predict_logits(model, X).argmax(dim=1) == y).float().mean()) > 0.9


def test_the_seed_decides_everything():
    """The same seed gives the same weights, another one others; the caller's arrays stay as they are."""
    X, noisy, _ = images()
    before = X.copy(), noisy.copy()
    runs = []
    for seed in (1, 1, 2):
        result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=replace(RECIPE, epochs=1, seed=seed))
        runs.append(result.weights["last"])
        torch.rand(7)
    assert same(runs[0], runs[1])
    assert not same(runs[0], runs[2])
    assert np.array_equal(X, before[0])
    assert np.array_equal(noisy, before[1])


def test_the_best_weights_are_those_of_the_best_score():
    """The kept weights score what the history says was the best, by a score computed here anew."""
    X, noisy, _ = images()
    model = small_net()
    held = slice(150, N)
    result = train_deep(
        model,
        BaseLoss(),
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


def test_patience_begins_with_the_sieve():
    """However early the loss stops gaining, the sieve gets its epochs."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=20, learning_rate=1e-9, patience=2, sieve=Sieve(start=0.4))
    result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, validation=(X, noisy))
    assert "before_sieve" in result.weights
    assert len(result.history) == max(8, result.best_epoch) + 2 < 20


def test_training_stops_when_patience_is_over():
    """No epoch is trained once the score has not risen for so long."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=50, learning_rate=1e-9, patience=2)
    result = train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, validation=(X, noisy))
    assert len(result.history) == result.best_epoch + 2 < 20


def test_alpha_follows_its_knots():
    """Knots are shares of the training, the loss ends at the last one."""
    X, noisy, _ = images()
    loss = PeerLoss(alpha=7.0)
    result = train_deep(
        small_net(), loss, X, noisy, recipe=replace(RECIPE, epochs=4, alpha=((0.5, 0.0), (1.0, 2.0)))
    )
    assert [record["alpha"] for record in result.history] == pytest.approx([0.0, 0.0, 1.0, 2.0])


SIEVED = replace(RECIPE, epochs=4, sieve=Sieve(start=0.5))
RENEWED = replace(RECIPE, epochs=6, sieve=RENEWING)


@pytest.mark.parametrize("recipe", [RECIPE, SIEVED, RENEWED], ids=["peer", "sieve", "renewing sieve"])
def test_a_training_in_two_parts_equals_one_in_one(recipe, tmp_path, monkeypatch):
    """An interruption in any epoch changes nothing: weights, average, best and history are the same."""
    X, noisy, _ = images()
    labels = np.where(np.arange(N) % 5 == 0, -1, noisy)

    def run(checkpoint):
        generator = torch.Generator().manual_seed(3)
        loss = PeerLoss(peers="sampled", generator=generator)
        return train_deep(
            small_net(), loss, X, labels, recipe=recipe, validation=(X, noisy), checkpoint=checkpoint
        )

    whole = run(None)
    original = _deep_run.Run.train_epoch
    for stop in range(1, recipe.epochs):
        path = tmp_path / f"{stop}.pt"

        def breaks(self, stop=stop):
            if self.epoch == stop:
                raise KeyboardInterrupt
            return original(self)

        monkeypatch.setattr(_deep_run.Run, "train_epoch", breaks)
        with pytest.raises(KeyboardInterrupt):
            run(path)
        monkeypatch.setattr(_deep_run.Run, "train_epoch", original)
        torch.rand(5)
        resumed = run(path)
        assert all(same(resumed.weights[name], whole.weights[name]) for name in whole.weights)
        assert resumed.best_epoch == whole.best_epoch
        untimed = [[{**r, "seconds": 0} for r in result.history] for result in (whole, resumed)]
        assert untimed[0] == untimed[1]


def test_targets_change_when_the_student_answers():
    """Before each renewal, and never else, answers become memory · earlier + rest · the averaged model's."""
    X, noisy, _ = images()
    X = torch.as_tensor(X)
    sieve = Sieve(start=0.25, renew=2, memory=0.7)
    run = _deep_run.Run(
        small_net(), PeerLoss(), X, noisy, replace(RECIPE, epochs=8, sieve=sieve), torch.device("cpu")
    )
    assert sieve.renewals(8) == [4, 6]
    while run.epoch < 8:
        before, averaged = run.taught, small_net()
        averaged.load_state_dict(run.model.state_dict())
        averaged.load_state_dict(run.average.state_dict()["mean"], strict=False)
        answers = torch.softmax(predict_logits(averaged.eval(), X), dim=1)
        epoch = run.epoch
        run.train_epoch()
        if epoch in (4, 6):
            torch.testing.assert_close(run.taught, 0.7 * before + 0.3 * answers)
        elif epoch != 2:  # where the teacher decides
            assert run.taught is before


@pytest.mark.parametrize("flip", [True, False])
def test_the_teacher_sees_mirrored_images_only_where_the_recipe_has_them(flip):
    """Digits and letters are not what they are in a mirror: there the teacher answers for the plain image."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=2, augment=Augment(crop=1, flip=flip), sieve=Sieve(start=0.5))
    run = _deep_run.Run(small_net(), PeerLoss(), X, noisy, recipe, torch.device("cpu"))
    run.train_epoch()
    averaged = small_net()
    averaged.load_state_dict(run.model.state_dict())
    averaged.load_state_dict(run.average.state_dict()["mean"], strict=False)
    plain = torch.softmax(predict_logits(averaged.eval(), torch.as_tensor(X)), dim=1)
    both = predict_mirrored(averaged, torch.as_tensor(X))
    run.train_epoch()
    torch.testing.assert_close(run.taught, both if flip else plain)
    assert not torch.allclose(both, plain)


def train_in_steps(checkpoint):
    """Train as the killed process and the test itself do."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=15, batch_size=16)
    return train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, checkpoint=checkpoint).weights


def test_a_killed_training_ends_with_the_same_weights(tmp_path):
    """SIGKILL in the middle, then the same training again: the weights of an undisturbed run."""
    path = tmp_path / "killed.pt"
    code = (
        "import sys, torch; torch.set_num_threads(1); "
        "from tests.training.test_deep import train_in_steps; train_in_steps(sys.argv[1])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], env=environment)
    while not path.exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert torch.load(path, weights_only=True)["epoch"] < 15
    resumed, whole = train_in_steps(path), train_in_steps(None)
    assert all(same(resumed[name], whole[name]) for name in whole)


def test_a_finished_checkpoint_is_only_loaded(tmp_path):
    """Running again after the end trains nothing."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    first = train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    again = train_deep(small_net(5), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    assert same(first.weights["last"], again.weights["last"])
    assert first.history == again.history


def test_checkpoints_of_other_settings_and_broken_ones_are_refused(tmp_path):
    """The message names what differs, or that the file cannot be read; nothing is unpickled blindly."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    train_deep(small_net(), PeerLoss(), X, noisy, recipe=replace(RECIPE, epochs=1), checkpoint=path)
    with pytest.raises(InvalidInputError, match=r"belongs to a training with epochs = 1; this one has 3"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)
    torch.save({"settings": os.getcwd}, path)
    with pytest.raises(InvalidInputError, match=r"`checkpoint` .* cannot be read"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, checkpoint=path)


@pytest.mark.filterwarnings("ignore:logits have reached")  # they may, before the end
def test_divergence_is_said_and_leaves_the_last_good_checkpoint(tmp_path):
    """α = 5 without clip at rate 1: an error that says what to change; the file holds finite weights."""
    X, noisy, _ = images()
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
        train_deep(small_net(), PeerLoss(eps=0.0), X, noisy, recipe=recipe, checkpoint=path)
    message = str(caught.value)
    assert "lower the learning rate" in message
    assert f"The last good checkpoint is {path}" in message
    saved = torch.load(path, weights_only=True)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in saved["model"].values())


def test_without_a_checkpoint_divergence_says_so():
    """A loss that is not finite without any watch of its own is found at the end of the epoch."""
    X, noisy, _ = images()
    with pytest.raises(DivergenceError, match=r"epoch 1: the mean loss is nan, .* pass `checkpoint`"):
        train_deep(
            small_net(), lambda z, _: z.sum() * float("nan"), X, noisy, recipe=replace(RECIPE, alpha=())
        )


def test_each_epoch_is_logged_once(tmp_path, capsys):
    """The table holds the history, also of a resumed training; the bar tells the time left."""
    X, noisy, _ = images()
    for _ in range(2):
        result = train_deep(
            small_net(),
            PeerLoss(),
            X,
            noisy,
            recipe=RECIPE,
            log_dir=tmp_path,
            checkpoint=tmp_path / "run.pt",
            progress=True,
        )
    with (tmp_path / "metrics.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["loss"]) for row in rows] == [record["loss"] for record in result.history]
    assert f"{RECIPE.epochs}/{RECIPE.epochs}" in capsys.readouterr().out


def test_lengths_must_agree():
    """As many labels as images."""
    X, noisy, _ = images()
    with pytest.raises(InvalidInputError, match="must be equally long"):
        train_deep(small_net(), PeerLoss(), X, noisy[:-1])


def test_predictions_do_not_depend_on_the_batches():
    """The filled-up last batch changes nothing."""
    X, _, _ = images()
    model = small_net().eval()
    inputs = torch.as_tensor(X)
    torch.testing.assert_close(predict_logits(model, inputs, batch_size=100), predict_logits(model, inputs))


def test_mirrored_predictions_are_those_of_both_views():
    """The mean of two probabilities; inputs that are no images have one view."""
    X, _, _ = images()
    model = small_net().eval()
    inputs = torch.as_tensor(X)
    one, other = (torch.softmax(predict_logits(model, view), dim=1) for view in (inputs, inputs.flip(2)))
    torch.testing.assert_close(predict_mirrored(model, inputs), (one + other) / 2)
    rows = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(predict_mirrored(torch.nn.Identity(), rows), torch.softmax(rows, dim=1))


def test_statistics_settle_without_rows_that_fill_no_batch():
    """Training leaves the last row of 65 out; a batch of one would break the batch statistics."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(65, 4)).astype(np.float32), rng.integers(2, size=65)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    recipe = DeepRecipe(epochs=2, batch_size=16, sieve=Sieve(start=0.5))
    result = train_deep(model, PeerLoss(), X, y, recipe=recipe, device="cpu")
    assert (result.weights["settled"]["1.running_var"] != result.weights["average"]["1.running_var"]).any()
    assert model[1].momentum == 0.1
