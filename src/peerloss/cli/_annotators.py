"""``peerloss annotators``: scores, payments and combined labels from the labels of several annotators."""

from __future__ import annotations

import math
import warnings
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._files import atomic_files, check_output_file
from peerloss.cli._options import jobs_option, refuse_unused, seed_option
from peerloss.cli._table_options import Encoding, NaValues, Sep, Sheet, TidyLabels, read_options
from peerloss.cli._terminal import counted, say, say_json, visible
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import pandas as pd

    from peerloss.datasets import Spellings

#: Number of workers printed; the file has all.
PRINTED_WORKERS = 20
NOT_AN_ACCURACY = (
    "The score is a basis for payment, not an accuracy. To compare how often workers are right, use accuracy "
    "(Dawid–Skene) and agreement."
)
UNPAID_COPIES = (
    "Some workers gave the same answers, which independent workers would not. An answer is paid once: to the "
    "source if it is clear who copied, otherwise in equal parts."
)
PAYMENT_NOTES = {
    "affine": "Payments total {paid} of at most {budget}. Each is base + rate × score per task. Base and "
    "rate depend only on the budget, the floor and the number of reports, so honest work pays best.",
    "untruthful_split": "{budget} is split in proportion to tasks times positive scores. This split is not "
    "truthful: guessing can pay more than honest work.",
}


