"""Additions to a file are on the disk or taken back; one process at a time holds a lock."""

import errno
import os

import pytest

from peerloss._files import append_through, lock_file
from peerloss.exceptions import OutputError


def failing_write(monkeypatch, accepted):
    """Make the disk full after a number of bytes."""
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
def test_a_failed_addition_is_never_written(tmp_path, monkeypatch, mode, accepted):
    """A partial write is undone, and the next addition does not contain it."""
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
    """If undoing fails as well, the file is closed, and later additions are refused."""
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


def test_a_lock_is_exclusive(tmp_path):
    """It is released when the file is closed."""
    path = tmp_path / "locked"
    with path.open("ab") as one, path.open("ab") as two:
        assert lock_file(one)
        assert not lock_file(two)
    with path.open("ab") as three:
        assert lock_file(three)
