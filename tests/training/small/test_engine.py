"""The batched engine: nets are trained together, and each one independently.

Weights are compared in float64 and after few steps. Adam divides by the size of the gradient, so in float32 a
rounding error of a gradient close to zero becomes a full step, whose sign depends on the processor.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from peerloss import NoiseModel
from peerloss.exceptions import InvalidInputError
from peerloss.functional import backward_loss, dmi_loss, forward_loss, peer_loss
from peerloss.training import Net, train_nets
from peerloss.training.small._engine import flushed_denormals
from peerloss.training.small._nets import BatchStream, initial_weights, prepare_nets
from peerloss.training.small._step_backends import has_numba

BACKENDS = ["torch", pytest.param("numba", marks=pytest.mark.skipif(not has_numba(), reason="no numba"))]
BASES = ["cross_entropy", "logistic", "sigmoid", "mae", "gce", "unhinged", "ramp", "hinge", "squared"]
T2 = NoiseModel.binary(0.1, 0.3)
T3 = NoiseModel.uniform(3, 0.3)
#: Tolerance for rounding of weights in float64 over tens of steps.
ROUNDING = {"rtol": 1e-7, "atol": 1e-9}


def data(n=60, d=5, k=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=n), [0.0] if k == 2 else [-0.5, 0.5])
    return X, y


def module(sizes, net):
    """Return an nn.Sequential with the initial weights of a net."""
    layers, flat, at = [], torch.from_numpy(initial_weights(net.random_state, sizes, "float64")), 0
    for n_in, n_out in pairwise(sizes):
        linear = nn.Linear(n_in, n_out, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(flat[at : at + n_in * n_out].view(n_out, n_in))
            linear.bias.copy_(flat[at + n_in * n_out : at + (n_in + 1) * n_out])
        at += (n_in + 1) * n_out
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def reference(X, net, loss, *, k, hidden_layer_sizes, batch_size, max_steps):
    """Train a plain torch module on the net's batches; return its flat parameters."""
    model = module((X.shape[1], *hidden_layer_sizes, 1 if k == 2 else k), net)
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    groups = [{"params": weights, "weight_decay": net.weight_decay}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=net.learning_rate)
    _, (prepared,) = prepare_nets(X, [net], k)
    block = BatchStream(prepared, batch_size=batch_size, steps=max_steps).take(max_steps)
    features, labels = torch.tensor(X), torch.tensor(np.asarray(net.y))
    for rows in block.rows:
        optimizer.zero_grad()
        loss(model(features[rows]), labels[rows]).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()


def losses_to_compare():
    prior = {2: [0.4, 0.6], 3: [0.2, 0.3, 0.5]}
    for k in (2, 3):
        for base in BASES:
            for alpha in (0.0, 1.0, -0.7):
                settings = {"base": base, "alpha": alpha, "noisy_prior": prior[k]}
                yield k, settings, lambda z, y, s=settings: peer_loss(z, y, **s)
        T = T2 if k == 2 else T3
        yield k, {"loss": "forward", "noise": T}, lambda z, y, T=T: forward_loss(z, y, T)
        for base in ("cross_entropy", "sigmoid", "hinge"):
            yield (
                k,
                {"loss": "backward", "noise": T, "base": base},
                lambda z, y, T=T, base=base: backward_loss(z, y, T, base=base),
            )
        yield k, {"loss": "dmi"}, dmi_loss
        clip = {"base": "cross_entropy", "eps": 0.1, "alpha": 0.5, "noisy_prior": prior[k]}
        yield k, clip, lambda z, y, s=clip: peer_loss(z, y, **s)


CASES = list(losses_to_compare())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"K{c[0]}-{'-'.join(map(str, c[1].values()))}"[:60])
def test_steps_are_those_of_a_torch_module(backend, case):
    """For every loss, the weights equal those of an nn.Module trained by AdamW with the same loss."""
    k, settings, loss = case
    X, y = data(k=k)
    net = Net(y, random_state=3, learning_rate=0.01, weight_decay=0.1, **settings)
    options = {"hidden_layer_sizes": (7, 6), "batch_size": 16, "max_steps": 5}
    expected = reference(X, net, loss, k=k, **options)
    trained = train_nets(X, [net], n_classes=k, backend=backend, dtype="float64", **options)
    np.testing.assert_allclose(trained.parameters[0], expected, **ROUNDING)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hidden", [(), (4,), (9, 3, 5)])
