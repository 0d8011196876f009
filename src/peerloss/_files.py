"""Crash-safe writes: a file or a folder is replaced as a whole, or stays as it was.

New content is written into a hidden folder beside its place, forced to the disk and then renamed. The hidden
folder is locked while its process lives; the next write to the same place removes those that are not locked,
which killed processes left. Files that only grow are locked by their one writer, and each addition is on the
disk, or taken back, before the caller continues.

Linux exchanges the old folder and the new one in one step. Elsewhere there are two renames; if the process is
killed between them, the next write or read gives the old folder its name back. Windows, and file systems
without locks, keep the hidden folders of killed processes, and do not refuse a second writer.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from peerloss._folder_swap import exchange
from peerloss.exceptions import InvalidInputError, OutputError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What a system answers if there is no room or a place is read-only, but never when it reads a file.
WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


@contextmanager
def atomic_files(*paths: Path) -> Iterator[list[Path]]:
    """Yield new paths; what is written there replaces ``paths`` when the block ends without an error.

    No file is replaced before all of them are on the disk. If the block fails, everything stays as it was.
    Of a symbolic link the target is replaced.
    """
    places = [_resolved(path) for path in paths]
    with ExitStack() as stack, output_errors(places):
        unfinished = []
        for place in places:
            check_file_place(place)
            unfinished.append(stack.enter_context(_hidden_folder(place)) / place.name)
        yield unfinished
        for file in unfinished:
            _force_to_disk(file)
        for file, place in zip(unfinished, places, strict=True):
            file.replace(place)
            _force_folder_to_disk(place.parent)


@contextmanager
def atomic_stream(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a new file that replaces ``path`` when the block ends without an error."""
    with atomic_files(path) as (unfinished,), unfinished.open(mode) as stream:
        yield stream


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that replaces ``path``, with its old content, when the block ends without an error.

    Of a symbolic link the target is replaced.
    """
    place = _resolved(path)
    with output_errors([place]):
        check_folder_place(place)
        with _hidden_folder(place) as fresh:
            yield fresh
            for file in fresh.iterdir():
                _force_to_disk(file)
            _force_folder_to_disk(fresh)
            _put_in_place(fresh, place)
            _force_folder_to_disk(place.parent)


def check_file_place(path: Path) -> None:
    """Refuse, before any work is done, a path to which :func:`atomic_files` cannot write."""
    place = _resolved(path)
    if place.is_dir():
        raise InvalidInputError(f"{path} must be a file; it is a folder. Choose another name.")
    _check_writable(place)
    for left in _left_overs(place, "partial"):
        shutil.rmtree(left, ignore_errors=True)


def check_folder_place(path: Path) -> None:
    """Refuse, before any work is done, a path to which :func:`atomic_folder` cannot write."""
    place = _resolved(path)
    restore_folder(place)
    if place.exists() and not place.is_dir():
        raise InvalidInputError(f"{path} is a file; name a folder. The file is left as it is.")
    here = Path(os.path.realpath(os.curdir))
    if place == here or place in here.parents:
        raise InvalidInputError(
            f"{path} is the current folder, or holds it; a folder is replaced as a whole. Name a new folder "
            "inside it."
        )
    if os.path.ismount(place):
        raise InvalidInputError(
            f"{path} is a mount point, which cannot be replaced as a whole. Name a new folder inside it."
        )
    _check_writable(place)


def restore_folder(path: Path) -> None:
    """Give a folder its name back if a process was killed while it replaced it, and remove left-overs.

    This is needed where the system cannot exchange two folders in one step.
    """
    place = _resolved(path)
    for left in _left_overs(place, "partial|old"):
        with suppress(FileNotFoundError):  # without locks: its process took it back
            if left.suffix == ".old" and not place.exists():
                left.rename(place)
                continue
            if left.suffix == ".old":  # half of it must not be restored if this process is killed too
                left = left.rename(_beside(place, "partial"))  # noqa: PLW2901
            shutil.rmtree(left, ignore_errors=True)


def append_through(stream: IO[bytes], content: bytes, *, advice: str) -> None:
    """Add to the end of a file and force it to the disk; if that fails, take all of it back.

    Nothing is buffered: what was refused cannot be written later. If even taking back fails, the file is
    closed, so that nothing can follow an incomplete line; every later addition is then refused too. The
    error ends with ``advice``: what was kept, and what to do.
    """
    try:
        _append(stream, content)
    except (OSError, ValueError) as error:  # ValueError: the file was closed
        raise OutputError(
            f"{stream.name} could not be written: {getattr(error, 'strerror', None) or error}. {advice}",
            getattr(error, "errno", None),
        ) from error


def _append(stream: IO[bytes], content: bytes) -> None:
    descriptor = stream.fileno()
    end = os.fstat(descriptor).st_size
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except BaseException:
        try:
            os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
        except OSError:
            stream.close()
        raise


def lock_file(stream: IO[bytes]) -> bool | None:
    """Whether this process now holds the file, until it closes it or ends; ``None`` if there are no locks."""
    return _lock(stream.fileno())


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _check_writable(place: Path) -> None:
    parent = next((folder for folder in place.parents if folder.exists()), None)
    if parent is None:
        raise OutputError(f"{place} cannot be written: {place.anchor} does not exist. Choose another place.")
    if not parent.is_dir():
        raise OutputError(f"{place} cannot be written: {parent} is a file. Choose another place.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"{place} cannot be written: {parent} is read-only for you. Choose another place.")


@contextmanager
def output_errors(places: Sequence[Path]) -> Iterator[None]:
    """Say which output could not be written, and that nothing was lost."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        if not _is_about(error, places):
            raise
        names = ", ".join(map(str, places))
        raise OutputError(
            f"{names} could not be written: {error.strerror or error}. Nothing was lost: what was there "
            "before is unchanged. Free some space or choose another place, then run it again.",
            error.errno,
        ) from error


