"""Self-contained HTML pages: the layout, style and table sorting that reports and audits share.

In ``templates``, ``page.html`` is the layout, ``style.css`` the style (with ``colours.css``), and ``sort.js``
sorts a table when a heading is clicked. Other packages have their own ``templates``. Text is always escaped.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any

from peerloss._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def label_text(label: object) -> str:
    """Return a label as text, in quotes if spaces around it would not be seen.

    >>> label_text("yes"), label_text("yes ")
    ('yes', "'yes '")
    """
    text = str(label)
    return text if text == text.strip() and text else repr(text)


def render(
    package: str,
    template: str,
    *,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    script: str | None = None,
    **values: Any,
) -> str:
    """Fill in a template of ``package``; it may extend and include the files of this package.

    ``script`` names a file of ``package`` that runs after the script that sorts tables.
    """
    import jinja2  # noqa: PLC0415 - an extra

    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in (package, "peerloss._pages")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= dict(filters or {})
    files = [("peerloss._pages", "sort.js")] + ([] if script is None else [(package, script)])
    code = "".join(
        resources.files(place).joinpath("templates", name).read_text(encoding="utf-8")
        for place, name in files
    )
    # The page's policy allows this script and no other, even if a name were not escaped.
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode("ascii")
    page = environment.get_template(template)
    return page.render(script=code, script_digest=digest, version=__version__, **values)


def row_text(name: Any, position: int, number: int) -> str:
    """Return the number of a row in the file, and its name if that is not its position.

    >>> row_text(0, 0, 2), row_text("ann", 0, 2)
    ('2', 'ann (row 2)')
    """
    return str(number) if str(name) == str(position) else f"{name} (row {number})"
