"""f-divergence peers."""

import numpy as np
import pytest
import torch

from peerloss import theory
from peerloss.exceptions import InvalidInputError
from peerloss.functional import f_divergence_loss, peer_loss

#: A joint distribution of four inputs and three labels.
JOINT = np.array([[0.20, 0.03, 0.02], [0.05, 0.15, 0.05], [0.01, 0.04, 0.20], [0.10, 0.10, 0.05]])


def expectation(joint, logits, divergence):
    """Σ over inputs and labels of P(x, y)·loss(x, y), with the prior of these labels."""
    prior = torch.tensor(joint.sum(axis=0))
    n, k = joint.shape
    every, y = logits.repeat_interleave(k, dim=0), torch.arange(k).repeat(n)
    rows = f_divergence_loss(every, y, divergence=divergence, noisy_prior=prior, reduction="none")
    return torch.tensor(joint).flatten() @ rows


def random_logits(seed, rows=4):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_at_the_posterior_jensen_shannon_is_the_divergence():
    """The value is −D between joint and product of marginals, by the textbook formula."""
    product = np.outer(JOINT.sum(axis=1), JOINT.sum(axis=0))
    middle = (JOINT + product) / 2
    textbook = (JOINT * np.log(JOINT / middle)).sum() + (product * np.log(product / middle)).sum()
    posterior = torch.tensor(JOINT / JOINT.sum(axis=1, keepdims=True)).log()
    assert float(expectation(JOINT, posterior, "jensen_shannon")) == pytest.approx(-textbook, abs=1e-12)


def test_jensen_shannon_is_least_at_the_posterior():
    """No other predictions do better: zero gradient there, and higher values elsewhere."""
    posterior = torch.tensor(JOINT / JOINT.sum(axis=1, keepdims=True)).log().requires_grad_()
    best = expectation(JOINT, posterior, "jensen_shannon")
    (gradient,) = torch.autograd.grad(best, posterior)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)
    others = [float(expectation(JOINT, random_logits(seed), "jensen_shannon")) for seed in range(30)]
    assert min(others) > best.item()


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
def test_an_uninformed_model_has_loss_zero(divergence):
    """Predictions that always equal the prior have loss zero for every label."""
    prior = torch.tensor([0.5, 0.3, 0.2])
    rows = f_divergence_loss(
        prior.log().expand(3, 3), torch.arange(3), divergence=divergence, noisy_prior=prior, reduction="none"
    )
    torch.testing.assert_close(rows, torch.zeros(3), atol=1e-6, rtol=0)


def test_total_variation_is_peer_loss_on_a_bounded_matrix():
    """With any prior it equals expected peer loss at α = 1 with base −½(r − 1)/(r + 1)."""
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)

    def base(z):
        ratio = torch.softmax(z, dim=1) / prior
        return -0.5 * (ratio - 1) / (ratio + 1)

    logits, y = random_logits(0, rows=6), torch.tensor([0, 1, 2, 0, 1, 2])
    expected = peer_loss(logits, y, base=base, noisy_prior=prior, reduction="none")
    actual = f_divergence_loss(logits, y, noisy_prior=prior, reduction="none")
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)


