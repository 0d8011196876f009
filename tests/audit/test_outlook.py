"""Whether peer loss applies to the estimated noise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from peerloss.audit._outlook import assess_training
from peerloss.noise import NoiseModel
from peerloss.theory import is_categorical, noisy_joint, peer_decision
from tests.theory.finite_distributions import (
    accuracies,
    all_rules,
    column_noise,
    random_joint,
    random_noise,
)


def outlook(noise, clean_prior, width=1e-4, n_rows=1000):
    """Assess noise whose entries are known to within ``width``."""
    posterior = SimpleNamespace(
        noise=noise,
        clean_prior=np.asarray(clean_prior),
        noise_low=np.clip(noise.transition - width, 0, 1),
        noise_high=np.clip(noise.transition + width, 0, 1),
        accuracy_as_labelled=0.7,
        accuracy_corrected=0.8,
    )
    return assess_training(posterior, noise.noisy_prior(clean_prior), n_rows)


def lost_accuracy(clean, noise, alpha):
    """Return how much clean accuracy the minimiser of the α-peer risk on noisy labels loses."""
    noisy = noisy_joint(clean, noise)
    chosen = peer_decision(noisy / noisy.sum(axis=1, keepdims=True), alpha, noisy.sum(axis=0))
    return accuracies(all_rules(*clean.shape), clean).max() - accuracies(chosen[None], clean)[0]


def test_if_peer_loss_applies_its_minimiser_is_optimal():
    """Three balanced classes, 400 worlds with Sgn(Δ) = I: the minimiser is optimal if T has rates e_j.

    Sgn(Δ) = I alone is not sufficient: in the 200 worlds with any other T, at least 30 minimisers are not the
    best classifier on clean labels, some by more than five points.
    """
    rng = np.random.default_rng(0)
    prior = np.full(3, 1 / 3)
    lost = {column_noise: [], random_noise: []}
    for kind, losses in lost.items():
        while len(losses) < 200:
            noise = kind(rng, 3)
            if not is_categorical(noise.transition / 3):
                continue
            found = outlook(noise, prior)
            assert found.sign_is_identity
            assert found.applies == (kind is column_noise)
            clean = random_joint(rng, 4, 3, balanced=True)
            losses.append(lost_accuracy(clean, noise, found.alpha if found.applies else 1.0))
    assert max(lost[column_noise]) < 1e-9
    assert sum(loss > 1e-9 for loss in lost[random_noise]) >= 30
    assert max(lost[random_noise]) > 0.05


def test_unbalanced_classes_need_an_alpha():
    """Rates e_j are not sufficient for accuracy: uniform noise and e = c·π have an α*, most rates do not."""
    prior = np.array([0.6, 0.3, 0.1])
    clean = prior * np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    in_line = NoiseModel(0.6 * np.eye(3) + 0.4 * prior)
    for noise, alpha in ((NoiseModel.uniform(3, 0.3), 0.0), (in_line, 0.4)):
        found = outlook(noise, prior)
        assert found.applies
        assert found.alpha == pytest.approx(alpha, abs=1e-6)
        assert lost_accuracy(clean, noise, found.alpha) == pytest.approx(0.0, abs=1e-9)
        assert found.bound is not None
    found = outlook(NoiseModel(0.6 * np.eye(3) + [0.01, 0.34, 0.05]), prior)
    assert (found.applies, found.alpha, found.bound) == (False, None, None)
    assert "for no α does peer loss rank classifiers in the same order as accuracy" in found.why


def test_uncertainty_counts():
    """T[i, j] = e_j is assumed if it holds within the intervals; narrow intervals reject it."""
    noise = NoiseModel([[0.8, 0.12, 0.08], [0.1, 0.8, 0.1], [0.09, 0.11, 0.8]])
    assert outlook(noise, np.full(3, 1 / 3), width=0.03).applies
    found = outlook(noise, np.full(3, 1 / 3), width=0.003)
    assert not found.applies
    assert "T[i, j] ≠ e_j" in found.why
    assert "T[i, j] ≠ e_j" in outlook(NoiseModel.pair_flip(4, 0.2), np.full(4, 0.25), width=0.03).why


def test_two_classes_need_informative_labels_only():
    """Σe < 1 is the only condition; at 1 and above labels are no better than chance."""
    found = outlook(NoiseModel.binary(0.1, 0.3), [0.7, 0.3])
    assert (found.applies, found.sign_is_identity) == (True, True)
    assert found.alpha == pytest.approx(0.4545, abs=1e-4)
    assert found.why == "Peer loss applies: Σe = 0.40 < 1."
    for noise, prior in (
        (NoiseModel.binary(0.6, 0.5), [0.5, 0.5]),
        (NoiseModel.uniform(3, 0.8), np.full(3, 1 / 3)),
    ):
        found = outlook(noise, prior)
        assert (found.applies, found.alpha) == (False, None)
        assert "no better than chance" in found.why


def test_peer_loss_is_not_recommended_without_a_gain():
    """The last sentence agrees with the expected gain."""
    found = outlook(NoiseModel.binary(0.1, 0.2), [0.5, 0.5])
    assert found.headline.endswith("(+10.0 points). Peer loss applies to these labels.")
    for corrected in (0.7, 0.69, 0.7004):
        text = replace(found, accuracy_corrected=corrected).headline
        assert text.endswith("Training with peer loss is not expected to help here."), text


def test_no_gain_is_not_a_negative_zero():
    """A gain that rounds to zero has no minus sign."""
    found = replace(outlook(NoiseModel.uniform(2, 0.1), [0.5, 0.5]), accuracy_corrected=0.69999)
    assert "(+0.0 points)" in found.headline
