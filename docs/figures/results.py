"""Draw the README's picture: ``python docs/figures/results.py docs/images/results.png``.

The numbers are those of "By noise pair" in ``results/accuracy_peer_classifier.md``. The background
is opaque, so that the picture looks the same on light and on dark pages.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = Path(__file__).parents[2] / "results" / "accuracy_peer_classifier.md"
INK, PALE_INK, BACKGROUND = "#24292f", "#5c6670", "#ffffff"
#: Column of the table → its text in the legend, and how it is drawn.
SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "clean": (
        "same models, clean labels",
        {"marker": "|", "color": "#7a8490", "markersize": 17, "markeredgewidth": 3},
    ),
    "plain": (
        "same models, noisy labels, no correction",
        {"marker": "D", "color": "#d55e00", "markersize": 9, "markeredgewidth": 0},
    ),
    "ours": (
        "PeerClassifier, noisy labels",
        {"marker": "o", "color": "#0072b2", "markersize": 9, "markeredgewidth": 0},
    ),
}
PRIORS = {"original": "original class frequencies", "equalized": "balanced classes"}


class Row(NamedTuple):
    """Mean accuracy over ten data sets for one pair of noise rates."""

    noise: str
    prior: str
    accuracy: dict[str, float]

    @property
    def symmetric(self) -> bool:
        """Whether both classes are flipped equally often."""
        e_neg, e_pos = self.noise.split(", ")
        return e_neg == e_pos


def read_rows() -> list[Row]:
    """Return the rows of the table, asymmetric noise first."""
    section = RESULTS.read_text(encoding="utf-8").split("## By noise pair")[1].split("##")[0]
    header, _, *body = (line for line in section.splitlines() if line.startswith("|"))
    names = cells(header)
    tables = [dict(zip(names, cells(line), strict=True)) for line in body]
    rows = [
        Row(table["noise"], table["prior"], {name: float(table[name]) for name in SERIES}) for table in tables
    ]
    return sorted(rows, key=lambda row: row.symmetric)


def cells(line: str) -> list[str]:
    """Return the cells of one line of a Markdown table."""
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def draw(axes: Axes, rows: list[Row], title: str) -> None:
    """Draw one line per noise pair: from plain training to PeerClassifier, and training on clean labels."""
    for height, row in enumerate(reversed(rows)):
        ends = row.accuracy["plain"], row.accuracy["ours"]
        axes.plot(ends, (height, height), color="#c9d1d9", linewidth=5)
        for name, (_, look) in SERIES.items():
            axes.plot(row.accuracy[name], height, linestyle="", **look)
    axes.set_yticks(range(len(rows)), [row.noise for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    n_symmetric = sum(row.symmetric for row in rows)
    axes.axhline(n_symmetric - 0.5, color="#c9d1d9", linewidth=1)
    axes.text(0.726, n_symmetric - 0.45, "unequal noise rates", va="bottom", color=PALE_INK, fontsize=9.5)
    axes.text(0.726, n_symmetric - 0.58, "equal noise rates", va="top", color=PALE_INK, fontsize=9.5)
    axes.set_title(title, fontsize=12, loc="left", color=INK)
    axes.set_xlim(0.715, 0.9)
    axes.set_xticks([0.75, 0.8, 0.85, 0.9])
    axes.grid(axis="x", color="#e6e9ed")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, colors=INK, labelsize=11)


def main(path: str) -> None:
    """Draw both halves and write the picture."""
    rows = read_rows()
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 11, "text.color": INK}):
        figure = Figure(figsize=(10, 3.7), facecolor=BACKGROUND, layout="constrained")
        for axes, (prior, title) in zip(figure.subplots(1, 2), PRIORS.items(), strict=True):
            draw(axes, [row for row in rows if row.prior == prior], title)
            axes.set_xlabel("accuracy on clean test labels, mean of ten data sets", color=INK)
            if prior == "original":
                axes.set_ylabel("noise rates:\nclass 0, class 1", color=INK)
        figure.legend(
            [Line2D([], [], linestyle="", **look) for _, look in SERIES.values()],
            [text for text, _ in SERIES.values()],
            loc="outside upper center",
            ncols=3,
            frameon=False,
        )
        figure.savefig(path, dpi=160, metadata={"Software": None})


if __name__ == "__main__":
    main(sys.argv[1])
