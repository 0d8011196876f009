"""Files and folders that are whole or as they were: written beside their place, then moved there."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
