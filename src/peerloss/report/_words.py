"""The findings of a table as sentences, and how numbers are formatted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss.report._compare import CHOSEN_ON_TEST, DIFFERENCES, ONLY_PEER_SEARCHES_ITS_BASE, ORDER
from peerloss.report._paper import Row
from peerloss.report._read_results import method_title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloss.report._compare import PriorSummary
    from peerloss.report._report import Section

#: The row that the settings of the authors' README are for.
README_ROW = Row("heart", 0.1, 0.3, "original")
MISSING = "–"


def accuracy(value: float | None) -> str:
    """Format an accuracy."""
    return MISSING if value is None else f"{value:.3f}"


def with_error(value: float | None, error: float | None) -> str:
    """Format a mean with its standard error, if there is one."""
    return accuracy(value) if value is None or error is None else f"{value:.3f} ± {error:.3f}"


def points(difference: float | None) -> str:
    """Format a difference of accuracies in percentage points, with its sign."""
    return MISSING if difference is None else f"{100 * difference:+.1f}".replace("-", "−")


def p_value(p: float) -> str:
    """Format a p-value."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def findings(section: Section) -> list[str]:
    """Return what the table of a section shows about the paper's claims."""
    sentences = [sentence for summary in section.summaries for sentence in _about_prior(summary)]
    if section.table:
        for entry in section.table.rows:
            if entry.row == README_ROW:
                sentences += _about_readme_row({m: cell.within_spread for m, cell in entry.cells.items()})
    if any(summary.printed_rows for summary in section.summaries):
        sentences += [
            f"Known difference from the paper: {difference}." for difference in _differences(section)
        ]
    return sentences


def _differences(section: Section) -> list[str]:
    """Return how the training of the methods in a table differs from the paper's."""
    methods = section.table.methods if section.table else ()
    own = [difference for method, difference in DIFFERENCES.items() if method in methods]
    return [CHOSEN_ON_TEST, *own, *([ONLY_PEER_SEARCHES_ITS_BASE] if section.protocol == "fair" else [])]


def _about_prior(summary: PriorSummary) -> Iterator[str]:
    where = f"{summary.prior.capitalize()} prior"
    if summary.incomplete:
        rows = "row is" if summary.incomplete == 1 else "rows are"
        yield (
            f"{where}: {summary.incomplete} {rows} incomplete (a method or seed is missing or diverged) and "
            f"excluded from the comparisons; {summary.rows} remain."
        )
    comparison = {entry.method: entry.beside_paper for entry in summary.methods if entry.beside_paper}
    if summary.ordering_here:
        paper = " > ".join(method_title(method) for method in ORDER)
        here = ", ".join(f"{method_title(m)} {accuracy(comparison[m].mean)}" for m in summary.ordering_here)
        printed = ", ".join(accuracy(comparison[m].printed_mean) for m in summary.ordering_here)
        verdict = "holds" if summary.ordering_holds else "does not hold"
        yield (
            f"{where}, {row_count(summary.printed_rows)}: the paper's order of means, {paper}, {verdict} "
            f"here: {here} (printed: {printed})."
        )
    if "peer" in comparison:
        peer = comparison["peer"]
        yield (
            f"{where}: peer loss reaches {accuracy(peer.mean)} here, {accuracy(peer.printed_mean)} in the "
            f"paper ({points(peer.difference)} points); it is within 2 points of the best in "
            f"{peer.near_best} of {row_count(summary.printed_rows)} here, in {peer.printed_near_best} in the "
            "paper."
        )
    if summary.compared:
        yield (
            f"{where}: {summary.within_spread} of {summary.compared} printed numbers are within one standard "
            "deviation over the seeds here."
        )


def row_count(count: int) -> str:
    """Format a number of rows."""
    return "1 row" if count == 1 else f"{count} rows"


def _about_readme_row(within: dict[str, bool | None]) -> Iterator[str]:
    compared = {method_title(method): inside for method, inside in within.items() if inside is not None}
    if compared:
        inside = [name for name, yes in compared.items() if yes]
        outside = [name for name, yes in compared.items() if not yes]
        name = f"{README_ROW.data_set.capitalize()} {README_ROW.noise}, {README_ROW.prior} prior"
        yield (
            f"{name}, the row of the authors' README: printed numbers within one standard deviation over "
            f"seeds for {', '.join(inside) or 'no method'}"
            + (f"; not for {', '.join(outside)}." if outside else ".")
        )