def annotators(
    data: Annotated[
        Path,
        typer.Argument(help="CSV, Excel, JSON lines, Parquet or ARFF file: task (or item), worker, label."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV file to write, one row per worker.")],
    task_column: Annotated[
        str | None, typer.Option(help="Column that names the tasks, if it is not task or item.")
    ] = None,
    worker_column: Annotated[
        str | None, typer.Option(help="Column that names the workers, if it is not worker.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column that holds the labels, if it is not label.")
    ] = None,
    mechanism: Annotated[str, typer.Option(help="Score: ca, quadratic or log.")] = "ca",
    budget: Annotated[
        str | None, typer.Option(help="Compute payments of at most this total, e.g. 99.50.")
    ] = None,
    payment: Annotated[
        str,
        typer.Option(
            help="affine: honest work pays best. untruthful_split: pay the entire budget in proportion to "
            "positive scores; guessing can then pay more than honest work."
        ),
    ] = "affine",
    floor: Annotated[float, typer.Option(help="Minimum payment per task, for affine payments.")] = 0.0,
    pay_copies: Annotated[
        bool,
        typer.Option("--pay-copies", help="Also pay for answers that were copied from another worker."),
    ] = False,
    aggregate: Annotated[Path | None, typer.Option(help="CSV file to write with one label per task.")] = None,
    copies: Annotated[
        Path | None, typer.Option(help="CSV file to write with pairs of workers who seem to copy.")
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(help="Known labels: a table with columns task (or item), label."),
    ] = None,
    encoding: Encoding = None,
    sep: Sep = None,
    na_values: NaValues = None,
    sheet: Sheet = None,
    tidy_labels: TidyLabels = False,
    wide: Annotated[bool, typer.Option("--wide", help="The table has one column per worker.")] = False,
    duplicates: Annotated[
        str,
        typer.Option(help="If a worker labelled a task more than once: keep the first or last, or error."),
    ] = "error",
    false_positive_rate: Annotated[
        float,
        typer.Option(help="Expected share of false positives among the workers flagged as guessing."),
    ] = 0.05,
    seed: Annotated[int, seed_option("Seed of the bootstrap.")] = 0,
    jobs: Annotated[int, jobs_option("threads")] = 1,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Prefix text that looks like a formula with an apostrophe."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Score workers without gold labels: their pay, their accuracy, and who seems to guess.

    Example: peerloss annotators crowd.csv -o scores.csv --budget 100 --aggregate labels.csv
    """
    from rich.console import Console

    from peerloss._validation import check_choice
    from peerloss.crowd import read_reports
    from peerloss.crowd.choices import MECHANISMS
    from peerloss.crowd.report_tables import read_gold
    from peerloss.datasets.label_spelling import find_spellings
    from peerloss.datasets.tables import options_for_other
    from peerloss.peer_prediction.reports import DUPLICATES, Reports

    check_choice(mechanism, "--mechanism", MECHANISMS)
    check_choice(duplicates, "--duplicates", DUPLICATES)
    _check_payment(budget, payment, pay_copies=pay_copies)
    given = {"task": task_column, "worker": worker_column, "label": label_column}
    columns = {role: name for role, name in given.items() if name is not None}
    if wide and columns.keys() - {"task"}:
        raise InvalidInputError(
            "--wide means one column per worker: --worker-column and --label-column cannot be used with it."
        )
    options = read_options(encoding, sep, None, na_values, sheet)
    paths = {"--output": output, "--aggregate": aggregate, "--copies": copies}
    _check_paths({name: path for name, path in paths.items() if path is not None}, data, gold)
    with warnings.catch_warnings(record=True) as caught, Console(stderr=True).status("reading") as status:
        warnings.simplefilter("always", IdentifiabilityWarning)
        table = read_reports(data, columns=columns, wide=wide, duplicates=duplicates, options=options)
        missing = 0 if wide else int(table["label"].isna().sum())
        known = None
        if gold is not None:
            known = read_gold(gold, columns=columns, options=options_for_other(gold, options))
        spellings = [] if tidy_labels else find_spellings(table["label"])
        table, known, tidied = _tidied(table, known) if tidy_labels else (table, known, {})
        reports = Reports.from_table(table)
        del table
        # These import SciPy and scikit-learn; errors in the files and options come first.
        from peerloss.crowd import aggregate_labels, dawid_skene, find_copiers, score_annotators

        workers, size = counted(len(reports.workers), "worker"), counted(len(reports), "report")
        status.update(f"scoring {workers} by {size}")
        model = dawid_skene(reports, gold=known)
        scores = score_annotators(
            model,
            mechanism=mechanism,
            budget=budget,
            payment=payment,
            floor=floor,
            pay_copies=pay_copies,
            false_positive_rate=false_positive_rate,
            n_jobs=jobs,
            random_state=seed,
        )
        written: dict[Path, pd.DataFrame] = {output: scores.reset_index()}
        if aggregate is not None:
            status.update("combining labels")
            written[aggregate] = aggregate_labels(reports, gold=known).reset_index()
        pairs = None
        if copies is not None:
            status.update("comparing pairs of workers")
            pairs = written[copies] = find_copiers(reports)
    _write(written, spreadsheet_safe=spreadsheet_safe)
    summary: dict[str, Any] = {
        "scores": str(output),
        "reports": len(reports),
        "rows_without_label": missing,
        "tasks": len(reports.tasks),
        "workers": len(reports.workers),
        "labels": [str(label) for label in reports.labels],
        "spellings": [group.rows for group in spellings],
        "tidied": tidied,
        "gold_tasks": 0 if known is None else len(known),
        "mechanism": mechanism,
        "uninformative": [str(name) for name in scores.index[scores["uninformative"]]],
        "false_positive_rate": false_positive_rate,
        "without_score": int(scores["score"].isna().sum()),
        "dawid_skene_settled": model.converged,
        "budget": budget,
        "payment": None if budget is None else payment,
        "paid": None if budget is None else f"{scores['payment'].sum():.2f}",
        "unpaid_copies": None if budget is None else _unpaid(scores),
        "copies": None if pairs is None else pairs[["worker", "other"]].astype(str).to_numpy().tolist(),
        "warnings": sorted({str(warning.message) for warning in caught}),
        "note": NOT_AN_ACCURACY,
    }
    for message in summary["warnings"]:
        say(f"Warning: {message}", err=True)
    if as_json:
        say_json(summary)
    else:
        _print(scores, summary, spellings)


def _check_payment(budget: str | None, payment: str, *, pay_copies: bool) -> None:
    """Refuse an unknown kind of payment, and options of payments if none are computed."""
    from peerloss._validation import check_choice
    from peerloss.crowd.choices import PAYMENTS

    check_choice(payment, "--payment", PAYMENTS)
    if budget is None and (payment != "affine" or pay_copies):
        refuse_unused("--pay-copies" if pay_copies else "--payment", needs="--budget")


def _tidied(
    reports: pd.DataFrame, known: pd.Series | None
) -> tuple[pd.DataFrame, pd.Series | None, dict[str, str]]:
    """Merge spellings of one label, in the reports and in the known labels alike; return the changes, too."""
    import pandas as pd

    from peerloss.datasets.label_spelling import respell, tidy_spellings

    labels = reports["label"].astype(object)
    changes = tidy_spellings(labels if known is None else pd.concat([labels, known]))
    tidied = reports.assign(label=respell(labels, changes).astype("category"))
    return tidied, None if known is None else respell(known, changes), changes


def _check_paths(outputs: dict[str, Path], data: Path, gold: Path | None) -> None:
    inputs = {path.resolve() for path in (data, gold) if path is not None}
    seen: dict[Path, str] = {}
    for option, path in outputs.items():
        if path.suffix.lower() != ".csv":
            raise InvalidInputError(f"{option} must be a file whose name ends in .csv; got {path}.")
        check_output_file(path)
        resolved = path.resolve()
        if resolved in inputs:
            raise InvalidInputError(f"{option} must not be the input file {path}. Choose another name.")
        if resolved in seen:
            raise InvalidInputError(
                f"{option} and {seen[resolved]} must be different files; both are {path}."
            )
        seen[resolved] = option


def _write(tables: dict[Path, pd.DataFrame], *, spreadsheet_safe: bool) -> None:
    from peerloss.datasets.tables import write_table

    with atomic_files(*tables) as unfinished:
        for path, table in zip(unfinished, tables.values(), strict=True):
            if "payment" in table:
                table = table.assign(payment=table["payment"].map("{:.2f}".format))  # noqa: PLW2901
            with path.open("x", encoding="utf-8", newline="") as stream:
                write_table(stream, table, spreadsheet_safe=spreadsheet_safe)


def _print(scores: pd.DataFrame, summary: dict[str, Any], spellings: list[Spellings]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    headings = ["worker", "tasks", "score", "interval", "agreement", "accuracy", "guesses", "q"]
    headings += ["payment"] if "payment" in scores else []
    table = Table(title=f"Workers ({summary['mechanism']} score), suspects first, then by number of tasks")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "worker" else "right")
    ordered = scores.sort_values(["uninformative", "n_tasks"], ascending=False, kind="stable")
    first = ordered.head(PRINTED_WORKERS)
    for name, row in zip(first.index, first.to_dict("records"), strict=True):
        table.add_row(Text(visible(name)), *_cells(row))
    Console().print(table)
    for line in _notes(scores, summary, spellings):
        say(line)
    say(
        f"{counted(summary['reports'], 'report')} of {counted(summary['workers'], 'worker')} on "
        f"{counted(summary['tasks'], 'task')}, {counted(len(summary['labels']), 'label')}; "
        f"{counted(len(summary['uninformative']), 'worker seems', 'workers seem')} to guess; "
        f"written to {summary['scores']}."
    )


def _notes(scores: pd.DataFrame, summary: dict[str, Any], spellings: list[Spellings]) -> list[str]:
    from peerloss.datasets.label_spelling import describe_change

    lines = []
    if len(scores) > PRINTED_WORKERS:
        more = counted(len(scores) - PRINTED_WORKERS, "more worker")
        lines.append(f"{more} in {summary['scores']}.")
    lines += [f"{group}; use `--tidy-labels` to merge them." for group in spellings]
    lines += [f"{describe_change(old, new)}." for old, new in summary["tidied"].items()]
    lines.append(NOT_AN_ACCURACY)
    if summary["uninformative"]:
        names = ", ".join(summary["uninformative"][:PRINTED_WORKERS])
        more = ", …" if len(summary["uninformative"]) > PRINTED_WORKERS else ""
        rate = summary["false_positive_rate"]
        lines.append(f"Seem to guess (expected share of false positives at most {rate:.0%}): {names}{more}.")
    if summary["copies"]:
        pairs = ", ".join(f"{one} and {other}" for one, other in summary["copies"][:PRINTED_WORKERS])
        lines.append(f"Agree on outvoted answers more often than independent workers would: {pairs}.")
    if summary["without_score"]:
        lines.append(
            f"Workers without a score (fewer than two tasks shared with others): {summary['without_score']}."
        )
    if summary["budget"] is not None:
        lines.append(PAYMENT_NOTES[summary["payment"]].format(**summary))
    if summary["unpaid_copies"]:
        worst = sorted(summary["unpaid_copies"].items(), key=lambda pair: -pair[1])
        listed = ", ".join(f"{name} {tasks:g}" for name, tasks in worst[:PRINTED_WORKERS])
        lines.append(f"{UNPAID_COPIES} Tasks not paid: {listed}. Pay them with --pay-copies.")
    if summary["gold_tasks"]:
        lines.append(f"Tasks with a known label: {summary['gold_tasks']:,}.")
    if summary["rows_without_label"]:
        lines.append(f"Rows without a label, left out: {summary['rows_without_label']:,}.")
    if not summary["dawid_skene_settled"]:
        lines.append("Dawid–Skene did not converge in 100 iterations; accuracies are approximate.")
    return lines


def _unpaid(scores: pd.DataFrame) -> dict[str, float]:
    """Return how many tasks of each worker are not paid because the answer was copied."""
    unpaid = (scores["n_tasks"] - scores["paid_tasks"]).round(2)
    return {str(name): float(tasks) for name, tasks in unpaid[unpaid > 0].items()}


def _cells(row: Mapping[Hashable, Any]) -> list[str]:
    def number(name: str, digits: int = 3) -> str:
        return "–" if math.isnan(row[name]) else f"{row[name]:.{digits}f}"

    return [
        f"{row['n_tasks']:,}",
        number("score"),
        f"{number('low', 2)}, {number('high', 2)}",
        number("agreement"),
        f"{number('accuracy', 2)} ({number('accuracy_low', 2)}, {number('accuracy_high', 2)})",
        "yes" if row["uninformative"] else "",
        number("q_value", 2),
        *([f"{row['payment']:.2f}"] if "payment" in row else []),
    ]