def test_any_depth(backend, hidden):
    """No hidden layer, one, or three of odd widths: the steps equal those of torch."""
    X, y = data()
    net = Net(y, random_state=1, base="sigmoid", noisy_prior=[0.5, 0.5], learning_rate=0.01)
    options = {"hidden_layer_sizes": hidden, "batch_size": 13, "max_steps": 4}
    expected = reference(
        X, net, lambda z, t: peer_loss(z, t, base="sigmoid", noisy_prior=[0.5, 0.5]), k=2, **options
    )
    trained = train_nets(X, [net], n_classes=2, backend=backend, dtype="float64", **options)
    np.testing.assert_allclose(trained.parameters[0], expected, **ROUNDING)


def mixed_nets(k=2):
    T = T2 if k == 2 else T3
    X, y = data(80, k=k)
    rows = np.arange(0, 80, 2)
    X_own, y_own = data(30, k=k, seed=5)
    nets = [Net(y, base=base, alpha=0.5, random_state=i) for i, base in enumerate(BASES)]
    nets += [
        Net(y[rows], rows=rows, weight=rows + 1.0, random_state=20, learning_rate=0.02, weight_decay=0.1)
    ]
    nets += [Net(y_own, X=X_own, random_state=21, peers="sampled")]
    nets += [
        Net(y, loss="backward", noise=T, random_state=22),
        Net(y, loss="forward", noise=T, random_state=23),
    ]
    nets += [Net(y, loss="dmi", warm_up=30, random_state=24), Net(y, alpha=1.0, warm_up=7, random_state=25)]
    return X, nets


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("k", [2, 3])
def test_nets_do_not_depend_on_each_other(backend, k):
    """A net ends with the same weights alone and among other nets of all kinds."""
    X, nets = mixed_nets(k)
    options = {
        "n_classes": k,
        "hidden_layer_sizes": (6, 5),
        "batch_size": 32,
        "max_steps": 40,
        "backend": backend,
    }
    options["dtype"] = "float64"
    together = train_nets(X, nets, **options)
    for i, net in enumerate(nets):
        alone = train_nets(X, [net], **options)
        np.testing.assert_allclose(together.parameters[i], alone.parameters[0], **ROUNDING)


def test_results_do_not_depend_on_the_memory_limit():
    """Nets trained in several parts end with the weights of nets trained together."""
    X, nets = mixed_nets()
    options = {"n_classes": 2, "max_steps": 20, "backend": "torch", "dtype": "float64"}
    at_once = train_nets(X, nets, **options)
    in_parts = train_nets(X, nets, memory_limit=1, **options)
    np.testing.assert_allclose(at_once.parameters, in_parts.parameters, **ROUNDING)


@pytest.mark.skipif(not has_numba(), reason="no numba")
def test_backends_agree():
    """Both backends use the same batches and end with the same weights up to rounding."""
    X, nets = mixed_nets()
    options = {"n_classes": 2, "max_steps": 30, "dtype": "float64"}
    a, b = (train_nets(X, nets, backend=name, **options) for name in ("torch", "numba"))
    np.testing.assert_allclose(a.parameters, b.parameters, **ROUNDING)
    assert set(a.backend) == {"torch"}
    assert b.backend.count("torch") == 1  # DMI


