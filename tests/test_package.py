"""The public names of the package and its import time."""

import subprocess
import sys

import pytest

import peerloss


def test_every_public_name_can_be_imported():
    """The names of `__all__` exist, and `dir` lists them."""
    for name in peerloss.__all__:
        assert getattr(peerloss, name) is not None
    assert dir(peerloss) == sorted(peerloss.__all__)


def test_an_unknown_name_is_an_attribute_error():
    """An unknown name raises the usual error."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        peerloss.nonsense  # noqa: B018 (the access is the test)


@pytest.mark.parametrize("command", [["-m", "peerloss", "--help"], ["-c", "import peerloss"]])
def test_nothing_heavy_is_imported_before_it_is_used(command):
    """`--help` and a bare import load neither torch nor scikit-learn."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True, check=True
    )
    loaded = {line.rsplit("|", 1)[-1].strip() for line in run.stderr.splitlines()}
    assert "peerloss" in loaded
    assert not loaded & {"torch", "sklearn", "pandas", "scipy"}
