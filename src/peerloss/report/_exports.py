"""The results as sentences, JSON, CSV and Markdown."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from peerloss.report._compare import CHOSEN_ON_TEST, DIFFERENCES, ONLY_PEER_SEARCHES_ITS_BASE, ORDER
from peerloss.report._paper import Row
from peerloss.report._read_results import method_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from peerloss.report._accuracy_table import AccuracyTable, TableRow
    from peerloss.report._compare import PriorSummary
    from peerloss.report._report import Report, Section

#: Significant digits kept in JSON and CSV.
DIGITS = 6
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
    for entry in section.table.rows if section.table else ():
        if entry.row == README_ROW:
            sentences += _about_readme_row({m: cell.within_spread for m, cell in entry.cells.items()})
    if section.table and any(summary.printed_rows for summary in section.summaries):
        known = [CHOSEN_ON_TEST, *(DIFFERENCES[m] for m in DIFFERENCES if m in section.table.methods)]
        known += [ONLY_PEER_SEARCHES_ITS_BASE] if section.protocol == "fair" else []
        sentences += [f"Known difference from the paper: {difference}." for difference in known]
    return sentences


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


def report_numbers(report: Report) -> list[dict[str, Any]]:
    """Return every number of a report for JSON, in a fixed order; no times, versions or text."""
    return [_short(_section_numbers(section)) for section in report.sections]


def _section_numbers(section: Section) -> dict[str, Any]:
    names = {"experiment": section.experiment, "protocol": section.protocol}
    if section.images:
        return names | {"images": list(section.images.means)}
    return names | {
        "rows": [_row_numbers(entry) for entry in section.table.rows] if section.table else [],
        "summaries": [asdict(s) | {"ordering_holds": s.ordering_holds} for s in section.summaries],
        "tests": [asdict(test) for test in section.tests],
        "deviations": [
            entry.row._asdict()
            | {"method": entry.method, "difference": entry.difference, "error": entry.error}
            for entry in section.deviations
        ],
        "curves": [
            panel.row._asdict()
            | {"method": curve.method, "seeds": curve.seeds}
            | {name: getattr(curve, name).tolist() for name in ("step", "mean", "spread")}
            for panel in section.curves
            for curve in panel.curves
        ],
        "invariance": [
            panel.row._asdict()
            | {"method": panel.method, "part": part.name, "expected_slope": panel.expected}
            | {"slope": part.slope, "error": part.error, "seeds": len(part.slopes)}
            for panel in section.invariance
            for part in panel.parts
        ],
        "boundaries": [
            b.row._asdict() | {"method": b.method, "seed": b.seed, "test_accuracy": b.test_accuracy}
            for b in section.boundaries
        ],
    }


def _row_numbers(entry: TableRow) -> dict[str, Any]:
    return entry.row._asdict() | {
        "methods": [
            {
                "method": method,
                "test_accuracy": cell.mean,
                "error": cell.error,
                "seeds": len(cell.accuracies),
                "diverged": cell.diverged,
                "n_test": cell.n_test,
                "near_best": method in entry.bold,
                "printed": cell.printed,
                "difference": cell.difference,
            }
            for method, cell in entry.cells.items()
        ]
    }


def _short(value: Any) -> Any:
    """Round every number to the significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: _short(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_short(entry) for entry in value]
    return value


def table_csv(table: AccuracyTable) -> str:
    """Return a table as CSV, one line per row and method."""
    stream = io.StringIO()
    rows = [_short(_row_numbers(entry)) for entry in table.rows]
    lines = [{name: row[name] for name in Row._fields} | method for row in rows for method in row["methods"]]
    writer = csv.DictWriter(stream, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return stream.getvalue()


def section_markdown(section: Section) -> str:
    """Return the table of a section as Markdown: provenance, findings, every row."""
    if section.images:
        return section.images.markdown()
    table = section.table
    if table is None:
        return ""
    blocks = [f"# {_safe(section.title)}", _safe(f"{section.name}. " + "; ".join(section.provenance) + ".")]
    blocks += [f"- {_safe(sentence)}" for sentence in findings(section)]
    for summary in section.summaries:
        if summary.methods:
            blocks += [
                f"## Summary, {_safe(summary.prior)} prior ({row_count(summary.rows)})",
                _summary_table(summary),
            ]
    if section.tests:
        blocks += ["## Paired tests (Wilcoxon, with Holm's correction)", _test_table(section)]
    for prior in table.priors:
        blocks += [
            f"## Test accuracy, {_safe(prior)} prior",
            "Mean ± standard error over seeds (the printed number); bold: within 2 points of the best.",
            _accuracy_table(table, prior),
        ]
    return "\n\n".join(blocks).replace("\n\n- ", "\n- ") + "\n"


def _summary_table(summary: PriorSummary) -> str:
    head = ["method", "mean", "rows near the best", "mean *", "printed mean"]
    head += ["rows near the best *", "rows near the best, in the paper"]
    lines = []
    for entry in summary.methods:
        line = [method_title(entry.method), accuracy(entry.mean), str(entry.near_best)]
        if (paper := entry.beside_paper) is None:
            line += [MISSING] * 4
        else:
            line += [accuracy(paper.mean), accuracy(paper.printed_mean)]
            line += [str(paper.near_best), str(paper.printed_near_best)]
        lines.append(line)
    return _markdown(head, lines) + "\n\n\\* among the rows and methods that the paper prints"


def _test_table(section: Section) -> str:
    head = ["prior", "method", "against", "rows better", "worse", "difference (points)"]
    head += ["pairs", "p", "data sets", "p over data sets"]
    lines = []
    for test in section.tests:
        line = [test.prior, method_title(test.reference), method_title(test.baseline)]
        line += [str(test.better), str(test.worse), points(test.difference)]
        line += [str(test.pairs), p_value(test.p_pairs), str(test.data_sets), p_value(test.p_data_sets)]
        lines.append(line)
    return _markdown(head, lines)


def _accuracy_table(table: AccuracyTable, prior: str) -> str:
    lines = []
    for entry in table.of_prior(prior):
        line = [entry.row.data_set, entry.row.noise]
        for method in table.methods:
            cell = entry.cells.get(method)
            text = MISSING if cell is None else with_error(cell.mean, cell.error)
            text = f"**{text}**" if method in entry.bold else text
            line.append(text + (f" ({cell.printed:.3f})" if cell and cell.printed is not None else ""))
        lines.append(line)
    return _markdown(["data set", "e_neg, e_pos", *map(method_title, table.methods)], lines)


def _markdown(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    names = list(head)
    rows = [names, ["---"] * len(names), *lines]
    return "\n".join("| " + " | ".join(_safe(entry) for entry in row) + " |" for row in rows)


def _safe(text: str) -> str:
    """Escape the special characters of HTML and of Markdown tables."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")
