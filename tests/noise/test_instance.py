import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError
from peerloss.noise import InstanceNoise

FEW = settings(deadline=None, max_examples=40)


def assert_stochastic(noise):
    """Rows are probabilities."""
    assert (noise.probabilities >= 0).all()
    np.testing.assert_allclose(noise.probabilities.sum(axis=1), 1.0, atol=1e-12)


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 1), st.floats(-50, 50)), min_size=1, max_size=40),
    st.floats(0, 0.5),
    st.floats(0.1, 10),
)
def test_margins_meet_the_mean_exactly(rows, rate, temperature):
    """The mean flip rate is the requested one, no rate exceeds ½, and rows are stochastic."""
    labels, margins = (np.array(column) for column in zip(*rows, strict=True))
    noise = InstanceNoise.from_margins(labels, margins, rate=rate, temperature=temperature)
    assert_stochastic(noise)
    assert noise.flip_rates.mean() == pytest.approx(rate, abs=1e-9)
    assert noise.flip_rates.max() <= 0.5 + 1e-12


@FEW
@given(st.lists(st.floats(-8, 8), min_size=2, max_size=40), st.floats(0.01, 0.45))
def test_rows_nearer_the_boundary_flip_more(margins, rate):
    """The flip rate never rises with the distance from the boundary."""
    labels = (np.array(margins) > 0).astype(int)
    noise = InstanceNoise.from_margins(labels, margins, rate=rate)
    by_distance = noise.flip_rates[np.argsort(np.abs(margins))]
    assert (np.diff(by_distance) <= 1e-12).all()


def test_several_classes_flip_to_the_nearest():
    """With scores of K classes all of the flip probability goes to the best other class."""
    scores = np.array([[5.0, 4.0, 0.0], [0.0, 1.0, 3.0], [2.0, 2.5, 2.4]])
    noise = InstanceNoise.from_margins([0, 2, 1], scores, rate=0.2)
    assert_stochastic(noise)
    assert noise.n_classes == 3
    flips = noise.flip_rates
    np.testing.assert_allclose(noise.probabilities[[0, 1, 2], [1, 1, 2]], flips)
    # Margins 1, 2 and 0.1: rates fall as exp(−margin) below the cap of ½.
    assert flips[0] / flips[1] == pytest.approx(np.e)
    assert flips[2] > flips[0]


@FEW
@given(st.integers(2, 5), st.floats(0, 1), st.floats(0, 0.3), st.integers(0, 99))
def test_features_give_stochastic_rows(k, rate, spread, seed):
    """Rows are stochastic, the same seed gives the same noise, and without spread every rate is the mean."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(30, 4)), rng.integers(k, size=30)
    one, two = (
        InstanceNoise.from_features(X, y, rate=rate, n_classes=k, spread=spread, random_state=seed)
        for _ in "ab"
    )
    assert_stochastic(one)
    assert one.n_classes == k
    np.testing.assert_array_equal(one.probabilities, two.probabilities)
    even = InstanceNoise.from_features(X, y, rate=rate, n_classes=k, spread=0.0, random_state=seed)
    np.testing.assert_allclose(even.flip_rates, rate, atol=1e-12)


def test_features_mean_rate_and_similar_rows():
    """Far from 0 and 1 the mean rate is the requested one; equal rows of a class flip to the same classes."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 5)), rng.integers(3, size=4000)
    X[1], y[1] = X[0], y[0]
    noise = InstanceNoise.from_features(X, y, rate=0.4, spread=0.05, random_state=1)
    assert noise.flip_rates.mean() == pytest.approx(0.4, abs=5 * 0.05 / np.sqrt(4000))
    others = np.arange(3) != y[0]
    shares = noise.probabilities[:2, others] / noise.flip_rates[:2, None]
    np.testing.assert_allclose(shares[0], shares[1])


def test_constant_features_are_allowed():
    """A column without variance is accepted."""
    noise = InstanceNoise.from_features(np.ones((4, 2)), [0, 1, 0, 1], rate=0.3, random_state=0)
    assert_stochastic(noise)


