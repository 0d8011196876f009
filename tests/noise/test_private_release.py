"""Private releases: probabilities are counted by enumerating the random integers, not estimated."""

import inspect
import math
import secrets
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel, private_label_frequencies, release_labels
from peerloss.noise._private_release import (
    MAX_TOTAL,
    _happens,
    discrete_laplace,
    draw_below,
    respond,
    response_weights,
)

EPSILONS = (5e-324, 1e-20, 1e-9, 0.1, 0.5, 1.0, math.log(3), 2.0, 4.0, 31.9, 32.0)
#: Paths with a smaller probability are not followed.
LEAST = 1e-6


def count_responses(keep, flip, n_classes):
    """Return counts[i, j] of the draws that release label j for the true label i."""
    total = keep + (n_classes - 1) * flip
    draws = np.arange(total)
    rows = [respond(np.full(total, i), draws, keep, flip) for i in range(n_classes)]
    return np.array([np.bincount(row, minlength=n_classes) for row in rows])


@pytest.mark.parametrize(("keep", "flip", "n_classes"), [(5, 2, 2), (7, 3, 4), (1, 1, 3), (11, 1, 6)])
def test_each_draw_belongs_to_one_released_label(keep, flip, n_classes):
    """Of all draws, `keep` release the true label and `flip` each other label."""
    expected = np.where(np.eye(n_classes, dtype=bool), keep, flip)
    np.testing.assert_array_equal(count_responses(keep, flip, n_classes), expected)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("n_classes", [2, 3, 10, 1_000_000])
def test_the_realised_epsilon_is_at_most_the_stated_one(epsilon, n_classes):
    """keep/flip ≤ e^ε, compared with 100 digits, and a larger weight would exceed it."""
    keep, flip = response_weights(n_classes, epsilon)
    with localcontext() as context:
        context.prec = 100
        limit = Decimal(epsilon).exp()
        assert keep <= flip * limit
        assert keep == flip or keep + 1 > flip * limit * (1 - Decimal(10) ** -50)
        assert Decimal(epsilon) - (Decimal(keep) / Decimal(flip)).ln() < Decimal(10) ** -12
    assert flip <= keep  # else the ratio the other way round would be the larger one
    assert keep + (n_classes - 1) * flip <= MAX_TOTAL


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_thresholds_of_the_weights_in_use(n_classes):
    """At the full weights the draws on both sides of every threshold release neighbouring labels."""
    keep, flip = response_weights(n_classes, 1.0)
    for true in range(n_classes):
        others = [j for j in range(n_classes) if j != true]
        for position, other in enumerate(others):
            ends = np.array([keep + position * flip, keep + (position + 1) * flip - 1])
            assert respond(np.array([true, true]), ends, keep, flip).tolist() == [other, other]
        assert respond(np.array([true, true]), np.array([0, keep - 1]), keep, flip).tolist() == [true, true]


