"""Files that a crash does not spoil.

Whole ones are written beside their place, then moved there. Those that only grow are locked by their one
writer, and each addition is on the disk before anybody hears of it.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def whole_files(*paths: Path) -> Iterator[list[Path]]:
    """Yield new paths beside ``paths``; what is written there takes their places when the block ends well.

    Nothing takes its place before everything is on the disk. If the block fails, all is as it was.
    """
    unfinished = [_beside(path, f"partial{path.suffix}") for path in paths]
    try:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        for file in unfinished:
            _force_to_disk(file)
        for file, path in zip(unfinished, paths, strict=True):
            file.replace(path)
    finally:
        for file in unfinished:
            file.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path`` that takes its place, old content and all, when the block ends well.

    A crash leaves the old folder, or a hidden one beside it that nobody reads.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _beside(path, "partial")
    fresh.mkdir()
    try:
        yield fresh
        for file in fresh.iterdir():
            _force_to_disk(file)
        _put_in_place(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def append_through(stream: IO[bytes], content: bytes) -> None:
    """Write to the end of a file, and on to the disk; if that fails, the file is as long as it was."""
    file = stream.fileno()
    end = os.lseek(file, 0, os.SEEK_END)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except BaseException:
        os.ftruncate(file, end)
        os.lseek(file, end, os.SEEK_SET)
        raise


def lock_file(stream: IO[bytes]) -> bool:
    """Whether nobody else holds the file; now this process does, until it closes the file or dies."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody else has it, or the file system knows no locks
        return False
    return True


def _put_in_place(fresh: Path, path: Path) -> None:
    if not path.exists():
        fresh.rename(path)
        return
    old = _beside(path, "old")
    path.rename(old)
    try:
        fresh.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.{ending}")


def _force_to_disk(file: Path) -> None:
    with file.open("r+b") as stream:
        os.fsync(stream.fileno())
