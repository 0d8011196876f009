"""Files that are shown as pictures, and small pictures inside a page.

With Pillow, a picture is reduced to a few kilobytes. Without it, only small files are shown, as they are.
"""

from __future__ import annotations

import base64
import io
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Endings of files that are shown as pictures, and their media types. SVG is not one: it may contain scripts.
PICTURE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".bmp": "image/bmp",
    ".webp": "image/webp",
}
#: First bytes of such files: (bytes, then bytes at a later place, and this place).
SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", b"", 0),
    (b"\xff\xd8\xff", b"", 0),
    (b"GIF87a", b"", 0),
    (b"GIF89a", b"", 0),
    (b"BM", b"\0\0\0\0", 6),
    (b"RIFF", b"WEBP", 8),
)
#: How many first bytes :func:`is_picture` needs.
N_FIRST = 12
#: Largest picture that is read, in bytes.
MAX_PICTURE = 50_000_000
#: Largest number of pixels that are decoded, as in ``peerloss.datasets.read_image``.
MAX_PIXELS = 2**26
#: Files up to this size are embedded as they are.
MAX_BYTES = 20_000
#: Longest side of a reduced picture, in pixels.
SIDE = 160


def is_picture(first: bytes) -> bool:
    """Return whether the first bytes of a file are those of PNG, JPEG, GIF, BMP or WebP, whatever its name.

    >>> is_picture(b"GIF89a"), is_picture(b"root:x:0:0:")
    (True, False)
    """
    return any(
        first.startswith(start) and first.startswith(later, place) for start, later, place in SIGNATURES
    )


def small_picture(path: Path) -> str:
    """Return a data URI of the picture, or an empty text if it is missing, damaged or too large."""
    kind = PICTURE_TYPES.get(path.suffix.lower())
    try:
        if kind is None or not path.is_file() or path.stat().st_size > MAX_PICTURE:
            return ""
        if path.stat().st_size <= MAX_BYTES:
            content = path.read_bytes()
            return _data_uri(content, kind) if is_picture(content) else ""
    except (OSError, ValueError):  # ValueError: a null character in the name
        return ""
    return _reduced(path)


def _reduced(path: Path) -> str:
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about metadata, and about sizes, checked below
            opened = Image.open(path, formats=["PNG", "JPEG", "GIF", "BMP", "WEBP"])
        with opened as picture:
            if picture.width * picture.height > MAX_PIXELS:
                return ""
            picture.draft("RGB", (SIDE, SIDE))
            small = picture.convert("RGB")
        small.thumbnail((SIDE, SIDE))
        content = io.BytesIO()
        small.save(content, "JPEG", quality=80)
    except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError):
        return ""
    return _data_uri(content.getvalue(), "image/jpeg")


def _data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
