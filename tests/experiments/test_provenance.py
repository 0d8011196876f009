"""Where figures were made."""

import re
import subprocess

import pytest

from peerloss.experiments import _provenance


@pytest.fixture(autouse=True)
def forget():
    """Ask anew: the answer is kept for the process."""
    _provenance.commit.cache_clear()
    yield
    _provenance.commit.cache_clear()


def test_in_a_checkout_the_commit_is_gits():
    """With a word about changes that are in no commit."""
    asked = subprocess.run(
        ["git", "-C", _provenance.__file__.rsplit("/", 1)[0], "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        pytest.skip("these sources are no git checkout")
    assert re.fullmatch(rf"{asked.stdout.strip()}( with changes)?", _provenance.commit())


def test_elsewhere_the_environment_may_say_it(monkeypatch):
    """Without git the variable counts, and without it nothing is made up."""
    monkeypatch.setattr(_provenance.shutil, "which", lambda _: None)
    monkeypatch.setenv("PEERLOSS_COMMIT", "abc1234")
    assert _provenance.commit() == "abc1234"
    _provenance.commit.cache_clear()
    monkeypatch.delenv("PEERLOSS_COMMIT")
    assert _provenance.commit() == "unknown"
