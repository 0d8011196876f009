"""The pages a reader sees, the blocks of code in them, and how a block is run."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from typer.testing import CliRunner

from peerloss.cli import app

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"

#: A comment `<!-- needs: … -->`, a fence with its language, and right below a fence `text`: what it prints.
_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>[^\n]*?) -->\n+)?"
    r"^```(?P<language>python|bash|console)\n(?P<code>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)

#: What a block may say that it needs, and whether it is here. Never: it is shown, not run.
NEEDS = {
    "gpu": torch.cuda.is_available,
    "data": lambda: "PEERLOSS_DATA" in os.environ,
    "network": lambda: False,
    "minutes": lambda: False,
    "several processes": lambda: False,
    "a browser": lambda: False,
    **{
        package: lambda package=package: find_spec(package) is not None
        for package in ("lightgbm", "xgboost", "ray", "transformers", "lightning", "skorch", "cleanlab")
    },
}

#: Printed figures may differ so far between versions of the libraries.
TOLERANCE = 0.06


@dataclass(frozen=True)
class Block:
    """A fenced block: where it stands, what it holds, what it prints, what it cannot run without."""

    line: int
    language: str
    code: str
    needs: str
    output: str | None

    @property
    def missing(self) -> list[str]:
        """Return what it needs and does not find."""
        wanted = [need.strip() for need in self.needs.split(",") if need.strip()]
        assert set(wanted) <= set(NEEDS), f"line {self.line}: {self.needs!r} is none of {sorted(NEEDS)}"
        return [need for need in wanted if not NEEDS[need]()]

    def run(self, names: dict, page: str) -> str:
        """Run it where it would be typed, return what it prints."""
        if self.language != "python":
            return "".join(run_command(command) for command in self.commands())
        if ">>>" in self.code:
            return run_session(self.code, names, f"{page}:{self.line}")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            source = "\n" * self.line + self.code  # so that a traceback shows the line of the page
            exec(compile(source, page, "exec"), names)  # noqa: S102 (our own pages)
        return printed.getvalue()

    def commands(self) -> list[str]:
        """Return its lines that call `peerloss`; others (pip, make) prepare a machine and are not run."""
        lines = self.code.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line.split("#")[0] for line in lines if line.startswith("peerloss ")]


def run_command(command: str) -> str:
    """Run `peerloss …` in this process and return what it prints."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"
    return result.output


def run_session(code: str, names: dict, where: str) -> str:
    """Run lines with `>>>` and hold each answer against the one shown."""
    parsed = doctest.DocTestParser().get_doctest(code, names, where, where, 0)
    parsed.globs = names
    heard = io.StringIO()
    failed, _ = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        parsed, out=heard.write, clear_globs=False
    )
    assert not failed, heard.getvalue()
    return ""


def pages() -> list[Path]:
    """Return README and every page under docs that somebody wrote."""
    built = {"_build", "results"}
    found = [page for page in DOCS.rglob("*.md") if not built & set(page.relative_to(DOCS).parts)]
    return [ROOT / "README.md", *sorted(found)]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of one page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            line=text.count("\n", 0, match.start("code")),
            language=match["language"],
            code=match["code"],
            needs=match["needs"] or "",
            output=match["output"],
        )
        for match in _BLOCK.finditer(text)
    ]


def first_difference(shown: str, printed: str) -> str:
    """Compare word by word, figures up to a tolerance; return the first difference, or nothing."""
    printed = re.sub(r"^\[LightGBM\].*\n", "", printed, flags=re.MULTILINE)  # older ones are talkative
    left, right = shown.split(), printed.split()
    for one, other in zip(left, right, strict=False):
        if one != other and not _same_figures(one, other):
            return f"the page shows {one!r}, printed was {other!r}:\n{printed}"
    return "" if len(left) == len(right) else f"the page shows {len(left)} words, printed were:\n{printed}"


_FIGURE = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def _same_figures(one: str, other: str) -> bool:
    if _FIGURE.sub("#", one) != _FIGURE.sub("#", other):
        return False
    pairs = zip(_FIGURE.findall(one), _FIGURE.findall(other), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= TOLERANCE * max(1.0, abs(a)) for a, b in numbers)
