"""Randomness is an argument: this turns what callers pass into a NumPy generator."""

from __future__ import annotations

import numpy as np

from peerloss.exceptions import InvalidInputError

RandomState = int | np.integer | np.random.Generator | np.random.RandomState | None


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a ``numpy.random.Generator`` for a seed, a generator, a legacy state or ``None``.

    A legacy ``RandomState`` (what scikit-learn hands around) is advanced by one draw to seed the new
    generator, so two calls with the same object differ and a re-seeded object repeats.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, dtype=np.int64))
    if random_state is None or (isinstance(random_state, int | np.integer) and random_state >= 0):
        return np.random.default_rng(random_state)
    raise InvalidInputError(
        f"`random_state` must be a non-negative integer, a numpy Generator or RandomState, or None; "
        f"got {random_state!r}. Pass an integer such as 0 for a repeatable result."
    )
