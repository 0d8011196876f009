"""Add noise to labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss.noise._instance import InstanceNoise
from peerloss.noise._model import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._random import RandomState
    from peerloss._validation import IntArray


def flip_labels(
    y: ArrayLike,
    noise: NoiseModel | InstanceNoise | ArrayLike,
    *,
    exact: bool = False,
    random_state: RandomState = None,
) -> IntArray:
    """Return a noisy copy of the labels ``y``; the caller's array is not modified.

    Parameters
    ----------
    y
        Clean class codes 0..K-1, shape (n,).
    noise
        A :class:`NoiseModel`, a transition matrix, or an :class:`InstanceNoise` created for these rows.
    exact
        ``False`` flips each row independently. ``True`` flips fixed numbers, ``floor(n_i · T[i, j])`` rows
        of class i to class j, as the paper's code does: the noise rates are then the same in each draw.
    random_state
        Seed, generator or ``None``. A seed has its own random stream here, so labels drawn from
        ``default_rng(seed)`` can be flipped with the same seed. A generator is used as it is.

    Returns
    -------
    Integer labels, shape (n,).

    Examples
    --------
    >>> noisy = flip_labels([0] * 10 + [1] * 10, NoiseModel.binary(0.2, 0.4), exact=True, random_state=0)
    >>> int(noisy[:10].sum()), int(noisy[10:].sum())
    (2, 6)
    """
    model = noise if isinstance(noise, InstanceNoise) else as_noise_model(noise)
    return model.apply(y, random_state=random_state, exact=exact)
