"""Configuration of Sphinx for ``make docs``. The pages load nothing from the network."""

from __future__ import annotations

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from docutils import nodes
from typer.testing import CliRunner

from peerloss import __version__
from peerloss.cli import app

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent

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
# Frameworks that are not installed are mocked, so that the pages can be built without them.
FRAMEWORKS = ("transformers", "lightning", "skorch", "opacus")
autodoc_mock_imports = [name for name in FRAMEWORKS if find_spec(name) is None]
autosummary_generate = False  # the pages of the API are written by hand
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 78
napoleon_google_docstring = False
napoleon_attr_annotations = False
napoleon_custom_sections = ["Returns"]  # prose; napoleon would look for types

html_theme = "furo"
html_title = f"peerloss {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # browsers may not load other local files
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"


def write_pages() -> None:
    """Write the pages that are generated from other files: results, examples, the help of the commands."""
    pages = {f"results/{table.name}": include(table) for table in (ROOT / "results").glob("*.md")}
    pages |= {"examples.md": examples_page(), "api/command_line.md": command_page()}
    pages["tutorial.md"] = notebook_page(DOCS / "tutorial.ipynb")
    shutil.copytree(ROOT / "results" / "figures", DOCS / "results" / "figures", dirs_exist_ok=True)
    for page in (DOCS / "results").glob("*.md"):
        if f"results/{page.name}" not in pages:
            page.unlink()
    for name, text in pages.items():
        page = DOCS / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:  # else Sphinx reads it again
            page.write_text(text, encoding="utf-8")


def include(path: Path) -> str:
    """Return a page that includes a file of the repository."""
    return f"```{{include}} ../../{path.relative_to(ROOT)}\n```\n"


def examples_page() -> str:
    """Return examples/README.md followed by the scripts."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((\w+)\.py\)", r"](#script-\1)", text)
    for script in sorted((ROOT / "examples").glob("*.py")):
        text += f"\n(script-{script.stem})=\n## The script {script.name}\n\n"
        text += f"```{{literalinclude}} ../examples/{script.name}\n```\n"
    return text


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown: its text, code and stored outputs; nothing is run."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```{{code-block}} python\n{source}\n```")
        streams: dict[str, str] = {}  # pieces of one stream belong together
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                streams[output["name"]] = streams.get(output["name"], "") + "".join(output["text"])
        parts += [f"```{{code-block}} text\n{text}```" for text in streams.values()]
        parts += [_shown(output["data"]) for output in cell["outputs"] if "data" in output]
    return "\n\n".join([*parts, f"This page is [a notebook]({path.name}), which you can run."]) + "\n"


def _shown(data: dict[str, Any]) -> str:
    """Return an output of a notebook as raw HTML; a wide one scrolls."""
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        shown = f'<img src="data:image/png;base64,{picture}" alt="The picture that this code draws">'
    else:
        shown = "".join(data["text/html"])
    return f'````{{raw}} html\n<div class="notebook-output">{shown}</div>\n````'


def command_page() -> str:
    """Return the help of every command."""
    text = "# Command line\n\n`peerloss COMMAND --help` prints the same.\n"
    for name in sorted(typer.main.get_command(app).commands):  # type: ignore[attr-defined]
        page = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "84", "TERMINAL_WIDTH": "84"}).output
        text += f"\n## {name}\n\n```text\n{page.strip()}\n```\n"
    return text


def escape_bars(_sphinx: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Escape |α| in a docstring: reStructuredText would look for a substitution called α."""
    for number, line in enumerate(lines):
        if "|" in line and not line.lstrip().startswith((">>>", "...")):
            parts = line.split("``")  # every second part is code
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[number] = "``".join(parts)


def mark_numbers(_sphinx: Sphinx, doctree: nodes.document) -> None:
    """Give table cells that contain numbers a class: the style keeps "0.85 ± 0.01" on one line."""
    for cell in doctree.findall(nodes.entry):
        if re.fullmatch(r"(?=.*\d)[\d\s.,±()%×*+\-−–—<≤≥]+", cell.astext()):
            cell["classes"].append("number")


def setup(sphinx: Sphinx) -> None:
    """Write the generated pages and register the hooks."""
    write_pages()
    sphinx.connect("doctree-read", mark_numbers)
    sphinx.connect("autodoc-process-docstring", escape_bars, priority=400)  # before napoleon
