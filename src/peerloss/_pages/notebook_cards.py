"""Small HTML views of results in a notebook: a heading, sentences and tables; all text is escaped.

They use the colours of the notebook, so they are readable on light and dark backgrounds, and need no package.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Colours are inherited; lines and shades are transparent grey, which is visible on any background.
_LINE = "rgba(128,128,128,.35)"
_CARD = f"border:1px solid {_LINE};border-radius:6px;padding:.6em .9em;max-width:60em;overflow-x:auto"
_TABLE = "border-collapse:collapse;margin:.5em 0;color:inherit;background:transparent"
_CELL = f"padding:.15em .7em;border-bottom:1px solid {_LINE};color:inherit;background:transparent"
#: Longest text of a cell.
MAX_TEXT = 60


class Html(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def card(title: str, *parts: str) -> str:
    """Return a view with a heading; parts that are not :class:`Html` are sentences and become paragraphs."""
    body = "".join(part if isinstance(part, Html) else f"<p>{escape(part)}</p>" for part in parts if part)
    return f'<div style="{_CARD}"><strong>{escape(title)}</strong>{body}</div>'


def table(
    headings: Sequence[object], rows: Iterable[Sequence[object]], *, caption: str = "", n_left: int = 1
) -> Html:
    """Return a table. The first ``n_left`` columns are aligned to the left, the others to the right."""

    def cells(values: Sequence[object], tag: str) -> str:
        return "".join(
            f'<{tag} style="{_CELL};text-align:{"left" if i < n_left else "right"}">{_short(value)}</{tag}>'
            for i, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    above = f'<caption style="text-align:left;color:inherit">{escape(caption)}</caption>' if caption else ""
    return Html(f'<table style="{_TABLE}">{above}<tr>{cells(headings, "th")}</tr>{body}</table>')


def details(summary: str, *sentences: str) -> Html:
    """Return sentences that are shown after a click on the summary."""
    body = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return Html(f"<details><summary>{escape(summary)}</summary>{body}</details>")


def _short(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…")