def _is_about(error: OSError, places: Sequence[Path]) -> bool:
    """Whether an error comes from writing; the block may also read files."""
    if error.errno in WRITE_ERRORS:
        return True
    own = (str(place) for place in places)
    hidden = tuple(str(place.with_name(f".{place.name}.")) for place in places)
    name = str(error.filename)
    return (name in own or name.startswith(hidden)) and not isinstance(error, FileNotFoundError)


def _left_overs(place: Path, endings: str) -> Iterator[Path]:
    """Yield the hidden folders of a place that no process needs, locked while the caller looks at them."""
    pattern = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{16}}\.({endings})")
    try:
        names = sorted(filter(pattern.fullmatch, os.listdir(place.parent)))  # noqa: PTH208 - names only
    except OSError:
        return
    for left in (place.parent / name for name in names):
        with _locked(left) as ours:
            # Without locks it is not known whether a process fills a partial folder; nobody fills an old one.
            if ours or (ours is None and left.suffix == ".old"):
                yield left


@contextmanager
def _hidden_folder(place: Path) -> Iterator[Path]:
    """Make a folder beside ``place`` that nobody else touches; remove it when the block ends."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh, descriptor = _make_locked(place)
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _make_locked(place: Path) -> tuple[Path, int | None]:
    while True:
        fresh = _beside(place, "partial")
        fresh.mkdir()
        if sys.platform == "win32":
            return fresh, None
        with suppress(FileNotFoundError):  # another process took it for a left-over, before it was locked
            descriptor = os.open(fresh, os.O_RDONLY)
            try:
                if _lock(descriptor) is not False and os.path.samestat(os.fstat(descriptor), fresh.stat()):
                    return fresh, descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Lock a folder for the block; false if another process holds it, ``None`` if there are no locks here."""
    if sys.platform == "win32":
        yield None
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Whether the lock was free; ``None`` if there are no locks here."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return None
    return True


def _put_in_place(fresh: Path, place: Path) -> None:
    if not place.exists():
        fresh.rename(place)
        return
    if exchange(fresh, place):
        return
    with _locked(place):  # so that nobody takes it for a left-over while it has the other name
        old = _beside(place, "old")
        place.rename(old)
        try:
            fresh.rename(place)
        except BaseException:
            old.rename(place)
            raise
        with suppress(OSError):
            old.rename(fresh)  # the caller removes it under this name, which is never restored


def _beside(place: Path, ending: str) -> Path:
    return place.with_name(f".{place.name}.{os.urandom(8).hex()}.{ending}")


def _force_to_disk(file: Path) -> None:
    with file.open("r+b") as stream:
        os.fsync(stream.fileno())


def _force_folder_to_disk(folder: Path) -> None:
    """Force names to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
