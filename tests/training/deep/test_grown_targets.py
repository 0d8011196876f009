"""The sieve whose set of trusted rows grows."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from peerloss import PeerLoss
from peerloss.training import Augment, Growth, Sieve, train_deep
from peerloss.training.deep._deep_run import Run
from peerloss.training.deep._sieve_targets import GrownTargets, Targets, balance_classes, surest_of_classes
from tests.training.deep.toy import RECIPE, N, have_equal_tensors, images, small_net

CPU = torch.device("cpu")
EPOCHS = 20
GROWN = Sieve(start=0.25, refresh_every=1, trust=1.0, memory=0.5, balance=True, growth=Growth())
MOVED = replace(GROWN, augment=Augment())


def views_of(n=300, k=3, seed=0):
    """Return probabilities (2, n, K) of two views that often agree, noisy labels, some of them missing."""
    generator = torch.Generator().manual_seed(seed)
    clean = torch.randint(k, (n,), generator=generator)
    signal = 2.0 * torch.eye(k, dtype=torch.float64)[clean]
    views = torch.softmax(signal + torch.randn(2, n, k, generator=generator, dtype=torch.float64), dim=2)
    labels = torch.where(torch.rand(n, generator=generator) < 0.4, (clean + 1) % k, clean)
    labels[::10] = -1
    return views, labels


def grown(epoch, views, y, **settings):
    """Return the targets of an epoch of a single round of ``EPOCHS`` epochs, and their source."""
    sieve = replace(GROWN, start=0.0, **settings)
    source = GrownTargets(sieve, y, epochs=EPOCHS, predict=lambda **_: views, mirrored=True)
    source.targets_for(0)
    return source.targets_for(epoch), source


def written_out(views, y, trust, n_own, n_guessed, weight):
    """Return targets and trusted rows, row by row from the description in words."""
    probs = balance_classes(views.mean(dim=0)).numpy()
    n, k = probs.shape
    y = y.numpy()
    onehot = np.eye(k)[np.maximum(y, 0)] * (y >= 0)[:, None]
    transition = probs.T @ onehot
    transition /= transition.sum(axis=1, keepdims=True)
    targets, trusted = np.zeros((n, k)), np.zeros(n, dtype=bool)
    posterior = probs * np.where((y >= 0)[:, None], transition.T[y], 1.0) ** trust
    posterior /= posterior.sum(axis=1, keepdims=True)
    guess, seen = posterior.argmax(axis=1), views.argmax(dim=2).numpy()
    for row in range(n):
        others = np.flatnonzero(y == y[row])
        is_own = y[row] >= 0 and (probs[others, y[row]] > probs[row, y[row]]).sum() < n_own
        rivals = np.flatnonzero(guess == guess[row])
        is_sure = (posterior[rivals].max(axis=1) > posterior[row].max()).sum() < n_guessed
        is_sure &= seen[0, row] == seen[1, row] and (trust > 0 or guess[row] == seen[0, row])
        if is_own:
            targets[row, y[row]] = 1.0
        elif is_sure:
            targets[row, guess[row]] = 1.0
        else:
            targets[row] = weight * posterior[row] * posterior[row].max()
        trusted[row] = is_own or is_sure
    return targets, trusted


@pytest.mark.parametrize(
    ("epoch", "trust", "n_own", "n_guessed", "weight"),
    [
        (0, 1.0, 45, 0, 0.0),  # 270 labels and 300 rows of 3 classes
        (1, 1.0, 43, 50, 1.0),  # 5 %: the growth starts, own labels have fallen by a tenth of .2
        (10, 1.0, 27, 66, 1.0),  # half: .3 of 90 own labels; .5 + .2 · 45/55 of 100 guessed
        (12, 0.8, 27, 70, 1.0),  # 60 %: the growth ends; a fifth of the trust is gone
        (18, 0.0, 27, 70, 1.0),  # the predictions decide alone
    ],
)
def test_targets_are_those_written_out_row_by_row(epoch, trust, n_own, n_guessed, weight):
    """Own labels, guessed labels, soft targets and their weight, at every stage of a round."""
    views, y = views_of()
    targets, source = grown(epoch, views, y)
    expected, trusted = written_out(views, y, trust, n_own, n_guessed, weight)
    assert source.trusted.tolist() == trusted.tolist()
    np.testing.assert_allclose(targets.probs, expected, rtol=1e-9, atol=1e-12)
    kept = trusted & (expected.argmax(axis=1) == y.numpy())
    assert targets.kept.tolist() == kept.tolist()


def test_each_class_has_the_same_number_of_trusted_rows():
    """If predictions and labels agree, the counts by class are exactly those of the settings."""
    y = torch.arange(200) % 2
    sureness = torch.linspace(1.0, 4.0, 100, dtype=torch.float64).repeat_interleave(2)
    views = torch.softmax(sureness[:, None] * torch.eye(2, dtype=torch.float64)[y], dim=1)
    growth = Growth(own=(0.2, 0.1), guessed=(0.4, 0.6))
    for epoch, count in ((0, 20), (1, 40), (19, 60)):  # guessed rows include the own ones here
        targets, source = grown(epoch, views.expand(2, -1, -1), y, growth=growth)
        assert torch.bincount(targets.probs[source.trusted].argmax(dim=1)).tolist() == [count, count]


def test_known_shares_of_the_classes_set_the_counts():
    """With balance=(.75, .25) the first class has three times as many trusted rows."""
    y = (torch.arange(400) % 4 == 3).long()
    views = torch.softmax(6.0 * torch.eye(2, dtype=torch.float64)[y], dim=1).expand(2, -1, -1)
    for balance in ((0.75, 0.25), False):  # without known shares the mean prediction replaces them
        targets, source = grown(19, views, y, balance=balance)
        counts = torch.bincount(targets.probs[source.trusted].argmax(dim=1)).tolist()
        assert counts == pytest.approx([210, 70], abs=2)


def test_rows_without_a_label_can_join():
    """They are trusted with the predicted class, and never counted as kept labels."""
    views, y = views_of()
    targets, source = grown(15, views, y)
    missing = y < 0
    assert source.trusted[missing].any()
    assert not targets.kept[missing].any()


def test_the_surest_rows_of_each_class():
    """By sorting each class by itself; ties go to the first row, and short classes give all their rows."""
    scores = torch.tensor([0.5, 0.9, 0.5, 0.1, 0.7, 0.5, 0.2])
    classes = torch.tensor([0, 0, 0, 0, 1, 0, 3])
    counts = torch.tensor([2, 5, 4, 0])
    assert surest_of_classes(scores, classes, counts).tolist() == [
        True,
        True,
        False,
        False,
        True,
        False,
        False,
    ]


def test_schedules_of_the_growth():
    """Shares change linearly between their ends and stay constant outside."""
    growth = Growth(own=(0.6, 0.2), guessed=(0.4, 0.8), period=(0.1, 0.5), fade=(0.5, 0.9))
    times = (0.0, 0.05, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 0.99)
    assert [growth.own_share(t) for t in times] == pytest.approx([0.6, 0.56, 0.52, 0.4, 0.36, *[0.2] * 4])
    guessed = [0, 0, 0.4, 0.55, 0.6, *[0.8] * 4]
    assert [growth.guessed_share(t) for t in times] == pytest.approx(guessed)
    assert [growth.trust_left(t, 0.1) for t in times] == pytest.approx([*[1.0] * 6, 0.5, 0.0, 0.0])
    assert [growth.weight(t) for t in times] == pytest.approx([0.0, 0.5, *[1.0] * 7])
    assert Growth(period=(0.0, 0.5)).weight(0.0) == 1.0


def test_trust_after_the_fade():
    """A number, or by the share of wrong labels: 1 − 2ε, and 0 if at least half of the labels are wrong."""
    assert Growth(final_trust=0.3).trust_left(0.9, 0.4) == pytest.approx(0.3)
    auto = Growth(fade=(0.4, 0.6), final_trust="auto")
    assert [auto.trust_left(t, 0.1) for t in (0.4, 0.5, 0.6)] == pytest.approx([1.0, 0.9, 0.8])
    assert [auto.trust_left(1.0, wrong) for wrong in (0.0, 0.25, 0.5, 0.8)] == pytest.approx([1, 0.5, 0, 0])


def test_own_labels_can_follow_the_share_of_wrong_labels():
    """The final number is 1 − 2ε, but at least 0.3, and the targets use the ε of the teacher."""
    auto = Growth(own=(0.5, "auto"))
    assert [auto.own_share(1.0, wrong) for wrong in (0.0, 0.1, 0.3, 0.45)] == pytest.approx(
        [1, 0.8, 0.4, 0.3]
    )
    assert [auto.own_share(t, 0.1) for t in (0.0, 0.25, 0.5)] == pytest.approx([0.5, 0.65, 0.8])
    views, _ = views_of()
    y = views.mean(dim=0).argmax(dim=1)  # few wrong labels
    trusting = {"guessed": (0.0, 0.0), "own": (0.5, "auto")}
    _, source = grown(EPOCHS - 1, views, y, growth=Growth(**trusting))
    same_number = (0.5, max(0.3, 1.0 - 2.0 * source.wrong_share))
    _, expected = grown(EPOCHS - 1, views, y, growth=Growth(**trusting | {"own": same_number}))
    assert 0.3 < same_number[1] < 1.0
    assert source.trusted.equal(expected.trusted)


def test_the_share_of_wrong_labels_is_that_of_the_teacher():
    """It is measured at the start of a round and kept when the predictions change, also in a checkpoint."""
    views, y = views_of()
    _, source = grown(0, views, y)
    known = y >= 0
    expected = 1.0 - balance_classes(views.mean(dim=0))[known, y[known]].mean().item()
    assert source.wrong_share == pytest.approx(expected)
    source.done = 0.5
    source.decide(torch.full_like(views[0], 1 / 3))
    assert source.wrong_share == pytest.approx(expected)
    _, other = grown(1, views, y)
    other.load_state_dict(source.state_dict())
    assert other.wrong_share == pytest.approx(expected)


def test_refreshes_start_with_the_growth():
    """Not after a quarter of the round."""
    sieve = Sieve(start=0.5, refresh_every=2, growth=Growth(period=(0.1, 0.6)))
    assert sieve.refreshes(40) == list(range(22, 40, 2))


def run_of(recipe, labels=None):
    X, noisy, _ = images()
    return Run(small_net(), PeerLoss(), X, noisy if labels is None else labels, recipe, CPU)


def test_a_step_has_a_batch_of_trusted_rows_and_a_batch_of_any_rows():
    """Trusted rows are repeated only after all of them were used; the others come once per epoch."""
    run = run_of(replace(RECIPE, epochs=8, sieve=MOVED))
    for _ in range(4):
        run.train_epoch()
    # Targets that name their row. A mixed target has the larger share of its own row.
    epoch = run._epoch(Targets(torch.eye(N), run.sieve.trusted))
    batches = [targets.argmax(dim=1).chunk(2) for _, targets in run.batches.of_epoch(epoch)]
    first, second = (torch.cat(part) for part in zip(*batches, strict=True))
    assert len(first) == len(second) == N // 32 * 32
    assert len(second.unique()) == len(second)
    trusted = run.all_rows[run.sieve.trusted]
    assert 0 < len(trusted) < N
    counts = torch.bincount(first, minlength=N)[trusted]
    assert counts.sum() == len(first)
    assert counts.max() - counts.min() <= 1


def test_only_trusted_rows_are_mixed_and_both_losses_are_added():
    """The loss of a step is that of the mixed first batch plus that of the second batch."""
    run = run_of(replace(RECIPE, epochs=8, sieve=MOVED))
    inputs, targets = torch.rand(8, 3, 4, 4), torch.softmax(torch.rand(8, 3), dim=1)
    mixed, doubled = run.batches._with_trusted(inputs[:4], targets[:4], inputs[4:], targets[4:])
    assert torch.equal(mixed[4:], inputs[4:])
    assert not torch.isclose(mixed[:4], inputs[:4]).flatten(1).all(dim=1).any()
    logits = torch.randn(8, 3)
    both = [run.soft_criterion(logits[part], doubled[part] / 2) for part in (slice(4), slice(4, 8))]
    torch.testing.assert_close(run.soft_criterion(logits, doubled), sum(both))


@pytest.mark.parametrize(("cut", "expected"), [(0.0, False), (1.0, True)])
def test_trusted_images_are_mixed_or_cut(cut, expected):
    """With ``cut`` 1 every pixel of the first batch is that of one image, and targets still sum to two."""
    growth = replace(GROWN.growth, cut=cut)
    run = run_of(replace(RECIPE, epochs=8, sieve=replace(MOVED, growth=growth)))
    inputs = torch.arange(8.0)[:, None, None, None].expand(8, 3, 8, 8)
    found, targets = run.batches._with_trusted(inputs[:4], torch.eye(4), inputs[4:], torch.eye(4))
    assert bool((found[:4] == found[:4].round()).all()) is expected
    torch.testing.assert_close(targets.sum(dim=1), torch.full((8,), 2.0))


def test_the_rounds_have_their_own_learning_rate_and_average():
    """Before the sieve those of the recipe hold."""
    growth = Growth(learning_rate=0.01, warm_up=0.5, average=0.5)
    run = run_of(replace(RECIPE, epochs=4, alpha=(), sieve=replace(MOVED, start=0.5, growth=growth)))
    decays, rates = [], []
    while not run.finished:
        rates.append(run.train_epoch()["rate"])
        decays.append(run.average.decay)
    assert decays == [0.9, 0.9, 0.5, 0.5]
    assert max(rates[:2]) > 0.01
    rounds = replace(run.recipe, learning_rate=0.01, warm_up=0.5)
    share = run.steps / (2 * run.steps + 1)
    assert rates[2:] == pytest.approx([rounds.rate(share, 0.0), rounds.rate(2 * share, 0.0)])


def test_training_with_growth_is_reproducible_and_learns():
    """Equal seeds give equal weights; most of the wrong labels are replaced."""
    X, noisy, clean = images(noise=0.4)
    recipe = replace(RECIPE, epochs=16, sieve=MOVED)
    first, again = (train_deep(small_net(), PeerLoss(), X, noisy, recipe=recipe, device="cpu") for _ in "ab")
    assert have_equal_tensors(first.weights["last"], again.weights["last"])
    run = run_of(recipe, noisy)
    while not run.finished:
        run.train_epoch()
    targets = run.sieve.targets_for(recipe.epochs - 1).probs.argmax(dim=1).numpy()
    assert (targets == clean).mean() > 0.9 > (noisy == clean).mean()