@pytest.mark.parametrize(("width", "bound"), [(1, 1), (1, 7), (1, 128), (1, 129), (1, 256), (2, 1000)])
def test_every_remainder_is_drawn_equally_often(width, bound):
    """If each possible word is read once, each number below the bound is drawn equally often."""
    words = np.arange(256**width, dtype=f"<u{width}").tobytes()
    accepted = 256**width // bound * bound
    drawn = draw_below(bound, accepted, read=lambda _: words, width=width)
    np.testing.assert_array_equal(np.bincount(drawn), np.full(bound, accepted // bound))


def test_rejected_words_are_replaced():
    """Words in the incomplete last cycle are not used; more are read until there are enough."""
    stream = iter([b"\xfe\x05\xff", b"\xfd\x0a", b"\x09"])  # 254 and 253 are 2 and 1 of the last full cycle
    assert draw_below(3, 3, read=lambda n: next(stream)[:n], width=1).tolist() == [2, 2, 1]


def test_the_bits_come_from_the_operating_system():
    """The default source is os.urandom, and the frequencies use secrets."""
    assert inspect.signature(draw_below).parameters["read"].default.__name__ == "urandom"
    released = [release_labels(np.zeros(200, dtype=int), 1.0, classes=[0, 1])[0].tolist() for _ in range(2)]
    assert released[0] != released[1]


def test_released_labels_have_the_returned_noise():
    """The share of kept labels agrees with T, labels keep the type of the classes, the input is unchanged."""
    labels = np.array(["b", "a", "c"] * 3000)
    before = labels.copy()
    released, noise = release_labels(labels, 1.5, classes=["a", "b", "c", "never seen"])
    np.testing.assert_array_equal(labels, before)
    assert set(released) <= {"a", "b", "c", "never seen"}
    kept = int((released == labels).sum())
    assert binomtest(kept, len(labels), noise.transition[0, 0]).pvalue > 1e-9
    expected = NoiseModel.randomized_response(4, 1.5)
    np.testing.assert_allclose(noise.transition, expected.transition, rtol=1e-14)
    assert noise.epsilon == pytest.approx(1.5, rel=1e-14)


def test_types_and_empty_tables():
    """Booleans, numbers and text are accepted; a table without rows is released as such."""
    for classes in ([False, True], [3, 5], [0.5, 1.5], ["x", "y"]):
        released, _ = release_labels([classes[0]] * 5, 1.0, classes=classes)
        assert released.dtype == np.asarray(classes).dtype
        assert release_labels([], 1.0, classes=classes)[0].shape == (0,)


@pytest.mark.parametrize("stored", [None, math.nan, np.float64("nan"), pd.NA])
@pytest.mark.parametrize("listed", [None, math.nan, pd.NA])
@pytest.mark.parametrize("known", [["a", "b"], [0, 1]])
def test_a_missing_label_is_a_class(stored, listed, known):
    """NaN, None and pandas.NA are one label; it is released as it is written in the classes."""
    labels = [*known, stored] * 20
    released, _ = release_labels(labels, 32.0, classes=[*known, listed])
    assert pd.isna(released).tolist() == [False, False, True] * 20
    assert released[:2].tolist() == known
    frequencies = private_label_frequencies(pd.Series(labels), 32.0, classes=[*known, listed])
    np.testing.assert_allclose(frequencies, 1 / 3)
    with pytest.raises(InvalidInputError, match=r"`classes` must list.*with 3 distinct"):
        release_labels(labels, 1.0, classes=[*known, listed, stored])


def test_labels_of_several_types_keep_them():
    """A number next to text is still a number."""
    released, _ = release_labels([0, "a", 2.5], 32.0, classes=["a", 0, 2.5])
    assert released.tolist() == [0, "a", 2.5]


def test_unknown_labels_are_shown_as_python_values():
    """The message has 2, not np.int64(2)."""
    for labels in (np.array([0, 2]), np.array([0, np.int64(2)], dtype=object)):
        with pytest.raises(InvalidInputError, match="found 2\\. Add it"):
            release_labels(labels, 1.0, classes=[0, 1])


@pytest.mark.parametrize("option", ["random_state", "exact"])
def test_a_release_takes_neither_a_seed_nor_fixed_counts(option):
    """Both would break the guarantee."""
    with pytest.raises(TypeError, match=option):
        release_labels([0, 1], 1.0, classes=[0, 1], **{option: True})


@pytest.mark.parametrize("function", [release_labels, private_label_frequencies])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], 0.0, [0, 1]), "`epsilon` must be above 0 and at most 32; got 0"),
        (([0, 1], -1.0, [0, 1]), "`epsilon` must be above 0.*got -1"),
        (([0, 1], 33, [0, 1]), "`epsilon` must be.*at most 32; got 33"),
        (([0, 1], math.nan, [0, 1]), "`epsilon` must be a finite number; got nan"),
        (([0, 1], math.inf, [0, 1]), "`epsilon`.*got inf.*use the labels as they are"),
        (([0, 1], "1e", [0, 1]), "`epsilon` must be a finite number; got '1e'"),
        (([0, 1], 1.0, [0]), r"`classes` must list at least two labels, each once; got shape \(1,\)"),
        (([0, 1], 1.0, [0, 1, 1]), "`classes` must list.*with 2 distinct"),
        (([0, 1], 1.0, 2), "`classes` must list"),
        (([0, 2], 1.0, [0, 1]), r"`labels` must be among `classes`; found .*2.*Add it"),
        (([0, math.nan], 1.0, [0, 1]), "`labels`.*nan.*missing"),
        (([[0], [1]], 1.0, [0, 1]), "`labels` must be one-dimensional"),
    ],
)
def test_bad_arguments_are_refused(function, arguments, message):
    """Each is named, with what to do."""
    labels, epsilon, classes = arguments
    with pytest.raises(InvalidInputError, match=message):
        function(labels, epsilon, classes=classes)


def test_the_classes_must_be_given():
    """Classes counted from the labels would be data."""
    for function in (release_labels, private_label_frequencies):
        with pytest.raises(TypeError, match="classes"):
            function([0, 1], 1.0)


class UnfinishedPathError(Exception):
    """The path needs a choice that has not been made yet."""


