"""Scale and crop images with Pillow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peerloss._installing import import_extra

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Pillow's numbers of its filters, as files of Hugging Face contain them.
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def resize(
    pixels: NDArray[np.uint8],
    size: tuple[int, int],
    *,
    short_side: int | None = None,
    resample: int = FILTERS["bilinear"],
) -> NDArray[np.uint8]:
    """Return an image in another height and width.

    With ``short_side``, proportions are kept: the shorter side is scaled to it, and the centre is cut out.
    Otherwise the entire image is stretched.
    """
    pillow = import_extra("PIL.Image", "images", "Images")
    height, width = pixels.shape[:2]
    top = left = 0.0
    if short_side is not None:
        scale = max(short_side / min(height, width), size[0] / height, size[1] / width)
        top, left = (height - size[0] / scale) / 2, (width - size[1] / scale) / 2
        top, left = max(top, 0.0), max(left, 0.0)
    # Cutting out and scaling in one step: scaling all of a long, thin image first could use any memory.
    box = (left, top, width - left, height - top)
    return np.asarray(pillow.fromarray(pixels).resize((size[1], size[0]), resample, box=box))
