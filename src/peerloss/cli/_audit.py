"""``peerloss audit``: which labels of a table are probably wrong."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._progress import training_bar
from peerloss.cli._terminal import say, say_json, visible
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from peerloss.audit import LabelAudit

#: Suspects shown on the screen; all are on the page.
SHOWN = 10
#: What `peerloss predict` writes before the label in the name of a column of probabilities.
PREFIX = "probability_"


@dataclass(frozen=True)
class Labelled:
    """Rows of a table that have a label, and their labels."""

    X: pd.DataFrame
    y: pd.Series | pd.DataFrame
    rows: NDArray[np.int64]
    """Positions of the rows in the file."""
    unlabelled: int
    columns: list[str]
    """Columns of the file that hold labels."""


def audit(
    data: Annotated[Path, typer.Argument(help="CSV, Parquet or ARFF file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    target: Annotated[
        list[str] | None, typer.Option(help="Column that holds the labels; repeat it for several annotators.")
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            help="Labels of several annotators instead: a table with task (or item), worker, label."
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Column that names the rows, and the tasks of --reports. Without it, tasks are row numbers "
            "counted from 0.",
        ),
    ] = None,
    duplicates: Annotated[
        str,
        typer.Option(
            help="Where an annotator labelled a task of --reports more than once: keep first, last, or error."
        ),
    ] = "error",
    abstain: Annotated[str | None, typer.Option(help="Value that means 'no label', such as -1.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column not to learn from; may be repeated.")] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(help="Out-of-fold probabilities, a column a class, instead of training models."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and models.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes; -1 takes every core.")] = 1,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Put ' before texts that look like a formula."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Find labels that are probably wrong, and write a folder with a page, a table and the data.

    Then look at index.html there, step through the suspects with `peerloss review`, and write the cleaned
    table with `peerloss apply`.

    Example: peerloss audit data.csv --target label -o audit/
    """
    from peerloss.audit._folder import check_free, write_folder
    from peerloss.datasets import read_table

    check_free(output)
    table = read_table(data)
    task = _as_task(
        table,
        str(data),
        target=target or [],
        reports=reports,
        id_column=id_column,
        duplicates=duplicates,
        abstain=abstain,
        drop=drop or [],
    )
    proba = None if probabilities is None else _probabilities(probabilities, task)
    note = f"training on {len(task.X):,} rows" if proba is None else f"reading {len(task.X):,} rows"
    with training_bar(note, quiet=as_json), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = _find(task, proba, seed=seed, jobs=jobs)
    columns = [name for name in task.columns if name in table]
    write_folder(
        output,
        found,
        data,
        rows=task.rows,
        labels=columns,
        title=f"Labels of {data.name}",
        spreadsheet_safe=spreadsheet_safe,
    )
    notes = sorted({str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)})
    summary = {
        "audit": str(output),
        "data": str(data),
        "labels": task.columns,
        "rows_without_label": task.unlabelled,
        **found.summary(),
        "notes": notes,
    }
    if as_json:
        say_json(summary)
    else:
        _print(found, summary)


def _as_task(
    table: pd.DataFrame,
    where: str,
    *,
    target: list[str],
    reports: Path | None,
    id_column: str | None,
    duplicates: str,
    abstain: str | None,
    drop: list[str],
) -> Labelled:
    import numpy as np

    from peerloss.crowd._read_reports import read_names
    from peerloss.datasets import require_columns

    if bool(target) == (reports is not None):
        raise InvalidInputError(
            "give the labels with --target (a column) or with --reports (a table); one of both."
        )
    require_columns(table.columns, [*target, *drop, *([id_column] if id_column else [])], where=where)
    if id_column is not None:
        names = table[id_column] if reports is None else read_names(where, id_column)
        table = table.set_index(_names(names, where))
    X = table.drop(columns=[*target, *drop, *([id_column] if id_column else [])])
    if reports is not None:
        said = _reports(reports, table.index, abstain, duplicates, id_column)
        silent = ~np.asarray(table.index.isin(said["task"]))
        columns: list[str] = []
        y: pd.Series | pd.DataFrame = said
    else:
        labels = table[target]
        if abstain is not None:
            labels = labels.mask(labels.astype(str) == abstain)
        labels = labels.apply(_classes, where=where)
        silent = labels.isna().all(axis=1).to_numpy()
        columns = target
        y = labels.loc[~silent, target[0]] if len(target) == 1 else labels[~silent]
    rows = np.flatnonzero(~silent)
    if not len(rows):
        raise InvalidInputError(f"{where}: no row has a label.")
    return Labelled(X.iloc[rows], y, rows, int(silent.sum()), columns)


def _names(column: pd.Series, where: str) -> pd.Index:
    import pandas as pd

    if column.isna().any():
        first = int(column.isna().to_numpy().argmax())
        raise InvalidInputError(
            f"{where}: --id {column.name!r} must name every row; row {first} has no name."
        )
    repeated = column[column.duplicated()]
    if len(repeated):
        raise InvalidInputError(
            f"{where}: --id {column.name!r} must differ from row to row; {repeated.iloc[0]!r} comes "
            "more than once."
        )
    names: pd.Index = pd.Index(column.to_numpy(), name=str(column.name))
    return names


