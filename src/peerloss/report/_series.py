"""The data of the plots: learning curves, the invariance of peer loss, decision boundaries."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.report._paper import Row
from peerloss.report._read_results import method_order, row_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerloss._validation import FloatArray
    from peerloss.experiments import Record
    from peerloss.report._read_results import Group


@dataclass(frozen=True)
class Curve:
    """Test accuracy of one method during training, over seeds."""

    method: str
    seeds: int
    step: FloatArray
    mean: FloatArray
    spread: FloatArray
    """Standard deviation over seeds; 0 for one seed."""


@dataclass(frozen=True)
class CurvePanel:
    """All methods on one row."""

    row: Row
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class InvariancePart:
    """Peer loss on noisy against clean labels of the same rows, one point per recorded step and seed."""

    name: str
    """``train`` or ``validation``."""
    clean: FloatArray
    noisy: FloatArray
    slopes: tuple[float, ...]
    """One per seed: least squares through the origin, because Lemma 2 has no constant."""

    @property
    def slope(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.slopes))

    @property
    def error(self) -> float | None:
        """Standard error of the mean; ``None`` for one seed."""
        n = len(self.slopes)
        return float(np.std(self.slopes, ddof=1) / np.sqrt(n)) if n > 1 else None


@dataclass(frozen=True)
class InvariancePanel:
    """One row and method."""

    row: Row
    method: str
    parts: tuple[InvariancePart, ...]

    @property
    def expected(self) -> float:
        """The factor of Lemma 2."""
        return 1.0 - self.row.e_neg - self.row.e_pos


@dataclass(frozen=True)
class Boundary:
    """The predictions of one training over two features."""

    row: Row
    method: str
    seed: int
    test_accuracy: float | None
    x: FloatArray
    y: FloatArray
    probability: FloatArray
    points: FloatArray
    noisy_labels: FloatArray


def curve_panels(group: Group) -> list[CurvePanel]:
    """Return a panel for each row whose test accuracy was recorded during training."""
    panels = []
    for row, records in _by_row(group, "test_accuracy"):
        curves = []
        for method in method_order(record["method"] for record in records):
            of_method = [record["curve"] for record in records if record["method"] == method]
            longest = max((curve["step"] for curve in of_method), key=len)
            own = [curve for curve in of_method if curve["step"] == longest]  # others ended early
            values = np.array([curve["test_accuracy"] for curve in own])
            spread = values.std(axis=0, ddof=1) if len(own) > 1 else np.zeros(values.shape[1])
            step = np.asarray(longest, dtype=float)
            curves.append(Curve(method, len(own), step, values.mean(axis=0), spread))
        panels.append(CurvePanel(row, tuple(curves)))
    return panels


def invariance_panels(group: Group) -> list[InvariancePanel]:
    """Return a panel for each row and method whose peer loss on clean labels was also recorded."""
    panels = []
    for row, records in _by_row(group, "train_clean_peer_loss"):
        for method in method_order(record["method"] for record in records):
            curves = [record["curve"] for record in records if record["method"] == method]
            parts = (_part(name, curves) for name in ("train", "validation"))
            panels.append(InvariancePanel(row, method, tuple(part for part in parts if part is not None)))
    return panels


def boundaries(group: Group) -> list[Boundary]:
    """Return the decision boundaries, of the first seed if there are several."""
    first: dict[tuple[Row, str], Record] = {}
    for record in sorted(group.records, key=lambda record: record["seed"], reverse=True):
        if record["plane"] is not None:
            first[Row.of(record), record["method"]] = record
    methods = method_order(method for _, method in first)

    def reading_order(place: tuple[Row, str]) -> tuple[Any, ...]:
        """Plain training first; clean labels first, then by noise."""
        row, method = place
        noise = (abs(row.e_neg - row.e_pos), row.e_neg, row.e_pos)
        return (method != "nn", methods.index(method), noise, row)

    found = []
    for row, method in sorted(first, key=reading_order):
        record = first[row, method]
        accuracy = record["trials"]["test_accuracy"][record["chosen"]]
        names = ("x", "y", "probability", "points", "noisy_labels")
        arrays = {name: np.asarray(record["plane"][name], dtype=float) for name in names}
        found.append(Boundary(row, method, record["seed"], accuracy, **arrays))
    return found


def _by_row(group: Group, recorded: str) -> list[tuple[Row, list[Record]]]:
    """Return the records whose curve has ``recorded``, by row and in the order of seeds."""
    rows: dict[Row, list[Record]] = defaultdict(list)
    for record in sorted(group.records, key=lambda record: record["seed"]):
        if record["curve"] is not None and record["curve"]["step"] and recorded in record["curve"]:
            rows[Row.of(record)].append(record)
    return sorted(rows.items(), key=lambda item: row_order(item[0]))


def _part(name: str, curves: Iterable[dict[str, Any]]) -> InvariancePart | None:
    clean, noisy, slopes = [], [], []
    for curve in curves:
        if not {f"{name}_clean_peer_loss", f"{name}_noisy_peer_loss"} <= set(curve):
            continue
        x, y = (np.asarray(curve[f"{name}_{labels}_peer_loss"], dtype=float) for labels in ("clean", "noisy"))
        if (x @ x) > 0:
            clean.append(x)
            noisy.append(y)
            slopes.append(float((x @ y) / (x @ x)))
    if not slopes:
        return None
    return InvariancePart(name, np.concatenate(clean), np.concatenate(noisy), tuple(slopes))