def worlds(count=200, *, equal_prior=False):
    """Random joint distributions of 3 inputs and 2 to 4 labels, each with a generator for its predictions."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        k = int(rng.integers(2, 5))
        joint = rng.dirichlet(np.ones(3 * k)).reshape(3, k)
        yield (joint / joint.sum(axis=0) / k if equal_prior else joint), rng


def value(joint, p, divergence="total_variation"):
    """Return the variational value of predictions p, the negative of the loss."""
    with np.errstate(divide="ignore"):
        return -float(expectation(joint, torch.tensor(np.log(p)), divergence))


def posterior_and_excess(joint):
    posterior = joint / joint.sum(axis=1, keepdims=True)
    return posterior, posterior - joint.sum(axis=0)


def predictions(joint, rng, count=3):
    return [rng.dirichlet(np.full(joint.shape[1], 0.5), size=len(joint)) for _ in range(count)]


def best_total_variation(joint):
    """Maximise Σ_k a_k·g(p_k/π_k), a = η − π: p_k = max(0, √(a_k π_k/λ) − π_k), λ by bisection."""
    prior, (_, excess) = joint.sum(axis=0), posterior_and_excess(joint)
    found = []
    for a in np.clip(excess, 0, None):
        low, high = 1e-9, 1e9
        for _ in range(80):
            middle = np.sqrt(low * high)
            p = np.clip(np.sqrt(a * prior / middle) - prior, 0, None)
            low, high = (middle, high) if p.sum() > 1 else (low, middle)
        found.append(p / p.sum())
    return np.array(found)


def test_jensen_shannon_is_largest_at_the_posterior_in_random_worlds():
    """In 200 worlds no other prediction reaches the value at the posterior of the noisy label."""
    for joint, rng in worlds():
        posterior, _ = posterior_and_excess(joint)
        best = value(joint, posterior, "jensen_shannon")
        for p in predictions(joint, rng):
            assert value(joint, p, "jensen_shannon") <= best + 1e-12


def test_total_variation_is_not_largest_at_the_posterior():
    """In 200 worlds the maximiser beats the posterior; no value exceeds the true total variation."""
    for joint, rng in worlds():
        posterior, excess = posterior_and_excess(joint)
        bound = 0.5 * (joint.sum(axis=1, keepdims=True) * abs(excess)).sum()
        best = value(joint, best_total_variation(joint))
        assert best > value(joint, posterior) + 1e-6
        for p in [posterior, *predictions(joint, rng)]:
            assert value(joint, p) <= best + 1e-9
            assert best <= bound + 1e-12


def test_total_variation_leaves_classes_that_are_rarer_than_their_prior():
    """Mass on classes with η ≤ π̃ is lost; for two classes the decision η > π̃ is best, in 200 worlds."""
    for joint, rng in worlds():
        _, excess = posterior_and_excess(joint)
        for p in predictions(joint, rng):
            kept = np.where(excess > 0, p, 0.0)
            kept[np.arange(len(kept)), excess.argmax(axis=1)] += 1 - kept.sum(axis=1)
            assert value(joint, kept) >= value(joint, p) - 1e-12
            if joint.shape[1] == 2:
                assert value(joint, (excess > 0).astype(float)) >= value(joint, p) - 1e-12


def test_for_equal_priors_total_variation_favours_the_most_probable_class():
    """In 200 worlds with equal π̃ the maximiser and the posterior have the same argmax."""
    for joint, _ in worlds(equal_prior=True):
        posterior, _ = posterior_and_excess(joint)
        assert (best_total_variation(joint).argmax(axis=1) == posterior.argmax(axis=1)).all()


def column_noise(rates):
    """T[i, j] = e_j for i ≠ j."""
    return (1 - rates.sum()) * np.eye(len(rates)) + rates


def test_noise_scales_total_variation_if_the_ratio_uses_one_prior():
    """T[i, j] = e_j: with one prior in r the factor is 1 − Σe for every p; so it is if e = π·Σe."""
    for joint, rng in worlds():
        prior, rates = joint.sum(axis=0), rng.dirichlet(np.ones(joint.shape[1])) * rng.uniform(0, 0.9)
        noisy = joint @ column_noise(rates)

        def matrix(z, prior=prior):
            ratio = torch.softmax(z, dim=1) / torch.tensor(prior)
            return -0.5 * (ratio - 1) / (ratio + 1)

        for p in predictions(joint, rng, 2):
            losses = matrix(torch.tensor(np.log(p))).numpy()
            clean_risk, noisy_risk = (theory.peer_risk(losses, world) for world in (joint, noisy))
            assert clean_risk == pytest.approx(-value(joint, p), abs=1e-12)
            assert noisy_risk == pytest.approx((1 - rates.sum()) * clean_risk, abs=1e-12)
            unmoved = joint @ column_noise(prior * rates.sum())
            assert value(unmoved, p) == pytest.approx((1 - rates.sum()) * value(joint, p), abs=1e-12)


def test_with_the_noisy_prior_unequal_rates_leave_no_constant_ratio():
    """In 200 worlds the ratio of noisy and clean total variation depends on p; the classes above π̃ do not."""
    spreads = []
    for joint, rng in worlds():
        rates = rng.dirichlet(np.ones(joint.shape[1])) * rng.uniform(0.2, 0.9)
        noisy = joint @ column_noise(rates)
        ratios = [value(noisy, p) / value(joint, p) for p in predictions(joint, rng)]
        spreads.append(np.ptp(ratios))
        clean_excess, noisy_excess = posterior_and_excess(joint)[1], posterior_and_excess(noisy)[1]
        np.testing.assert_allclose(noisy_excess, (1 - rates.sum()) * clean_excess, atol=1e-12)
    assert np.min(spreads) > 1e-6
    assert np.median(spreads) > 0.01


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
def test_gradients_are_right(divergence):
    """Against finite differences, with an ignored row and a counted prior."""
    y = torch.tensor([0, 1, -100, 2])
    logits = random_logits(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: f_divergence_loss(z, y, divergence=divergence), logits)
    (gradient,) = torch.autograd.grad(f_divergence_loss(logits, y, divergence=divergence), logits)
    assert not gradient[2].any()


@pytest.mark.parametrize("divergence", ["total_variation", "jensen_shannon"])
def test_extreme_logits_and_absent_classes_stay_finite(divergence):
    """A class without labels and logits of ±1000 give finite losses and gradients."""
    logits = torch.tensor([[1e3, -1e3, 0.0], [-1e3, 1e3, 0.0]], requires_grad=True)
    loss = f_divergence_loss(logits, torch.tensor([0, 0]), divergence=divergence)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_an_unknown_divergence_is_named():
    """The message lists the divergences."""
    with pytest.raises(InvalidInputError, match="`divergence` must be one of 'total_variation', 'jensen_sh"):
        f_divergence_loss(torch.zeros(2, 2), torch.tensor([0, 1]), divergence="hellinger")


def test_the_prior_of_binary_labels_is_refused():
    """It has shape (L, 2); the divergence is of class labels only."""
    prior = [[0.5, 0.5], [0.1, 0.9]]
    with pytest.raises(InvalidInputError, match=r"`noisy_prior` must have shape \(2,\).*got \(2, 2\)"):
        f_divergence_loss(torch.zeros(2, 2), torch.tensor([0, 1]), noisy_prior=prior)
