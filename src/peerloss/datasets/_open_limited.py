"""Open text, archives and arrays without letting a small file use much memory.

A compressed file may unpack to a thousand times its size, and the header of an array may declare any shape.
Both are checked before memory is allocated.
"""

from __future__ import annotations

import codecs
import gzip
import io
import math
import zipfile
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from peerloss._unpacking import check_unpacked_size
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

#: Every compressed file may unpack to this many bytes.
FREE_BYTES = 2**28
#: Largest ratio of unpacked to packed size of larger files. Tables reach 20, one repeated byte reaches 1000.
MAX_RATIO = 200
#: Largest number of bytes in one line of text.
MAX_LINE = 2**26
_BUFFER = 2**18
#: Bytes from which an encoding is guessed.
_SAMPLE = 2**20


def check_unpacked(
    path: Path, size: int, *, advice: str = "If you trust it, unpack it and pass the unpacked file."
) -> None:
    """Refuse ``path`` if ``size``, its unpacked size in bytes, is far too large for a packed file."""
    check_unpacked_size(
        size,
        path.stat().st_size,
        str(path),
        free_bytes=FREE_BYTES,
        max_ratio=MAX_RATIO,
        advice=advice,
    )


def open_limited(path: Path, content: bytes | None = None) -> IO[bytes]:
    """Open a file, gzipped if its name ends in .gz; reading fails before it uses too much memory.

    ``content`` is the content of the file, if it has been read already.
    """
    packed = path.open("rb") if content is None else io.BytesIO(content)
    stream = gzip.GzipFile(fileobj=packed) if path.suffix.lower() == ".gz" else packed
    return io.BufferedReader(_Limited(cast("IO[bytes]", stream), packed, path), _BUFFER)


class _Limited(io.RawIOBase):
    """Counts the bytes of the file and of the current line."""

    def __init__(self, stream: IO[bytes], packed: IO[bytes], path: Path) -> None:
        self._stream, self._packed, self._path = stream, packed, path
        self._total = self._line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._total += len(content)
        if self._stream is not self._packed:
            check_unpacked(self._path, self._total)
        end = max(content.rfind(b"\n"), content.rfind(b"\r"))
        self._line = len(content) - end - 1 + (self._line if end < 0 else 0)
        if self._line > MAX_LINE:
            raise InvalidInputError(
                f"{self._path} has a line of more than {MAX_LINE // 2**20} MiB, so it is not a table. Check "
                "that the file is complete and that each row is on its own line."
            )
        return len(content)

    def close(self) -> None:
        self._stream.close()
        self._packed.close()  # gzip does not close the file that it reads
        super().close()


@contextmanager
def open_text(path: Path, encoding: str | None = None) -> Iterator[IO[str]]:
    """Open a text file, plain or gzipped, in UTF-8 if ``encoding`` is ``None``.

    A decoding error contains the line number.
    """
    try:
        with (
            _complete_gzip(path),
            io.TextIOWrapper(open_limited(path), encoding=decoding(encoding), newline="") as stream,
        ):
            yield stream
    except UnicodeError as error:  # UTF-16 without a byte order mark is not a UnicodeDecodeError
        if isinstance(error, UnicodeEncodeError):  # of the caller, who writes
            raise
        reason = getattr(error, "reason", error)
        line = f", line {_first_undecodable_line(path)}" if is_utf8(encoding) else ""
        raise InvalidInputError(
            f"{path}{line}: not {'UTF-8' if is_utf8(encoding) else encoding} text ({reason}). "
            + _encoding_advice(path, encoding)
        ) from error


@contextmanager
def _complete_gzip(path: Path) -> Iterator[None]:
    """Report a damaged gzip file with its name and the remedy."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInputError(
            f"{path} is not a complete gzip file: {error}. Download or compress it again."
        ) from error


def is_utf8(encoding: str | None) -> bool:
    """Return whether text is read as UTF-8, the default."""
    return encoding is None or codecs.lookup(encoding).name in {"utf-8", "utf-8-sig"}


def decoding(encoding: str | None) -> str:
    """Return the encoding to read text with; a byte order mark is not part of the text."""
    return "utf-8-sig" if encoding is None or is_utf8(encoding) else encoding


def _encoding_advice(path: Path, encoding: str | None) -> str:
    """Say which encoding to try; latin-1 accepts any bytes, so that it is named but not assumed."""
    if encoding is not None and not is_utf8(encoding):
        return "Pass another encoding, or save the file as UTF-8."
    with open_limited(path) as stream:
        start = stream.read(_SAMPLE)
    name = "latin-1"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name = "utf-16"
    elif any(0x80 <= byte < 0xA0 for byte in start):  # control characters in latin-1, but € and “ in cp1252
        name = "cp1252"
    return (
        f"Name its encoding, probably encoding={name!r} (on the command line --encoding {name}), or save the "
        "file as UTF-8; spreadsheets offer this when they export."
    )


def is_utf8_text(path: Path) -> bool:
    """Return whether a file, plain or gzipped, is UTF-8 without NUL characters, which text does not have."""
    try:
        with _complete_gzip(path), open_limited(path) as stream:
            decode = codecs.getincrementaldecoder("utf-8")().decode
            for block in iter(lambda: stream.read(_BUFFER), b""):
                if "\0" in decode(block):
                    return False
            decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def text_encoding(path: Path, encoding: str | None = None) -> str:
    """Return the encoding with which the text can be written back, with or without a byte order mark."""
    if encoding is not None and not is_utf8(encoding):
        return encoding
    with open_limited(path) as stream:
        return "utf-8-sig" if stream.read(3) == codecs.BOM_UTF8 else "utf-8"


def _first_undecodable_line(path: Path) -> int:
    with open_limited(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return number


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return some of the arrays of an ``.npz`` file; the others are not read."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        chosen = {name: entries[name] for name in names if name in entries}
        check_unpacked(path, sum(entry.file_size for entry in chosen.values()))
        return {name: _read_array(archive.read(entry), path) for name, entry in chosen.items()}


def read_array(path: Path) -> NDArray[Any]:
    """Return the array of an ``.npy`` file."""
    return _read_array(path.read_bytes(), path)


def _read_array(content: bytes, path: Path) -> NDArray[Any]:
    """Read an array, after checking that its header does not declare more data than there is."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(stream)
    present, declared = len(content) - stream.tell(), math.prod(shape) * dtype.itemsize
    if declared > present and not dtype.hasobject:  # NumPy itself refuses objects
        raise InvalidInputError(
            f"{path} is damaged: an array of shape {shape} and dtype {dtype} needs {declared} bytes, but "
            f"the file has {present}. Download the file again."
        )
    stream.seek(0)
    array: NDArray[Any] = np.load(stream, allow_pickle=False)
    return array
