"""Crash-safe (atomic) writes: a file or a folder is replaced completely or not at all.

New content is written to a hidden folder next to the output, synced to disk and then renamed. The hidden
folder is locked while its process runs. The next write to the same path removes unlocked hidden folders of
killed processes. Files that only grow are locked by their writer; each addition is synced, or undone.

Linux exchanges the old and the new folder in one step. Other systems need two renames; if the process is
killed between them, the next write or read restores the old folder. Windows, and file systems without locks,
keep the hidden folders of killed processes and do not detect a second writer.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from peerloss.exceptions import InvalidInputError, OutputError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Error numbers for a full or read-only disk, which never occur when a file is read.
WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
#: Error numbers of kernels and file systems that cannot exchange two names in one step.
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM}
#: ``AT_FDCWD`` and ``RENAME_EXCHANGE`` of Linux.
_HERE, _EXCHANGE = -100, 2


@contextmanager
def atomic_files(*paths: Path) -> Iterator[list[Path]]:
    """Yield temporary paths, whose files replace ``paths`` when the block ends without an error.

    No file is replaced before all of them are on disk. If the block fails, nothing changes. If a path is a
    symbolic link, its target is replaced.
    """
    places = [_resolved(path) for path in paths]
    with ExitStack() as stack, output_errors(places):
        for place in places:
            check_output_file(place)
        unfinished = [stack.enter_context(_hidden_folder(place)) / place.name for place in places]
        yield unfinished
        for file in unfinished:
            _sync_file(file)
        for file, place in zip(unfinished, places, strict=True):
            file.replace(place)
            _sync_folder(place.parent)


@contextmanager
def atomic_stream(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a new file that replaces ``path`` when the block ends without an error."""
    with atomic_files(path) as (unfinished,), unfinished.open(mode) as stream:
        yield stream


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that replaces ``path`` (or the target of a link) when the block succeeds."""
    place = _resolved(path)
    with output_errors([place]):
        check_output_folder(place)
        with _hidden_folder(place) as fresh:
            yield fresh
            for inside in [*fresh.rglob("*"), fresh]:
                if inside.is_dir():
                    _sync_folder(inside)
                elif not inside.is_symlink():
                    _sync_file(inside)
            _put_in_place(fresh, place)
            _sync_folder(place.parent)


def check_output_file(path: Path) -> None:
    """Refuse, before any work is done, a path to which :func:`atomic_files` cannot write."""
    place = _resolved(path)
    if place.is_dir():
        raise InvalidInputError(f"{path} must be a file; it is a folder. Choose another name.")
    _check_writable(place)
    for left in _left_overs(place, "partial"):
        shutil.rmtree(left, ignore_errors=True)


def check_output_folder(path: Path) -> None:
    """Refuse, before any work is done, a path to which :func:`atomic_folder` cannot write."""
    place = _resolved(path)
    restore_folder(place)
    if place.exists() and not place.is_dir():
        raise InvalidInputError(f"{path} must be a folder; it is a file. Choose another name.")
    here = Path(os.path.realpath(os.curdir))
    if place == here or place in here.parents:
        raise InvalidInputError(
            f"{path} is the current folder or contains it, and the entire folder would be replaced. Choose a "
            "new folder inside it."
        )
    if os.path.ismount(place):
        raise InvalidInputError(
            f"{path} is a mount point, which cannot be replaced. Choose a new folder inside it."
        )
    _check_writable(place)


def restore_folder(path: Path) -> None:
    """Restore a folder if a process was killed while replacing it, and remove left-over folders."""
    place = _resolved(path)
    for left in _left_overs(place, "partial|old"):
        with suppress(FileNotFoundError):  # without locks, its process may have renamed it
            if left.suffix == ".old" and not place.exists():
                left.rename(place)
                continue
            if left.suffix == ".old":  # if this process is killed, too, half of it must not be restored
                left = left.rename(_hidden_path(place, "partial"))  # noqa: PLW2901
            shutil.rmtree(left, ignore_errors=True)


def append_through(stream: IO[bytes], content: bytes, *, advice: str) -> None:
    """Append to a file and sync it to disk; if that fails, undo the addition.

    Nothing is buffered, so failed additions cannot be written later. If even undoing fails, the file is
    closed and every later addition is refused, so that nothing follows an incomplete line. The error message
    ends with ``advice``: what was kept, and what to do.
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


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _check_writable(place: Path) -> None:
    parent = next((folder for folder in place.parents if folder.exists()), None)
    if parent is None:
        raise OutputError(f"{place} cannot be written: {place.anchor} does not exist. Choose another path.")
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        what = "read-only" if parent.is_dir() else "a file"
        raise OutputError(f"{place} cannot be written: {parent} is {what}. Choose another path.")


