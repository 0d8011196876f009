"""Decode an image file with Pillow, within limits: the file may be damaged, or made to use much memory."""

from __future__ import annotations

import stat
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._installing import import_extra
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Formats that are decoded. Others run programs (EPS) or are rarely tested against damaged files.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
#: Endings of the names of images that are looked for in a folder.
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")
#: Largest number of pixels. A few bytes of a compressed file can declare any number of equal pixels.
MAX_PIXELS = 2**26
#: Largest file in bytes.
MAX_BYTES = 2**29


def read_image(path: str | Path) -> NDArray[np.uint8]:
    """Read an image as 8-bit RGB, upright, with transparent parts on white.

    PNG, JPEG, WebP, GIF, BMP, TIFF and PPM files are read; of several frames, the first. Gray values with
    more than 8 bits are scaled so that the darkest value of the image is 0 and the brightest 255.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    NDArray
        Shape (height, width, 3).

    Raises
    ------
    InvalidInputError
        If the file is not a complete image, or has more than 67 million pixels or 512 MiB.
    """
    found = decode_image(Path(path))
    if isinstance(found, str):
        raise InvalidInputError(f"{path} {found}. Replace or remove the file.")
    return found


def decode_image(path: Path) -> NDArray[np.uint8] | str:
    """Return the pixels as :func:`read_image` does, or the reason why the file cannot be used."""
    pillow = import_pillow()
    try:
        return _why_not_opened(path) or _decode(path, pillow)
    except FileNotFoundError:
        return "does not exist"
    except pillow.DecompressionBombError:
        return f"has more than {MAX_PIXELS:,} pixels"
    except pillow.UnidentifiedImageError:
        return f"is not an image in one of the formats {', '.join(FORMATS)}"
    except Exception as error:  # noqa: BLE001 - Pillow raises errors of many types for damaged files
        return f"is not a complete image ({getattr(error, 'strerror', None) or error})"


def _why_not_opened(path: Path) -> str:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
        return "is not a regular file"
    if status.st_size > MAX_BYTES:
        return f"has more than {MAX_BYTES // 2**20} MiB"
    return "" if status.st_size else "is empty"


def _decode(path: Path, pillow: Any) -> NDArray[np.uint8] | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about metadata, and about sizes, checked below
        with path.open("rb") as stream, pillow.open(stream, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                return f"has {image.width} × {image.height} pixels, more than {MAX_PIXELS:,}"
            return _as_rgb(image)


def import_pillow() -> Any:
    """Return the module ``PIL.Image``."""
    return import_extra("PIL.Image", "images", "Images")


def _as_rgb(image: Any) -> NDArray[np.uint8]:
    image = import_module("PIL.ImageOps").exif_transpose(image)
    if image.mode in {"I", "F"} or image.mode.startswith("I;"):
        values = np.asarray(image, dtype=np.float64)
        low, high = np.nanmin(values), np.nanmax(values)
        scaled = np.nan_to_num((values - low) / max(high - low, 1e-12), posinf=1.0, neginf=0.0)
        return np.repeat((255 * scaled).round().astype(np.uint8)[:, :, None], 3, axis=2)
    if image.mode in {"RGBA", "LA", "PA"} or "transparency" in image.info:
        white = import_pillow().new("RGBA", image.size, "white")
        image = import_pillow().alpha_composite(white, image.convert("RGBA"))
    return np.asarray(image.convert("RGB"))
