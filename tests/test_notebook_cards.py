"""Small HTML views for notebooks."""

import re

from peerloss._pages.notebook_cards import MAX_TEXT, card, details, table

HOSTILE = "<script>alert('x')</script>\"&"


def test_all_text_is_escaped():
    """Headings, sentences, cells, captions and summaries from outside are shown as text."""
    view = card(HOSTILE, HOSTILE, table([HOSTILE], [[HOSTILE]], caption=HOSTILE), details(HOSTILE, HOSTILE))
    assert "<script" not in view
    assert view.count("&lt;script&gt;") == 7


def test_tables_are_not_escaped_twice():
    """A part that is HTML is included as it is, and an empty part is left out."""
    view = card("a", "", table(["x"], [[1]]))
    assert view.count("<table") == view.count("</table>") == 1
    assert "<p>" not in view


def test_long_text_is_shortened():
    """A cell has at most so many characters."""
    (cell,) = re.findall(r"<td[^>]*>(.*?)</td>", table(["x"], [["a" * 500]]))
    assert len(cell) == MAX_TEXT
    assert cell.endswith("…")


def test_views_set_no_colours_of_their_own():
    """Text and background are those of the notebook; lines are transparent grey on any background."""
    view = card("a", table(["x"], [[1]], caption="c"))
    colours = set(re.findall(r"(?:color|background):([^;\"]+)", view))
    assert colours == {"inherit", "transparent"}
    assert set(re.findall(r"rgba\([^)]*\)", view)) == {"rgba(128,128,128,.35)"}
