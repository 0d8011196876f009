"""Soft labels and rows without a label in the batched engine."""

import numpy as np
import pytest

from peerloss import NoiseModel
from peerloss.exceptions import InvalidInputError
from peerloss.training import Net, train_nets
from peerloss.training.small._nets import BatchStream, prepare_nets

OPTIONS = {"n_classes": 3, "max_steps": 20, "batch_size": 16, "hidden_layer_sizes": (4,), "dtype": "float64"}
T3 = NoiseModel.uniform(3, 0.3)
LOSSES = {
    "plain": {"alpha": 0.0},
    "peer": {"alpha": 0.8},
    "given prior": {"noisy_prior": [0.2, 0.3, 0.5]},
    "sigmoid": {"base": "sigmoid"},
    "sampled": {"peers": "sampled"},
    "backward": {"loss": "backward", "noise": T3},
    "forward": {"loss": "forward", "noise": T3},
    "dmi": {"loss": "dmi", "warm_up": 10},
    "weighted": {"weight": np.linspace(0.5, 2.0, 60)},
}


def table():
    """Return 60 rows of three classes, and soft labels of the same rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, X.argmax(axis=1), rng.dirichlet(np.ones(3), size=60)


def trained(X, y, backend="torch", **options):
    net = Net(y, learning_rate=0.01, random_state=3, **options)
    return train_nets(X, [net], backend=backend, **OPTIONS).parameters


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_one_hot_labels_train_as_class_codes(name, backend):
    """The same weights for every loss, also with sampled peers and row weights."""
    X, y, _ = table()
    soft, hard = (trained(X, labels, backend, **LOSSES[name]) for labels in (np.eye(3)[y], y))
    np.testing.assert_allclose(soft, hard, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_rows_without_a_label_are_left_out(name):
    """−1 and rows of NaN give the weights of the labelled rows alone."""
    X, y, shares = table()
    known, options = np.arange(60) % 3 > 0, dict(LOSSES[name])
    short = dict(options, weight=options["weight"][known]) if "weight" in options else options
    expected = trained(X[known], y[known], **short)
    np.testing.assert_array_equal(trained(X, np.where(known, y, -1), **options), expected)
    expected = trained(X[known], shares[known], **short)
    np.testing.assert_array_equal(trained(X, np.where(known[:, None], shares, np.nan), **options), expected)


@pytest.mark.parametrize("name", ["plain", "peer", "given prior", "backward", "weighted"])
def test_coefficients_are_the_mean_over_labels(name):
    """By enumeration: the coefficients of a soft label are those of each label, weighted by its share."""
    X, _, shares = table()
    options = LOSSES[name]
    prior = np.average(shares, axis=0, weights=options.get("weight"))
    if "noise" not in options and "noisy_prior" not in options:
        options = options | {"noisy_prior": prior}

    def block(y):
        _, (net,) = prepare_nets(X, [Net(y, random_state=1, **options)], 3, "float64")
        return BatchStream(net, batch_size=8, steps=3, dtype="float64").take(3)

    soft = block(shares)
    by_label = [block(np.full(60, label)).coefficients for label in range(3)]
    expected = sum(shares[soft.rows][..., [k]] * by_label[k] for k in range(3))
    np.testing.assert_allclose(soft.coefficients, expected, atol=1e-14)
    counted = {key: value for key, value in options.items() if key != "noisy_prior"}
    _, (net,) = prepare_nets(X, [Net(shares, random_state=1, **counted)], 3, "float64")
    if name == "peer":
        np.testing.assert_allclose(net.coefficients, np.eye(3) - 0.8 * prior)


def test_sampled_peers_subtract_the_soft_label_of_the_peer():
    """Each batch subtracts α times one soft label per row, so the coefficients of a batch sum to 1 − α."""
    X, _, shares = table()
    _, (net,) = prepare_nets(X, [Net(shares, alpha=0.7, peers="sampled")], 3, "float64")
    block = BatchStream(net, batch_size=8, steps=50, dtype="float64").take(50)
    np.testing.assert_allclose(block.coefficients.sum(axis=(1, 2)), 1.0 - 0.7)
    own = shares[block.rows] / 8
    subtracted = (own - block.coefficients).sum(axis=1) * 8 / 0.7  # the soft labels of eight peers
    np.testing.assert_allclose(subtracted.mean(axis=0) / 8, shares.mean(axis=0), atol=0.05)


def test_forward_correction_trains_a_copy_per_class():
    """Copies are weighted by the share; classes without a share have none."""
    X, _, shares = table()
    shares[0] = [0.0, 1.0, 0.0]
    _, (net,) = prepare_nets(X, [Net(shares, loss="forward", noise=T3)], 3, "float64")
    assert len(net.rows) == 3 * 60 - 2
    weight = np.zeros((60, 3))
    weight[net.rows, net.codes] = net.weight
    np.testing.assert_allclose(weight / weight.sum(), shares / shares.sum())


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full((60, 3), 0.5), r"`nets\[0\].y` must hold class probabilities.*row 0 sums to 1\.5"),
        (np.full((60, 2), 0.5), r"`nets\[0\].y` must have 3 columns, one per class"),
        (np.where(np.arange(60) < 30, -1, 1), r"`nets\[0\].y` must have labels of more than one class"),
    ],
)
def test_wrong_labels_are_refused(y, message):
    """The message names the net."""
    with pytest.raises(InvalidInputError, match=message):
        train_nets(table()[0], [Net(y)], **OPTIONS)
