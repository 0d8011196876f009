"""Convert ``random_state`` arguments to NumPy generators."""

from __future__ import annotations

import zlib

import numpy as np

from peerloss.exceptions import InvalidInputError

RandomState = int | np.integer | np.random.Generator | np.random.RandomState | None

#: Stream of everything that makes labels noisy.
NOISE_STREAM = "peerloss.noise"


def as_generator(random_state: RandomState, *, stream: str | None = None) -> np.random.Generator:
    """Return a ``numpy.random.Generator`` for a seed, a generator, a legacy state or ``None``.

    A legacy ``RandomState``, as scikit-learn uses, is advanced by one draw, which seeds the new generator.
    Two calls with the same object therefore differ, and a re-seeded object repeats.

    A ``stream`` names an independent stream of a seed. Without it a seed gives ``default_rng(seed)``, with
    which a caller may have generated the data; the numbers would then not be independent of the data.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31, dtype=np.int64))
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        spawn_key = () if stream is None else (zlib.crc32(stream.encode()),)
        return np.random.default_rng(np.random.SeedSequence(int(random_state), spawn_key=spawn_key))
    raise InvalidInputError(
        f"`random_state` must be a non-negative integer, a numpy Generator or RandomState, or None; "
        f"got {random_state!r}. Pass an integer such as 0 for a repeatable result."
    )
