"""Outputs are complete after a kill, and the next write removes left-over folders."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

from peerloss import _files
from peerloss._files import atomic_files, atomic_folder, check_output_folder, restore_folder
from tests.folders import make_folder, names


@pytest.mark.parametrize("ending", ["partial", "old"])
@pytest.mark.usefixtures("exchanging")
def test_the_next_write_removes_left_over_folders(tmp_path, ending):
    """Only those of the same output, and not those that a running process has locked."""
    folder = make_folder(tmp_path / "model", "old")
    stale = make_folder(tmp_path / f".model.{'0' * 16}.{ending}", "half")
    living = make_folder(tmp_path / f".model.{'1' * 16}.{ending}", "half")
    other = make_folder(tmp_path / f".other.{'0' * 16}.{ending}", "half")
    similar = make_folder(tmp_path / ".model.mine.partial", "half")
    descriptor = os.open(living, os.O_RDONLY)
    try:
        assert _files.lock_file(descriptor)
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
def test_two_writers_of_one_folder_do_not_interfere(tmp_path):
    """Neither removes the unfinished folder of the other; the last one wins."""
    folder = tmp_path / "model"
    with atomic_folder(folder) as one:
        (one / "one").touch()
        with atomic_folder(folder) as two:
            (two / "two").touch()
        assert names(folder) == ["two"]
    assert names(folder) == ["one"]
    assert names(tmp_path) == ["model"]


@pytest.mark.usefixtures("exchanging")
def test_a_renamed_folder_is_restored(tmp_path):
    """A kill between the two renames loses nothing."""
    folder = tmp_path / "model"
    make_folder(tmp_path / f".model.{'a' * 16}.old", "old")
    make_folder(tmp_path / f".model.{'b' * 16}.partial", "new")
    restore_folder(folder)
    assert names(folder) == ["old"]
    assert names(tmp_path) == ["model"]
    with pytest.raises(TypeError), atomic_folder(folder) as fresh:
        (fresh / "new").write_text(1)
    assert names(folder) == ["old"]


def test_a_renamed_folder_is_restored_without_locks(tmp_path, monkeypatch):
    """An old folder is restored or removed; a partial one may be in use and is kept."""
    monkeypatch.setattr(_files, "lock_file", lambda _: None)
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


def test_a_kill_between_the_renames_is_recovered(tmp_path):
    """Without exchange, a process killed after the first rename leaves the old folder to restore."""
    folder = make_folder(tmp_path / "model", "old")
    code = f"""
        import os, pathlib
        from peerloss import _files
        rename = pathlib.Path.rename
        def rename_and_die(self, other):
            rename(self, other)
            os._exit(9)
        _files.exchange = lambda one, other: False
        with _files.atomic_folder(pathlib.Path({str(folder)!r})) as fresh:
            (fresh / "new").touch()
            pathlib.Path.rename = rename_and_die
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == 9
    assert not folder.exists()
    check_output_folder(folder)
    assert names(folder) == ["old"]
    assert names(tmp_path) == ["model"]


def test_a_partly_removed_old_folder_is_not_restored(tmp_path):
    """Without exchange, a kill while the old folder is removed does not restore the rest of it."""
    folder = make_folder(tmp_path / "model", "old", "older")
    code = f"""
        import os, pathlib, shutil
        from peerloss import _files
        def remove_half_and_die(path, **_):
            next(iter(path.iterdir())).unlink()
            os._exit(9)
        _files.exchange = lambda one, other: False
        shutil.rmtree = remove_half_and_die
        with _files.atomic_folder(pathlib.Path({str(folder)!r})) as fresh:
            (fresh / "new").touch()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == 9
    assert names(folder) == ["new"]
    shutil.rmtree(folder)
    restore_folder(folder)
    assert names(tmp_path) == []


def test_a_partly_removed_left_over_is_not_restored(tmp_path, monkeypatch):
    """A left-over that was being removed is not restored later, even if its folder is gone."""
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
    """After each kill the folder and the file are complete, and left-overs are removed."""
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
        check_output_folder(tmp_path / "model")
        with atomic_files(tmp_path / "table.csv") as (path,):
            path.write_text("0" * 50000)
        assert names(tmp_path) == ["model", "table.csv"]
