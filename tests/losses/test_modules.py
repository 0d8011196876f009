"""Modules are their functions plus state."""

import copy
import pickle

import numpy as np
import pytest
import torch

import peerloss
from peerloss import BackwardLoss, DMILoss, ForwardLoss, NoiseModel, PeerLoss, PlainLoss
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.functional import (
    BASES,
    backward_loss,
    dmi_loss,
    forward_loss,
    mae_matrix,
    peer_loss,
    plain_loss,
)
from peerloss.losses import FDivergenceLoss

T3 = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.1, 0.9]]
WEIGHT = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
PRIOR = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
MATRIX = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)

TWINS = {
    "base": (
        lambda: PlainLoss("squared", weight=WEIGHT),
        lambda z, y: plain_loss(z, y, base="squared", weight=WEIGHT),
    ),
    "peer": (lambda: PeerLoss(alpha=0.7), lambda z, y: peer_loss(z, y, alpha=0.7)),
    "peer_prior": (
        lambda: PeerLoss("logistic", noisy_prior=PRIOR, weight=WEIGHT),
        lambda z, y: peer_loss(z, y, base="logistic", noisy_prior=PRIOR, weight=WEIGHT),
    ),
    "peer_scored": (
        lambda: PeerLoss("mae", score_matrix=MATRIX, eps=0.0),
        lambda z, y: peer_loss(z, y, base="mae", score_matrix=MATRIX, eps=0.0),
    ),
    "peer_sampled": (
        lambda: PeerLoss(peers="sampled", generator=torch.Generator().manual_seed(0)),
        lambda z, y: peer_loss(z, y, peers="sampled", generator=torch.Generator().manual_seed(0)),
    ),
    "peer_sum": (lambda: PeerLoss(reduction="sum"), lambda z, y: peer_loss(z, y, reduction="sum")),
    "backward": (
        lambda: BackwardLoss(T3, base="hinge", weight=WEIGHT),
        lambda z, y: backward_loss(z, y, T3, base="hinge", weight=WEIGHT),
    ),
    "forward": (lambda: ForwardLoss(T3, weight=WEIGHT), lambda z, y: forward_loss(z, y, T3, weight=WEIGHT)),
    "dmi": (DMILoss, dmi_loss),
}


def example(n=12, k=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, k, generator=generator, dtype=dtype), torch.randint(k, (n,), generator=generator)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_is_its_function(name, dtype):
    """Same numbers, same dtype, same gradients, to the precision of the dtype."""
    make, function = TWINS[name]
    z, y = example(dtype=dtype)
    y[3] = -100
    through_module, through_function = z.clone().requires_grad_(), z.clone().requires_grad_()
    loss, reference = make()(through_module, y), function(through_function, y)
    assert loss.dtype == dtype
    torch.testing.assert_close(loss, reference)
    loss.sum().backward()
    reference.sum().backward()
    torch.testing.assert_close(through_module.grad, through_function.grad)


@pytest.mark.parametrize("name", TWINS)
def test_modules_pickle_copy_and_restore(name):
    """Pickled, deep-copied or rebuilt from a state dict, a module continues with the same state."""
    make, _ = TWINS[name]
    z, y = example()
    loss = make()
    loss(z, y)
    restored = make()
    restored.load_state_dict(loss.state_dict())
    if loss.__dict__.get("generator") is not None:
        restored.generator.set_state(loss.generator.get_state())
    others = [pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss), restored]  # noqa: S301 (our own bytes)
    value = loss(z, y)
    for other in others:
        torch.testing.assert_close(other(z, y), value)


