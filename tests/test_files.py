"""Files and folders are complete or as they were, also after a kill or on a full disk."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from peerloss import _files
from peerloss._files import (
    append_through,
    atomic_files,
    atomic_folder,
    check_file_place,
    check_folder_place,
    lock_file,
    restore_folder,
)
from peerloss.exceptions import InvalidInputError, OutputError, PeerLossError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make_folder(path, *files):
    path.mkdir(parents=True)
    for name in files:
        (path / name).write_text(name)
    return path


@pytest.fixture(params=[True, False], ids=["exchange", "rename twice"])
def exchanging(request, monkeypatch):
    """Run with and without a system that exchanges folders in one step."""
    if not request.param:
        monkeypatch.setattr(_files, "exchange", lambda _one, _other: False)
    return request.param


def test_files_take_their_places_together(tmp_path):
    """Folders are made, endings kept, permissions those of any new file; nothing else is left."""
    one, two = tmp_path / "a" / "one.csv", tmp_path / "two.parquet"
    two.write_text("old")
    with atomic_files(one, two) as unfinished:
        for path in unfinished:
            path.write_text("new")
        assert [path.suffix for path in unfinished] == [".csv", ".parquet"]
        assert (one.exists(), two.read_text()) == (False, "old")
    assert (one.read_text(), two.read_text()) == ("new", "new")
    usual = tmp_path / "usual"
    usual.touch()
    assert stat.S_IMODE(one.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)
    assert names(tmp_path) == ["a", "two.parquet", "usual"]


def test_a_failure_leaves_files_as_they_were(tmp_path):
    """In the block, or by a file that was not written."""
    old = tmp_path / "old.txt"
    old.write_text("old")
    with pytest.raises(TypeError), atomic_files(old) as (path,):
        path.write_text(1)
    with pytest.raises(FileNotFoundError), atomic_files(old, tmp_path / "other.txt") as (path, _):
        path.write_text("new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.txt", "old")]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.usefixtures("exchanging")
def test_a_folder_is_replaced_as_a_whole(tmp_path, there):
    """What the old one held is gone, not mixed with the new."""
    folder = tmp_path / "deep" / "model"
    if there:
        make_folder(folder, "old")
    with atomic_folder(folder) as fresh:
        (fresh / "new").write_text("new")
    assert names(folder) == ["new"]
    assert names(folder.parent) == ["model"]


@pytest.mark.usefixtures("exchanging")
def test_a_failure_leaves_the_folder_as_it_was(tmp_path):
    """And nothing beside it."""
    folder = make_folder(tmp_path / "model", "old")
    with pytest.raises(TypeError), atomic_folder(folder) as fresh:
        (fresh / "new").write_text(1)
    assert names(tmp_path) == ["model"]
    assert names(folder) == ["old"]


def test_a_full_disk_is_told_with_the_name_and_nothing_is_lost(tmp_path, monkeypatch):
    """The error is one of this library and of the system, for files and for folders."""
    file, folder = tmp_path / "table.csv", make_folder(tmp_path / "model", "old")
    file.write_text("old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = r"table\.csv could not be written: No space left.*unchanged"
    with pytest.raises(OutputError, match=message) as told, atomic_files(file) as (path,):
        path.write_text("new")
    assert isinstance(told.value, OSError)
    assert isinstance(told.value, PeerLossError)
    assert told.value.errno == errno.ENOSPC
    with (
        pytest.raises(OutputError, match="model could not be written: No space"),
        atomic_folder(folder) as fresh,
    ):
        (fresh / "new").write_text("new")
    assert file.read_text() == "old"
    assert names(folder) == ["old"]
    assert names(tmp_path) == ["model", "table.csv"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
def test_a_file_that_may_not_grow_is_told(tmp_path):
    """Here the system refuses the write itself, as it does on a full disk."""
    import resource  # noqa: PLC0415 - not on Windows

    old = tmp_path / "old.txt"
    old.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write_much(path):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            path.write_bytes(bytes(5000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    message = r"old\.txt could not be written: File too large"
    with pytest.raises(OutputError, match=message), atomic_files(old) as (path,):
        write_much(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.txt", "old")]


def test_errors_of_reading_stay_what_they_are(tmp_path):
    """A block may also read; that a file is missing there is no matter of the output."""
    with pytest.raises(FileNotFoundError, match="absent"), atomic_files(tmp_path / "new.txt") as (path,):
        path.write_bytes((tmp_path / "absent").read_bytes())
    assert names(tmp_path) == []


@pytest.mark.parametrize("ending", ["partial", "old"])
@pytest.mark.usefixtures("exchanging")
def test_the_next_write_removes_what_a_killed_process_left(tmp_path, ending):
    """Of the same name only, and not what a living process has locked."""
    folder = make_folder(tmp_path / "model", "old")
    stale = make_folder(tmp_path / f".model.{'0' * 16}.{ending}", "half")
    living = make_folder(tmp_path / f".model.{'1' * 16}.{ending}", "half")
    other = make_folder(tmp_path / f".other.{'0' * 16}.{ending}", "half")
    similar = make_folder(tmp_path / ".model.mine.partial", "half")
    descriptor = os.open(living, os.O_RDONLY)
    try:
        assert _files._lock(descriptor)
        with atomic_folder(folder) as fresh:
            (fresh / "new").touch()
    finally:
        os.close(descriptor)
    assert not stale.exists()
    assert living.exists()
    assert other.exists()
    assert similar.exists()
    assert names(folder) == ["new"]


@pytest.mark.usefixtures("exchanging")
def test_two_writers_of_one_place_do_not_disturb_each_other(tmp_path):
    """Neither takes the other's unfinished folder for a left-over; the last one wins."""
    folder = tmp_path / "model"
    with atomic_folder(folder) as one:
        (one / "one").touch()
        with atomic_folder(folder) as two:
            (two / "two").touch()
        assert names(folder) == ["two"]
    assert names(folder) == ["one"]
    assert names(tmp_path) == ["model"]


