"""``peerloss audit``: which labels of a table are probably wrong."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._errors import user_errors
from peerloss.cli._progress import training_bar
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
        str | None, typer.Option("--id", help="Column that names the rows, and the tasks of --reports.")
    ] = None,
    abstain: Annotated[str | None, typer.Option(help="Value that means 'no label', such as -1.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column not to learn from; may be repeated.")] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(help="Out-of-fold probabilities, a column a class, instead of training models."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and models.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes; -1 takes every core.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Find labels that are probably wrong, and write a folder with a page, a table and the data.

    Then look at index.html there, step through the suspects with `peerloss review`, and write the cleaned
    table with `peerloss apply`.

    Example: peerloss audit data.csv --target label -o audit/
    """
    with user_errors():
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
            abstain=abstain,
            drop=drop or [],
        )
        proba = None if probabilities is None else _probabilities(probabilities, task)
        note = f"training on {len(task.X):,} rows" if proba is None else f"reading {len(task.X):,} rows"
        with training_bar(note, quiet=as_json), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            found = _find(task, proba, seed=seed, jobs=jobs)
        columns = [name for name in task.columns if name in table]
        write_folder(output, found, data, rows=task.rows, labels=columns, title=f"Labels of {data.name}")
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
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        _print(found, summary)


def _as_task(
    table: pd.DataFrame,
    where: str,
    *,
    target: list[str],
    reports: Path | None,
    id_column: str | None,
    abstain: str | None,
    drop: list[str],
) -> Labelled:
    import numpy as np

    from peerloss.datasets import require_columns

    if bool(target) == (reports is not None):
        raise InvalidInputError(
            "give the labels with --target (a column) or with --reports (a table); one of both."
        )
    require_columns(table.columns, [*target, *drop, *([id_column] if id_column else [])], where=where)
    if id_column is not None:
        table = table.set_index(_names(table[id_column], where))
    X = table.drop(columns=[*target, *drop, *([id_column] if id_column else [])])
    if reports is not None:
        said = _reports(reports, abstain, named=id_column is not None)
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


def _reports(path: Path, abstain: str | None, *, named: bool) -> pd.DataFrame:
    from peerloss.audit import read_reports

    said = read_reports(path)
    said = said.rename(columns={"item": "task"}) if "task" not in said else said
    if abstain is not None:
        said = said.assign(label=said["label"].mask(said["label"].astype(str) == abstain))
    said = said[said["label"].notna()]
    if not named and said["task"].dtype.kind not in "iu":
        raise InvalidInputError(
            f"{path}: tasks must be numbers of rows, from 0; or tell which column has their names with --id."
        )
    return said


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
            return find_label_issues(None, y)
        return find_label_issues(task.X, y, n_jobs=jobs, random_state=seed)
    if isinstance(y, pd.Series):
        names = sorted(map(str, y.unique()))
        missing = [name for name in names if name not in proba]
        if missing:
            raise InvalidInputError(
                f"--probabilities must have a column for each label; {missing[0]!r} is missing among "
                f"{[str(name) for name in proba][:10]}."
            )
        columns = [name for name in proba if name in names]
        y = pd.Series(pd.Categorical(y.astype(str), categories=columns), index=y.index, name=y.name)
        proba = proba[columns]
    return find_label_issues(task.X, y, pred_proba=proba.to_numpy())


def _print(found: LabelAudit, summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    suspects = found.suspects.head(SHOWN)
    shown = Table("row", "given", "suggested", "P(wrong)", title="Likeliest errors")
    for name, row in zip(suspects.index, suspects.to_dict("records"), strict=True):
        cells = [str(name), str(row["given"]), str(row["suggested"]), f"{row['p_error']:.3f}"]
        shown.add_row(*(Text(cell[:60]) for cell in cells))
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
        console.print(line, markup=False, highlight=False, soft_wrap=True)
