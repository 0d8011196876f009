"""Where pages go, and what their files are called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from peerloss._files import atomic_files
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def check_page_path(page: Path) -> None:
    """Refuse a path that cannot become an HTML page with a folder of the same name beside it."""
    if page.suffix.lower() not in {".html", ".htm"}:
        raise InvalidInputError(f"`output` must end in .html; got {page}. Try {page.with_suffix('.html')}.")
    if page.is_dir():
        raise InvalidInputError(f"`output` must be a file; {page} is a folder.")


def write_files(files: Mapping[Path, bytes]) -> None:
    """Write files in their order; nothing takes its place before all are on the disk."""
    with atomic_files(*files) as unfinished:
        for path, content in zip(unfinished, files.values(), strict=True):
            path.write_bytes(content)


def file_name(*parts: object) -> str:
    """Return a name made of parts that may hold anything: only letters, digits, dots and dashes are left.

    >>> file_name("curves", "../heart", 0.1)
    'curves-heart-0.1'
    """
    cleaned = (re.sub(r"[^a-z0-9.]+", "-", str(part).lower()).strip(".-") for part in parts)
    return "-".join(part for part in cleaned if part)[:120] or "unnamed"