def test_every_module_shows_its_options():
    """The repr shows the options that were set."""
    text = repr(
        PeerLoss("sigmoid", alpha=0.5, weight=WEIGHT, ignore_index=7, noisy_prior=PRIOR, score_matrix=MATRIX)
    )
    for part in (
        "'sigmoid'",
        "alpha=0.5",
        "ignore_index=7",
        "weight of 3",
        "noisy_prior given",
        "score_matrix",
    ):
        assert part in text
    assert "noisy_prior counted" in repr(PeerLoss())
    assert "'gce'" in repr(PlainLoss("gce"))
    assert "'hinge'" in repr(BackwardLoss(T3, base="hinge"))
    for module in (PlainLoss(mae_matrix), PeerLoss(mae_matrix), BackwardLoss(T3, base=mae_matrix)):
        assert "(Base(None, mae_matrix), " in repr(module)  # without the address, which changes
    assert "noisy_prior counted" in repr(FDivergenceLoss())
    assert repr(DMILoss(eps=0.01, ignore_index=7)) == "DMILoss(eps=0.01, ignore_index=7)"


def test_the_prior_is_counted_with_the_current_batch_included():
    """Each training batch is added before its own loss is computed; all labels so far have equal weight."""
    loss = PeerLoss(base="sigmoid")
    batches = [example(8), (example(8)[0], torch.tensor([0, 0, 0, 0, 0, 1, 1, -100]))]
    seen = torch.zeros(3, dtype=torch.float64)
    for z, y in batches:
        seen += torch.bincount(y[y >= 0], minlength=3)
        expected = peer_loss(z, y, base="sigmoid", noisy_prior=seen / seen.sum())
        torch.testing.assert_close(loss(z, y), expected)
    assert loss.label_counts.tolist() == seen.tolist()
    torch.testing.assert_close(loss.current_prior(), (seen / seen.sum()).float())


def test_evaluation_does_not_count():
    """In evaluation mode the prior is what training counted, independently of the labels in the batch."""
    loss = PeerLoss()
    z, y = example()
    loss(z, y)
    counted = loss.label_counts.clone()
    loss.eval()
    other = torch.zeros_like(y)
    expected = peer_loss(z, other, noisy_prior=counted / counted.sum())
    torch.testing.assert_close(loss(z, other), expected)
    assert torch.equal(loss.label_counts, counted)


def test_before_training_evaluation_uses_the_prior_of_the_batch():
    """Before any training there is no other prior, and the counts stay empty."""
    loss = PeerLoss().eval()
    z, y = example()
    torch.testing.assert_close(loss(z, y), peer_loss(z, y))
    assert loss.current_prior() is None
    loss.train()(z, y)
    loss.reset_prior()
    assert loss.current_prior() is None


def test_counts_survive_a_checkpoint():
    """A new module loads the counts of a state dict without knowing the number of classes."""
    z, y = example()
    loss = PeerLoss()
    loss(z, y)
    fresh = torch.nn.ModuleDict({"criterion": PeerLoss()})
    fresh.load_state_dict({f"criterion.{k}": v for k, v in loss.state_dict().items()})
    assert torch.equal(fresh["criterion"].label_counts, loss.label_counts)


def test_the_number_of_classes_may_not_change():
    """Counts of three classes do not fit logits of four."""
    loss = PeerLoss()
    loss(*example(k=3))
    with pytest.raises(InvalidInputError, match=r"`logits` must keep their number of classes.*reset_prior"):
        loss(*example(k=4))


def test_buffers_move_with_the_module():
    """`.to` moves priors, weights, counts and matrices; a device without float64 gets float32."""
    loss = PeerLoss(noisy_prior=PRIOR, weight=WEIGHT, score_matrix=MATRIX)
    assert {name for name, _ in loss.named_buffers()} == {
        "weight",
        "noisy_prior",
        "score_matrix",
        "label_counts",
    }
    assert loss.to("meta").noisy_prior.device.type == "meta"

    def without_float64(tensor):
        if tensor.dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return tensor

    moved = PeerLoss(noisy_prior=PRIOR, weight=WEIGHT)._apply(without_float64)
    assert moved.noisy_prior.dtype == moved.weight.dtype == torch.float32


def test_arguments_given_are_copied():
    """Changing the caller's tensor later changes nothing here."""
    prior = PRIOR.clone()
    loss = PeerLoss(noisy_prior=prior)
    prior.zero_()
    torch.testing.assert_close(loss.noisy_prior, PRIOR)


