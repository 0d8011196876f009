"""``peerloss reproduce``: run an experiment of the paper, or resume it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._report import write_page
from peerloss.cli._reproduce_cifar import IMAGES, reproduce_images
from peerloss.cli._terminal import say, store_warnings, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from peerloss.experiments import Experiment, Result, RunSummary

#: Exit code of a command stopped by Ctrl-C, as shells expect it.
INTERRUPTED = 130
#: What ``all`` runs: every table and plot of the paper that needs no images.
ALL = ("table-a1", "heart-as-released", "curves", "boundary", "invariance")
#: Options of every experiment, of those on tables and of those on images.
_COMMON = ("output", "methods", "seeds", "seed", "as_json")
_OF_TABLES = ("protocol", "data_sets", "backend", "address", "jobs")
_OF_IMAGES = ("data_dir", "noise", "changes", "device", "smoke", "closed")


def reproduce(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            help="all, table-a1, table-a1-grid, heart-as-released, curves, boundary, invariance, cifar10, "
            "cifar10n, or a TOML file."
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")] = Path("runs"),
    protocol: Annotated[
        str, typer.Option(help="paper: the authors' settings. fair: equal tuning, on noisy labels only.")
    ] = "paper",
    data_sets: Annotated[
        str | None, typer.Option(help="Data sets to run, for example heart,thyroid.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Methods to run, for example peer,nn.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; default: that of the experiment.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    backend: Annotated[
        str, typer.Option(help="joblib: processes on this machine. ray: a Ray cluster.")
    ] = "joblib",
    address: Annotated[
        str | None, typer.Option(help="Address of a running Ray cluster; omit to start one locally.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes; -1 uses all cores.")] = -1,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", "--data", help="CIFAR: folder of the images; default: PEERLOSS_DATA."),
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="CIFAR: noise to run, for example uniform:0.4 or worst,random1.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="CIFAR: change a setting, for example epochs=60."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="CIFAR: cuda or cpu; default: a GPU if there is one.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="CIFAR: few images and four epochs, to check that everything works."),
    ] = False,
    closed: Annotated[
        bool, typer.Option("--closed", help="CIFAR: do not read the test set, to compare recipes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Execute the runs of an experiment that the folder of results does not contain yet.

    It can be stopped at any time; the same command resumes it. Several commands may share a folder. "all"
    runs every table and plot of the paper except CIFAR-10's and writes the report. cifar10 and cifar10n need
    a folder with CIFAR-10 and should run on a GPU.

    Example: peerloss reproduce table-a1 --data-sets heart,thyroid -o runs/a1
    Example: peerloss reproduce cifar10n --noise worst --methods ce,peer --data-dir DATA -o runs
    """
    from peerloss.experiments import load_experiment

    everything, images = name == "all", name in IMAGES
    _refuse_other_options(context, name)
    failed = False
    with store_warnings(), _interruptible(output):
        if images:
            on_images: Any = load_experiment(
                name,
                noise=_names(noise),
                methods=_names(methods),
                seeds=seeds,
                first_seed=seed,
                changes=changes,
                smoke=smoke,
                closed=closed,
            )
            failed = reproduce_images(on_images, output, data_dir, device, as_json=as_json)
        for part in () if images else ALL if everything else (name,):
            experiment = load_experiment(
                part,
                protocol="paper" if everything and part != "table-a1" else protocol,
                data_sets=_names(data_sets),
                methods=_names(methods),
                seeds=None if everything and part == "boundary" else seeds,
                first_seed=seed,
            )
            failed |= _run_and_print(experiment, output, backend, jobs, address, as_json=as_json)
    if everything and not as_json:
        write_page(output)
    if failed:
        raise typer.Exit(code=1)


@contextmanager
def _interruptible(output: Path) -> Iterator[None]:
    """Print how to resume when Ctrl-C is pressed."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"Stopped. Finished runs are in {output}; the same command resumes.", err=True)
        raise typer.Exit(code=INTERRUPTED) from None


def _refuse_other_options(context: typer.Context, name: str) -> None:
    """Reject options that were given but do not apply to the experiment, whatever their values."""
    applicable = {*_COMMON, *(_OF_IMAGES if name in IMAGES else _OF_TABLES)}
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


def _run_and_print(
    experiment: Experiment, output: Path, backend: str, jobs: int, address: str | None, *, as_json: bool
) -> bool:
    """Run one experiment, print its results, and return whether a run failed."""
    from rich.console import Console

    from peerloss.experiments import final_results

    summary = _run_with_bar(experiment, output, backend, jobs, address, quiet=as_json)
    results = final_results(summary.records)
    if as_json:
        typer.echo(json.dumps(_as_json(experiment.name, experiment.protocol, summary, results)))
    else:
        say(f"{experiment.title} (test accuracy, mean over the finished runs)")
        Console().print(_table(results, experiment.methods))
        say(_summary_text(summary, output))
    for key, trace in list(summary.failed.items())[:3]:
        typer.echo(f"Failed: {key}\n{trace}", err=True)
    return bool(summary.failed)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _run_with_bar(
    experiment: Experiment, output: Path, backend: str, jobs: int, address: str | None, *, quiet: bool
) -> RunSummary:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    from peerloss.experiments import Store, run_experiment

    columns = ("runs", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left", TimeRemainingColumn())
    # Runs differ a hundredfold in length: the ETA is estimated from a long period.
    bar = Progress(*columns, console=Console(stderr=True), disable=quiet, speed_estimate_period=600)
    with Store(output) as store, bar:
        task = bar.add_task("runs", total=None)

        def show(summary: RunSummary) -> None:
            bar.update(
                task, total=summary.runs - summary.skipped, completed=summary.done + len(summary.failed)
            )

        return run_experiment(
            experiment, store, backend=backend, n_jobs=jobs, address=address, on_progress=show
        )


def _means(results: list[Result]) -> dict[tuple[str, str], tuple[float, int]]:
    """Return mean test accuracy and number of runs of each method and prior."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if result.test_accuracy is not None:
            accuracies.setdefault((result.method, result.prior), []).append(result.test_accuracy)
    return {place: (sum(values) / len(values), len(values)) for place, values in accuracies.items()}


def _as_json(name: str, protocol: str, summary: RunSummary, results: list[Result]) -> dict[str, object]:
    """Return the results for JSON; ``cells`` is the deprecated name of ``runs``."""
    means = [
        {"method": method, "prior": prior, "test_accuracy": mean, "runs": count, "cells": count}
        for (method, prior), (mean, count) in sorted(_means(results).items())
    ]
    return {
        "experiment": name,
        "protocol": protocol,
        "runs": summary.runs,
        "cells": summary.runs,
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


def _summary_text(summary: RunSummary, output: Path) -> str:
    failed = f", {len(summary.failed)} failed" if summary.failed else ""
    return (
        f"{summary.done} runs in {summary.seconds:.0f} s, {summary.skipped} already done{failed}; "
        f"results in {output}."
    )
