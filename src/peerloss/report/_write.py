"""Write pages, and the pictures and tables that belong to them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

from peerloss._files import atomic_files
from peerloss.exceptions import InvalidInputError
from peerloss.report._exports import report_numbers, section_markdown, table_csv
from peerloss.report._report_page import demo_page, draw_pictures, file_name, report_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from peerloss.experiments.demo import DemoRow
    from peerloss.report._report import Report


def write_report(report: Report, page: Path) -> list[Path]:
    """Write the HTML page, and a folder of the same name with pictures, tables and numbers as files.

    Parameters
    ----------
    report
        From :func:`build_report`.
    page
        Path of the page; must end in ``.html``. It does not depend on the other files.

    Returns
    -------
    list of Path
        The files that were written, the page last. Either all are written or none is changed.
    """
    check_page_path(page)
    _check_installed()
    folder = page.with_suffix("")
    pictures = [draw_pictures(section) for section in report.sections]
    files = {folder / picture.name: picture.png for own in pictures for picture in own}
    for section in report.sections:
        name = file_name(section.experiment, section.protocol)
        if section.table or section.images:
            files[folder / f"{name}.md"] = section_markdown(section).encode()
        if section.table:
            files[folder / f"{name}.csv"] = table_csv(section.table).encode()
    files[folder / "figures.json"] = (json.dumps(report_numbers(report), indent=1) + "\n").encode()
    files[page] = report_page(report, pictures).encode()
    _write_files(files)
    return list(files)


def write_demo(rows: Sequence[DemoRow], page: Path, *, steps: int) -> None:
    """Write the ``page`` of ``peerloss demo``: its ``rows``, networks trained for ``steps`` steps."""
    check_page_path(page)
    _check_installed()
    _write_files({page: demo_page(rows, steps=steps).encode()})


def check_page_path(page: Path) -> None:
    """Reject a path that cannot be an HTML page with a folder of the same name next to it."""
    if page.suffix.lower() not in {".html", ".htm"}:
        raise InvalidInputError(f"`output` must end in .html; got {page}. Try {page.with_suffix('.html')}.")
    if page.is_dir():
        raise InvalidInputError(f"`output` must be a file; {page} is a folder.")


def _write_files(files: Mapping[Path, bytes]) -> None:
    """Write files in order; none replaces an earlier one before all are on disk."""
    with atomic_files(*files) as unfinished:
        for path, content in zip(unfinished, files.values(), strict=True):
            path.write_bytes(content)


def _check_installed() -> None:
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f"Pages and pictures need {' and '.join(missing)}: pip install 'peerloss[report]'."
        )
