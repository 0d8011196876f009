"""Commands that install optional packages."""

import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from peerloss._installing import import_extra, install_command
from peerloss.exceptions import InvalidInputError

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("extra", ["report", "tables", "boost"])
def test_the_command_names_the_packages_with_their_bounds(extra):
    """A shell passes them to pip unchanged, and they do not depend on the folder."""
    needed = PROJECT["optional-dependencies"][extra]
    pip, install, *packages = shlex.split(install_command(extra))
    assert (pip, install) == ("pip", "install")
    assert {str(Requirement(text)) for text in packages} == {str(Requirement(text)) for text in needed}


def test_without_metadata_the_extra_of_the_source_is_named(monkeypatch):
    """If only the source files are there, pip must be run in their folder."""

    def absent(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", absent)
    assert install_command("tables") == 'pip install ".[tables]" in the folder of peerloss'


def test_a_missing_package_is_reported_with_the_command():
    """The message says what needs it and ends with the advice."""
    assert import_extra("json.decoder", "tables", "Files").__name__ == "json.decoder"
    with pytest.raises(
        InvalidInputError, match=r"^Pages need a package .*no_such.*: pip install .*\. Or use another\.$"
    ):
        import_extra("no_such.part", "report", "Pages", advice="Or use another.")


def test_no_message_names_an_extra_of_an_index():
    """The package is installed from a clone, where `pip install peerloss[extra]` finds nothing."""
    found = [
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "src").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install [\"']?peerloss", line)
    ]
    assert found == []