def enumerate_paths(sample):
    """Return the probability of each result of `sample(choose)`, and the total of the paths left out.

    `choose(probabilities)` returns an index; every index is followed.
    """
    found, lost, paths = {}, 0.0, [((), 1.0)]
    while paths:
        path, probability = paths.pop()
        if probability < LEAST:
            lost += probability
            continue
        rest, asked = list(path), []

        def choose(probabilities):
            if rest:
                return rest.pop(0)
            asked.extend(probabilities)
            raise UnfinishedPathError

        try:
            result = sample(choose)
        except UnfinishedPathError:
            paths += [((*path, index), probability * share) for index, share in enumerate(asked)]
        else:
            found[result] = found.get(result, 0.0) + probability
    return found, lost


def uniform(choose):
    """Return `below(n)`, all of whose results are followed."""
    return lambda n: choose([1 / n] * n)


@pytest.mark.parametrize("gamma", [(0, 1), (0, 3), (1, 1), (1, 2), (2, 2), (1, 7), (2, 3)])
def test_the_coin_shows_the_exponential_function(gamma):
    """All random integers are followed: it succeeds with probability e^(−γ)."""
    found, lost = enumerate_paths(lambda choose: _happens(*gamma, uniform(choose)))
    expected = math.exp(-gamma[0] / gamma[1])
    assert lost < 5e-3
    assert found[True] - 1e-12 <= expected <= found[True] + lost + 1e-12


def enumerate_laplace(epsilon, monkeypatch):
    """Return the distribution of the noise, with coins of the probability that the test above verifies."""

    def sample(choose):
        def happens(numerator, denominator, _):
            success = math.exp(-numerator / denominator)
            return bool(choose([1 - success, success]))

        monkeypatch.setattr("peerloss.noise._private_release._happens", happens)
        return discrete_laplace(epsilon, uniform(choose))

    return enumerate_paths(sample)


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(2), Fraction(1, 2), Fraction(3, 2)])
def test_the_noise_of_counts_is_a_discrete_laplace_distribution(epsilon, monkeypatch):
    """All random choices are followed: P(z) = tanh(ε/2) e^(−ε|z|)."""
    found, lost = enumerate_laplace(epsilon, monkeypatch)
    assert lost < 0.02
    assert sum(found.values()) + lost == pytest.approx(1.0)
    for z in range(-4, 5):
        expected = math.tanh(float(epsilon) / 2) * math.exp(-float(epsilon) * abs(z))
        assert found[z] - 1e-12 <= expected <= found[z] + lost + 1e-12


def test_a_wrong_distribution_is_found(monkeypatch):
    """The enumeration distinguishes ε from 1.1 ε."""
    found, lost = enumerate_laplace(Fraction(1), monkeypatch)
    wrong = math.tanh(0.55) * math.exp(-1.1)
    assert not found[1] <= wrong <= found[1] + lost


def test_the_noise_has_its_variance_for_any_float():
    """2e^ε/(e^ε − 1)² at an ε whose fraction has 50 bits."""
    epsilon = 0.7
    noise = np.array([discrete_laplace(Fraction(epsilon), secrets.randbelow) for _ in range(4000)])
    variance = 2 * math.exp(epsilon) / (math.exp(epsilon) - 1) ** 2
    assert abs(noise.mean()) < 6 * math.sqrt(variance / len(noise))
    assert noise.var() == pytest.approx(variance, rel=0.35)


def test_frequencies_follow_the_counts():
    """They sum to one, keep the order of the classes, and are near the true ones if ε·n is large."""
    labels = ["b"] * 6000 + ["a"] * 4000
    frequencies = private_label_frequencies(labels, 1.0, classes=["a", "b", "c"])
    assert frequencies.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(frequencies, [0.4, 0.6, 0.0], atol=0.01)


def test_frequencies_of_few_rows_are_probabilities(monkeypatch):
    """Negative counts become 0; without positive counts all classes are equally frequent."""
    noise = iter([-3, 5, -9, -1, -1, -1])
    monkeypatch.setattr("peerloss.noise._private_release.discrete_laplace", lambda *_: next(noise))
    assert private_label_frequencies([0], 1.0, classes=[0, 1, 2]).tolist() == [0.0, 1.0, 0.0]
    assert private_label_frequencies([0], 1.0, classes=[0, 1, 2]).tolist() == [1 / 3] * 3


def test_the_guarantee_of_frequencies_by_enumeration():
    """Removing a row changes the probability of every pair of noisy counts at most by e^ε."""
    epsilon, span = 0.5, np.arange(-40, 41)
    law = math.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(span))
    for counts, neighbour in (((3, 2), (2, 2)), ((3, 2), (3, 1)), ((0, 5), (1, 5))):
        results = np.array([(a, b) for a in range(-5, 10) for b in range(-5, 10)])

        def probability(true, results=results):
            return np.prod([law[results[:, c] - true[c] + 40] for c in range(2)], axis=0)

        ratio = np.log(probability(counts) / probability(neighbour))
        assert np.abs(ratio).max() <= epsilon + 1e-12
