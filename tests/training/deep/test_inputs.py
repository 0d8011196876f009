"""Checks of inputs and labels before a deep training."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.models import MLP
from peerloss.training import Augment, DeepRecipe, Growth, Sieve, train_deep
from tests.training.deep.toy import RECIPE, N, images, small_net


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(N, -1), "`y` must have labels of more than one class.*-1 marks rows without a label"),
        (np.resize([-1, 0], N), "more than one class; got"),
        (np.resize([-1, 1], N), "If -1 and 1 are two classes, encode them as 0 and 1"),
        (np.resize([-100, 0, 1], N), "found -100. Set these labels to -1"),
        (np.resize([0.0, np.nan], N), "`y` must hold integer class codes"),
        (np.resize([0.5, 1.0], N), "`y` must hold integer class codes"),
        (np.zeros((N, 3), dtype=int), "`y` must be one-dimensional"),
        (np.resize(["cat", "dog"], N), "`y` must hold integer class codes"),
        (np.resize([0, 1], N - 1), "equally long"),
    ],
    ids=[
        "all missing",
        "one class",
        "-1 and 1",
        "-100",
        "missing",
        "fractions",
        "one-hot",
        "text",
        "too few",
    ],
)
def test_invalid_labels_are_refused(y, message):
    """The error comes before training, and the message explains what −1 means."""
    with pytest.raises(InvalidInputError, match=message):
        train_deep(small_net(), PeerLoss(), images()[0], y, recipe=RECIPE)


@pytest.mark.parametrize(("wrong", "message"), [([-1] * 9, "found -1"), ([0] * 8, "equally long")])
def test_held_out_labels_must_be_complete(wrong, message):
    """A row without a label cannot be scored."""
    X, noisy, _ = images()
    with pytest.raises(InvalidInputError, match=rf"validation\[1\].*{message}"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, validation=(X[:9], wrong))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.resize([0.0, np.nan], (N, 4)), "`X` must be finite"),
        (np.resize(["red", "blue"], (N, 4)), "`X` must be an array or tensor of numbers; got dtype <U4"),
        ([[1.0], [1.0, 2.0]], "`X` must be an array of numbers"),
        (images()[0].transpose(0, 3, 1, 2), r"got \(240, 3, 8, 8\), which looks like channels first"),
    ],
    ids=["missing", "text", "ragged", "channels first"],
)
def test_invalid_inputs_are_refused(X, message):
    """The error comes before training; NaN in the inputs is not reported as divergence."""
    with pytest.raises(InvalidInputError, match=message):
        train_deep(small_net(), PeerLoss(), X, images()[1], recipe=RECIPE)


def test_inputs_are_converted_to_the_precision_of_the_model():
    """A data frame of float64 trains like an array of float32."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(2, size=60)
    losses = []
    for inputs in (pd.DataFrame(X, index=range(7, 67)), X.astype(np.float32)):
        torch.manual_seed(0)
        recipe = DeepRecipe(epochs=2, batch_size=20)
        result = train_deep(MLP(4, (8,)), PeerLoss(), inputs, pd.Series(y), recipe=recipe)
        losses.append([record["loss"] for record in result.history])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": np.resize([0, 1, 7], N)}, r"`y` must hold labels in 0..2, .* found 7"),
        ({"validation": (images()[0], np.resize([0, 3], N))}, r"`validation\[1\]` must hold labels in 0..2"),
        ({"validation": images()[0]}, r"`validation` must be a pair \(inputs, noisy labels\); got ndarray"),
        (
            {"validation": (images()[0].astype(float) * np.nan, images()[1])},
            r"`validation\[0\]` must be finite",
        ),
        ({"recipe": replace(RECIPE, patience=2)}, "`patience` needs `validation`"),
        (
            {"recipe": replace(RECIPE, augment=Augment(crop=8))},
            "`crop` must be smaller than the images of 8 × 8",
        ),
        ({"recipe": replace(RECIPE, sieve=Sieve(augment=Augment(crop=9)))}, "got 9. Lower it in `augment`"),
        ({"loss": PeerLoss(reduction="none")}, r"`loss` must return one number per batch; got shape \(32,\)"),
        ({"checkpoint_every": 0}, "`checkpoint_every` must be an integer of at least 1"),
        (
            {"X": np.ones((N, 4), dtype=np.int64), "recipe": replace(RECIPE, sieve=Sieve(mixup=True))},
            "`mixup` needs real-valued inputs; got torch.int64",
        ),
        (
            {"X": np.ones((N, 4), dtype=np.int64), "recipe": replace(RECIPE, sieve=Sieve(growth=Growth()))},
            "`growth` mixes inputs, so they must be real-valued; got torch.int64",
        ),
        (
            {
                "X": np.ones((N, 4), dtype=np.float32),
                "recipe": replace(RECIPE, sieve=Sieve(growth=Growth(cut=0.5))),
            },
            r"`growth.cut` pastes parts of images .*; got inputs with 2 dimensions. Use cut=0",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else next(iter(value)),
)
def test_arguments_that_do_not_fit_together_are_refused(options, message):
    """Labels and outputs, augmentation and images, patience and scores: the message names the argument."""
    X, noisy, _ = images()
    given = {"X": X, "y": noisy, "loss": PeerLoss(), "recipe": RECIPE} | options
    with pytest.raises(InvalidInputError, match=message):
        train_deep(small_net(), **given)


def test_ignored_labels_need_no_output():
    """``ignore_index`` of the loss may be any code."""
    X, noisy, _ = images()
    y = np.where(np.arange(N) % 3 == 0, 255, noisy)
    result = train_deep(small_net(), PeerLoss(ignore_index=255), X, y, recipe=RECIPE)
    assert len(result.history) == RECIPE.epochs
