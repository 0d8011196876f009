"""Bad input of the batched engine is refused with a message that names it."""

import numpy as np
import pytest

from peerloss import NoiseModel
from peerloss.exceptions import InvalidInputError
from peerloss.training import Net, train_nets


def table():
    """Return 60 rows of two classes."""
    X = np.random.default_rng(0).normal(size=(60, 5))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0, 1, 2] * 20}, r"`nets\[0\].y` must hold labels in 0..1"),
        ({"y": [0, 1]}, "must be equally long"),
        ({"loss": "hinge"}, r"`nets\[0\].loss` must be one of 'peer'"),
        ({"base": "zero_one"}, r"`nets\[0\].base` must be one of"),
        ({"alpha": np.nan}, r"`nets\[0\].alpha` must be a finite"),
        ({"learning_rate": 0.0}, r"`nets\[0\].learning_rate` must lie"),
        ({"loss": "forward"}, r"`nets\[0\].noise` must be given"),
        (
            {"loss": "backward", "noise": NoiseModel.uniform(3, 0.3)},
            r"`nets\[0\].noise` must be for 2 classes",
        ),
        ({"weight": -np.ones(60)}, r"`nets\[0\].weight` must be non-negative"),
        ({"rows": [0.5] * 60}, r"`nets\[0\].rows` must be integer"),
        ({"rows": [60] * 60}, r"`nets\[0\].rows` must lie in"),
        ({"X": [[0.0, 1.0]] * 60}, "same number of columns"),
    ],
)
def test_invalid_nets_are_refused(change, message):
    """The message names the net, the argument and the value."""
    X, y = table()
    with pytest.raises(InvalidInputError, match=message):
        train_nets(X, [Net(**{"y": y, **change}), Net(y)], n_classes=2, max_steps=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_steps": 0}, "`max_steps`"),
        ({"backend": "jax"}, "`backend` must be one of"),
        ({"dtype": "float16"}, "`dtype` must be one of"),
        ({"keep_best": True}, "`keep_best` needs a `monitor`"),
        ({"hidden_layer_sizes": (0,)}, "`hidden_layer_sizes`"),
        ({"n_classes": 1}, "`n_classes`"),
    ],
)
def test_invalid_options_are_refused(options, message):
    """The message names the argument."""
    X, y = table()
    with pytest.raises(InvalidInputError, match=message):
        train_nets(X, [Net(y)], **{"n_classes": 2, "max_steps": 2, **options})


def test_sampled_peers_need_two_rows():
    """A batch of one row has no peers; the message says what to do."""
    X, y = table()
    with pytest.raises(InvalidInputError, match="sampled peers need batches of at least 2"):
        train_nets(X, [Net(y, peers="sampled")], n_classes=2, batch_size=1, max_steps=2)


def test_missing_nets_or_features_are_refused():
    """An empty list of nets, or a net without features, is an error."""
    with pytest.raises(InvalidInputError, match="`nets` is empty"):
        train_nets(np.ones((2, 2)), [], n_classes=2)
    with pytest.raises(InvalidInputError, match="must be given if there is no shared"):
        train_nets(None, [Net([0, 1])], n_classes=2)
