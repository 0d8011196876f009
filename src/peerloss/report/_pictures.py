"""Draw pictures as PNG, without a display and without matplotlib's global state."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.report._paper import MAX_DIFFERENCE
from peerloss.report._read_results import method_title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from peerloss.experiments.demo import DemoRow
    from peerloss.report._accuracy_table import AccuracyTable
    from peerloss.report._series import Boundary, CurvePanel, InvariancePanel

#: Okabe and Ito's colours, which colour-blind readers can distinguish; lines also differ in dashes.
_COLOURS = {
    "peer": "#d55e00",
    "surrogate": "#0072b2",
    "symmetric": "#009e73",
    "dmi": "#cc79a7",
    "nn": "#333333",
    "c-svm": "#e69f00",
    "pam": "#56b4e9",
}
_DASHES = {
    "peer": "-",
    "surrogate": "--",
    "symmetric": "-.",
    "dmi": (0, (1, 1)),
    "nn": (0, (5, 1, 1, 1, 1, 1)),
}
_OTHER = "#7a7a7a"


def picture(
    draw: Callable[..., None], *content: Any, size: tuple[float, float] = (4.8, 3.5), legend: bool = True
) -> bytes:
    """Return the PNG of one panel; ``draw`` is one of the functions below, ``content`` what it draws."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (an extra, and slow to load)

    figure = Figure(figsize=size, dpi=150, layout="constrained", facecolor="white")
    axes = figure.subplots()
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes, *content)
    if legend:
        texts: Any = axes.legend(fontsize=8, frameon=True, framealpha=0.85, edgecolor="none").get_texts()
        for text in texts:
            text.set_parse_math(False)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def draw_curves(axes: Axes, panel: CurvePanel, *, bands: bool = True) -> None:
    """Draw test accuracy during training, with or without bands of one standard deviation around each mean.

    The bands of many methods hide each other.
    """
    for curve in panel.curves:
        colour = _COLOURS.get(curve.method, _OTHER)
        axes.plot(
            curve.step,
            curve.mean,
            color=colour,
            linestyle=_DASHES.get(curve.method, "-"),
            label=method_title(curve.method),
        )
        if bands:
            low, high = curve.mean - curve.spread, curve.mean + curve.spread
            axes.fill_between(curve.step, low, np.minimum(high, 1.0), color=colour, alpha=0.13, linewidth=0)
    _title(axes, f"{panel.row.data_set}, noise {panel.row.noise}", "training step", "test accuracy")


def draw_invariance(axes: Axes, panel: InvariancePanel) -> None:
    """Draw peer loss on noisy against clean labels, with the line predicted by Lemma 2."""
    looks = {
        "train": (_COLOURS["surrogate"], "training rows"),
        "validation": (_COLOURS["peer"], "held-out rows"),
    }
    for part in panel.parts:
        colour, name = looks[part.name]
        label = f"{name}: slope {part.slope:.3f}" + ("" if part.error is None else f" ± {part.error:.3f}")
        axes.plot(part.clean, part.noisy, ".", color=colour, alpha=0.6, markersize=5, label=label)
    ends = [min((float(part.clean.min()) for part in panel.parts), default=-1.0), 0.0]
    axes.plot(
        ends,
        [panel.expected * end for end in ends],
        color="#333333",
        linewidth=1,
        label=f"expected: slope {panel.expected:.3g}",
    )
    heading = f"{panel.row.data_set}, noise {panel.row.noise}, {panel.row.prior} prior"
    _title(axes, heading, "peer loss on clean labels", "peer loss on noisy labels")


def draw_boundary(axes: Axes, boundary: Boundary) -> None:
    """Draw the probability of class 1, the decision boundary, and training points in their noisy colours."""
    axes.contourf(
        boundary.x, boundary.y, boundary.probability, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.55
    )
    # A network may have no boundary inside the plot; drawing one would only warn.
    if boundary.probability.min() < 0.5 < boundary.probability.max():
        axes.contour(
            boundary.x, boundary.y, boundary.probability, levels=[0.5], colors="black", linewidths=1.8
        )
    for label, colour in ((0, "#2166ac"), (1, "#b2182b")):
        points = boundary.points[boundary.noisy_labels == label]
        axes.plot(points[:, 0], points[:, 1], ".", color=colour, markersize=2.2, alpha=0.7)
    caption = "" if boundary.test_accuracy is None else f"test accuracy {boundary.test_accuracy:.3f}"
    name = {"nn": "Cross entropy", "peer": "Peer loss"}.get(boundary.method, method_title(boundary.method))
    noise = "clean" if boundary.row.e_neg == boundary.row.e_pos == 0 else f"noise {boundary.row.noise}"
    _title(axes, f"{name}, {noise}\n{caption}", "", "")
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)


def draw_agreement(axes: Axes, table: AccuracyTable, prior: str) -> None:
    """Draw the accuracies here against the printed ones; the band is 3 points to either side."""
    rows = table.of_prior(prior)
    low = 1.0
    for method in table.methods:
        found = [entry.cells[method] for entry in rows if method in entry.cells]
        places = [(cell.printed, cell.mean) for cell in found if cell.difference is not None]
        if places:
            x, y = np.array(places, dtype=float).T
            low = min(low, float(x.min()), float(y.min()))
            colour = _COLOURS.get(method, _OTHER)
            axes.plot(x, y, "o", color=colour, alpha=0.7, markersize=4, label=method_title(method))
    ends = np.array([low, 1.0])
    axes.plot(ends, ends, color="#333333", linewidth=1)
    axes.fill_between(
        ends, ends - MAX_DIFFERENCE, ends + MAX_DIFFERENCE, color="#333333", alpha=0.1, linewidth=0
    )
    _title(axes, f"{prior} prior", "printed accuracy", "accuracy here")


def draw_demo(axes: Axes, rows: Sequence[DemoRow]) -> None:
    """Draw the accuracies of plain training and of peer loss, with standard errors."""
    places = np.arange(len(rows))
    for shift, method, look, colour, name in (
        (-0.08, "plain", "s", _COLOURS["nn"], "plain training"),
        (0.08, "peer", "o", _COLOURS["peer"], "peer loss"),
    ):
        means = [getattr(row, method) for row in rows]
        errors = [getattr(row, f"{method}_error") or 0.0 for row in rows]
        axes.errorbar(places + shift, means, errors, fmt=look, color=colour, capsize=4, label=name)
    axes.set_xticks(places, [f"{row.data_set}\n{row.e_neg:g}, {row.e_pos:g}" for row in rows])
    axes.grid(visible=False, axis="x")
    _title(axes, "", "", "accuracy on clean test labels")


def _title(axes: Axes, title: str, x: str, y: str) -> None:
    # Names come from files: a dollar sign in one is not a formula.
    axes.set_title(title, fontsize=10.5, parse_math=False)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
