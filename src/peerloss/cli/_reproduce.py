"""``peerloss reproduce``: run a table or figure of the paper, or go on with it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from peerloss.cli._report import write_page
from peerloss.cli._reproduce_cifar import CIFAR, reproduce_cifar
from peerloss.cli._terminal import say, visible
from peerloss.cli._warnings import store_warnings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from peerloss.experiments import Experiment, Result, RunSummary, Store

#: Exit code of a command ended by Ctrl-C, as shells expect it.
INTERRUPTED = 130
#: What ``all`` runs: every table and figure of the paper that needs no images.
ALL = ("table-a1", "heart-as-released", "curves", "boundary", "invariance")


#: Options of every experiment, of tables and figures, and of images.
_COMMON = ("output", "methods", "seeds", "seed", "as_json")
_OF_TABLES = ("protocol", "data_sets", "backend", "address", "jobs")
_OF_IMAGES = ("data_dir", "noise", "changes", "device", "smoke", "closed")


def reproduce(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="all, table-a1, table-a1-grid, heart-as-released, curves, boundary, invariance, cifar10, "
            "cifar10n, or a TOML file (a spec)."
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of results.")] = Path("runs"),
    protocol: Annotated[
        str, typer.Option(help="paper: the authors' settings. fair: equal tuning, on noisy labels only.")
    ] = "paper",
    data_sets: Annotated[str | None, typer.Option(help="Only these, for example heart,thyroid.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these, for example peer,nn.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Splits a row; as in the spec if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    backend: Annotated[
        str, typer.Option(help="joblib: processes on this machine. ray: a Ray cluster.")
    ] = "joblib",
    address: Annotated[
        str | None, typer.Option(help="Of a running Ray cluster; none starts one here.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes; -1 takes every core.")] = -1,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", "--data", help="CIFAR: folder of the images; PEERLOSS_DATA if not given."),
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="CIFAR: only these, for example uniform:0.4 or worst,random1.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="CIFAR: change the recipe, for example epochs=60."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="CIFAR: cuda or cpu; a GPU where there is one if not given.")
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="CIFAR: few images, four epochs: does everything work?")
    ] = False,
    closed: Annotated[
        bool, typer.Option("--closed", help="CIFAR: leave the test set unread, to compare recipes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Run the cells of a table or figure that the folder of results does not hold yet.

    It may be stopped at any moment; the same command goes on where it was. Several may share a folder. "all"
    runs every table and figure of the paper but CIFAR-10's and writes the report. cifar10 and cifar10n want a
    GPU, and a folder with CIFAR-10.

    Example: peerloss reproduce table-a1 --data-sets heart,thyroid -o runs/a1
    Example: peerloss reproduce cifar10n --noise worst --methods ce,peer --data-dir DATA -o runs
    """
    from peerloss.experiments import load_experiment

    everything, images = name == "all", name in CIFAR
    _refuse_other_options(context, name)
    failed = False
    with store_warnings(), _interruptible(output):
        if images:
            failed = reproduce_cifar(
                name,
                output,
                noise=_names(noise),
                methods=_names(methods),
                seeds=seeds,
                first_seed=seed,
                changes=changes or [],
                smoke=smoke,
                data_dir=data_dir,
                device=device,
                as_json=as_json,
                closed=closed,
            )
        for part in () if images else ALL if everything else (name,):
            experiment = load_experiment(
                part,
                protocol="paper" if everything and part != "table-a1" else protocol,
                data_sets=_names(data_sets),
                methods=_names(methods),
                seeds=None if everything and part == "boundary" else seeds,
                first_seed=seed,
            )
            failed |= _run_and_tell(experiment, output, backend, jobs, address, as_json=as_json)
    if everything and not as_json:
        write_page(output)
    if failed:
        raise typer.Exit(code=1)


