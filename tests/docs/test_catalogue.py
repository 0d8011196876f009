"""Everything that the library raises, shows or exports is documented."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from types import FunctionType

import pytest

import peerloss
from peerloss import exceptions
from tests.docs.pages import DOCS, ROOT, blocks, pages
from tests.packages import PACKAGES

#: Packages, and their public sub-packages with a list of names.
LISTED = (*PACKAGES, "audit.review", "datasets.tables", "estimators.portfolio", "experiments.cifar")


def test_every_exception_and_warning_is_in_the_catalogue():
    """Those of `peerloss.exceptions` have a section each, those of single packages a row."""
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    ours = {name for name, thing in vars(exceptions).items() if isinstance(thing, type)}
    assert ours <= sections
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Warning")):
                assert node.name in page, f"docs/errors.md does not mention {node.name}"


@pytest.mark.parametrize("package", LISTED)
def test_every_public_name_is_in_the_api(package):
    """Names are listed one by one or with all members of their package; constants always one by one."""
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    listed = set(re.findall(r"(?:auto)?(?:class|function|data):: (?:[\w.]+\.)?(\w+)", text))
    module = import_module(f"peerloss.{package}")
    names = set(module.__all__)
    if re.search(rf"automodule:: peerloss\.{re.escape(package)}\n   :members:", text):
        # Sphinx leaves out constants and type aliases that a package imports from its modules.
        names = {name for name in names if not isinstance(getattr(module, name), type | FunctionType)}
    assert names - listed == set()


def test_what_the_package_exports_is_in_the_api():
    """Names that can be imported from `peerloss` itself are listed too."""
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    modules = {"functional", "metrics", "noise", "peer_prediction", "theory", "__version__"}
    assert {name for name in set(peerloss.__all__) - modules if name not in text} == set()


def test_every_code_block_of_a_page_is_collected():
    """Fences have a language, because a fence without one would be shown and never run."""
    for page in pages():
        opened = re.findall(r"^```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)[::2]
        if page.parent.name != "api" and page.name not in {"examples.md", "README.md", "design.md"}:
            assert all(opened), f"{page.name} has a fence without a language"
        shown = [language for language in opened if language in {"python", "bash", "console"}]
        assert len(shown) == len(blocks(page)), f"{page.name}: a block is not collected"


def test_the_picture_can_be_drawn_again(tmp_path):
    """The script of the picture runs and writes an SVG without a date."""
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    picture = tmp_path / "peers.svg"
    subprocess.run([sys.executable, DOCS / "figures" / "peers.py", picture], check=True)
    drawn = picture.read_text(encoding="utf-8")
    assert "<svg" in drawn
    assert "dc:date" not in drawn
