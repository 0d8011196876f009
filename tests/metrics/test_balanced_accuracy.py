"""Balanced accuracy estimated from noisy labels and a noise model."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from peerloss import NoiseModel, flip_labels, peer_score
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.metrics import clean_balanced_accuracy
from peerloss.theory import noisy_joint
from tests.theory.finite_distributions import (
    all_rules,
    balanced_accuracies,
    column_noise,
    random_joint,
    random_noise,
)


def cells(joint, rule):
    """Labels, predictions and weights of all cells (x, label) of a finite distribution."""
    x, label = np.indices(joint.shape).reshape(2, -1)
    return label, rule[x], joint.ravel()


@pytest.mark.parametrize("kind", [column_noise, random_noise], ids=["rates e_j", "any T"])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_it_is_the_clean_balanced_accuracy_of_an_enumerated_world(k, kind):
    """On the exact noisy distribution it equals balanced accuracy on clean labels, in 200 worlds."""
    rng = np.random.default_rng(k)
    rules = all_rules(4, k)
    for _ in range(200):
        clean, noise = random_joint(rng, 4, k), kind(rng, k)
        rule = rules[rng.integers(len(rules))]
        labels, predicted, weight = cells(noisy_joint(clean, noise), rule)
        found = clean_balanced_accuracy(labels, predicted, noise, sample_weight=weight).value
        assert found == pytest.approx(balanced_accuracies(rule[None], clean)[0], abs=1e-10)


def test_the_peer_score_orders_by_balanced_accuracy_for_two_classes_only():
    """At α = 1 the best rule by peer score is best by balanced accuracy for K = 2, not for K = 3.

    With three classes and labels without noise it is another rule in at least 10 % of 200 worlds.
    """
    rng = np.random.default_rng(0)
    for k, most_wrong, least_wrong in ((2, 0, 0), (3, 200, 20)):
        rules = all_rules(4, k)
        wrong = 0
        for _ in range(200):
            joint = random_joint(rng, 4, k)
            scores = []
            for rule in rules:
                labels, predicted, weight = cells(joint, rule)
                scores.append(peer_score(labels, predicted, sample_weight=weight))
            balanced = balanced_accuracies(rules, joint)
            wrong += balanced[np.argmax(scores)] < balanced.max() - 1e-9
        assert least_wrong <= wrong <= most_wrong


def test_its_standard_error_is_that_of_repeated_samples():
    """Over 400 samples of 500 noisy labels: no bias beyond chance, and the stated error is the spread."""
    rng = np.random.default_rng(0)
    noise = NoiseModel([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.2, 0.0, 0.8]])
    recall = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    values, errors = [], []
    for _ in range(400):
        clean = rng.choice(3, size=500, p=[0.5, 0.3, 0.2])
        predicted = (rng.random((500, 1)) > recall[clean].cumsum(axis=1)).sum(axis=1)
        found = clean_balanced_accuracy(flip_labels(clean, noise, random_state=rng), predicted, noise)
        values.append(found.value)
        errors.append(found.standard_error)
    assert np.mean(values) == pytest.approx(np.diag(recall).mean(), abs=4 * np.std(values) / 20)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_without_noise_it_is_scikit_learns():
    """T = I: the ordinary balanced accuracy, weights included; classes without rows are left out."""
    assert clean_balanced_accuracy([0, 2, 2], [0, 2, 1], np.eye(3)).value == pytest.approx(0.75)
    rng = np.random.default_rng(1)
    labels, predicted, weight = rng.integers(4, size=100), rng.integers(4, size=100), rng.random(100)
    found = clean_balanced_accuracy(labels, predicted, np.eye(4), sample_weight=weight).value
    assert found == pytest.approx(balanced_accuracy_score(labels, predicted, sample_weight=weight))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: clean_balanced_accuracy([0, 1], [0], np.eye(2)), InvalidInputError, "equally long"),
        (lambda: clean_balanced_accuracy([0, 2], [0, 1], np.eye(2)), InvalidInputError, "`y_noisy`"),
        (lambda: clean_balanced_accuracy([0, 1], [0, 2], np.eye(2)), InvalidInputError, "`y_pred`"),
        (
            lambda: clean_balanced_accuracy([0, 1], [0, 1], np.eye(2), sample_weight=[-1.0, 2.0]),
            InvalidInputError,
            "`sample_weight` must hold 2",
        ),
        (
            lambda: clean_balanced_accuracy([0, 0], [0, 1], NoiseModel.binary(0.2, 0.1)),
            NotIdentifiableError,
            "`noise` and these labels imply a negative clean prior",
        ),
        (
            lambda: clean_balanced_accuracy([0, 1], [0, 1], np.full((2, 2), 0.5)),
            NotIdentifiableError,
            "cannot be inverted",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    """The message names the argument and what came."""
    with pytest.raises(error, match=message):
        call()


def test_huge_weights_are_shares():
    """Weights whose sum overflows count as equal weights of one do."""
    arguments = [0, 0, 1], [0, 1, 1], NoiseModel.binary(0.0, 0.2)
    huge = clean_balanced_accuracy(*arguments, sample_weight=[1e308] * 3)
    assert huge == pytest.approx(clean_balanced_accuracy(*arguments))
