"""The names of the noise in experiments on images: synthetic noise with its rate, or human labels."""

from __future__ import annotations

import math
from typing import NamedTuple

from peerloss.datasets.cifar10 import CIFAR10
from peerloss.datasets.cifar100 import CIFAR100
from peerloss.exceptions import InvalidInputError

#: Name of the images of an experiment → their files.
IMAGES = {"cifar10": CIFAR10, "cifar100": CIFAR100}
#: Kind of synthetic noise → an example of its name. The numbers are those of :class:`NoiseName`.
SYNTHETIC = {
    "uniform": "uniform:0.4",
    "asymmetric": "asymmetric:0.4",
    "instance": "instance:0.4",
    "long_tail": "long_tail:10:0.2",
}


class NoiseName(NamedTuple):
    """A name such as ``long_tail:10:0.2``, in parts."""

    kind: str
    """A key of :data:`SYNTHETIC`, or the whole name of a set of human labels."""
    rate: float = 0.0
    """Probability of a wrong label; on average for noise that depends on the image."""
    imbalance: float = 1.0
    """Size of the largest training class divided by that of the smallest."""


def parse_noise(noise: str, images: str | None = None) -> NoiseName:
    """Return the parts of the name of a noise.

    Parameters
    ----------
    noise
        The name.
    images
        A key of :data:`IMAGES`, whose human labels are accepted; ``None`` accepts those of all.

    Raises
    ------
    InvalidInputError
        If it is neither a kind of synthetic noise with its numbers nor a set of human labels.
    """
    known = [name for key, files in IMAGES.items() if images in (key, None) for name in files.human_labels]
    if noise in known:
        return NoiseName(noise)
    kind, *numbers = noise.split(":")
    try:
        *others, rate = (float(number) for number in numbers)
        imbalance = others[0] if others else 1.0
    except ValueError:
        rate = imbalance = math.nan
    usable = kind in SYNTHETIC and len(numbers) == SYNTHETIC[kind].count(":")
    if not (usable and 0.0 <= rate < 1.0 and 1.0 <= imbalance < math.inf):
        raise InvalidInputError(
            "`noise` must be uniform:RATE, asymmetric:RATE, instance:RATE or long_tail:IMBALANCE:RATE, such "
            f"as {', '.join(SYNTHETIC.values())}, or human labels: {', '.join(known)}; got {noise!r}. Rates "
            "are below 1, and an imbalance is at least 1."
        )
    return NoiseName(kind, rate, imbalance)
