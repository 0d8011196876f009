"""How Sphinx builds the site: ``make docs``. Nothing on the pages comes from the network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloss import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"

project = "peerloss"
author = "the peerloss contributors"
copyright = author  # noqa: A001 - Sphinx's name
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "figures"]
default_role = "code"

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "booster_, set_fit_request, set_score_request"}
autodoc_typehints_format = "short"
autosummary_generate = False  # the pages of the API are written by hand
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 78
napoleon_google_docstring = False
napoleon_custom_sections = ["Returns"]  # prose here, where napoleon would look for types

html_theme = "furo"
html_title = f"peerloss {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # browsers may not fetch other pages from the disk
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"


def write_result_pages() -> None:
    """Give every table under ``results/`` a page, so that a new one appears by itself."""
    folder = DOCS / "results"
    folder.mkdir(exist_ok=True)
    wanted = {
        table.name: f"```{{include}} ../../results/{table.name}\n```\n" for table in RESULTS.glob("*.md")
    }
    for page in folder.glob("*.md"):
        if page.name not in wanted:
            page.unlink()
    for name, text in wanted.items():
        page = folder / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def escape_bars(_app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Leave |α| in a docstring alone: reStructuredText would look for a substitution called α."""
    for number, line in enumerate(lines):
        if "|" in line and not line.lstrip().startswith((">>>", "...")):
            parts = line.split("``")  # every second one is code
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[number] = "``".join(parts)


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    write_result_pages()
    app.connect("autodoc-process-docstring", escape_bars, priority=400)  # before napoleon