@contextmanager
def _interruptible(output: Path) -> Iterator[None]:
    """End with a line that says how to go on when Ctrl-C is pressed."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"Stopped. What is finished lies in {output}; the same command goes on from there.", err=True
        )
        raise typer.Exit(code=INTERRUPTED) from None


def _refuse_other_options(context: typer.Context, name: str) -> None:
    """Refuse options that were given but do not apply to the experiment, whatever their values."""
    applicable = {*_COMMON, *(_OF_IMAGES if name in CIFAR else _OF_TABLES)}
    if name == "all":
        applicable -= {"data_sets", "methods"}
    options = {
        str(parameter.name): next(text for text in parameter.opts if text.startswith("--"))
        for parameter in context.command.params
        if parameter.param_type_name == "option"
    }
    given = [
        option
        for key, option in options.items()
        if key not in applicable and getattr(context.get_parameter_source(key), "name", "") == "COMMANDLINE"
    ]
    if given:
        known = ", ".join(option for key, option in options.items() if key in applicable)
        raise typer.BadParameter(
            f"{', '.join(given)} {'does' if len(given) == 1 else 'do'} not apply to {name}. "
            f"Options of {name}: {known}."
        )


def _run_and_tell(
    experiment: Experiment, output: Path, backend: str, jobs: int, address: str | None, *, as_json: bool
) -> bool:
    """Run one experiment, print what came of it, and return whether a cell failed."""
    from rich.console import Console

    from peerloss.experiments import Store, final_results

    with Store(output) as store:
        summary = _run_with_bar(experiment, store, backend, jobs, address, quiet=as_json)
        wanted = {cell.key for cell in experiment.cells()}
        results = final_results(record for record in store.records() if record["key"] in wanted)
    if as_json:
        typer.echo(json.dumps(_as_json(experiment.name, experiment.protocol, summary, results)))
    else:
        say(f"{experiment.title} (test accuracy, mean over the cells that are done)")
        Console().print(_table(results, experiment.methods))
        say(_told(summary, output))
    for key, trace in list(summary.failed.items())[:3]:
        typer.echo(f"Failed: {key}\n{trace}", err=True)
    return bool(summary.failed)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _run_with_bar(
    experiment: Experiment, store: Store, backend: str, jobs: int, address: str | None, *, quiet: bool
) -> RunSummary:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    from peerloss.experiments import run_experiment

    columns = ("cells", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left", TimeRemainingColumn())
    # Pieces of work differ a hundredfold in length: the time left is foretold from a long stretch.
    with Progress(*columns, console=Console(stderr=True), disable=quiet, speed_estimate_period=600) as bar:
        task = bar.add_task("cells", total=None)

        def show(summary: RunSummary) -> None:
            bar.update(
                task, total=summary.cells - summary.skipped, completed=summary.done + len(summary.failed)
            )

        return run_experiment(
            experiment, store, backend=backend, jobs=jobs, address=address, on_progress=show
        )


def _means(results: list[Result]) -> dict[tuple[str, str], tuple[float, int]]:
    """Return mean test accuracy and number of cells of each method and prior."""
    figures: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if result.test_accuracy is not None:
            figures.setdefault((result.method, result.prior), []).append(result.test_accuracy)
    return {place: (sum(values) / len(values), len(values)) for place, values in figures.items()}


def _as_json(name: str, protocol: str, summary: RunSummary, results: list[Result]) -> dict[str, object]:
    means = [
        {"method": method, "prior": prior, "test_accuracy": mean, "cells": count}
        for (method, prior), (mean, count) in sorted(_means(results).items())
    ]
    return {
        "experiment": name,
        "protocol": protocol,
        "cells": summary.cells,
        "skipped": summary.skipped,
        "done": summary.done,
        "failed": len(summary.failed),
        "seconds": round(summary.seconds, 2),
        "means": means,
    }


def _table(results: list[Result], methods: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    means = _means(results)
    priors = list(dict.fromkeys(result.prior for result in results))
    table = Table()
    table.add_column("method")
    for prior in priors:
        table.add_column(f"{prior} prior", justify="right")
    for method in methods:
        found = [means.get((method, prior)) for prior in priors]
        table.add_row(Text(visible(method)), *("" if entry is None else f"{entry[0]:.3f}" for entry in found))
    return table


def _told(summary: RunSummary, output: Path) -> str:
    failed = f", {len(summary.failed)} failed" if summary.failed else ""
    return (
        f"{summary.done} cells run in {summary.seconds:.0f} s, {summary.skipped} were there{failed}; "
        f"results in {output}."
    )
