"""The pages of the documentation, their code blocks, and how a block is run."""

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

#: A comment `<!-- needs: … -->`, a fence with its language, and below it a `text` fence with the output.
_BLOCK = re.compile(
    r"(?:^<!-- needs: (?P<needs>[^\n]*?) -->\n+)?"
    r"^```(?P<language>python|bash|console)\n(?P<code>.*?)^```$"
    r"(?:\n\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)

#: Requirements that a block may name, and whether they are met. Some never are: the block is shown, not run.
NEEDS = {
    "gpu": torch.cuda.is_available,
    "data": lambda: "PEERLOSS_DATA" in os.environ,
    "network": lambda: False,
    "minutes": lambda: False,
    "several processes": lambda: False,
    "a browser": lambda: False,
    **{
        package: lambda package=package: find_spec(package) is not None
        for package in (
            "lightgbm",
            "xgboost",
            "ray",
            "transformers",
            "lightning",
            "skorch",
            "opacus",
            "cleanlab",
        )
    },
}

#: How much printed numbers may differ between versions of the libraries.
TOLERANCE = 0.06


@dataclass(frozen=True)
class Block:
    """A fenced block: its line, its code, its expected output and its requirements."""

    line: int
    language: str
    code: str
    needs: str
    output: str | None

    @property
    def missing(self) -> list[str]:
        """Return the requirements that are not met."""
        wanted = [need.strip() for need in self.needs.split(",") if need.strip()]
        assert set(wanted) <= set(NEEDS), f"line {self.line}: {self.needs!r} is not one of {sorted(NEEDS)}"
        return [need for need in wanted if not NEEDS[need]()]

    def run(self, names: dict, page: str) -> str:
        """Run the block in the current folder and return what it prints."""
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
        """Return the lines that call `peerloss`; others (pip, make) are not run."""
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
    """Run lines with `>>>` and compare each output with the one shown."""
    parsed = doctest.DocTestParser().get_doctest(code, names, where, where, 0)
    parsed.globs = names
    output = io.StringIO()
    failed, _ = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(
        parsed, out=output.write, clear_globs=False
    )
    assert not failed, output.getvalue()
    return ""


def pages() -> list[Path]:
    """Return README and every page under docs that is not generated."""
    generated = {"_build", "results"}
    found = [page for page in DOCS.rglob("*.md") if not generated & set(page.relative_to(DOCS).parts)]
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
    """Compare word by word, numbers up to a tolerance; return the first difference, or an empty string."""
    printed = re.sub(r"^\[LightGBM\].*\n", "", printed, flags=re.MULTILINE)  # older versions print more
    left, right = shown.split(), printed.split()
    for one, other in zip(left, right, strict=False):
        if one != other and not _same_numbers(one, other):
            return f"the page shows {one!r}, but {other!r} was printed:\n{printed}"
    return "" if len(left) == len(right) else f"the page shows {len(left)} words; printed was:\n{printed}"


_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


def _same_numbers(one: str, other: str) -> bool:
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    numbers = ((float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs)
    return all(abs(a - b) <= TOLERANCE * max(1.0, abs(a)) for a, b in numbers)
