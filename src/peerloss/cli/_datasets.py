"""``peerloss datasets``: what there is to learn from, and what to know about it."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._terminal import say, say_json, visible

if TYPE_CHECKING:
    from peerloss.datasets import Dataset


def datasets(
    name: Annotated[
        str | None, typer.Argument(help="One of the list, openml:NUMBER, or a CSV, Parquet or ARFF file.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column of a file that holds the labels.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of downloads from OpenML and of relative files.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """List the data sets of the paper, or describe one.

    Examples: peerloss datasets heart; peerloss datasets mine.csv --target label
    """
    from peerloss.datasets import OTHER_DATASETS, list_datasets, load_dataset

    names = [*list_datasets(), *OTHER_DATASETS] if name is None else [name]
    loaded = [load_dataset(each, data_dir=data_dir, target=target) for each in names]
    if as_json:
        told = [_describe(data) for data in loaded]
        say_json(told if name is None else told[0])
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

    table = Table(title="Data sets of the paper")
    table.add_column("name", no_wrap=True)
    for heading in ("rows", "features", "class 1"):
        table.add_column(heading, justify="right")
    table.add_column("citation", overflow="fold")
    for data in loaded:
        share = f"{data.y.mean():.1%}"
        table.add_row(data.name, str(len(data.y)), str(len(data.feature_names)), share, _plain(data.citation))
    Console().print(table)
    say(f"{len(loaded)} data sets. `peerloss datasets NAME` tells more; openml:NUMBER and files work too.")


def _print_one(data: Dataset) -> None:
    from rich.console import Console
    from rich.table import Table

    told = _describe(data)
    table = Table(title=_plain(data.name), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key in ("rows", "features", "text_features", "missing_values"):
        table.add_row(key.replace("_", " "), str(told[key]))
    for code, (label, count) in enumerate(told["classes"].items()):
        table.add_row(f"class {code}", f"{_plain(label)}: {count} ({count / told['rows']:.1%})")
    table.add_row("citation", _plain(data.citation))
    for note in data.notes:
        table.add_row("note", _plain(note))
    Console().print(table)
    say(f"{data.name}: {told['rows']} rows, {told['features']} features, {len(told['classes'])} classes.")


def _plain(text: str) -> str:
    """Keep rich from reading square brackets as markup, and the terminal from reading control characters."""
    from rich.markup import escape

    return escape(visible(text))
