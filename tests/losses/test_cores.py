"""CORES² against its formulas, row by row."""

import math

import numpy as np
import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.losses import cores_keep, cores_loss, cores_schedule
from peerloss.training import keep_rows

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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cores_schedule(cores_loss(), warm_up=-1), "`warm_up` must be"),
        (lambda: cores_schedule(cores_loss(), rise=1), "`rise` must be"),
        (lambda: cores_schedule(cores_loss(), beta=math.nan), "`beta` must be"),
        (lambda: cores_loss(beta=math.inf), "`alpha` must be"),
    ],
)
def test_bad_arguments_are_named(call, message):
    """The message names the argument."""
    with pytest.raises(InvalidInputError, match=message):
        call()
