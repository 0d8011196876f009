"""Outputs are replaced completely or not at all, also on a full disk."""

import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from peerloss._files import atomic_files, atomic_folder, check_output_file, check_output_folder
from peerloss.exceptions import InvalidInputError, OutputError, PeerLossError
from tests.folders import make_folder, names


def test_files_are_replaced_together(tmp_path):
    """Parent folders are made, endings kept, permissions are the usual ones; nothing else is left."""
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


def test_a_failure_changes_no_file(tmp_path):
    """An error in the block, or a file that was not written."""
    old = tmp_path / "old.txt"
    old.write_text("old")
    with pytest.raises(TypeError), atomic_files(old) as (path,):
        path.write_text(1)
    with pytest.raises(FileNotFoundError), atomic_files(old, tmp_path / "other.txt") as (path, _):
        path.write_text("new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.txt", "old")]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.usefixtures("exchanging")
def test_a_folder_is_replaced_completely(tmp_path, exists):
    """Files of the old folder are removed, not mixed with the new ones."""
    folder = tmp_path / "deep" / "model"
    if exists:
        make_folder(folder, "old")
    with atomic_folder(folder) as fresh:
        (fresh / "new").write_text("new")
    assert names(folder) == ["new"]
    assert names(folder.parent) == ["model"]


@pytest.mark.usefixtures("exchanging")
def test_a_failure_does_not_change_the_folder(tmp_path):
    """No hidden folder is left."""
    folder = make_folder(tmp_path / "model", "old")
    with pytest.raises(TypeError), atomic_folder(folder) as fresh:
        (fresh / "new").write_text(1)
    assert names(tmp_path) == ["model"]
    assert names(folder) == ["old"]


def test_a_full_disk_is_reported_and_nothing_is_lost(tmp_path, monkeypatch):
    """The error is a PeerLossError and an OSError, for files and for folders."""
    file, folder = tmp_path / "table.csv", make_folder(tmp_path / "model", "old")
    file.write_text("old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = r"table\.csv could not be written: No space left.*unchanged"
    with pytest.raises(OutputError, match=message) as caught, atomic_files(file) as (path,):
        path.write_text("new")
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, PeerLossError)
    assert caught.value.errno == errno.ENOSPC
    with (
        pytest.raises(OutputError, match="model could not be written: No space"),
        atomic_folder(folder) as fresh,
    ):
        (fresh / "new").write_text("new")
    assert file.read_text() == "old"
    assert names(folder) == ["old"]
    assert names(tmp_path) == ["model", "table.csv"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
def test_a_limit_on_the_size_of_files_is_reported(tmp_path):
    """Here the write itself fails, as on a full disk."""
    import resource  # noqa: PLC0415 - not on Windows

    old = tmp_path / "old.txt"
    old.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write_too_much(path):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            path.write_bytes(bytes(5000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    message = r"old\.txt could not be written: File too large"
    with pytest.raises(OutputError, match=message), atomic_files(old) as (path,):
        write_too_much(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.txt", "old")]


def test_read_errors_are_not_changed(tmp_path):
    """The block may also read; a missing input is not an error of the output."""
    with pytest.raises(FileNotFoundError, match="absent"), atomic_files(tmp_path / "new.txt") as (path,):
        path.write_bytes((tmp_path / "absent").read_bytes())
    assert names(tmp_path) == []


def test_symbolic_links_are_kept(tmp_path):
    """Their target is replaced, or created if it does not exist."""
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


def test_paths_that_cannot_be_written_are_refused_early(tmp_path, monkeypatch):
    """The current folder, its parent, a mount point, a path through a file, a read-only folder."""
    inside = make_folder(tmp_path / "around" / "inside")
    monkeypatch.chdir(inside)
    for path in (inside, inside.parent, type(tmp_path)(".")):
        with pytest.raises(InvalidInputError, match=r"current folder or contains it.*Choose a new folder"):
            check_output_folder(path)
    with monkeypatch.context() as patch:
        patch.setattr(os.path, "ismount", lambda path: str(path) == str(tmp_path / "mounted"))
        with pytest.raises(InvalidInputError, match=r"mount point.*Choose a new folder inside"):
            check_output_folder(tmp_path / "mounted")
    (tmp_path / "file").touch()
    for check in (check_output_folder, check_output_file):
        with pytest.raises(OutputError, match=r"file is a file. Choose another path"):
            check(tmp_path / "file" / "sub" / "out")
        with monkeypatch.context() as patch:
            patch.setattr(os, "access", lambda *_: False)
            with pytest.raises(OutputError, match=r"is read-only. Choose another"):
                check(tmp_path / "absent" / "out")
    with pytest.raises(InvalidInputError, match="must be a file; it is a folder"):
        check_output_file(tmp_path)
    with pytest.raises(InvalidInputError, match=r"file must be a folder; it is a file"):
        check_output_folder(tmp_path / "file")
    assert names(tmp_path) == ["around", "file"]


@pytest.mark.parametrize("check", [check_output_folder, check_output_file])
def test_a_drive_that_does_not_exist_is_refused(tmp_path, monkeypatch, check):
    """On Windows a drive may not exist, so that no parent folder exists."""
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(OutputError, match=r"cannot be written: .* does not exist. Choose another path"):
        check(tmp_path / "out")


def test_a_file_is_not_replaced_by_a_folder(tmp_path):
    """It is refused and kept."""
    file = tmp_path / "mine"
    file.write_text("mine")
    with pytest.raises(InvalidInputError, match="mine must be a folder"), atomic_folder(file) as fresh:
        (fresh / "new").touch()
    assert file.read_text() == "mine"
    assert names(tmp_path) == ["mine"]