@pytest.mark.usefixtures("exchanging")
def test_a_folder_that_lost_its_name_gets_it_back(tmp_path):
    """A process that was killed between two renames loses nothing."""
    folder = tmp_path / "model"
    make_folder(tmp_path / f".model.{'a' * 16}.old", "old")
    make_folder(tmp_path / f".model.{'b' * 16}.partial", "new")
    restore_folder(folder)
    assert names(folder) == ["old"]
    assert names(tmp_path) == ["model"]
    with pytest.raises(TypeError), atomic_folder(folder) as fresh:
        (fresh / "new").write_text(1)
    assert names(folder) == ["old"]


def test_a_folder_gets_its_name_back_without_locks(tmp_path, monkeypatch):
    """An old folder is restored or removed; a partial one may be in use, and stays."""
    monkeypatch.setattr(_files, "_lock", lambda _: None)
    folder, partial = tmp_path / "model", f".model.{'b' * 16}.partial"
    make_folder(tmp_path / f".model.{'a' * 16}.old", "old")
    make_folder(tmp_path / partial, "new")
    restore_folder(folder)
    assert names(folder) == ["old"]
    assert names(tmp_path) == [partial, "model"]
    make_folder(tmp_path / f".model.{'a' * 16}.old", "older")
    restore_folder(folder)
    assert names(folder) == ["old"]
    assert names(tmp_path) == [partial, "model"]


def test_a_kill_at_the_worst_moment_is_recovered(tmp_path):
    """Without exchange: dead after the first of two renames, and the next start finds the old folder."""
    folder = make_folder(tmp_path / "model", "old")
    code = f"""
        import os, pathlib
        from peerloss import _files
        rename = pathlib.Path.rename
        def last(self, other):
            rename(self, other)
            os._exit(9)
        _files.exchange = lambda one, other: False
        with _files.atomic_folder(pathlib.Path({str(folder)!r})) as fresh:
            (fresh / "new").touch()
            pathlib.Path.rename = last
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == 9
    assert not folder.exists()
    check_folder_place(folder)
    assert names(folder) == ["old"]
    assert names(tmp_path) == ["model"]


def test_a_kill_while_the_old_folder_is_removed_does_not_bring_half_of_it_back(tmp_path):
    """Without exchange: the half that is left is never given the name of the folder."""
    folder = make_folder(tmp_path / "model", "old", "older")
    code = f"""
        import os, pathlib, shutil
        from peerloss import _files
        def half(path, **_):
            next(iter(path.iterdir())).unlink()
            os._exit(9)
        _files.exchange = lambda one, other: False
        shutil.rmtree = half
        with _files.atomic_folder(pathlib.Path({str(folder)!r})) as fresh:
            (fresh / "new").touch()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == 9
    assert names(folder) == ["new"]
    shutil.rmtree(folder)
    restore_folder(folder)
    assert names(tmp_path) == []


def test_a_kill_while_left_overs_are_removed_does_not_bring_half_of_one_back(tmp_path, monkeypatch):
    """A left-over that was to be removed is not restored later, though its folder is gone by then."""
    folder = make_folder(tmp_path / "model", "new")
    make_folder(tmp_path / f".model.{'a' * 16}.old", "old")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        restore_folder(folder)
    shutil.rmtree(folder)
    restore_folder(folder)
    assert names(tmp_path) == []


