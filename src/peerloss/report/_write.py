"""Write self-contained HTML pages, and the pictures and tables that belong to them."""

from __future__ import annotations

import base64
import json
import re
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from peerloss._files import atomic_files
from peerloss._installing import install_command
from peerloss._pages import render
from peerloss.exceptions import InvalidInputError
from peerloss.report import _exports as export
from peerloss.report import _pictures as draw
from peerloss.report._read_results import method_title

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from peerloss.experiments.demo import DemoRow
    from peerloss.report._report import Report, Section


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
            files[folder / f"{name}.md"] = export.section_markdown(section).encode()
        if section.table:
            files[folder / f"{name}.csv"] = export.table_csv(section.table).encode()
    files[folder / "figures.json"] = (json.dumps(export.report_numbers(report), indent=1) + "\n").encode()
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
            f"Pages and pictures need {' and '.join(missing)}: {install_command('report')}."
        )


@dataclass(frozen=True)
class Picture:
    """A PNG with its file name and a description for readers who cannot see it."""

    name: str
    kind: str
    alt: str
    png: bytes

    @property
    def size(self) -> tuple[int, ...]:
        """Width and height in pixels, from the header of the PNG."""
        return struct.unpack(">II", self.png[16:24])

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


def draw_pictures(section: Section) -> list[Picture]:
    """Draw all pictures of a section."""
    return [*_agreement(section), *_curves(section), *_boundaries(section), *_invariance(section)]


def _agreement(section: Section) -> Iterator[Picture]:
    table = section.table
    if table is None or section.curves:  # the curves show the same
        return
    for prior in table.priors:
        cells = [cell for entry in table.of_prior(prior) for cell in entry.cells.values()]
        compared = sum(cell.difference is not None for cell in cells)
        if compared:
            alt = (
                f"Accuracy here against printed accuracy, {prior} prior: {compared} cells, "
                f"{sum(cell.far for cell in cells)} of them more than 3 points apart."
            )
            png = draw.picture(draw.draw_agreement, table, prior)
            yield _picture(section, "agreement", alt, png, prior)


def _curves(section: Section) -> Iterator[Picture]:
    for panel in section.curves:
        ends = ", ".join(f"{method_title(c.method)} {c.mean[-1]:.3f}" for c in panel.curves)
        alt = (
            f"Test accuracy during training on {panel.row.data_set}, noise {panel.row.noise}, "
            f"{panel.row.prior} prior; at the end {ends}."
        )
        yield _picture(section, "curves", alt, draw.picture(draw.draw_curves, panel), *panel.row)


def _boundaries(section: Section) -> Iterator[Picture]:
    for boundary in section.boundaries:
        alt = (
            f"Decision boundary of {method_title(boundary.method)} on {boundary.row.data_set}, noise "
            f"{boundary.row.noise}; test accuracy {export.accuracy(boundary.test_accuracy)}."
        )
        png = draw.picture(draw.draw_boundary, boundary, size=(3.2, 3.4), legend=False)
        yield _picture(section, "boundaries", alt, png, boundary.method, *boundary.row)


def _invariance(section: Section) -> Iterator[Picture]:
    for panel in section.invariance:
        slopes = ", ".join(f"{part.slope:.3f} on {part.name} rows" for part in panel.parts)
        alt = (
            f"Peer loss of {method_title(panel.method)} on noisy against clean labels, {panel.row.data_set}, "
            f"noise {panel.row.noise}, {panel.row.prior} prior: slope {slopes}; expected {panel.expected:g}."
        )
        png = draw.picture(draw.draw_invariance, panel)
        yield _picture(section, "invariance", alt, png, panel.method, *panel.row)


def _picture(section: Section, kind: str, alt: str, png: bytes, *names: object) -> Picture:
    return Picture(file_name(section.experiment, section.protocol, kind, *names) + ".png", kind, alt, png)


def file_name(*parts: object) -> str:
    """Return a file name made of any parts: only letters, digits, dots and dashes are kept.

    >>> file_name("curves", "../heart", 0.1)
    'curves-heart-0.1'
    """
    cleaned = (re.sub(r"[^a-z0-9.]+", "-", str(part).lower()).strip(".-") for part in parts)
    return "-".join(part for part in cleaned if part)[:120] or "unnamed"


def report_page(report: Report, pictures: Sequence[Sequence[Picture]]) -> str:
    """Return the page of a report; ``pictures`` holds those of each section."""
    sections = [
        {"content": section, "findings": export.findings(section), "pictures": own}
        for section, own in zip(report.sections, pictures, strict=True)
    ]
    return _render("report.html", sections=sections, notes=report.notes)


def demo_page(rows: Sequence[DemoRow], *, steps: int) -> str:
    """Return the page of ``peerloss demo``."""
    gains = ", ".join(
        f"{row.data_set} {row.e_neg:g}, {row.e_pos:g}: {export.points(row.peer - row.plain)}" for row in rows
    )
    alt = f"Plain training compared with peer loss; gain of peer loss in points: {gains}."
    picture = Picture("demo.png", "demo", alt, draw.picture(draw.draw_demo, rows, size=(6.4, 3.4)))
    mean = sum(row.peer - row.plain for row in rows) / len(rows)
    return _render("demo.html", rows=rows, steps=steps, picture=picture, mean_gain=mean)


def _render(template: str, **values: Any) -> str:
    filters: dict[str, Callable[..., str]] = {
        "accuracy": export.accuracy,
        "with_error": lambda pair: export.with_error(*pair),
        "points": export.points,
        "p_value": export.p_value,
        "title_of": method_title,
    }
    return render("peerloss.report", template, filters=filters, **values)
