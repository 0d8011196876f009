"""A deep training epoch by epoch: its targets, and the model that predicts them."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from peerloss import PeerLoss
from peerloss.training import Augment, Sieve, predict_logits, predict_mirrored
from peerloss.training.deep._deep_run import Run
from tests.training.deep.toy import RECIPE, N, images, small_net

CPU = torch.device("cpu")


def averaged_model(run):
    """Return a copy of the model with the averaged weights."""
    model = small_net()
    model.load_state_dict(run.model.state_dict())
    model.load_state_dict(run.average.state_dict()["mean"], strict=False)
    return model.eval()


def test_batches_grow_with_the_rows_that_a_sieve_adds():
    """Few labels make small batches; with the other rows they have the size of the recipe."""
    X, noisy, _ = images()
    labels = np.where(np.arange(N) < 20, noisy, -1)
    run = Run(small_net(), PeerLoss(), X, labels, replace(RECIPE, epochs=2, sieve=Sieve(start=0.5)), CPU)
    assert (run.batch, run.steps) == (20, 1)
    run.train_epoch()
    run.train_epoch()
    assert (run.batch, run.steps) == (32, N // 32)


def test_targets_change_at_refreshes_only():
    """At each refresh the average becomes memory · earlier + rest · predictions of the averaged model."""
    X, noisy, _ = images()
    X = torch.as_tensor(X)
    sieve = Sieve(start=0.25, refresh_every=2, memory=0.7)
    run = Run(small_net(), PeerLoss(), X, noisy, replace(RECIPE, epochs=8, sieve=sieve), CPU)
    assert sieve.refreshes(8) == [4, 6]
    while run.epoch < 8:
        before, averaged = run.sieve.teacher_probs, averaged_model(run)
        probs = torch.softmax(predict_logits(averaged, X), dim=1)
        epoch = run.epoch
        run.train_epoch()
        if epoch in (4, 6):
            torch.testing.assert_close(run.sieve.teacher_probs, 0.7 * before + 0.3 * probs)
        elif epoch != 2:  # a new teacher decides there
            assert run.sieve.teacher_probs is before


@pytest.mark.parametrize("flip", [True, False])
def test_the_teacher_predicts_mirror_images_only_if_the_recipe_mirrors(flip):
    """The mirror image of a digit or letter is another one, so only the plain image is predicted there."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=2, augment=Augment(crop=1, flip=flip), sieve=Sieve(start=0.5))
    run = Run(small_net(), PeerLoss(), X, noisy, recipe, CPU)
    run.train_epoch()
    averaged = averaged_model(run)
    plain = torch.softmax(predict_logits(averaged, torch.as_tensor(X)), dim=1)
    both = predict_mirrored(averaged, torch.as_tensor(X))
    run.train_epoch()
    torch.testing.assert_close(run.sieve.teacher_probs, both if flip else plain)
    assert not torch.allclose(both, plain)


def test_a_finished_run_frees_its_data_at_once():
    """Without a reference cycle the data leave the device with the last reference, not with a collection."""
    X, noisy, _ = images()
    run = Run(small_net(), PeerLoss(), X, noisy, replace(RECIPE, sieve=Sieve(start=0.5)), CPU)
    data = weakref.ref(run.X.inputs)
    gc.disable()
    try:
        del run
        assert data() is None
    finally:
        gc.enable()
