"""Draw the figures of the paper, and print their numbers as tables.

Run ``python benchmarks/paper_figures.py RUNS results/figures``. It runs the experiments curves, boundary and
invariance in the folder RUNS (one or two minutes; existing results are reused), writes ``curves.png``,
``boundary.png`` and ``invariance.png``, and prints the tables of ``results/figures.md``.
"""

from __future__ import annotations

import io
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.figure import Figure
from measure import provenance
from PIL import Image

from peerloss.experiments import Store, load_experiment, run_experiment
from peerloss.report import build_report
from peerloss.report._pictures import draw_boundary, draw_curves, draw_invariance
from peerloss.report._read_results import method_title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss.experiments import Record
    from peerloss.report import Section

SEEDS = {"curves": 8, "boundary": 40, "invariance": 8}
#: Predictions are called uncertain if the probability of class 1 is between these.
UNCERTAIN = (0.1, 0.9)


def main(runs: Path, folder: Path) -> None:
    """Run, draw and print."""
    with Store(runs) as store:
        for name, seeds in SEEDS.items():
            run_experiment(load_experiment(name, seeds=seeds), store, n_jobs=1)
        planes = [record for record in store.records() if record.get("plane") is not None]
    sections = {section.experiment: section for section in build_report(runs).sections}
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # as in the runs, so that the printed number of threads is right
    print(provenance("cpu"), end="\n\n")
    curves, boundary, invariance = (sections[name] for name in SEEDS)
    _draw(folder / "curves.png", partial(draw_curves, bands=False), curves.curves, (2, 3), (10.5, 5.6))
    _draw(folder / "boundary.png", draw_boundary, boundary.boundaries, (2, 4), (10.5, 5.7))
    equalized = [panel for panel in invariance.invariance if panel.row.prior == "equalized"]
    _draw(folder / "invariance.png", draw_invariance, equalized, (2, 3), (10.5, 6.0), own_legend=True)
    print(_curve_table(curves), _boundary_table(planes), _invariance_table(invariance), sep="\n\n")


def _draw(
    path: Path,
    draw: Callable[[Any, Any], None],
    panels: Sequence[Any],
    shape: tuple[int, int],
    size: tuple[float, float],
    *,
    own_legend: bool = False,
) -> None:
    """Draw panels side by side; a shared legend uses an empty panel."""
    figure = Figure(figsize=size, dpi=110, layout="constrained", facecolor="white")
    places = figure.subplots(*shape).ravel()
    for axes, panel in zip(places, panels, strict=False):
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes, panel)
        if own_legend:
            axes.set_title(f"{panel.row.data_set}, noise {panel.row.noise}", fontsize=10.5)
            axes.legend(fontsize=7.5, frameon=False, loc="upper left")
    for axes in places[len(panels) :]:
        axes.axis("off")
        handles, labels = places[0].get_legend_handles_labels()
        if not own_legend:
            axes.legend(handles, labels, loc="center", fontsize=11, frameon=False)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    # 256 colours are enough and need a quarter of the size.
    Image.open(stream).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB", file=sys.stderr)


def _curve_table(section: Section) -> str:
    methods = [curve.method for curve in section.curves[0].curves]
    lines = []
    for panel in section.curves:
        cells = []
        for curve in panel.curves:
            error = curve.spread[-1] / np.sqrt(curve.seeds)
            lost = 100.0 * (curve.mean.max() - curve.mean[-1])
            cells.append(f"{curve.mean[-1]:.3f} ± {error:.3f} ({lost:.1f})")
        lines.append([panel.row.data_set, panel.row.noise, *cells])
    return _table(["data set", "e_neg, e_pos", *map(method_title, methods)], lines)


def _boundary_table(records: list[Record]) -> str:
    rows: dict[tuple[float, float], dict[str, dict[int, tuple[float, ...]]]] = {}
    for record in records:
        e_neg, e_pos = record["e_neg"], record["e_pos"]
        probability = np.asarray(record["plane"]["probability"])
        clean = (probability - e_neg) / (1.0 - e_neg - e_pos)
        uncertain = [float(((p > UNCERTAIN[0]) & (p < UNCERTAIN[1])).mean()) for p in (probability, clean)]
        place = rows.setdefault((e_neg, e_pos), {}).setdefault(record["method"], {})
        place[record["seed"]] = (*uncertain, record["test_accuracy"])
    lines = []
    for (e_neg, e_pos), found in sorted(rows.items(), key=lambda row: (abs(row[0][0] - row[0][1]), row[0])):
        nn, peer = (
            np.array([found[method][seed] for seed in sorted(found[method])]) for method in ("nn", "peer")
        )
        spread = [_with_error(values, 2) for values in (nn[:, 0], nn[:, 1], peer[:, 0])]
        accuracies = [_with_error(values, 3) for values in (nn[:, 2], peer[:, 2], peer[:, 2] - nn[:, 2])]
        lines.append([f"{e_neg:g}, {e_pos:g}", *spread, *accuracies])
    head = ["e_neg, e_pos", "uncertain: cross entropy", "rescaled", "peer loss"]
    return _table([*head, "accuracy: cross entropy", "peer loss", "difference"], lines)


def _invariance_table(section: Section) -> str:
    lines = []
    for panel in section.invariance:
        parts = {part.name: f"{part.slope:.3f} ± {part.error or 0:.3f}" for part in panel.parts}
        place = [panel.row.data_set, panel.row.noise, panel.row.prior, f"{panel.expected:.1f}"]
        lines.append([*place, parts["validation"], parts["train"]])
    return _table(["data set", "e_neg, e_pos", "prior", "1 − Σe", "held-out rows", "training rows"], lines)


def _with_error(values: np.ndarray[Any, Any], digits: int) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}".replace("-", "−")


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
