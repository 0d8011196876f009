"""The view of a noise model in a notebook, which audits and reports include."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._pages.notebook_cards import Html, card, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss._validation import FloatArray

#: Matrices of more classes are shown as one flip rate per class.
MAX_CLASSES = 8


def noise_card(transition: FloatArray) -> str:
    """Return the view of a transition matrix."""
    return card(f"Label noise of {len(transition)} classes", noise_table(transition))


def noise_table(
    transition: FloatArray,
    classes: Sequence[object] | None = None,
    *,
    low: FloatArray | None = None,
    high: FloatArray | None = None,
) -> Html:
    """Return a table of T, with intervals if ``low`` and ``high`` are given; many classes have one column."""
    names = [f"class {i}" for i in range(len(transition))] if classes is None else list(map(str, classes))

    def entry(i: int, j: int, *, wrong: bool = False) -> str:
        ends = [] if low is None or high is None else [float(low[i, j]), float(high[i, j])]
        values = [float(transition[i, j]), *ends]
        if wrong:
            values = [1.0 - value for value in (values[0], *reversed(values[1:]))]
        share = f"{values[0]:.1%}"
        return share if len(values) == 1 else f"{share} ({values[1]:.1%}–{values[2]:.1%})"

    caption = "How rows of each class are labelled" + ("" if low is None else ", with 90 % intervals")
    if len(transition) > MAX_CLASSES:
        rates = [(name, entry(i, i, wrong=True)) for i, name in enumerate(names)]
        return table(("true class", "labelled as another class"), rates, caption=caption)
    rows = [(name, *(entry(i, j) for j in range(len(names)))) for i, name in enumerate(names)]
    return table(("true class", *(f"labelled {name}" for name in names)), rows, caption=caption)
