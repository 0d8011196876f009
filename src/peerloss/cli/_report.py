"""``peerloss report``: the results in a folder, as a page or as JSON."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (typer reads annotations at run time)
from typing import Annotated

import typer

from peerloss.cli._terminal import say, say_json


def report(
    results: Annotated[Path, typer.Argument(help="Folder that peerloss reproduce -o wrote.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The page (.html); default: report.html in RESULTS."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON only; write no files.")
    ] = False,
) -> None:
    """Write tables next to the paper's, statistical tests and pictures as one self-contained HTML page.

    A folder of the same name next to it has the pictures (PNG), tables (Markdown, CSV) and numbers (JSON).

    Example: peerloss report runs -o page.html
    """
    if as_json and output is not None:
        raise typer.BadParameter("-o and --json cannot be used together.")
    if not as_json:
        write_page(results, output)
        return
    from peerloss.report import build_report, report_numbers

    say_json(report_numbers(build_report(results)))


def write_page(results: Path, output: Path | None = None) -> None:
    """Write the page, by default into the folder of results, and print its path."""
    from peerloss.report import build_report, write_report

    found = build_report(results)
    page = results / "report.html" if output is None else output
    written = write_report(found, page)
    for note in found.notes:
        say(f"Note: {note}", err=True)
    experiments = ", ".join(section.name for section in found.sections)
    say(f"{page}: {experiments}; {len(written) - 1} more files in {page.with_suffix('')}.")
