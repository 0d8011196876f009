"""CORES² against its formulas, row by row."""

import math

import numpy as np
import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.losses import cores_keep, cores_loss, cores_schedule
from peerloss.training import DeepRecipe, keep_rows, train_deep

PRIOR = [0.2, 0.5, 0.3]


def batch(seed=0, n=40):
    rng = np.random.default_rng(seed)
    return torch.tensor(3.0 * rng.normal(size=(n, 3))), torch.tensor(rng.integers(3, size=n))


def probabilities(row):
    shifted = [math.exp(v - max(row)) for v in row]
    return [v / sum(shifted) for v in shifted]


@pytest.mark.parametrize("beta", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_the_loss_is_that_of_the_paper(beta, eps):
    """Every row has −log p_ỹ + β·Σ_k π̃_k log p_k, computed in plain Python numbers."""
    z, y = batch()
    rows = cores_loss(noisy_prior=PRIOR, beta=beta, eps=eps, reduction="none")(z, y)
    for row, label, value in zip(z.tolist(), y.tolist(), rows.tolist(), strict=True):
        p = [v + eps for v in probabilities(row)]
        confidence = sum(share * math.log(v) for share, v in zip(PRIOR, p, strict=True))
        assert value == pytest.approx(-math.log(p[label]) + beta * confidence, abs=1e-9)


def test_the_sieve_keeps_rows_with_a_loss_below_the_mean_over_labels():
    """The rule of the paper with both of its terms, for several β: they cancel, and the rows are the same."""
    z, y = batch(1, 200)
    kept = cores_keep(z, y)
    assert 20 < int(kept.sum()) < 180
    for beta in (0.0, 2.0):
        for row, label, keep in zip(z.tolist(), y.tolist(), kept.tolist(), strict=True):
            losses = [-math.log(v + 1e-8) for v in probabilities(row)]
            confidence = -beta * sum(share * loss for share, loss in zip(PRIOR, losses, strict=True))
            assert keep == (losses[label] + confidence < sum(losses) / 3 + confidence)


def test_the_sieve_is_the_rule_of_fixed_targets_at_equal_priors():
    """``training.keep_rows`` with equal priors keeps the same rows."""
    z, y = batch(2, 200)
    equal = torch.full((3,), 1 / 3, dtype=torch.float64)
    assert torch.equal(cores_keep(z, y), keep_rows(torch.softmax(z, dim=1), y, equal))


def test_only_the_clip_bounds_the_loss():
    """With eps = 0 and any β > 0, confident predictions of the label make it as small as you like."""
    for beta in (0.1, 0.7, 2.0):
        z, y = torch.tensor([[1e4, 0.0, 0.0]], dtype=torch.float64), torch.tensor([0])
        assert cores_loss(noisy_prior=PRIOR, beta=beta, eps=0.0)(z, y) < -500 * beta
        assert cores_loss(noisy_prior=PRIOR, beta=beta)(z, y) > -20 * beta


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("k", [3, 7])
def test_logits_may_be_in_half_precision(dtype, k):
    """The sieve keeps the labels that it keeps for the same logits in float32."""
    rng = np.random.default_rng(0)
    z, y = torch.tensor(3.0 * rng.normal(size=(60, k))).to(dtype), torch.tensor(rng.integers(k, size=60))
    assert torch.equal(cores_keep(z, y), cores_keep(z.float(), y))


def test_two_classes_by_one_logit():
    """(n,) means the columns (0, z): kept are the labels that the logit predicts."""
    z = torch.tensor([2.0, -1.0, 0.5, -3.0])
    assert cores_keep(z, torch.tensor([1, 1, 0, 0])).tolist() == [True, False, False, True]


def test_beta_follows_the_schedule_of_the_authors():
    """Ten epochs of 0, thirty from 0 to 2 in equal steps, then 2."""
    loss = cores_loss()
    schedule = cores_schedule(loss)
    seen = []
    for _ in range(60):
        seen.append(loss.alpha)
        schedule.step()
    np.testing.assert_allclose(seen, [*[0.0] * 10, *np.linspace(0, 2, 30), *[2.0] * 20])


def test_training_with_the_three_parts_ignores_wrong_labels():
    """On separable data with a third of the labels wrong, the kept rows are mostly the correct ones."""
    rng = np.random.default_rng(0)
    X, clean = rng.normal(size=(400, 2)), rng.integers(2, size=400)
    X[:, 0] += 6.0 * clean - 3.0
    wrong = rng.random(400) < 0.3
    X, y = torch.tensor(X), torch.tensor(np.where(wrong, 1 - clean, clean))
    model = torch.nn.Linear(2, 2, dtype=torch.float64)
    prior = torch.bincount(y) / len(y)
    loss, optimizer = cores_loss(noisy_prior=prior), torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = cores_schedule(loss, warm_up=10, rise=30)
    for epoch in range(60):
        logits = model(X)
        kept = cores_keep(logits, y) if epoch > 30 else torch.ones(400, dtype=torch.bool)
        optimizer.zero_grad()
        loss(logits, y.masked_fill(~kept, loss.ignore_index)).backward()
        optimizer.step()
        schedule.step()
    assert float((kept.numpy() == ~wrong).mean()) > 0.95


def test_the_preset_is_the_loss_of_the_kept_rows_from_a_beta_on():
    """With ``sieve_from``: all rows below this β and in evaluation, else only rows that the sieve keeps."""
    z, y = batch(3, 100)
    y[0] = -100
    kept = cores_keep(z, y)
    plain, loss = cores_loss(noisy_prior=PRIOR), cores_loss(noisy_prior=PRIOR, sieve_from=1.4)
    for beta in (0.0, 1.3, 1.4, 2.0):
        plain.alpha = loss.alpha = beta
        rows = kept if beta >= 1.4 else torch.ones(100, dtype=torch.bool)
        assert loss(z, y).item() == pytest.approx(plain(z[rows], y[rows]).item(), abs=1e-12)
        assert loss.eval()(z, y).item() == pytest.approx(plain(z, y).item(), abs=1e-12)
        loss.train()
    assert "sieve_from=1.4" in repr(loss)


@pytest.mark.parametrize("sieve_from", [None, 1.4])
def test_rows_without_a_label_may_have_another_code(sieve_from):
    """``ignore_index=-1``, as in ``PeerLoss``: the loss is that of the labelled rows."""
    z, y = batch(4, 50)
    loss = cores_loss(noisy_prior=PRIOR, sieve_from=sieve_from, ignore_index=-1)
    expected = loss(z[10:], y[10:])
    y[:10] = -1
    assert loss(z, y).item() == pytest.approx(expected.item(), abs=1e-12)


def test_the_sieve_of_the_preset_starts_after_epoch_30():
    """With the schedule of the authors, β reaches 1.4 in epoch 31, counted from 0."""
    schedule = cores_schedule(cores_loss())
    assert schedule.alpha_at(30) < 1.4 <= schedule.alpha_at(31)


def test_the_preset_trains_with_train_deep():
    """Schedule, loss and sieve in one call: the wrong labels of separable rows are not learned."""
    rng = np.random.default_rng(0)
    X, clean = rng.normal(size=(400, 2)).astype(np.float32), rng.integers(2, size=400)
    X[:, 0] += 6.0 * clean - 3.0
    y = np.where(rng.random(400) < 0.3, 1 - clean, clean)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    loss = cores_loss(noisy_prior=np.bincount(y) / 400, sieve_from=1.4)
    recipe = DeepRecipe(epochs=40, batch_size=50, learning_rate=0.1, alpha=((0.1, 0.0), (0.4, 2.0)))
    train_deep(model, loss, X, y, recipe=recipe, device="cpu")
    assert loss.alpha == 2.0
    assert (model(torch.tensor(X)).argmax(dim=1).numpy() == clean).mean() > 0.98


@pytest.mark.cuda
def test_the_preset_on_cuda_agrees_with_the_cpu_and_never_synchronises():
    """Value and gradient with the sieve on a GPU, while synchronising is forbidden."""
    z, y = batch(5, 512)
    found = []
    for device in ("cpu", "cuda"):
        logits = z.float().to(device).requires_grad_()
        loss = cores_loss(noisy_prior=PRIOR, sieve_from=1.4).to(device)
        target = y.to(device)
        if device == "cuda":
            loss(logits, target)  # first call allocates and compiles
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
        try:
            value = loss(logits, target)
            value.backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found.append((value.detach().cpu(), logits.grad.cpu()))
    for ours, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cores_loss(sieve_from=1.4), "`noisy_prior` must be given with `sieve_from`"),
        (lambda: cores_loss(noisy_prior=PRIOR, sieve_from=math.nan), "`sieve_from` must be"),
        (
            lambda: cores_loss(noisy_prior=PRIOR, sieve_from=1.4)(
                torch.zeros(2, 3), torch.full((2, 3), 1 / 3)
            ),
            "`target` must be class codes for the sieve",
        ),
        (lambda: cores_schedule(cores_loss(), warm_up=-1), "`warm_up` must be"),
        (lambda: cores_schedule(cores_loss(), rise=1), "`rise` must be"),
        (lambda: cores_schedule(cores_loss(), beta=math.nan), "`beta` must be"),
        (lambda: cores_loss(beta=math.inf), "`beta` must be"),
    ],
)
def test_bad_arguments_are_named(call, message):
    """The message names the argument."""
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8])
def test_the_sieve_takes_labels_of_any_integer_dtype(dtype):
    """Rows that are left out do not become rows of another class."""
    logits, target = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1, 1])
    loss = cores_loss(noisy_prior=[0.5, 0.5], sieve_from=1.0)
    expected = loss(logits, target)
    assert loss(logits, target.to(dtype)) == expected


def test_the_sieve_takes_tokens():
    """Logits (N, K, d) have one row per position, as in the loss without a sieve."""
    logits, target = batch(n=12)
    tokens, labels = logits.view(4, 3, 3).movedim(-1, 1), target.view(4, 3)
    loss = cores_loss(noisy_prior=PRIOR, sieve_from=1.4)
    assert torch.equal(cores_keep(tokens, labels).flatten(), cores_keep(logits, target))
    torch.testing.assert_close(loss(tokens, labels), loss(logits, target))


def test_targets_that_are_not_tensors_are_refused_as_by_peer_loss():
    """With the sieve and without it, the message says what a target is."""
    z, y = batch()
    for sieve_from in (None, 0.0):
        loss = cores_loss(noisy_prior=PRIOR, sieve_from=sieve_from)
        with pytest.raises(InvalidInputError, match=r"`target` must be an integer tensor .* got list"):
            loss(z, y.tolist())
