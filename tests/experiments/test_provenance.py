"""Where results were computed."""

import re
import subprocess

import pytest

from peerloss.experiments import _record


@pytest.fixture(autouse=True)
def forget():
    """Clear the cache: the commit is computed once per process."""
    _record.commit.cache_clear()
    yield
    _record.commit.cache_clear()


def test_in_a_checkout_git_gives_the_commit():
    """With a note if there are uncommitted changes."""
    git = subprocess.run(
        ["git", "-C", _record.__file__.rsplit("/", 1)[0], "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if git.returncode:
        pytest.skip("these sources are not a git checkout")
    assert re.fullmatch(rf"{git.stdout.strip()}( with changes)?", _record.commit())


def test_elsewhere_the_environment_names_it(monkeypatch):
    """Without git the variable is used; without both the commit is unknown."""
    monkeypatch.setattr(_record.shutil, "which", lambda _: None)
    monkeypatch.setenv("PEERLOSS_COMMIT", "abc1234")
    assert _record.commit() == "abc1234"
    _record.commit.cache_clear()
    monkeypatch.delenv("PEERLOSS_COMMIT")
    assert _record.commit() == "unknown"