def test_arrays_are_its_own():
    """Changing the caller's arrays does not change the noise, and its own arrays are read-only."""
    table, labels = np.array([[0.8, 0.2], [0.1, 0.9]]), np.array([0, 1])
    noise = InstanceNoise(table, labels)
    table[:] = 0.5
    labels[:] = 0
    np.testing.assert_allclose(noise.flip_rates, [0.2, 0.1])
    with pytest.raises(ValueError, match="read-only"):
        noise.probabilities[0] = 0.5


def test_apply_needs_the_same_labels():
    """Noise applies only to the rows it was created for; the same seed gives the same labels."""
    noise = InstanceNoise.from_margins([0, 1] * 50, np.tile([-1.0, 1.0], 50), rate=0.3)
    one, two = (noise.apply([0, 1] * 50, random_state=4) for _ in "ab")
    np.testing.assert_array_equal(one, two)
    with pytest.raises(InvalidInputError, match="`y` must be the labels"):
        noise.apply([1, 0] * 50)


GOOD = [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: InstanceNoise([[0.5, 0.6]], [0]), "`probabilities`.*sum to 1"),
        (lambda: InstanceNoise([[1.5, -0.5]], [0]), "`probabilities`.*minimum -0.5"),
        (lambda: InstanceNoise([0.5, 0.5], [0]), "`probabilities` must have 2 dimension"),
        (lambda: InstanceNoise(GOOD, [2]), "`labels`.*found 2"),
        (lambda: InstanceNoise(GOOD, [0, 1]), "`probabilities` has 1, `labels` has 2"),
        (lambda: InstanceNoise(GOOD, [0]).apply([0], exact=True), "`exact=True`"),
        (lambda: InstanceNoise(GOOD, [0]).label_probabilities([1]), "`y` must be the labels"),
        (lambda: InstanceNoise.from_features([[1.0]], [0, 1], rate=0.1), "`X` has 1, `y` has 2"),
        (lambda: InstanceNoise.from_features([1.0], [0], rate=0.1), "`X` must have 2 dimension"),
        (lambda: InstanceNoise.from_features([[1.0]], [0], rate=1.1), "`rate`"),
        (lambda: InstanceNoise.from_features([[1.0]], [0], rate=0.1, spread=-1), "`spread`"),
        (lambda: InstanceNoise.from_features([[1.0]], [3], rate=0.1, n_classes=2), "`y`.*found 3"),
        (lambda: InstanceNoise.from_features([[1.0]], [0], rate=0.1, n_classes="3"), "`n_classes`.*'3'"),
        (lambda: InstanceNoise.from_features([[1.0]], [0], rate=0.1, random_state=1.5), "`random_state`"),
        (lambda: InstanceNoise.from_margins([0], [1.0], rate=0.6), "`rate`.*0.6"),
        (lambda: InstanceNoise.from_margins([0], [1.0], rate=0.1, temperature=0), "`temperature`"),
        (lambda: InstanceNoise.from_margins([0], [1.0, 2.0], rate=0.1), "`y` has 1, `margins` has 2"),
        (lambda: InstanceNoise.from_margins([0], [np.inf], rate=0.1), "`margins` must be finite"),
        (
            lambda: InstanceNoise.from_margins([0], [[1.0]], rate=0.1),
            "`margins` must have one column per class",
        ),
        (lambda: InstanceNoise.from_margins([2], [1.0], rate=0.1), "`y`.*found 2"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    """Each argument is refused by name."""
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_features_as_they_are_follow_the_formula():
    """The softmax of the products of a row and the map of its class, over the other classes."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(9, size=(60, 5)).astype(float), rng.integers(4, size=60)
    noise = InstanceNoise.from_features(
        X, y, rate=0.3, n_classes=4, standardise=False, random_state=np.random.default_rng(7)
    )
    maps = np.random.default_rng(7).normal(size=(4, 5, 4))
    for row, label, shares in zip(X, y, noise.probabilities, strict=True):
        others = [k for k in range(4) if k != label]
        weights = np.array([np.exp(row @ maps[label][:, k]) for k in others])
        np.testing.assert_allclose(shares[others], (1.0 - shares[label]) * weights / weights.sum(), atol=1e-9)


def test_standardise_is_true_or_false():
    """The message names the argument."""
    with pytest.raises(InvalidInputError, match="`standardise` must be True or False; got 'no'"):
        InstanceNoise.from_features([[1.0]], [0], rate=0.1, standardise="no")
