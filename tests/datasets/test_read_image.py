"""Image files: formats, modes, and files that are damaged or made to use much memory."""

import os
import struct
import zlib

import numpy as np
import pytest

from peerloss.datasets import _read_image, read_image
from peerloss.exceptions import InvalidInputError

pytest.importorskip("PIL", reason="needs Pillow")
from PIL import Image


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "tif", "webp", "ppm"])
def test_every_format_gives_the_same_shape(tmp_path, suffix):
    """Height and width are not swapped, and there are three channels of bytes."""
    Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / f"image.{suffix}")
    pixels = read_image(tmp_path / f"image.{suffix}")
    assert pixels.shape == (4, 6, 3)
    assert pixels.dtype == np.uint8
    assert pixels[..., 0].min() > 240
    assert pixels[..., 1:].max() < 20


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "I", "F"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    """Gray, palette, transparent, 16-bit and floating-point images are read."""
    image = Image.new("L", (4, 4), 0)
    image.putpixel((0, 0), 255)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 16)
    elif mode != "L":
        image = image.convert(mode)
    image.save(tmp_path / "image.tif")
    pixels = read_image(tmp_path / "image.tif")
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[2, 2].tolist() == [0, 0, 0]


def test_transparent_parts_are_white(tmp_path):
    """The colour below full transparency is arbitrary, and not shown."""
    Image.new("RGBA", (4, 4), (10, 20, 30, 0)).save(tmp_path / "image.png")
    assert (read_image(tmp_path / "image.png") == 255).all()


def test_images_are_turned_as_their_camera_says(tmp_path):
    """The orientation in the metadata is applied, as viewers do."""
    image = Image.new("RGB", (6, 4))
    exif = image.getexif()
    exif[0x0112] = 6  # turned by 90 degrees
    image.save(tmp_path / "image.jpg", exif=exif)
    assert read_image(tmp_path / "image.jpg").shape == (6, 4, 3)


def bomb(path, side):
    """Write a PNG of a few hundred bytes that declares side × side pixels."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 9))
        + chunk(b"IEND", b"")
    )


def truncated(path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (truncated, "is not a complete image"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_text("<svg/>"), "is not an image in one of the formats PNG"),
        (lambda path: path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "formats PNG"),
        (lambda path: bomb(path, 9000), "has 9000 × 9000 pixels, more than 67,108,864"),
        (lambda path: bomb(path, 60_000), "has more than 67,108,864 pixels"),
        (lambda path: path.mkdir(), "is not a regular file"),
        (os.mkfifo, "is not a regular file"),
        (lambda _path: None, "does not exist"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(tmp_path, write, reason):
    """Damaged, empty and huge files, other formats, pipes and missing files; none is waited for."""
    path = tmp_path / "image.png"
    write(path)
    with pytest.raises(InvalidInputError, match=reason):
        read_image(path)


def test_large_files_are_refused(tmp_path, monkeypatch):
    """A file may have only so many bytes."""
    monkeypatch.setattr(_read_image, "MAX_BYTES", 2**20)
    (tmp_path / "image.png").write_bytes(b"\0" * (2**20 + 1))
    with pytest.raises(InvalidInputError, match="has more than 1 MiB"):
        read_image(tmp_path / "image.png")


def test_without_pillow_the_message_says_what_to_install(tmp_path, monkeypatch):
    """Pillow belongs to an extra."""
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(InvalidInputError, match=r'pip install "pillow'):
        read_image(tmp_path / "image.png")
