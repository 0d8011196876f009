"""Draw what peer samples are and why they help: ``python docs/figures/peers.py docs/_static/peers.svg``.

Above: which pairs are compared. Below: the reward of two rules. The numbers are exact: two equally frequent
classes, P(Ỹ = 1 | Y = 0) = 0.1, P(Ỹ = 0 | Y = 1) = 0.4.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from peerloss import NoiseModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWN, PEER, DIFFERENCE, INK, PALE = "#0072b2", "#d55e00", "#009e73", "#222222", "#eef1f4"
PREDICTIONS = ["yes", "no", "yes", "no", "yes"]
LABELS = ["yes", "no", "no", "no", "yes"]
ROW, FIRST_PEER, SECOND_PEER = 0, 2, 4


def draw_pairs(axes: Axes) -> None:
    """Show a table of predictions and labels with the two comparisons as arrows."""
    axes.set(xlim=(0, 10), ylim=(-0.75, 5.75))
    axes.axis("off")
    for column, title in ((2.6, "prediction"), (7.0, "noisy label")):
        axes.text(column, 5.35, title, ha="center", va="center", weight="bold")
    names = {ROW: "row n", FIRST_PEER: "row n₁", SECOND_PEER: "row n₂"}
    for row, (prediction, label) in enumerate(zip(PREDICTIONS, LABELS, strict=True)):
        height = 4.5 - row
        axes.text(0.9, height, names.get(row, "…"), ha="right", va="center", style="italic")
        for column, word, lit in (
            (2.6, prediction, row in {ROW, FIRST_PEER}),
            (7.0, label, row in {ROW, SECOND_PEER}),
        ):
            axes.add_patch(
                FancyBboxPatch(
                    (column - 0.75, height - 0.28),
                    1.5,
                    0.56,
                    boxstyle="round,pad=0.02,rounding_size=0.15",
                    facecolor="white" if lit else PALE,
                    edgecolor=INK if lit else PALE,
                    linewidth=1.4,
                )
            )
            axes.text(column, height, word, ha="center", va="center", color=INK if lit else "#8a9199")
    arrow = {"arrowstyle": "<->", "linewidth": 2.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (6.15, 4.5), (3.45, 4.5), arrowprops={**arrow, "color": OWN})
    axes.annotate("", (6.15, 0.5), (3.45, 2.5), arrowprops={**arrow, "color": PEER, "linestyle": "--"})
    style = {"va": "center", "weight": "bold"}
    axes.text(8.05, 4.5, "same row:\nagreement counts", color=OWN, **style)
    axes.text(8.05, 1.5, "two random rows:\nchance agreement\nis subtracted", color=PEER, **style)


def agreement(predicted: np.ndarray, joint: np.ndarray) -> tuple[float, float]:
    """Return P(f = ỹ) for the same row and for two rows, if a rule predicts ``predicted[y]`` in class y."""
    own = sum(joint[y, predicted[y]] for y in (0, 1))
    shares = np.bincount(predicted, weights=joint.sum(axis=1), minlength=2)
    return float(own), float(shares @ joint.sum(axis=0))


def draw_agreement(axes: Axes) -> None:
    """Show both agreements and their difference, for a constant rule and the true one."""
    joint = 0.5 * NoiseModel.binary(e_neg=0.1, e_pos=0.4).transition
    rules = {'always predicts "no"': np.array([0, 0]), "predicts the true class": np.array([0, 1])}
    for place, (name, predicted) in enumerate(rules.items()):
        own, peer = agreement(predicted, joint)
        for step, (value, colour) in enumerate(((own, OWN), (peer, PEER), (own - peer, DIFFERENCE))):
            x = place * 4 + step
            axes.bar(x, value, 0.86, color=colour)
            axes.text(x, value + 0.02, f"{value:.2f}", ha="center", va="bottom")
        axes.text(place * 4 + 1, -0.06, name, ha="center", va="top", weight="bold")
    axes.set(xlim=(-0.7, 6.7), ylim=(0, 0.98), xticks=[], yticks=[])
    axes.spines[["top", "left", "right"]].set_visible(False)
    for x, word, colour in (
        (-0.5, "agreement with own label", OWN),
        (2.45, "− with a peer's label", PEER),
        (4.95, "= difference", DIFFERENCE),
    ):
        axes.text(x, 0.92, word, color=colour, weight="bold", va="center")


def main(path: str) -> None:
    """Write the picture; the same input gives the same file."""
    mpl.rcParams.update({"font.size": 11.5, "svg.hashsalt": "peers", "text.color": INK})
    figure = Figure(figsize=(6.8, 6.6), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[1.35, 1])
    draw_pairs(above)
    draw_agreement(below)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


if __name__ == "__main__":
    main(sys.argv[1])
