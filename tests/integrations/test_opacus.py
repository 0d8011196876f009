"""Differentially private training with our losses."""

from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from peerloss import AlphaSchedule, BackwardLoss, DMILoss, FDivergenceLoss, ForwardLoss, PeerLoss, PlainLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import bi_tempered_matrix
from peerloss.functional.base import as_base
from peerloss.noise import private_label_frequencies

pytest.importorskip("opacus", reason='needs Opacus: pip install "peerloss[privacy]"')

from opacus.accountants.utils import get_noise_multiplier
from opacus.grad_sample import GradSampleModule

from peerloss.integrations.opacus import check_private_loss, make_private

PRIOR = [0.3, 0.7]
NOISE = [[0.9, 0.1], [0.4, 0.6]]
BUDGET = {"target_epsilon": 3.0, "target_delta": 1e-4, "epochs": 2, "accountant": "rdp"}


@pytest.fixture(autouse=True, scope="module")
def _search_for_each_noise_once():
    """Remember the noise of a budget, because Opacus searches for it in a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opacus.privacy_engine.get_noise_multiplier", cache(get_noise_multiplier))
        yield


class MixedRows(PeerLoss):
    """A loss of a user, divided by what all rows of the batch have in common."""

    def forward(self, logits, target):
        """Return the peer loss, divided by the norm of all logits."""
        return super().forward(logits, target) / logits.norm()


def centred(logits):
    """Return a base loss of a user, which subtracts the mean of all rows."""
    return torch.nn.functional.softplus(-(logits - logits.mean(dim=0)))


def data(n=60):
    random = torch.Generator().manual_seed(0)
    X = torch.randn(n, 3, generator=random)
    return X, (X[:, 0] > 0).long()


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def start(loss, *, batch_size=15, **options):
    """Return a private training of a small model."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(*data()), batch_size)
    return make_private(model, optimizer, loader, loss, **(BUDGET | options))


def run_epoch(private, loss):
    for X, y in private.loader:
        private.optimizer.zero_grad()
        loss(private.model(X), y).backward()
        private.optimizer.step()


def gradient(model, loss, X, y):
    """Return the gradient of the loss with respect to all parameters."""
    return torch.cat([part.ravel() for part in torch.autograd.grad(loss(model(X), y), model.parameters())])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    "make",
    [
        lambda reduction: PeerLoss(noisy_prior=PRIOR, reduction=reduction),
        lambda reduction: PeerLoss("sigmoid", alpha=0.7, noisy_prior=PRIOR, reduction=reduction),
        lambda reduction: PlainLoss(reduction=reduction),
        lambda reduction: BackwardLoss(NOISE, reduction=reduction),
        lambda reduction: ForwardLoss(NOISE, reduction=reduction),
        lambda reduction: FDivergenceLoss(noisy_prior=PRIOR, reduction=reduction),
        lambda reduction: nn.CrossEntropyLoss(reduction=reduction),
    ],
)
def test_gradients_of_rows_are_those_of_single_rows(make, reduction):
    """What Opacus clips is the gradient of the loss on that row alone, for every accepted loss."""
    X, y = data(7)
    loss, model = make(reduction), make_model()
    check_private_loss(loss)
    rows = [gradient(model, loss, X[i : i + 1], y[i : i + 1]) for i in range(7)]
    wrapped = GradSampleModule(model, loss_reduction=reduction)
    loss(wrapped(X), y).backward()
    found = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], dim=1)
    torch.testing.assert_close(found, torch.stack(rows), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        PeerLoss(peers="sampled", noisy_prior=PRIOR),
        PeerLoss(),
        DMILoss(),
        PlainLoss(weight=[1.0, 5.0]),
        MixedRows(noisy_prior=PRIOR),
        PlainLoss(centred),
    ],
    ids=["sampled", "counted", "dmi", "weights", "subclass", "base"],
)
def test_refused_losses_are_not_sums_over_rows(loss):
    """Removing a row changes the loss of the others: n times the mean is not additive."""
    X, y = data(8)
    y[0] = 1 - y[1]
    logits = make_model()(X).detach().requires_grad_()

    def row_gradient(n):
        torch.manual_seed(0)
        return torch.autograd.grad(n * loss(logits[:n], y[:n]), logits)[0][1]

    assert not torch.allclose(row_gradient(8), row_gradient(5), atol=1e-4)
    with pytest.raises(InvalidInputError, match="`loss` must"):
        check_private_loss(loss)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            PeerLoss(peers="sampled", noisy_prior=PRIOR),
            "expected peers.*got peers='sampled'.*drawn as its peers",
        ),
        (PeerLoss(), "given `noisy_prior`.*private_label_frequencies"),
        (FDivergenceLoss(), "given `noisy_prior`"),
        (DMILoss(), "DMILoss is a determinant"),
        (nn.BCEWithLogitsLoss(), "got BCEWithLogitsLoss.*call Opacus directly"),
        (MixedRows(noisy_prior=PRIOR), "got MixedRows.*call Opacus directly"),
        (PeerLoss(centred, noisy_prior=PRIOR), r"base loss of this package.*Base\(None, centred\)"),
        (BackwardLoss(NOISE, base=centred), "`loss` must have a base loss of this package"),
        (PeerLoss(noisy_prior=PRIOR, reduction="none"), "reduction='mean' or 'sum'; got 'none'"),
        (PlainLoss(weight=[1.0, 2.0]), "reduction='sum' if it has class weights"),
        (nn.CrossEntropyLoss(weight=torch.ones(2)), "reduction='sum' if it has class weights"),
    ],
)
def test_a_refused_loss_is_told_why(loss, message):
    """Both by the check and before training."""
    with pytest.raises(InvalidInputError, match=message):
        check_private_loss(loss)
    with pytest.raises(InvalidInputError, match=message):
        start(loss)


