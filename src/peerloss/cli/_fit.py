"""``peerloss fit``: train on a table with noisy labels and save the model."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._files import check_output_folder
from peerloss._progress import announce, phase
from peerloss.cli._terminal import counted, say, say_json, training_bar, visible

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from sklearn.pipeline import Pipeline


@dataclass(frozen=True)
class Task:
    """The rows that have a label."""

    X: pd.DataFrame
    y: NDArray[Any]
    unlabelled: int
    """Number of rows left out because their label is missing."""


def fit(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet or ARFF file.")],
    target: Annotated[str, typer.Option(help="Column that holds the noisy labels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    metric: Annotated[
        str, typer.Option(help="Metric to optimise on clean labels: accuracy or balanced_accuracy.")
    ] = "accuracy",
    drop: Annotated[list[str] | None, typer.Option(help="Column to ignore; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and models.")] = 0,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 uses all cores.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Train PeerClassifier on a table with noisy labels and save it with its preprocessing.

    Columns of numbers, categories and free text may have missing values. Rows without a label are left out.
    Columns of dates or identifiers, and constant columns, are not used; the command lists them.

    Example: peerloss fit data.csv --target label -o model/
    """
    from peerloss._validation import METRICS, check_choice
    from peerloss.datasets import read_table
    from peerloss.persistence.manifest import check_replaceable

    check_choice(metric, "--metric", METRICS)
    check_output_folder(output)  # before the training, not after it
    check_replaceable(output.resolve())
    task = _as_task(read_table(data), target=target, drop=drop or [], where=str(data))

    from peerloss.persistence import save_model  # imports scikit-learn and skops; errors above come first

    note = counted(len(task.y), "row")
    with training_bar(note, quiet=as_json), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with phase("training", 0.0, 0.97):
            model = _train(task, metric=metric, seed=seed, jobs=jobs)
        announce("saving the model", 0.97)
        save_model(model, output)
    notes = sorted({str(warning.message) for warning in caught if warning.category is UserWarning})
    summary = _summarise(model, task, target, output) | {"notes": notes}
    if as_json:
        say_json(summary)
    else:
        _print(model, summary)


def _as_task(table: pd.DataFrame, *, target: str, drop: list[str], where: str) -> Task:
    import numpy as np

    from peerloss.datasets import require_columns, split_target

    require_columns(table.columns, [target, *drop], where=where)
    labelled = table[table[target].notna()]
    unlabelled = len(table) - len(labelled)
    used = labelled.drop(columns=[name for name in drop if name != target])
    X, labels = split_target(used, target, where=where)
    if labels.dtype.kind not in "iuf":
        return Task(X, labels.to_numpy(dtype=str), unlabelled)
    # pandas reads integers as floats if some are missing
    return Task(X, labels.to_numpy(dtype=np.int64 if unlabelled else None), unlabelled)


def _train(task: Task, *, metric: str, seed: int, jobs: int) -> Pipeline:
    from sklearn.pipeline import Pipeline

    from peerloss.estimators import PeerClassifier, TableEncoder

    classifier = PeerClassifier(metric=metric, n_jobs=jobs, random_state=seed)
    columns = TableEncoder(output="table")
    return Pipeline([("columns", columns), ("classifier", classifier)]).fit(task.X, task.y)


def _summarise(model: Pipeline, task: Task, target: str, output: Path) -> dict[str, Any]:
    columns, report = model["columns"], model["classifier"].report_
    used = report.candidates[report.candidates["weight"] > 0]["weight"].sort_values(ascending=False)
    return {
        "model": str(output),
        "target": target,
        "rows": len(task.y) - report.n_unlabelled,
        "rows_without_label": task.unlabelled + report.n_unlabelled,
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
    lines = [
        f"Column {name!r} is not used: it {reason}." for name, reason in summary["columns_not_used"].items()
    ]
    if summary["rows_without_label"]:
        lines.append(f"Rows without a label, left out: {summary['rows_without_label']:,}.")
    for line in [*lines, *summary["notes"], str(model["classifier"].report_)]:
        say(line)
    low, high = summary["interval"]
    doubt = ", uncertain for the reasons above" if summary["doubts"] else ""
    say(
        f"{summary['rows']:,} rows, {len(summary['columns'])} columns, {len(summary['classes'])} classes; "
        f"estimated {summary['metric'].replace('_', ' ')} on clean labels {summary['estimated_metric']:.3f} "
        f"({low:.3f} to {high:.3f}){doubt}; saved in {summary['model']}."
    )
