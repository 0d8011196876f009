"""Streams that replace a file atomically."""

import pytest

from peerloss._files import atomic_stream


def test_the_file_is_replaced_at_the_end_of_the_block(tmp_path):
    """Before that the old content can be read."""
    path = tmp_path / "file.txt"
    path.write_text("old")
    with atomic_stream(path, "w") as stream:
        stream.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_an_error_leaves_the_old_file(tmp_path):
    """Nothing of the new content remains."""
    path = tmp_path / "file.txt"
    path.write_text("old")

    def fail():
        with atomic_stream(path) as stream:
            stream.write(b"half")
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert [file.name for file in tmp_path.iterdir()] == ["file.txt"]
    assert path.read_text() == "old"