@pytest.mark.parametrize("base", ["gce:0.4", as_base("mae"), partial(bi_tempered_matrix, t1=0.5, t2=2.0)])
def test_options_of_built_in_bases_are_accepted(base):
    """A base loss of this package is one with other options too."""
    check_private_loss(PeerLoss(base, noisy_prior=PRIOR))


def test_class_weights_with_a_sum_are_accepted():
    """Without the common divisor rows are independent."""
    check_private_loss(PeerLoss(noisy_prior=PRIOR, weight=[1.0, 2.0], reduction="sum"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`prior_epsilon` must state"),
        ({"prior_epsilon": -0.1}, "`prior_epsilon` must be zero or positive"),
        ({"prior_epsilon": 3.0}, "`target_epsilon` must be above `prior_epsilon`; got 3 and 3"),
        ({"prior_epsilon": 2.995}, "must leave enough ε.*target_epsilon=3 and prior_epsilon=2.995"),
        ({"prior_epsilon": 0.0, "target_epsilon": 0.0}, "`target_epsilon` must be positive"),
        ({"prior_epsilon": 0.0, "target_epsilon": float("inf")}, "`target_epsilon` must be a finite"),
        ({"prior_epsilon": 0.0, "target_delta": 0.0}, r"`target_delta` must lie in \(0, 1\)"),
        ({"prior_epsilon": 0.0, "epochs": 0}, "`epochs` must be an integer"),
        ({"prior_epsilon": 0.0, "max_grad_norm": 0.0}, "`max_grad_norm` must be positive"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    """Each by name."""
    with pytest.raises(InvalidInputError, match=message):
        start(PeerLoss(noisy_prior=PRIOR), **options)


def test_a_loss_without_prior_has_no_cost_of_one():
    """The argument would be a mistake."""
    with pytest.raises(InvalidInputError, match="`prior_epsilon` is for losses with a `noisy_prior`"):
        start(PlainLoss(), prior_epsilon=0.5)


@pytest.mark.parametrize("accountant", ["rdp", "prv"])
def test_epsilon_is_that_of_the_steps_and_of_the_frequencies(accountant):
    """Nothing spent before the first step except the frequencies; at the end at most the target."""
    loss = PeerLoss(noisy_prior=private_label_frequencies(data()[1].numpy(), 0.5, classes=[0, 1]))
    private = start(loss, prior_epsilon=0.5, accountant=accountant)
    assert private.epsilon(1e-4) == 0.5
    run_epoch(private, loss)
    half = private.epsilon(1e-4)
    run_epoch(private, loss)
    assert 0.5 < half < private.epsilon(1e-4) <= 3.0
    assert private.epsilon(1e-4) == pytest.approx(0.5 + private.engine.get_epsilon(1e-4))
    assert private.epsilon(1e-4) > 2.8  # the budget is used


def test_the_share_of_the_frequencies_is_taken_from_the_budget():
    """Less ε is left for the steps, so they get more noise."""
    quiet, loud = (
        start(PeerLoss(noisy_prior=PRIOR), prior_epsilon=share).optimizer.noise_multiplier
        for share in (0.0, 2.0)
    )
    assert loud > quiet


@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_delta_is_a_probability(delta):
    """An impossible δ is refused."""
    with pytest.raises(InvalidInputError, match="`delta` must lie in"):
        start(PlainLoss()).epsilon(delta)


def test_empty_batches_are_steps():
    """Rows are drawn independently, so a batch can be empty; it adds noise only and counts for ε."""
    loss = PeerLoss(noisy_prior=PRIOR)
    private = start(loss, batch_size=1, prior_epsilon=0.0)
    sizes = [len(y) for _, y in private.loader]
    assert min(sizes) == 0
    run_epoch(private, loss)
    assert sum(steps for *_, steps in private.engine.accountant.history) == 60
    assert all(torch.isfinite(p).all() for p in private.model.parameters())


def test_a_clipped_row_moves_the_weights_by_at_most_the_norm():
    """Without noise, one step with and without a row differs by at most lr · C / mean batch size."""
    X, y = data(20)
    X[0] *= 1e3  # a row with a huge gradient
    weights = []
    for rows in (slice(0, 20), slice(1, 20)):
        loss = PeerLoss(noisy_prior=PRIOR)
        private = start(loss, prior_epsilon=0.0, max_grad_norm=0.5)
        private.optimizer.noise_multiplier = 0.0
        private.optimizer.zero_grad()
        loss(private.model(X[rows]), y[rows]).backward()
        private.optimizer.step()
        weights.append(torch.cat([p.detach().ravel() for p in private.model.parameters()]))
    moved = float((weights[0] - weights[1]).norm())
    assert 0.9 * 0.1 * 0.5 / 15 < moved <= 1.001 * 0.1 * 0.5 / 15


def test_a_schedule_still_sets_alpha():
    """The loss itself is used, not a copy."""
    loss = PeerLoss(noisy_prior=PRIOR)
    start(loss, prior_epsilon=0.0)
    AlphaSchedule(loss, [(0, 0.25)])
    assert loss.alpha == 0.25


def soft(y):
    """Return soft targets: 0.8 for the label."""
    return 0.2 + 0.6 * nn.functional.one_hot(y, 2).float()


@pytest.mark.parametrize("is_soft", [False, True])
def test_ignored_labels_are_refused_with_a_mean_and_accepted_with_a_sum(is_soft):
    """The mean over labelled rows would depend on how many there are; the same for soft targets of NaN."""
    X, y = data(8)
    target = soft(y) if is_soft else y
    target[0] = torch.nan if is_soft else -100
    mean, total = (PeerLoss(noisy_prior=PRIOR, reduction=name) for name in ("mean", "sum"))
    start(total, prior_epsilon=0.0)
    assert torch.isfinite(total(make_model()(X), target))
    start(mean, prior_epsilon=0.0)
    found = "rows of NaN" if is_soft else "the ignored label -100"
    with pytest.raises(InvalidInputError, match=f"`target` must not hold {found} in private training"):
        mean(make_model()(X), target)
    with pytest.raises(InvalidInputError, match=f"`target` must not hold {found} in private training"):
        mean(logits=make_model()(X), target=target)
    assert torch.isfinite(mean(logits=make_model()(X[1:]), target=target[1:]))
    assert torch.isfinite(mean(make_model()(X[1:]), target[1:]))


def test_gradients_of_rows_with_soft_targets():
    """They are those of single rows too."""
    X, y = data(6)
    loss, model, target = PeerLoss(noisy_prior=PRIOR), make_model(), soft(y)
    rows = [gradient(model, loss, X[i : i + 1], target[i : i + 1]) for i in range(6)]
    wrapped = GradSampleModule(model)
    loss(wrapped(X), target).backward()
    found = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], dim=1)
    torch.testing.assert_close(found, torch.stack(rows), rtol=1e-4, atol=1e-6)


def test_private_training_learns():
    """With a large ε the model finds the classes in spite of label noise."""
    generator = np.random.default_rng(0)
    X, clean = data(600)
    flips = generator.random(600) < np.where(clean.numpy() == 1, 0.4, 0.1)
    noisy = torch.where(torch.tensor(flips), 1 - clean, clean)
    frequencies = private_label_frequencies(noisy.numpy(), 0.5, classes=[0, 1])
    loss, model = PeerLoss(noisy_prior=frequencies), make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    loader = DataLoader(TensorDataset(X, noisy), 60)
    options = {"target_epsilon": 20.0, "target_delta": 1e-4, "epochs": 8, "prior_epsilon": 0.5}
    private = make_private(model, optimizer, loader, loss, accountant="rdp", **options)
    for _ in range(8):
        run_epoch(private, loss)
    assert float((model(X).argmax(dim=1) == clean).float().mean()) > 0.85
    assert private.epsilon(1e-4) <= 20.0
