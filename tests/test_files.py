"""Files and folders are whole or as they were."""

import os
import stat

import pytest

from peerloss._files import whole_files, whole_folder


def test_files_take_their_places_together(tmp_path):
    """Folders are made, endings kept, permissions those of any new file; nothing else is left."""
    one, two = tmp_path / "a" / "one.csv", tmp_path / "two.parquet"
    two.write_text("old")
    with whole_files(one, two) as unfinished:
        for path in unfinished:
            path.write_text("new")
        assert [path.suffix for path in unfinished] == [".csv", ".parquet"]
        assert (one.exists(), two.read_text()) == (False, "old")
    assert (one.read_text(), two.read_text()) == ("new", "new")
    usual = tmp_path / "usual"
    usual.touch()
    assert stat.S_IMODE(one.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "two.parquet", "usual"]


def test_a_failure_leaves_files_as_they_were(tmp_path, monkeypatch):
    """In the block, by a file that was not written, or by the disk."""
    old = tmp_path / "old.txt"
    old.write_text("old")

    def full(_):
        raise OSError("disk full")

    with pytest.raises(TypeError), whole_files(old) as (path,):
        path.write_text(1)
    with pytest.raises(FileNotFoundError), whole_files(old, tmp_path / "other.txt") as (path, _):
        path.write_text("new")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"), whole_files(old) as (path,):
        path.write_text("new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old.txt", "old")]


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_takes_its_place_whole(tmp_path, there):
    """What the old one held is gone, not mixed with the new."""
    folder = tmp_path / "deep" / "model"
    if there:
        folder.mkdir(parents=True)
        (folder / "old").touch()
    with whole_folder(folder) as fresh:
        (fresh / "new").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_failure_leaves_the_folder_as_it_was(tmp_path):
    """And nothing beside it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old").touch()
    with pytest.raises(TypeError), whole_folder(folder) as fresh:
        (fresh / "new").write_text(1)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in folder.iterdir()] == ["old"]
