"""Write pages and the files beside them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

from peerloss.exceptions import InvalidInputError
from peerloss.report._files import check_page_path, file_name, write_files
from peerloss.report._page import demo_page, draw_pictures, report_page
from peerloss.report._text import figures, section_markdown, table_csv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from peerloss.experiments.demo import DemoRow
    from peerloss.report._report import Report


def write_report(report: Report, page: Path) -> list[Path]:
    """Write the HTML page, and into the folder of its name the pictures, tables and figures as files.

    Parameters
    ----------
    report
        From :func:`build_report`.
    page
        Path of the page; must end in ``.html``. It needs none of the other files.

    Returns
    -------
    list of Path
        What was written, the page last. All files are whole, or as they were.
    """
    check_page_path(page)
    _check_installed()
    folder = page.with_suffix("")
    pictures = [draw_pictures(section) for section in report.sections]
    files = {folder / picture.name: picture.png for own in pictures for picture in own}
    for section in report.sections:
        if section.table:
            name = file_name(section.experiment, section.protocol)
            files[folder / f"{name}.md"] = section_markdown(section).encode()
            files[folder / f"{name}.csv"] = table_csv(section.table).encode()
    files[folder / "figures.json"] = (json.dumps(figures(report), indent=1) + "\n").encode()
    files[page] = report_page(report, pictures).encode()
    write_files(files)
    return list(files)


def write_demo(rows: Sequence[DemoRow], page: Path, *, steps: int) -> None:
    """Write the ``page`` of ``peerloss demo``: its ``rows``, networks trained for ``steps`` steps."""
    check_page_path(page)
    _check_installed()
    write_files({page: demo_page(rows, steps=steps).encode()})


def _check_installed() -> None:
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f"Pages and pictures need {' and '.join(missing)}: pip install 'peerloss[report]'."
        )
