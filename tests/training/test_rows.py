"""Inputs and labels of a deep training, before anything is trained."""

import numpy as np
import pytest

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.training import train_deep
from tests.training.small import RECIPE, N, images, small_net


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