@contextmanager
def output_errors(places: Sequence[Path]) -> Iterator[None]:
    """Turn errors of writing into an ``OutputError`` that names the outputs."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        if not _is_write_error(error, places):
            raise
        names = ", ".join(map(str, places))
        raise OutputError(
            f"{names} could not be written: {error.strerror or error}. The previous content is "
            "unchanged. Free some space or choose another path, then run it again.",
            error.errno,
        ) from error


def _is_write_error(error: OSError, places: Sequence[Path]) -> bool:
    """Return whether an error comes from writing the outputs; the block may also read files."""
    if error.errno in WRITE_ERRORS:
        return True
    hidden = tuple(str(place.with_name(f".{place.name}.")) for place in places)
    name = str(error.filename)
    is_own = name in map(str, places) or name.startswith(hidden)
    return is_own and not isinstance(error, FileNotFoundError)


def _left_overs(place: Path, endings: str) -> Iterator[Path]:
    """Yield hidden folders of killed processes, each locked while the caller handles it."""
    pattern = re.compile(rf"\.{re.escape(place.name)}\.[0-9a-f]{{16}}\.({endings})")
    try:
        names = sorted(filter(pattern.fullmatch, os.listdir(place.parent)))  # noqa: PTH208 - names only
    except OSError:
        return
    for left in (place.parent / name for name in names):
        with _locked(left) as acquired:
            # Without locks a partial folder may be in use; an old one is not.
            if acquired or (acquired is None and left.suffix == ".old"):
                yield left


@contextmanager
def _hidden_folder(place: Path) -> Iterator[Path]:
    """Make a locked folder next to ``place``; remove it when the block ends."""
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
        fresh = _hidden_path(place, "partial")
        fresh.mkdir()
        if sys.platform == "win32":
            return fresh, None
        with suppress(FileNotFoundError):  # another process removed it before it was locked
            descriptor = os.open(fresh, os.O_RDONLY)
            try:
                acquired = lock_file(descriptor) is not False
                if acquired and os.path.samestat(os.fstat(descriptor), fresh.stat()):
                    return fresh, descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Lock a folder; yield false if another process has locked it, ``None`` if the system has no locks."""
    if sys.platform == "win32":
        yield None
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        yield lock_file(descriptor)
    finally:
        os.close(descriptor)


def lock_file(file: IO[bytes] | int) -> bool | None:
    """Lock a file until it is closed; return whether that worked, ``None`` if the system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system does not support locks
        return None
    return True


def _put_in_place(fresh: Path, place: Path) -> None:
    if not place.exists():
        fresh.rename(place)
        return
    if exchange(fresh, place):
        return
    with _locked(place):  # so that no process removes it under its temporary name
        old = _hidden_path(place, "old")
        place.rename(old)
        try:
            fresh.rename(place)
        except BaseException:
            old.rename(place)
            raise
        with suppress(OSError):
            old.rename(fresh)  # the caller removes it; a folder of this name is never restored


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files or folders in one step; return false, unchanged, if the system cannot do it."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # a C library without it
        return False
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _hidden_path(place: Path, ending: str) -> Path:
    return place.with_name(f".{place.name}.{os.urandom(8).hex()}.{ending}")


def _sync_file(file: Path) -> None:
    with file.open("r+b") as stream:
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder, if the system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
