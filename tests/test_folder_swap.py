"""Exchange two folders in one step, or report that the system does not support it."""

import ctypes
import errno
import sys

import pytest

from peerloss import _files
from peerloss._files import exchange


@pytest.fixture
def two(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    return tmp_path / "one", tmp_path / "two"


def test_folders_are_exchanged_or_unchanged(two):
    """They are exchanged if the system supports it; otherwise nothing changes."""
    one, other = two
    done = exchange(one, other)
    assert (one / ("two" if done else "one")).exists()
    assert (other / ("one" if done else "two")).exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_errors_of_the_system_are_raised(two):
    """A missing folder is an error, not a missing feature of the system."""
    one, _ = two
    with pytest.raises(FileNotFoundError):
        exchange(one, one.with_name("absent"))


class Library:
    """A C library without the call, or with one that always fails."""

    def __init__(self, number=None):
        if number is not None:
            self.renameat2 = lambda *_: ctypes.set_errno(number) or -1


@pytest.mark.parametrize("library", [Library(), Library(errno.EINVAL), Library(errno.ENOSYS)])
def test_systems_without_support_return_false(two, monkeypatch, library):
    """An old C library, kernel or file system, or another operating system: nothing changes."""
    one, other = two
    with monkeypatch.context() as patch:
        patch.setattr(_files.ctypes, "CDLL", lambda *_, **__: library)
        assert not exchange(one, other)
    monkeypatch.setattr(_files.sys, "platform", "other")
    assert not exchange(one, other)
    assert (one / "one").exists()
