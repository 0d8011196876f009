"""A deep training epoch by epoch: what the rows are taught, and by whom."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from peerloss import PeerLoss
from peerloss.training import Augment, Sieve, _deep_run, predict_logits, predict_mirrored, train_deep
from peerloss.training._sieve import sieve_targets
from tests.training.small import RECIPE, N, images, small_net


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
