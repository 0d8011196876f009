"""The views of an audit in a notebook: HTML and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._installing import import_extra
from peerloss._pages.notebook_cards import card, details, table
from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError
from peerloss.noise.noise_table import noise_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from peerloss.audit._label_audit import LabelAudit

#: Number of suspects shown.
MAX_SUSPECTS = 10
#: Values of ``kind`` of :func:`plot_audit`.
KINDS = ("ranking", "noise")
#: Blue and orange that can be told apart on light and dark backgrounds and by the colour-blind.
KEPT, SUSPECT = "#4477aa", "#ee7733"


def audit_card(audit: LabelAudit) -> str:
    """Return the view of an audit: how many labels are wrong, the first suspects, the estimated noise."""
    suspects = audit.suspects
    rows = [
        (name, row["given"], row["suggested"], f"{row['p_error']:.2f}")
        for name, row in zip(
            suspects.index[:MAX_SUSPECTS], suspects.head(MAX_SUSPECTS).to_dict("records"), strict=True
        )
    ]
    parts = [audit.headline]
    if rows:
        caption = f"The {len(rows)} most suspicious of {len(suspects):,} suspect labels"
        parts.append(table(("row", "given", "suggested", "P(wrong)"), rows, caption=caption, n_left=3))
    if audit.reason:
        parts.append(f"The noise rates cannot be estimated: {audit.reason}.")
    if audit.noise is not None:
        low, high = audit.noise_low, audit.noise_high
        parts.append(noise_table(audit.noise.transition, list(audit.classes), low=low, high=high))
    return card("Label audit", *parts, details("What to expect from training", str(audit.outlook)))


def plot_audit(audit: LabelAudit, kind: str, ax: Axes | None) -> Axes:
    """Draw ``kind`` of picture on ``ax``, or on a new figure."""
    check_choice(kind, "kind", KINDS)
    if kind == "noise" and audit.noise is None:
        raise InvalidInputError(
            f"`kind` 'noise' needs estimated noise rates; they cannot be estimated ({audit.reason}). Use "
            "kind='ranking'."
        )
    pyplot = import_extra("matplotlib.pyplot", "report", "Pictures")
    axes: Any = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")[1] if ax is None else ax
    (_draw_ranking if kind == "ranking" else _draw_noise)(audit, axes)
    return axes  # type: ignore[no-any-return]


def _draw_ranking(audit: LabelAudit, axes: Any) -> None:
    """Draw the probability of an error over the rank; the area below is the expected number of errors."""
    ordered = audit.table.sort_values("rank")
    rank, wrong = np.arange(1, len(ordered) + 1), ordered["p_error"].to_numpy()
    flagged = int(ordered["flagged"].sum())
    axes.plot(rank, wrong, color=KEPT, linewidth=1.5)
    if flagged:
        axes.fill_between(
            rank[:flagged], wrong[:flagged], color=SUSPECT, alpha=0.5, label=f"suspect: {flagged:,} labels"
        )
    axes.axvline(
        audit.expected_errors, color="grey", linestyle="--",
        label=f"expected to be wrong: {audit.expected_errors:,.0f}",
    )  # fmt: skip
    axes.set(
        xlim=(1, max(2, min(len(ordered), 4 * max(flagged, round(audit.expected_errors), 10)))),
        ylim=(0, 1.02),
        xlabel="label, most suspicious first",
        ylabel="P(wrong)",
        title=f"How probably each {audit.label_name} is wrong",
    )
    axes.legend()


def _draw_noise(audit: LabelAudit, axes: Any) -> None:
    """Draw the transition matrix as a picture with its numbers."""
    if audit.noise is None:
        return
    matrix, names = audit.noise.transition, [str(name)[:20] for name in audit.classes]
    axes.imshow(matrix, cmap="Blues", vmin=0.0, vmax=1.0)
    ticks = range(len(names))
    axes.set(xlabel="given label", ylabel="true class", title=f"Estimated noise of {audit.label_name}")
    axes.set_xticks(ticks, names, rotation=45 if len(names) > 4 else 0)
    axes.set_yticks(ticks, names)
    if len(names) <= 20:
        for (i, j), share in np.ndenumerate(matrix):
            axes.text(
                j, i, f"{share:.0%}", ha="center", va="center", color="white" if share > 0.5 else "black"
            )
