"""The view of a report of ``PeerClassifier`` in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._pages.notebook_cards import card, details, table
from peerloss.noise.noise_table import noise_table

if TYPE_CHECKING:
    from peerloss.estimators._peer_report import PeerReport

#: Number of averaged models shown.
MAX_MODELS = 5


def report_card(report: PeerReport) -> str:
    """Return the view: expected accuracy, doubts, averaged models, estimated noise."""
    used = report.candidates[report.candidates["weight"] > 0]["weight"].sort_values(ascending=False)
    rows = [(name, f"{weight:.2f}") for name, weight in used.head(MAX_MODELS).items()]
    more = len(used) - len(rows)
    return card(
        "PeerClassifier",
        f"Expected {report.metric.replace('_', ' ')} on clean labels: {report.accuracy:.1%} "
        f"({report.accuracy_low:.1%} to {report.accuracy_high:.1%} with 90 % probability).",
        *report.doubts,
        table(("averaged model", "weight"), rows),
        f"{more} more models with smaller weights." if more > 0 else "",
        noise_table(
            report.noise.transition, report.classes or None, low=report.noise_low, high=report.noise_high
        ),
        details("Details", str(report)),
    )
