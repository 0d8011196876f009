"""Two folders change names in one step, or the caller is told that the system cannot."""

import ctypes
import errno
import sys

import pytest

from peerloss import _folder_swap
from peerloss._folder_swap import exchange


@pytest.fixture
def two(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    return tmp_path / "one", tmp_path / "two"


def test_folders_change_names_or_nothing_happens(two):
    """Where the system can, each has the other's content; where it cannot, all is as it was."""
    one, other = two
    done = exchange(one, other)
    assert (one / ("two" if done else "one")).exists()
    assert (other / ("one" if done else "two")).exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_errors_of_the_system_are_raised(two):
    """A folder that is absent is an error, not a lack of the system."""
    one, _ = two
    with pytest.raises(FileNotFoundError):
        exchange(one, one.with_name("absent"))


class Library:
    """A C library without the call, or with one that always fails."""

    def __init__(self, number=None):
        if number is not None:
            self.renameat2 = lambda *_: ctypes.set_errno(number) or -1


@pytest.mark.parametrize("library", [Library(), Library(errno.EINVAL), Library(errno.ENOSYS)])
def test_systems_that_cannot_say_so(two, monkeypatch, library):
    """An old C library, kernel or file system, or another operating system: false, and nothing happens."""
    one, other = two
    with monkeypatch.context() as patch:
        patch.setattr(_folder_swap.ctypes, "CDLL", lambda *_, **__: library)
        assert not exchange(one, other)
    monkeypatch.setattr(_folder_swap.sys, "platform", "other")
    assert not exchange(one, other)
    assert (one / "one").exists()
