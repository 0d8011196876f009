"""Open text files, plain or gzipped; errors contain the line number."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from peerloss.datasets._size_limits import open_limited
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """Open a text file, plain or gzipped, and turn decoding errors into messages with the line number."""
    try:
        with io.TextIOWrapper(open_limited(path), encoding="utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path}, line {_first_undecodable_line(path)}: not UTF-8 text ({error.reason}). "
            "Save the file as UTF-8; spreadsheets offer this when they export."
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInputError(
            f"{path} is not a complete gzip file: {error}. Download or compress it again."
        ) from error


def text_encoding(path: Path) -> str:
    """Return the encoding with which the text can be written back, with or without a byte order mark."""
    unpack = gzip.open if path.suffix == ".gz" else open
    with unpack(path, "rb") as stream:
        return "utf-8-sig" if stream.read(3) == codecs.BOM_UTF8 else "utf-8"


def _first_undecodable_line(path: Path) -> int:
    with open_limited(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return number
