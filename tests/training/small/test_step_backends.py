"""The choice between numba and torch."""

import numpy as np
import pytest
import torch

from peerloss import RobustMLPClassifier
from peerloss.functional import BASES
from peerloss.training import Net, train_nets
from peerloss.training.small import _step_backends
from peerloss.training.small._step_backends import has_numba


def focal(logits):
    """Return a loss matrix that the compiled loop does not support."""
    p = torch.softmax(logits, dim=1)
    return -((1 - p) ** 2) * torch.log(p + 1e-5)


@pytest.fixture
def registered(monkeypatch):
    """Add the base loss as described in the documentation."""
    monkeypatch.setitem(BASES, "focal", focal)


def data(n=200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] > 0).astype(int)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("backend", ["auto", "torch", "numba"])
@pytest.mark.parametrize(
    "options", [{"loss": "peer", "alpha": 0.5}, {"loss": "backward", "noise": np.eye(2)}]
)
def test_a_registered_base_is_trained_by_torch(backend, options):
    """A new entry in BASES works in the engine, together with nets that numba trains."""
    if backend == "numba" and not has_numba():
        pytest.skip("needs numba")
    X, y = data()
    nets = [Net(y, base=base, learning_rate=0.05, **options) for base in ("focal", "sigmoid")]
    trained = train_nets(X, nets, n_classes=2, max_steps=100, backend=backend)
    assert trained.backend[0] == "torch"
    assert trained.backend[1] == ("torch" if backend == "torch" or not has_numba() else "numba")
    assert ((trained.logits(X).argmax(axis=2) == y).mean(axis=1) > 0.9).all()


@pytest.mark.skipif(not has_numba(), reason="needs numba")
def test_the_compiled_loop_holds_no_constant_of_another_file(monkeypatch):
    """Its cache on disk stays valid if the default q of generalised cross entropy changes."""
    X, y = data()
    options = {"n_classes": 2, "max_steps": 5, "dtype": "float64"}
    monkeypatch.setattr(_step_backends, "DEFAULT_GCE_Q", 0.5)
    compiled = train_nets(X, [Net(y, base="gce")], backend="numba", **options)
    expected = train_nets(X, [Net(y, base="gce:0.5")], **options)
    assert (compiled.backend, expected.backend) == (("numba",), ("torch",))
    np.testing.assert_allclose(compiled.parameters, expected.parameters, rtol=1e-7, atol=1e-9)


@pytest.mark.usefixtures("registered")
def test_the_classifier_takes_a_registered_base():
    """It is selected by name, with the default backend."""
    X, y = data()
    model = RobustMLPClassifier(base="focal", alpha=0.5, max_steps=100, learning_rate=0.05, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.9
