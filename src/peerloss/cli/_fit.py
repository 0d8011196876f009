"""``peerloss fit``: from a table with noisy labels to a model folder."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._files import check_folder_place
from peerloss.cli._progress import training_bar
from peerloss.cli._terminal import say, say_json, visible
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray
    from sklearn.pipeline import Pipeline


@dataclass(frozen=True)
class Task:
    """Rows that have a label."""

    X: pd.DataFrame
    y: NDArray[Any]
    unlabelled: int
    """Rows left out because their label is missing."""


def fit(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet or ARFF file.")],
    target: Annotated[str, typer.Option(help="Column that holds the noisy labels.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    metric: Annotated[
        str, typer.Option(help="What to be good at on clean labels: accuracy or balanced_accuracy.")
    ] = "accuracy",
    drop: Annotated[list[str] | None, typer.Option(help="Column not to use; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and models.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes; -1 takes every core.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Train PeerClassifier on a table with noisy labels and save it with its preprocessing.

    Columns of numbers and of text may have gaps; rows without a label are left out. Dates, identifiers and
    constant columns are not used, and the command says so.

    Example: peerloss fit data.csv --target label -o model/
    """
    from peerloss._validation import check_choice
    from peerloss.datasets import read_table
    from peerloss.persistence import save_model
    from peerloss.persistence._model_folder import check_replaceable
    from peerloss.posterior.decision import METRICS

    check_choice(metric, "--metric", METRICS)
    check_folder_place(output)  # before the training, not after it
    check_replaceable(output.resolve())
    task = _as_task(read_table(data), target=target, drop=drop or [], where=str(data))
    note = f"training on {len(task.y):,} rows"
    with training_bar(note, quiet=as_json), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model = _train(task, metric=metric, seed=seed, jobs=jobs)
    save_model(model, output)
    notes = sorted({str(warning.message) for warning in caught if warning.category is UserWarning})
    summary = _summarise(model, task, target, output) | {"notes": notes}
    if as_json:
        say_json(summary)
    else:
        _print(model, summary)


def _as_task(table: pd.DataFrame, *, target: str, drop: list[str], where: str) -> Task:
    from peerloss.datasets import require_columns

    require_columns(table.columns, [target, *drop], where=where)
    labelled = table[table[target].notna()]
    X = labelled.drop(columns=[target, *drop])
    if X.shape[1] == 0:
        raise InvalidInputError(f"{where} must have columns besides {target!r} to learn from; it has none.")
    unlabelled = len(table) - len(labelled)
    return Task(X, _labels(labelled[target], where, with_gaps=unlabelled > 0), unlabelled)


def _labels(column: pd.Series, where: str, *, with_gaps: bool) -> NDArray[Any]:
    """Return the labels in the type that the file gives them."""
    import numpy as np

    from peerloss._validation import check_exact_labels

    if column.dtype.kind in "iuf":
        labels = column.to_numpy()
        check_exact_labels(labels, f"{where}: column {column.name!r}")
        whole = labels == np.round(labels)
        if not whole.all():
            raise InvalidInputError(
                f"{where}: column {column.name!r} must hold classes; it holds measurements such as "
                f"{labels[~whole][0]:g}. Sort them into classes first, or name another column with --target."
            )
        labels = labels.astype(np.int64) if with_gaps else labels  # gaps alone make whole numbers fractions
    else:
        labels = column.to_numpy(dtype=str)
    distinct = np.unique(labels)
    if len(distinct) < 2:
        found = f"every row says {distinct[0].item()!r}" if len(distinct) else "no row has a label"
        raise InvalidInputError(f"{where}: column {column.name!r} must hold at least two classes; {found}.")
    return labels


def _train(task: Task, *, metric: str, seed: int, jobs: int) -> Pipeline:
    from sklearn.pipeline import Pipeline

    from peerloss.estimators import PeerClassifier, TableEncoder

    classifier = PeerClassifier(metric=metric, n_jobs=jobs, random_state=seed)
    return Pipeline([("columns", TableEncoder()), ("classifier", classifier)]).fit(task.X, task.y)


def _summarise(model: Pipeline, task: Task, target: str, output: Path) -> dict[str, Any]:
    import numpy as np

    columns, report = model["columns"], model["classifier"].report_
    labels, counts = np.unique(task.y, return_counts=True)
    used = report.candidates[report.candidates["weight"] > 0]["weight"].sort_values(ascending=False)
    return {
        "model": str(output),
        "target": target,
        "rows": len(task.y),
        "rows_without_label": task.unlabelled,
        "classes": {str(label): int(count) for label, count in zip(labels, counts, strict=True)},
        "columns": columns.kinds_,
        "columns_not_used": columns.dropped_,
        "metric": report.metric,
        "estimated_metric": report.accuracy,
        "interval": [report.accuracy_low, report.accuracy_high],
        "noise_model_fits": report.fits,
        "misfit_p_value": report.misfit_p_value,
        "alpha": report.alpha if math.isfinite(report.alpha) else None,
        "noise": report.noise.transition.tolist(),
        "candidates": {str(name): float(weight) for name, weight in used.items()},
        "diverged": list(report.diverged),
    }


def _print(model: Pipeline, summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    chosen = Table("candidate", "weight", title="What is averaged")
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
    doubt = "" if summary["noise_model_fits"] else ", which the misfit of the noise model makes unreliable"
    say(
        f"{summary['rows']:,} rows, {len(summary['columns'])} columns, {len(summary['classes'])} classes; "
        f"estimated {summary['metric'].replace('_', ' ')} on clean labels {summary['estimated_metric']:.3f} "
        f"({low:.3f} to {high:.3f}){doubt}; saved in {summary['model']}."
    )