@pytest.mark.parametrize("base", sorted(BASES))
def test_binary_logits_train(base):
    """Shapes (n,) and (n, 1) count two classes."""
    y = torch.tensor([0, 1, 1, 0])
    for shape in ((4,), (4, 1)):
        loss = PeerLoss(base)
        assert torch.isfinite(loss(torch.randn(shape), y))
        assert loss.label_counts.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: PeerLoss("nonsense"), InvalidInputError, "`base` must be one of .*zero_one.*'nonsense'"),
        (lambda: PeerLoss(alpha=float("nan")), InvalidInputError, "`alpha` must be a finite number; got nan"),
        (lambda: setattr(PeerLoss(), "alpha", float("inf")), InvalidInputError, "`alpha` must be a finite"),
        (lambda: PeerLoss(peers="all"), InvalidInputError, "`peers` must be one of"),
        (lambda: PeerLoss(eps=-1), InvalidInputError, "`eps` must lie in"),
        (lambda: PeerLoss(noisy_prior=[0.5, 0.6]), InvalidInputError, "`noisy_prior` must be probabilities"),
        (lambda: PeerLoss(score_matrix=[[1.0]]), InvalidInputError, "`score_matrix` must have shape"),
        (lambda: PeerLoss(weight=[-1.0, 1.0]), InvalidInputError, "`weight` must be finite and non-negative"),
        (lambda: PeerLoss(reduction="all"), InvalidInputError, "`reduction` must be one of"),
        (lambda: PeerLoss(ignore_index=1.5), InvalidInputError, "`ignore_index` must be a 64-bit integer"),
        (lambda: PlainLoss("nonsense"), InvalidInputError, "`base` must be one of"),
        (lambda: BackwardLoss([[0.5, 0.5], [0.5, 0.5]]), NotIdentifiableError, "cannot be inverted"),
        (lambda: BackwardLoss([[1.2, -0.2], [0.5, 0.5]]), InvalidInputError, "`noise` must"),
        (lambda: ForwardLoss([[0.9, 0.2], [0.5, 0.5]]), InvalidInputError, "`noise` must"),
        (lambda: DMILoss(eps=float("nan")), InvalidInputError, "`eps` must be a finite number"),
        (
            lambda: BackwardLoss(NoiseModel.binary(0.1, 0.2))(*example()),
            InvalidInputError,
            "`noise` must have one entry for each of the 3 classes",
        ),
    ],
)
def test_bad_arguments_are_refused_when_the_module_is_made(make, error, message):
    """Errors are raised before training, not after an hour of it."""
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("logits", [[[1.0, 2.0]], np.ones((1, 2))], ids=["list", "array"])
def test_logits_must_be_a_tensor(logits):
    """Also in modules that try a fast path first."""
    for module in (PeerLoss(), PlainLoss()):
        with pytest.raises(InvalidInputError, match=r"`logits` must be"):
            module(logits, torch.tensor([0]))


def test_kernels_are_for_the_common_case_on_a_gpu():
    """There are none on the CPU, for other bases, with class weights or with sampled peers."""
    assert not PeerLoss().has_kernels(torch.device("cpu"), torch.float32)
    gpu = torch.device("cuda")
    for unusual in (PeerLoss("sigmoid"), PeerLoss(peers="sampled"), PeerLoss(weight=[1.0, 2.0])):
        assert not unusual.has_kernels(gpu, torch.float32)


def test_dmi_has_no_unreduced_form():
    """It is a function of the whole batch."""
    with pytest.raises(TypeError, match="reduction"):
        DMILoss(reduction="none")


def test_public_modules_are_exported_at_the_top():
    """`from peerloss import PeerLoss` and its siblings."""
    for name in (
        "PeerLoss",
        "BackwardLoss",
        "ForwardLoss",
        "DMILoss",
        "FDivergenceLoss",
        "PlainLoss",
        "AlphaSchedule",
    ):
        assert getattr(peerloss, name).__name__ == name
