import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError
from peerloss.noise import InstanceNoise, NoiseModel, flip_labels

FEW = settings(deadline=None, max_examples=40)
NOISE = NoiseModel.binary(0.2, 0.4)


@FEW
@given(st.lists(st.integers(0, 1), min_size=1, max_size=50), st.booleans(), st.integers(0, 2**31))
def test_same_seed_same_labels(labels, exact, seed):
    """Equal seeds, generators and legacy states give equal labels; the caller's array is not modified."""
    clean = np.array(labels)
    before = clean.copy()
    makers = [lambda: seed, lambda: np.random.default_rng(seed), lambda: np.random.RandomState(seed)]
    for make in makers:
        one, two = (flip_labels(clean, NOISE, exact=exact, random_state=make()) for _ in range(2))
        np.testing.assert_array_equal(one, two)
        assert one.dtype == np.int64
        assert one.shape == clean.shape
    np.testing.assert_array_equal(clean, before)


def test_a_generator_moves_on():
    """Two draws from one generator, or one legacy state, differ."""
    clean = np.zeros(200, dtype=int)
    for state in (np.random.default_rng(0), np.random.RandomState(0)):
        one, two = (flip_labels(clean, NOISE, random_state=state) for _ in range(2))
        assert (one != two).any()


def test_none_is_fresh():
    """Without a seed two draws differ."""
    clean = np.zeros(500, dtype=int)
    assert (flip_labels(clean, NOISE) != flip_labels(clean, NOISE)).any()


def test_model_matrix_and_method_agree():
    """A model, its matrix and its apply give the same labels for a seed."""
    clean = np.tile([0, 1], 50)
    expected = NOISE.apply(clean, random_state=1)
    np.testing.assert_array_equal(flip_labels(clean, NOISE, random_state=1), expected)
    np.testing.assert_array_equal(flip_labels(clean, NOISE.transition.tolist(), random_state=1), expected)


def test_no_noise_changes_nothing():
    """The identity keeps all labels; complete noise flips every one."""
    clean = np.tile([0, 1], 20)
    for exact in (False, True):
        np.testing.assert_array_equal(flip_labels(clean, np.eye(2), exact=exact), clean)
        np.testing.assert_array_equal(flip_labels(clean, NoiseModel.binary(1, 1), exact=exact), 1 - clean)


def test_instance_noise_is_applied_row_by_row():
    """Rows with flip rate 1 flip, rows with flip rate 0 do not."""
    noise = InstanceNoise([[0.0, 1.0], [1.0, 0.0]], [0, 0])
    assert flip_labels([0, 0], noise, random_state=0).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flip_labels([0, 1], 0.2), "`noise` must be a NoiseModel or a transition matrix"),
        (lambda: flip_labels([0, 5], NOISE), "`y`.*found 5"),
        (lambda: flip_labels([], NOISE), "`y` is empty"),
        (lambda: flip_labels([[0]], NOISE), "`y` must be one-dimensional"),
        (lambda: flip_labels(["a"], NOISE), "`y` must hold integer class codes"),
        (lambda: flip_labels([0], InstanceNoise([[1, 0]], [0]), exact=True), "`exact=True`"),
        (lambda: flip_labels([1], InstanceNoise([[1, 0]], [0])), "`y` must be the labels this InstanceNoise"),
        (lambda: flip_labels([0], NOISE, random_state=-3), "`random_state`.*-3"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    """Each argument is refused by name."""
    with pytest.raises(InvalidInputError, match=message):
        call()


MAKERS = {
    "uniform": lambda rng, n: rng.random(n) < 0.5,
    "reversed": lambda rng, n: rng.random(n) > 0.5,
    "rare": lambda rng, n: rng.random(n) < 0.2,
    "normal": lambda rng, n: rng.normal(size=n) > 0,
    "integers": lambda rng, n: rng.integers(2, size=n),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", ["class-conditional", "instance", "margins"])
def test_the_seed_of_the_labels_may_be_the_seed_of_the_flips(make, seed, kind):
    """Labels from ``default_rng(seed)``, flipped with the same seed, flip at the stated rate."""
    n = 4000
    y = make(np.random.default_rng(seed), n).astype(int)
    noise = {
        "class-conditional": NoiseModel.binary(0.2, 0.2),
        "instance": InstanceNoise(np.where(np.eye(2)[y] == 1, 0.8, 0.2), y),
        "margins": InstanceNoise.from_margins(y, np.where(y, 1.0, -1.0), rate=0.2),
    }[kind]
    flipped = flip_labels(y, noise, random_state=seed) != y
    for rows in (y == 0, y == 1):
        error = np.sqrt(0.2 * 0.8 / rows.sum())
        assert abs(flipped[rows].mean() - 0.2) < 4 * error


def test_noise_maps_are_independent_of_features_made_with_the_same_seed():
    """``from_features`` does not reuse the numbers that the features were drawn from.

    With two classes the linear maps do not matter, so the flip rates show it: they follow a normal draw that
    would be the first column itself.
    """
    n = 2000
    rng = np.random.default_rng(0)
    rng.normal(size=(2, 1, 2))  # as many numbers as the maps would take
    X = rng.normal(size=(n, 1))
    y = np.zeros(n, dtype=int)
    noise = InstanceNoise.from_features(X, y, rate=0.3, n_classes=2, random_state=0)
    assert abs(np.corrcoef(noise.flip_rates, X[:, 0])[0, 1]) < 4 / np.sqrt(n)


def test_a_generator_is_used_as_it_is():
    """The same numbers as before streams: published labels stay reproducible with a generator."""
    y = np.arange(50) % 2
    u = np.random.default_rng(7).random(50)
    expected = np.where(y == 0, u >= 0.9, u >= 0.3).astype(int)
    noisy = flip_labels(y, NoiseModel.binary(0.1, 0.3), random_state=np.random.default_rng(7))
    assert noisy.tolist() == expected.tolist()
