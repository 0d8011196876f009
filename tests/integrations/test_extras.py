"""Frameworks are optional."""

import re
import subprocess
import sys

import pytest

from peerloss._installing import install_command


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("huggingface", "transformers", "hf"),
        ("lightning", "lightning", "lightning"),
        ("skorch", "skorch", "skorch"),
        ("opacus", "opacus", "privacy"),
    ],
)
def test_a_missing_framework_is_named_with_its_extra(module, package, extra, monkeypatch):
    """The error says what to install."""
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"peerloss.integrations.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*{re.escape(install_command(extra))}"):
        __import__(f"peerloss.integrations.{module}")


def test_no_framework_is_imported_with_the_package():
    """Neither with peerloss nor with peerloss.integrations."""
    code = (
        "import sys, peerloss, peerloss.integrations;"
        "print([m for m in ('transformers', 'lightning', 'skorch', 'opacus') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
