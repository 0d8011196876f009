"""skorch with our losses."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError

skorch = pytest.importorskip("skorch")

from peerloss.integrations.skorch import AlphaCallback, probabilities  # noqa: E402 (may be absent)


def data():
    random = np.random.default_rng(0)
    return random.normal(size=(40, 3)).astype(np.float32), random.integers(2, size=40)


class AlphaSeen(PeerLoss):
    """Peer loss that records its α in training."""

    seen: list[float]

    def forward(self, logits, target):
        """Write α down."""
        if self.training:
            self.__dict__.setdefault("seen", []).append(self.alpha)
        return super().forward(logits, target)


def make_net(criterion=PeerLoss, module=None, **options):
    torch.manual_seed(0)
    return skorch.NeuralNetClassifier(
        nn.Linear(3, 2) if module is None else module,
        criterion=criterion,
        predict_nonlinearity=probabilities,
        max_epochs=3,
        batch_size=20,
        train_split=None,
        verbose=0,
        **options,
    )


def test_the_criterion_takes_its_arguments_from_the_net():
    """``criterion__alpha`` and the like; the counted prior is that of the labels."""
    X, y = data()
    net = make_net(criterion__alpha=0.3, criterion__base="sigmoid").fit(X, y)
    assert (net.criterion_.alpha, net.criterion_.base) == (0.3, "sigmoid")
    np.testing.assert_allclose(net.criterion_.current_prior(), np.bincount(y) / len(y), rtol=1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_probabilities_sum_to_one_and_decide(outputs):
    """With two columns of logits or with one."""
    X, y = data()
    net = make_net(module=nn.Linear(3, outputs)).fit(X, y)
    proba = net.predict_proba(X)
    assert proba.shape == (40, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(net.predict(X), proba.argmax(axis=1))


def test_validation_counts_no_labels():
    """The net evaluates its criterion on held-out rows."""
    X, y = data()
    split = skorch.dataset.ValidSplit(4)
    net = make_net().set_params(train_split=split).fit(X, y)
    assert int(net.criterion_.label_counts.sum()) == 3 * 30


@pytest.mark.parametrize(
    ("every", "expected"),
    [("epoch", [0.0, 0.0, 0.1, 0.1, 0.2, 0.2]), ("step", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])],
)
def test_alpha_follows_epochs_or_steps(every, expected):
    """The history holds it."""
    callback = AlphaCallback([(0, 0.0), (10, 1.0)], every=every)
    net = make_net(AlphaSeen, callbacks=[("alpha", callback)]).fit(*data())
    assert net.criterion_.seen == pytest.approx(expected)
    after = [0.2, 0.4, 0.6] if every == "step" else [0.0, 0.1, 0.2]
    assert net.history[:, "alpha"] == pytest.approx(after)


@pytest.mark.parametrize("every", ["epoch", "step"])
def test_partial_fit_continues_the_schedule(every):
    """Three epochs and three more, a pickle in between, are six."""
    X, y = data()
    options = {"callbacks": [("alpha", AlphaCallback([(0, 0.0), (10, 1.0)], every=every))]}
    uninterrupted = make_net(**options).set_params(max_epochs=6).fit(X, y)
    parts = pickle.loads(pickle.dumps(make_net(**options).fit(X, y)))  # noqa: S301 (our own bytes)
    parts.partial_fit(X, y)
    assert parts.history[:, "alpha"] == uninterrupted.history[:, "alpha"]
    np.testing.assert_allclose(parts.predict_proba(X), uninterrupted.predict_proba(X), atol=1e-6)


def test_knots_can_be_searched():
    """The callback's arguments are parameters of the net."""
    net = make_net(callbacks=[("alpha", AlphaCallback([(0, 0.0)]))])
    net = clone(net).set_params(callbacks__alpha__knots=[(0, 0.5)]).fit(*data())
    assert net.criterion_.alpha == 0.5


def test_an_unknown_unit_is_named():
    """When training begins, as scikit-learn checks parameters in fit."""
    with pytest.raises(InvalidInputError, match="`every` must be"):
        make_net(callbacks=[AlphaCallback([(0, 0.5)], every="batch")]).fit(*data())
