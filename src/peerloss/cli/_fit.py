"""``peerloss fit``: train on a table with noisy labels and save the model."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._files import check_output_folder
from peerloss._progress import announce, phase
from peerloss.cli._options import jobs_option, seed_option
from peerloss.cli._table_options import (
    Abstain,
    Decimal,
    Encoding,
    Force,
    MinClassRows,
    NaValues,
    Sep,
    Sheet,
    TidyLabels,
    Yes,
    check_learned,
    read_options,
    show_summary,
)
from peerloss.cli._terminal import counted, say, say_json, training_bar, visible

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from sklearn.pipeline import Pipeline

    from peerloss.audit import TableSummary
    from peerloss.datasets.tables import Reading


@dataclass(frozen=True)
class Task:
    """The rows that have a label."""

    X: pd.DataFrame
    y: NDArray[Any]
    described: TableSummary
    """The summary of the table, with the rows that are left out."""


def fit(
    data: Annotated[Path, typer.Argument(help="CSV, Excel, JSON lines, Parquet or ARFF file.")],
    target: Annotated[str, typer.Option(help="Column that holds the noisy labels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    metric: Annotated[
        str, typer.Option(help="Metric to optimise on clean labels: accuracy or balanced_accuracy.")
    ] = "accuracy",
    drop: Annotated[list[str] | None, typer.Option(help="Column to ignore; may be repeated.")] = None,
    encoding: Encoding = None,
    sep: Sep = None,
    decimal: Decimal = None,
    na_values: NaValues = None,
    sheet: Sheet = None,
    abstain: Abstain = None,
    tidy_labels: TidyLabels = False,
    min_class_rows: MinClassRows = None,
    yes: Yes = False,
    force: Force = False,
    seed: Annotated[int, seed_option("Seed of folds and models.")] = 0,
    jobs: Annotated[int, jobs_option()] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Train PeerClassifier on a table with noisy labels and save it with its preprocessing.

    Columns of numbers, categories and free text may have missing values. Rows without a label are left out.
    Columns of dates or identifiers, and constant columns, are not used; a summary of the table, which is
    printed first, names them.

    Example: peerloss fit data.csv --target label -o model/
    """
    from peerloss._validation import METRICS, check_choice
    from peerloss.datasets.tables import read_with_notes
    from peerloss.persistence.manifest import check_replaceable

    check_choice(metric, "--metric", METRICS)
    check_output_folder(output)  # before the training, not after it
    check_replaceable(output.resolve())
    options = read_options(encoding, sep, decimal, na_values, sheet)
    reading = read_with_notes(data, options=options, labels=[target])
    task = as_task(
        reading,
        target=target,
        drop=drop or [],
        where=str(data),
        tidy=tidy_labels,
        min_class_rows=min_class_rows,
        abstain=abstain,
    )
    show_summary(task.described, yes=yes, quiet=as_json)

    from peerloss.persistence import save_model  # imports scikit-learn and skops; errors above come first

    note = counted(len(task.y), "row")
    with training_bar(note, quiet=as_json), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with phase("training", 0.0, 0.97):
            model = _train(task, metric=metric, seed=seed, jobs=jobs, force=force)
        announce("saving the model", 0.97)
        save_model(model, output, reading=replace(options, decimal=reading.decimal).as_dict())
    notes = sorted({str(warning.message) for warning in caught if warning.category is UserWarning})
    summary = _summarise(model, task, target, output) | {"notes": notes}
    if as_json:
        say_json(summary)
    else:
        _print(model, summary)


def as_task(
    reading: Reading,
    *,
    target: str,
    drop: list[str],
    where: str,
    tidy: bool = False,
    min_class_rows: int | None = None,
    abstain: str | None = None,
) -> Task:
    import numpy as np

    from peerloss._validation import is_minus_one_missing
    from peerloss.audit.table_summary import as_classes, check_classes, describe_rows
    from peerloss.datasets import require_columns, split_target
    from peerloss.datasets.label_spelling import prepare_labels

    table = reading.table
    require_columns(table.columns, [target, *drop], where=where)
    prepared = prepare_labels(
        as_classes(table[[target]], where=where, abstain=abstain, tidy=tidy),
        tidy=tidy,
        min_class_rows=min_class_rows,
        minus_one=abstain is None,
    )
    labels = prepared.labels[target]
    holder = f"{where}: column {target!r}"
    check_classes(labels, where=holder, words=reading.words, minus_one=prepared.minus_one)
    used = table.drop(columns=[name for name in drop if name != target]).assign(**{target: labels})
    X, y = split_target(used[labels.notna()], target, where=where)
    described = describe_rows(used.drop(columns=target), prepared, reading)
    given = table[target]
    if given.dtype.kind not in "iuf":
        return Task(X, y.to_numpy(dtype=str), described)
    # pandas reads integers as floats if some are missing
    kind = np.dtype(np.int64) if given.isna().any() else given.dtype
    codes = y.to_numpy(dtype=str(kind))
    # The classifier would take -1 as a missing label, but here it is a class.
    return Task(X, codes.astype(str) if is_minus_one_missing(codes) else codes, described)


def _train(task: Task, *, metric: str, seed: int, jobs: int, force: bool) -> Pipeline:
    from sklearn.pipeline import Pipeline

    from peerloss.estimators import PeerClassifier, TableEncoder

    classifier = PeerClassifier(metric=metric, n_jobs=jobs, random_state=seed)
    columns = TableEncoder(output="table")
    model = Pipeline([("columns", columns), ("classifier", classifier)]).fit(task.X, task.y)
    check_learned(classifier.report_.nothing_learned, force=force)
    return model


def _summarise(model: Pipeline, task: Task, target: str, output: Path) -> dict[str, Any]:
    columns, report = model["columns"], model["classifier"].report_
    used = report.candidates[report.candidates["weight"] > 0]["weight"].sort_values(ascending=False)
    return {
        "model": str(output),
        "target": target,
        "rows": len(task.y) - report.n_unlabelled,
        "rows_without_label": task.described.unlabelled,
        "table": task.described.as_dict(),
        "classes": {str(label): int((task.y == label).sum()) for label in model.classes_},
        "columns": columns.kinds_,
        "columns_not_used": columns.dropped_,
        "metric": report.metric,
        "estimated_metric": report.accuracy,
        "interval": [report.accuracy_low, report.accuracy_high],
        "noise_model_fits": report.fits,
        "misfit_p_value": report.misfit_p_value,
        "doubts": list(report.doubts),
        "alpha": report.alpha if math.isfinite(report.alpha) else None,
        "noise": report.noise.transition.tolist(),
        "noise_low": report.noise_low.tolist(),
        "noise_high": report.noise_high.tolist(),
        "repeated_rows": report.repeated_rows,
        "candidates": {str(name): float(weight) for name, weight in used.items()},
        "diverged": list(report.diverged),
    }


def _print(model: Pipeline, summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    chosen = Table("candidate", "weight", title="Averaged candidates")
    for name, weight in summary["candidates"].items():
        chosen.add_row(visible(name), f"{weight:.2f}")
    console.print(chosen)
    for line in [*summary["notes"], str(model["classifier"].report_)]:
        say(line)
    low, high = summary["interval"]
    doubt = ", uncertain for the reasons above" if summary["doubts"] else ""
    say(
        f"{summary['rows']:,} rows, {len(summary['columns'])} columns, {len(summary['classes'])} classes; "
        f"estimated {summary['metric'].replace('_', ' ')} on clean labels {summary['estimated_metric']:.3f} "
        f"({low:.3f} to {high:.3f}){doubt}; saved in {summary['model']}."
    )