def _classes(column: pd.Series, where: str) -> pd.Series:
    """Return labels in the type that the file gives them: whole numbers as such, though gaps hide it."""
    from peerloss._validation import check_exact_labels

    if column.dtype.kind not in "iuf":
        return column.astype(object)
    known = column.dropna()
    check_exact_labels(known.to_numpy(), f"{where}: column {column.name!r}")
    broken = known[known != known.round()]
    if len(broken):
        raise InvalidInputError(
            f"{where}: column {column.name!r} must hold classes; it holds measurements such as "
            f"{broken.iloc[0]:g}. Sort them into classes first, or name another column with --target."
        )
    return column.astype("Int64").astype(object)


def _reports(
    path: Path, rows: pd.Index, abstain: str | None, duplicates: str, id_column: str | None
) -> pd.DataFrame:
    """Read the reports on the rows of the data, in the order of these rows."""
    import pandas as pd

    from peerloss._validation import check_choice
    from peerloss.crowd import read_reports
    from peerloss.crowd._read_reports import keep_one, row_numbers, task_names
    from peerloss.peer_prediction._reports import DUPLICATES

    check_choice(duplicates, "--duplicates", DUPLICATES)
    said = read_reports(path, duplicates=duplicates, abstain=abstain).dropna(subset="label")
    tasks = row_numbers(said["task"], len(rows), path) if id_column is None else task_names(said["task"])
    place = rows.get_indexer(pd.Index(tasks))
    if (place < 0).any():
        raise InvalidInputError(
            f"{path}: every task must be an entry of --id {id_column!r}, such as {str(rows[0])!r}; "
            f"{str(tasks[place < 0].iloc[0])!r} is not. Check which column names the tasks."
        )
    said = said.assign(task=tasks.astype("category"), place=place)
    said = keep_one(said, duplicates, ("task", "worker"), path)  # tasks such as 3 and 3.0 are now the same
    said = said.assign(task=said["task"].astype(tasks.dtype))
    return said.sort_values("place", kind="stable").drop(columns="place")


def _probabilities(path: Path, task: Labelled) -> pd.DataFrame:
    from peerloss.datasets import read_table

    table = read_table(path)
    table = table.rename(columns=lambda name: str(name).removeprefix(PREFIX))
    if len(table) > int(task.rows.max()):
        table = table.iloc[task.rows]
    else:
        raise InvalidInputError(f"{path} must have one row for each row of the data; it has {len(table)}.")
    return table


def _find(task: Labelled, proba: pd.DataFrame | None, *, seed: int, jobs: int) -> LabelAudit:
    import pandas as pd

    from peerloss.audit import find_label_issues

    y: Any = task.y
    if proba is None:
        if task.X.shape[1] == 0:
            return find_label_issues(labels=y)
        return find_label_issues(task.X, y, n_jobs=jobs, random_state=seed)
    names = _label_names(y)
    missing = [name for name in names if name not in proba]
    if missing:
        raise InvalidInputError(
            f"--probabilities must have a column for each label; {missing[0]!r} is missing among "
            f"{[str(name) for name in proba][:10]}."
        )
    if not isinstance(y, pd.Series):
        proba = proba[names]  # the order of the classes of several annotators
    else:
        columns = [name for name in proba if name in names]
        y = pd.Series(pd.Categorical(y.astype(str), categories=columns), index=y.index, name=y.name)
        proba = proba[columns]
    return find_label_issues(task.X, y, pred_proba=proba.to_numpy())


def _label_names(y: pd.Series | pd.DataFrame) -> list[str]:
    """List the labels of one or of several annotators, sorted."""
    import pandas as pd

    if isinstance(y, pd.DataFrame):
        y = y["label"] if {"worker", "label"} <= set(y.columns) else pd.Series(y.to_numpy().ravel())
    labels = y.dropna().unique()
    try:
        return [str(label) for label in sorted(labels)]
    except TypeError:  # several types: the audit refuses them where they must be sorted
        return sorted(map(str, labels))


def _print(found: LabelAudit, summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    suspects = found.suspects.head(SHOWN)
    shown = Table("row", "given", "suggested", "P(wrong)", title="Likeliest errors")
    for name, row in zip(suspects.index, suspects.to_dict("records"), strict=True):
        cells = [str(name), str(row["given"]), str(row["suggested"]), f"{row['p_error']:.3f}"]
        shown.add_row(*(Text(visible(cell)[:60]) for cell in cells))
    console.print(shown)
    lines = []
    if summary["rows_without_label"]:
        lines.append(f"Rows without a label, left out: {summary['rows_without_label']:,}.")
    lines += [*summary["notes"], str(found.outlook)]
    lines.append(f"Next: open {summary['audit']}/index.html, or run peerloss review {summary['audit']}.")
    lines.append(
        f"{summary['flagged']:,} of {summary['rows']:,} labels are suspect, about "
        f"{summary['expected_errors']:,.0f} ({summary['expected_error_rate']:.1%}) are expected to be wrong; "
        f"written to {summary['audit']}."
    )
    for line in lines:
        say(line)
