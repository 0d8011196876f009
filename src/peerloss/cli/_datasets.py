"""``peerloss datasets``: list the data sets, or describe one of them or a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._pages import label_text
from peerloss.cli._table_options import (
    Abstain,
    Decimal,
    Encoding,
    MinClassRows,
    NaValues,
    Sep,
    Sheet,
    TidyLabels,
    read_options,
)
from peerloss.cli._terminal import counted, say, say_json, visible

if TYPE_CHECKING:
    import pandas as pd

    from peerloss.cli._fit import Task
    from peerloss.datasets import Dataset, ReadOptions

#: Numbers of columns and classes that are printed, and characters of a name; the JSON has everything.
MAX_COLUMNS, MAX_CLASSES, MAX_NAME = 30, 20, 40


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A name from the list, openml:NUMBER, or a CSV, Excel, JSON lines, Parquet or ARFF file."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column that holds the labels, for a file or OpenML.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder for downloads from OpenML and for relative paths.")
    ] = None,
    encoding: Encoding = None,
    sep: Sep = None,
    decimal: Decimal = None,
    na_values: NaValues = None,
    sheet: Sheet = None,
    abstain: Abstain = None,
    tidy_labels: TidyLabels = False,
    min_class_rows: MinClassRows = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """List the built-in data sets, or describe a data set or a file.

    A file is read as `peerloss audit` and `peerloss fit` read it.

    Examples: peerloss datasets heart; peerloss datasets mine.csv --target label
    """
    from peerloss.datasets import OTHER_DATASETS, list_datasets, load_dataset
    from peerloss.datasets.tables import TABLE_SUFFIXES

    built_in = [*list_datasets(), *OTHER_DATASETS]
    if name is None:
        loaded = [load_dataset(each, data_dir=data_dir, target=target) for each in built_in]
        if as_json:
            say_json([_describe(data) for data in loaded])
        else:
            _print_list(loaded)
        return
    path = Path(data_dir or ".", name)
    is_file = name not in built_in and (name.lower().endswith(TABLE_SUFFIXES) or path.is_file())
    if is_file:
        options = read_options(encoding, sep, decimal, na_values, sheet)
        task = _read_file(
            path, target, options, abstain=abstain, tidy=tidy_labels, min_class_rows=min_class_rows
        )
        described = _describe_file(path, task)
    else:
        described = _describe(load_dataset(name, data_dir=data_dir, target=target))
    if as_json:
        say_json(described)
    else:
        _print_one(described)


def _describe(data: Dataset) -> dict[str, Any]:
    counts = {label: int((data.y == code).sum()) for code, label in enumerate(data.target_names)}
    return (
        {"name": data.name}
        | _describe_features(data.X)
        | {
            "classes": counts,
            "citation": data.citation,
            "notes": list(data.notes),
        }
    )


def _describe_features(X: pd.DataFrame) -> dict[str, Any]:
    from peerloss.datasets import column_kinds

    return {
        "rows": len(X),
        "features": X.shape[1],
        "text_features": sum(kind == "text" for kind in column_kinds(X).values()),
        "missing_values": int(X.isna().sum().sum()),
    }


def _read_file(
    path: Path,
    target: str | None,
    options: ReadOptions,
    *,
    abstain: str | None,
    tidy: bool,
    min_class_rows: int | None,
) -> Task:
    from peerloss.cli._fit import as_task
    from peerloss.datasets import read_table, split_target
    from peerloss.datasets.tables import read_with_notes

    if target is None:
        split_target(read_table(path, options=options), None, where=str(path))  # refuses it
    target = str(target)
    reading = read_with_notes(path, options=options, labels=[target])
    return as_task(
        reading,
        target=target,
        drop=[],
        where=str(path),
        abstain=abstain,
        tidy=tidy,
        min_class_rows=min_class_rows,
    )


def _describe_file(path: Path, task: Task) -> dict[str, Any]:
    """Describe the rows in use, as of a built-in data set, and the table before rows were left out."""
    table = task.described.as_dict()
    return (
        {"name": path.name}
        | _describe_features(task.X)
        | {
            "classes": task.described.classes,
            "citation": f"The file {path}.",
            "notes": table["notes"],
            "table": table,
        }
    )


def _print_list(loaded: list[Dataset]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Built-in data sets")
    table.add_column("name", no_wrap=True)
    for heading in ("rows", "features", "class 1"):
        table.add_column(heading, justify="right")
    table.add_column("citation", overflow="fold")
    for data in loaded:
        share = f"{data.y.mean():.1%}"
        table.add_row(data.name, str(len(data.y)), str(len(data.feature_names)), share, _plain(data.citation))
    Console().print(table)
    say(
        f"{len(loaded)} data sets. Run `peerloss datasets NAME` for details; NAME may also be openml:NUMBER "
        "or a file."
    )


def _print_one(described: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=_plain(described["name"]), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key in ("rows", "features", "text_features", "missing_values"):
        table.add_row(key.replace("_", " "), str(described[key]))
    classes = list(described["classes"].items())
    for code, (label, count) in enumerate(classes[:MAX_CLASSES]):
        share = f"{count} ({count / described['rows']:.1%})"
        # Built-in data sets have codes; the labels of a file are its own.
        name = "label" if "table" in described else f"class {code}"
        table.add_row(name, f"{_plain(label_text(label))}: {share}")
    if len(classes) > MAX_CLASSES:
        table.add_row("classes", f"and {len(classes) - MAX_CLASSES:,} more")
    columns = described.get("table", {}).get("columns", [])
    for column in columns[:MAX_COLUMNS]:
        use = "used" if column["used"] else "not used"
        name = repr(column["name"])
        shown = name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"
        table.add_row(f"column {_plain(shown)}", f"{column['kind']}, {use}")
    if len(columns) > MAX_COLUMNS:
        table.add_row("columns", f"and {len(columns) - MAX_COLUMNS:,} more")
    table.add_row("citation", _plain(described["citation"]))
    for note in described["notes"]:
        table.add_row("note", _plain(note))
    Console().print(table)
    rows, features = counted(described["rows"], "row"), counted(described["features"], "feature")
    say(f"{described['name']}: {rows}, {features}, {counted(len(classes), 'class', 'classes')}.")


def _plain(text: str) -> str:
    """Return text without markup for rich and without control characters for the terminal."""
    from rich.markup import escape

    return escape(visible(text))