SAVING = """
    import pathlib, sys
    from peerloss._files import atomic_files, atomic_folder
    home, number = pathlib.Path(sys.argv[1]), 0
    while True:
        number += 1
        with atomic_folder(home / "model") as fresh:
            for name in "abcde":
                (fresh / name).write_text(str(number) * 5000)
        with atomic_files(home / "table.csv") as (path,):
            path.write_text(str(number) * 50000)
        print(number, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_kills_while_saving_lose_nothing(tmp_path):
    """After each kill there is one complete version of the folder and of the file, and no left-over stays."""
    for wait in (1, 2, 4):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SAVING), tmp_path], stdout=subprocess.PIPE, text=True
        )
        with process:
            for _ in range(wait):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        versions = {(tmp_path / "model" / name).read_text() for name in "abcde"}
        assert len(versions) == 1
        text = (tmp_path / "table.csv").read_text()
        assert text == text[: len(text) // 50000] * 50000
        check_folder_place(tmp_path / "model")
        with atomic_files(tmp_path / "table.csv") as (path,):
            path.write_text("0" * 50000)
        assert names(tmp_path) == ["model", "table.csv"]


def test_symbolic_links_stay_links(tmp_path):
    """What they point to is replaced, also if it does not exist yet."""
    real = make_folder(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("file.txt")
    (tmp_path / "dangling").symlink_to("later")
    for link in ("link", "dangling"):
        with atomic_folder(tmp_path / link) as fresh:
            (fresh / "new").touch()
    with atomic_files(tmp_path / "link.txt") as (path,):
        path.write_text("new")
    assert all((tmp_path / name).is_symlink() for name in ("link", "link.txt", "dangling"))
    assert names(real) == names(tmp_path / "later") == ["new"]
    assert (tmp_path / "file.txt").read_text() == "new"
    assert names(tmp_path) == ["dangling", "file.txt", "later", "link", "link.txt", "real"]


def test_places_that_cannot_be_written_are_refused_before_the_work(tmp_path, monkeypatch):
    """The current folder, one around it, a mount point, a path through a file, a read-only folder."""
    inside = make_folder(tmp_path / "around" / "inside")
    monkeypatch.chdir(inside)
    for path in (inside, inside.parent, type(tmp_path)(".")):
        with pytest.raises(InvalidInputError, match=r"current folder, or holds it.*Name a new folder"):
            check_folder_place(path)
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "ismount", lambda path: str(path) == str(tmp_path / "mounted"))
        with pytest.raises(InvalidInputError, match=r"mount point.*Name a new folder inside"):
            check_folder_place(tmp_path / "mounted")
    (tmp_path / "file").touch()
    for check in (check_folder_place, check_file_place):
        with pytest.raises(OutputError, match=r"file is a file. Choose another place"):
            check(tmp_path / "file" / "sub" / "out")
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda *_: False)
            with pytest.raises(OutputError, match=r"read-only for you. Choose another"):
                check(tmp_path / "absent" / "out")
    with pytest.raises(InvalidInputError, match="must be a file; it is a folder"):
        check_file_place(tmp_path)
    with pytest.raises(InvalidInputError, match=r"file is a file; name a folder"):
        check_folder_place(tmp_path / "file")
    assert names(tmp_path) == ["around", "file"]


@pytest.mark.parametrize("check", [check_folder_place, check_file_place])
def test_a_drive_that_does_not_exist_is_refused(tmp_path, monkeypatch, check):
    """On Windows a drive may not be there, so that no folder above the place exists."""
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(OutputError, match=r"cannot be written: .* does not exist. Choose another place"):
        check(tmp_path / "out")


def test_a_file_is_not_exchanged_for_a_folder(tmp_path):
    """It is refused and kept."""
    file = tmp_path / "mine"
    file.write_text("mine")
    with pytest.raises(InvalidInputError, match="mine is a file"), atomic_folder(file) as fresh:
        (fresh / "new").touch()
    assert file.read_text() == "mine"
    assert names(tmp_path) == ["mine"]


def failing_write(monkeypatch, accepted):
    """Let the system take so many bytes and then have no room."""
    write, left = os.write, [accepted]

    def limited(descriptor, content):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, content[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", limited)


@pytest.mark.parametrize("mode", ["ab+", "xb"])
@pytest.mark.parametrize("accepted", [0, 3])
def test_an_addition_that_was_refused_is_never_written(tmp_path, monkeypatch, mode, accepted):
    """Half of it is taken back, and the next addition does not bring it along."""
    path = tmp_path / "lines"
    with path.open(mode) as stream:
        append_through(stream, b"one\n", advice="")
        with monkeypatch.context() as patch:
            failing_write(patch, accepted)
            with pytest.raises(
                OutputError, match=r"lines could not be written: No space left.*\. Try again\."
            ):
                append_through(stream, b"refused\n", advice="Try again.")
        assert path.read_bytes() == b"one\n"
        append_through(stream, b"two\n", advice="")
    assert path.read_bytes() == b"one\ntwo\n"


def test_nothing_follows_an_incomplete_line(tmp_path, monkeypatch):
    """If taking back fails as well, the file is closed, and later additions are refused in words."""
    path = tmp_path / "lines"
    with path.open("ab+") as stream:
        append_through(stream, b"one\n", advice="")
        failing_write(monkeypatch, 2)
        monkeypatch.setattr(os, "ftruncate", lambda *_: os.close(-1))
        with pytest.raises(OutputError, match="No space left"):
            append_through(stream, b"two\n", advice="")
        assert stream.closed
        with pytest.raises(OutputError, match=r"lines could not be written: .*closed file. Start again"):
            append_through(stream, b"three\n", advice="Start again.")


def test_one_process_holds_a_lock(tmp_path):
    """Until the file is closed."""
    path = tmp_path / "locked"
    with path.open("ab") as one, path.open("ab") as two:
        assert lock_file(one)
        assert not lock_file(two)
    with path.open("ab") as three:
        assert lock_file(three)
