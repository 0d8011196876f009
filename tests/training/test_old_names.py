"""Deprecated names of the training package work for one release and warn."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from peerloss import PeerLoss
from peerloss.models import MLP
from peerloss.training import DeepRecipe, Net, Sieve, train, train_nets

X = np.random.default_rng(0).normal(size=(30, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("make", "old", "new", "value"),
    [
        (lambda **given: Net(Y, **given), "seed", "random_state", 3),
        (lambda **given: Net(Y, **given), "warm_start", "warm_up", 5),
        (lambda **given: Net(Y, loss="forward", **given), "transition", "noise", ((0.9, 0.1), (0.1, 0.9))),
        (DeepRecipe, "seed", "random_state", 3),
        (Sieve, "renew", "refresh_every", 4),
    ],
)
def test_old_fields_are_accepted_replaced_and_read(make, old, new, value):
    """Each use of an old field name warns with the new one, at the caller, and has the same effect."""
    warns = pytest.warns(DeprecationWarning, match=f"`{old}` is deprecated .* Use `{new}`")
    with warns:
        made = make(**{old: value})
    assert getattr(made, new) == value
    with warns as caught:
        changed = replace(make(), **{old: value})
    assert caught[0].filename == __file__
    assert getattr(changed, new) == value
    with warns:
        assert getattr(made, old) == value


def test_old_parameters_of_train_nets_are_accepted():
    """``hidden`` and ``steps`` warn and train the same nets."""
    with (
        pytest.warns(DeprecationWarning, match="`hidden` is deprecated .* Use `hidden_layer_sizes`"),
        pytest.warns(DeprecationWarning, match="`steps` is deprecated .* Use `max_steps`"),
    ):
        old = train_nets(X, [Net(Y)], n_classes=2, hidden=(4,), steps=3)
    new = train_nets(X, [Net(Y)], n_classes=2, hidden_layer_sizes=(4,), max_steps=3)
    assert np.array_equal(old.parameters, new.parameters)


def test_old_parameters_of_train_are_accepted():
    """``steps`` warns."""
    with pytest.warns(DeprecationWarning, match="`steps` is deprecated .* Use `max_steps`"):
        train(MLP(3), PeerLoss(), torch.tensor(X, dtype=torch.float32), torch.tensor(Y), steps=2)


def test_the_old_method_of_a_sieve_warns():
    """``renewals`` returns the refreshes."""
    with pytest.warns(DeprecationWarning, match=r"`Sieve.renewals` is deprecated .* Use `Sieve.refreshes`"):
        assert Sieve(start=0.2).renewals(10) == Sieve(start=0.2).refreshes(10)


def test_new_names_do_not_warn():
    """Only deprecated names warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace(DeepRecipe(random_state=1), sieve=Sieve(refresh_every=3))
        train_nets(X, [Net(Y, random_state=2)], n_classes=2, hidden_layer_sizes=(4,), max_steps=3)
