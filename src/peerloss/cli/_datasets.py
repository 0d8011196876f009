"""``peerloss datasets``: list the data sets, or describe one of them or a file."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._terminal import say, say_json, visible

if TYPE_CHECKING:
    from peerloss.datasets import Dataset


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(help="A name from the list, openml:NUMBER, or a CSV, Parquet or ARFF file."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Column that holds the labels, for a file or OpenML.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder for downloads from OpenML and for relative paths.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """List the built-in data sets, or describe a data set or a file.

    Examples: peerloss datasets heart; peerloss datasets mine.csv --target label
    """
    from peerloss.datasets import OTHER_DATASETS, list_datasets, load_dataset

    names = [*list_datasets(), *OTHER_DATASETS] if name is None else [name]
    loaded = [load_dataset(each, data_dir=data_dir, target=target) for each in names]
    if as_json:
        described = [_describe(data) for data in loaded]
        say_json(described if name is None else described[0])
    elif name is None:
        _print_list(loaded)
    else:
        _print_one(loaded[0])


def _describe(data: Dataset) -> dict[str, Any]:
    from peerloss.datasets import column_kinds

    kinds = column_kinds(data.X)
    counts = {label: int((data.y == code).sum()) for code, label in enumerate(data.target_names)}
    return {
        "name": data.name,
        "rows": len(data.y),
        "features": len(data.feature_names),
        "text_features": sum(kind == "text" for kind in kinds.values()),
        "missing_values": int(data.X.isna().sum().sum()),
        "classes": counts,
        "citation": data.citation,
        "notes": list(data.notes),
    }


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


def _print_one(data: Dataset) -> None:
    from rich.console import Console
    from rich.table import Table

    described = _describe(data)
    table = Table(title=_plain(data.name), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key in ("rows", "features", "text_features", "missing_values"):
        table.add_row(key.replace("_", " "), str(described[key]))
    for code, (label, count) in enumerate(described["classes"].items()):
        table.add_row(f"class {code}", f"{_plain(label)}: {count} ({count / described['rows']:.1%})")
    table.add_row("citation", _plain(data.citation))
    for note in data.notes:
        table.add_row("note", _plain(note))
    Console().print(table)
    counts = (
        f"{described['rows']} rows, {described['features']} features, {len(described['classes'])} classes"
    )
    say(f"{data.name}: {counts}.")


def _plain(text: str) -> str:
    """Return text without markup for rich and without control characters for the terminal."""
    from rich.markup import escape

    return escape(visible(text))