@pytest.mark.parametrize("backend", BACKENDS)
def test_divergence_does_not_affect_other_nets(backend):
    """A net with a huge learning rate diverges and is reported; the others do not change."""
    X, y = data()
    good = [Net(y, random_state=i) for i in range(3)]
    bad = Net(y, random_state=9, learning_rate=1e300, base="unhinged")
    options = {"n_classes": 2, "max_steps": 20, "backend": backend, "dtype": "float64"}
    trained = train_nets(X, [good[0], bad, *good[1:]], **options)
    assert trained.diverged.tolist() == [False, True, False, False]
    alone = train_nets(X, good, **options)
    np.testing.assert_allclose(trained.parameters[[0, 2, 3]], alone.parameters, **ROUNDING)
    assert np.isfinite(trained.mean_probabilities(X)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32_is_the_rounded_float64(backend):
    """The first step in float32 equals that in float64, except for gradients close to zero."""
    X, nets = mixed_nets()
    start = np.stack([initial_weights(net.random_state, (X.shape[1], 8, 8, 1), "float64") for net in nets])
    options = {"n_classes": 2, "max_steps": 1, "backend": backend}
    single, double = (train_nets(X, nets, dtype=dtype, **options) for dtype in ("float32", "float64"))
    assert single.parameters.dtype == np.float32
    assert double.parameters.dtype == np.float64
    # The first step of Adam has the size of the learning rate, unless the gradient is below its epsilon.
    clear = np.abs(double.parameters - start) > 0.99 * np.array([[net.learning_rate] for net in nets])
    assert clear.mean() > 0.5
    np.testing.assert_allclose(single.parameters[clear], double.parameters[clear], atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_loss_learns(backend):
    """Every loss learns two classes well, and three classes much better than chance."""
    for k in (2, 3):
        X, nets = mixed_nets(k)
        nets = [replace(net, learning_rate=0.02) for net in nets]
        trained = train_nets(X, nets, n_classes=k, max_steps=150, backend=backend)
        for i, net in enumerate(nets):
            own = X if net.X is None else net.X
            rows = slice(None) if net.rows is None else net.rows
            predicted = trained.logits(own[rows], nets=[i])[0].argmax(axis=1)
            assert (predicted == net.y).mean() > (0.8 if k == 2 else 0.5), net.loss + net.base


def test_training_is_reproducible():
    """Equal seeds give equal weights, other seeds other weights; global generators have no effect."""
    X, y = data()
    np.random.seed(1)  # noqa: NPY002 (the global generator is tested)
    first = train_nets(
        X, [Net(y, random_state=(1, 2)), Net(y, random_state=(1, 3))], n_classes=2, max_steps=10
    )
    np.random.rand(3)  # noqa: NPY002
    torch.rand(3)
    again = train_nets(
        X, [Net(y, random_state=(1, 2)), Net(y, random_state=(1, 3))], n_classes=2, max_steps=10
    )
    assert np.array_equal(first.parameters, again.parameters)
    assert not np.allclose(first.parameters[0], first.parameters[1])


def test_batches_cover_an_epoch_without_repeats():
    """Within an epoch no row occurs twice, however many batches are taken at a time."""
    X, y = data(50)
    _, (net,) = prepare_nets(X, [Net(y)], 2)
    at_once = BatchStream(net, batch_size=16, steps=30).take(30)
    stream = BatchStream(net, batch_size=16, steps=30)
    pieces = np.concatenate([stream.take(n).rows for n in (1, 7, 22)])
    assert np.array_equal(at_once.rows, pieces)
    for epoch in at_once.rows.reshape(10, 48):
        assert len(set(epoch.tolist())) == 48


def test_few_rows_are_one_batch_and_many_are_sampled():
    """With fewer rows than a batch all are used; of very many rows only the needed ones are drawn."""
    X, y = data(10)
    _, (few,) = prepare_nets(X, [Net(y)], 2)
    assert BatchStream(few, batch_size=64, steps=3).take(3).rows.shape == (3, 10)
    X, y = data(5000)
    _, (many,) = prepare_nets(X, [Net(y)], 2)
    rows = BatchStream(many, batch_size=64, steps=3).take(3).rows
    assert len(set(rows.ravel().tolist())) == 192


def test_sampled_peers_average_to_expected_ones():
    """The mean coefficients of sampled peers over many draws are those of expected peers in the batch."""
    X, y = data(32)
    _, (sampled,) = prepare_nets(X, [Net(y, peers="sampled", alpha=0.8)], 2)
    block = BatchStream(sampled, batch_size=32, steps=4000).take(4000)
    order = np.argsort(block.rows, axis=1)
    mean = np.take_along_axis(block.coefficients, order[..., None], axis=1).mean(axis=0) * 32
    others = (np.eye(2)[y].sum(axis=0) - np.eye(2)[y]) / 31
    np.testing.assert_allclose(mean, np.eye(2)[y] - 0.8 * others, atol=0.06)


def test_weights_act_as_repeats_in_the_prior_and_the_rows():
    """On full batches, integer weights are equivalent to repeated rows."""
    X, y = data(20)
    weight = np.arange(20) % 3 + 1
    twice = np.repeat(np.arange(20), weight)
    weighted = Net(y, weight=weight, base="sigmoid", learning_rate=0.01)
    repeated = Net(y[twice], rows=twice, base="sigmoid", learning_rate=0.01)
    options = {"n_classes": 2, "max_steps": 20, "batch_size": 100, "backend": "torch", "dtype": "float64"}
    a, b = (train_nets(X, [net], **options).parameters for net in (weighted, repeated))
    np.testing.assert_allclose(a, b, **ROUNDING)


@pytest.mark.parametrize("backend", BACKENDS)
def test_curves_and_the_best_weights(backend):
    """Curves have a point every ``record_every`` steps, and the weights with the highest score are kept."""
    X, y = data()
    seen = {}

    def monitor(net, logits):
        value = {1: 0.1, 2: 0.9, 3: 0.5}[len(seen.setdefault(net, [])) + 1]
        seen[net].append(logits(X))
        return value

    nets = [Net(y, random_state=s, learning_rate=0.01) for s in range(2)]
    options = {"n_classes": 2, "max_steps": 25, "record_every": 10, "backend": backend, "dtype": "float64"}
    trained = train_nets(X, nets, monitor=monitor, keep_best=True, **options)
    assert trained.steps.tolist() == [10, 20, 25]
    assert trained.best_step.tolist() == [20, 20]
    np.testing.assert_allclose(trained.score_curve, [[0.1, 0.9, 0.5]] * 2)
    assert np.isfinite(trained.loss_curve).all()
    for net in range(2):
        np.testing.assert_allclose(trained.logits(X)[net], seen[net][1], **ROUNDING)
    unwatched = train_nets(X, nets, **options)
    assert unwatched.score_curve is None
    np.testing.assert_allclose(unwatched.logits(X)[0], seen[0][2], **ROUNDING)
    np.testing.assert_allclose(unwatched.loss_curve, trained.loss_curve, **ROUNDING)


@pytest.mark.parametrize("backend", BACKENDS)
def test_recording_does_not_change_sampled_peers(backend):
    """Batches and peers are the same however many steps lie between two points of the curves."""
    X, y = data()
    net = Net(y, peers="sampled", warm_up=4, learning_rate=0.01, random_state=7)
    options = {"n_classes": 2, "batch_size": 13, "max_steps": 150, "backend": backend}
    weights = [train_nets(X, [net], record_every=n, **options).parameters for n in (None, 1, 7, 64)]
    assert all(np.array_equal(weights[0], other) for other in weights[1:])


def test_weights_are_those_of_linear_layers():
    """``weights`` returns layers as in nn.Linear, and their predictions are those of ``logits``."""
    X, y = data(k=3)
    trained = train_nets(X, [Net(y)], n_classes=3, max_steps=3)
    h = X.astype(np.float32)
    for layer, (w, b) in enumerate(trained.weights(0)):
        h = h @ w.T + b
        h = np.maximum(h, 0) if layer < 2 else h
    np.testing.assert_allclose(trained.logits(X)[0], h, atol=1e-5)
    assert len(trained) == 1
    assert trained.n_classes == 3


def test_threads_and_denormals_are_restored():
    """Training does not change the number of threads or the treatment of denormals."""
    X, y = data()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        two = train_nets(X, [Net(y, random_state=s) for s in range(4)], n_classes=2, max_steps=5)
        train_nets(X, [Net(y)], n_classes=2, max_steps=2, backend="torch")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    one = train_nets(X, [Net(y, random_state=s) for s in range(4)], n_classes=2, max_steps=5)
    np.testing.assert_allclose(one.parameters, two.parameters)
    assert float(torch.tensor(1e-39) * 1.0) > 0
    with flushed_denormals():
        assert float(torch.tensor(1e-39) * 1.0) == 0
    assert float(torch.tensor(1e-39) * 1.0) > 0


def test_without_numba_the_torch_backend_is_used(monkeypatch):
    """Numba is optional; the message for ``backend="numba"`` says how to install it."""
    monkeypatch.setattr("peerloss.training.small._step_backends.has_numba", lambda: False)
    X, y = data()
    assert train_nets(X, [Net(y)], n_classes=2, max_steps=2).backend == ("torch",)
    with pytest.raises(InvalidInputError, match='pip install "numba>='):
        train_nets(X, [Net(y)], n_classes=2, max_steps=2, backend="numba")


@pytest.mark.cuda
def test_cuda_agrees_with_the_cpu():
    """The steps on a GPU equal those on the CPU."""
    X, nets = mixed_nets()
    cpu, gpu = (
        train_nets(X, nets, n_classes=2, max_steps=20, device=device, backend="torch", dtype="float64")
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(cpu.parameters, gpu.parameters, **ROUNDING)
