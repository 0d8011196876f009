"""Seeds, generators and legacy states as ``random_state``."""

import numpy as np
import pytest

from peerloss._random import as_generator
from peerloss.exceptions import InvalidInputError


def draw(state):
    """Return numbers from the generator of a state."""
    return as_generator(state).random(4).tolist()


@pytest.mark.parametrize("seed", [0, 7, 2**40, np.int64(3)])
def test_a_seed_repeats(seed):
    """A seed always gives NumPy's generator of that seed."""
    assert draw(seed) == draw(seed) == np.random.default_rng(int(seed)).random(4).tolist()


def test_streams_of_a_seed_are_independent():
    """A named stream repeats, and differs from other streams and from NumPy's generator of the seed."""
    found = [as_generator(0, stream=name).random(4).tolist() for name in ("a", "a", "b", None)]
    assert found[0] == found[1]
    assert len({tuple(numbers) for numbers in found}) == 3
    assert found[3] == np.random.default_rng(0).random(4).tolist()


def test_streams_do_not_change_generators_and_legacy_states():
    """Only seeds depend on the stream."""
    rng = np.random.default_rng(0)
    assert as_generator(rng, stream="a") is rng
    named = as_generator(np.random.RandomState(5), stream="a").random(4).tolist()
    assert named == draw(np.random.RandomState(5))


def test_a_generator_is_used_directly():
    """A generator is returned, so that draws advance it."""
    rng = np.random.default_rng(0)
    assert as_generator(rng) is rng


def test_a_legacy_state_advances_and_repeats():
    """Two calls with one RandomState differ; a re-seeded one repeats."""
    state = np.random.RandomState(5)
    first, second = draw(state), draw(state)
    assert first != second
    again = np.random.RandomState(5)
    assert [draw(again), draw(again)] == [first, second]


def test_none_is_random_and_the_global_state_is_unchanged():
    """Without a seed draws differ; NumPy's global generator is never used."""
    before = np.random.get_state()[1].tolist()  # noqa: NPY002 - to see that it is unchanged
    assert draw(None) != draw(None)
    draw(0)
    draw(np.random.RandomState(0))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002 - as above


@pytest.mark.parametrize("state", [-1, 1.5, "0", [0]])
def test_anything_else_is_refused(state):
    """Negative, fractional and other states are refused."""
    with pytest.raises(InvalidInputError, match="`random_state` must be a non-negative integer"):
        as_generator(state)
