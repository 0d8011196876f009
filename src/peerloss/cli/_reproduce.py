"""``peerloss reproduce``: run an experiment of the paper, or resume it."""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._options import jobs_option, seed_option
from peerloss.cli._report import write_page
from peerloss.cli._terminal import say, training_bar, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from peerloss.experiments import Experiment, Record, Result, RunSummary
    from peerloss.experiments.cifar import CifarExperiment

#: Exit code of a command stopped by Ctrl-C, as shells expect it.
INTERRUPTED = 130
#: ``peerloss.experiments.IMAGE_EXPERIMENTS``; the package is imported only when it is needed.
IMAGES = ("cifar10", "cifar10n", "cifar100", "cifar100n")
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
            "cifar10n, cifar100, cifar100n, or a TOML file."
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the results.")] = Path("runs"),
    protocol: Annotated[
        str, typer.Option(help="paper: the authors' settings. fair: equal tuning, on noisy labels only.")
    ] = "paper",
    data_sets: Annotated[
        str | None, typer.Option(help="Data sets to run, for example heart,thyroid; default: all.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods to run, for example peer,nn; default: all.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; default: that of the experiment.")
    ] = None,
    seed: Annotated[int, seed_option("The first seed.")] = 0,
    backend: Annotated[
        str, typer.Option(help="joblib: processes on this machine. ray: a Ray cluster.")
    ] = "joblib",
    address: Annotated[
        str | None, typer.Option(help="Address of a running Ray cluster; omit to start one locally.")
    ] = None,
    jobs: Annotated[int, jobs_option()] = -1,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", "--data", help="CIFAR: folder of the images; default: PEERLOSS_DATA."),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="CIFAR: noise to run, for example uniform:0.4,asymmetric:0.4,instance:0.4,long_tail:10:0.2 "
            "or, for cifar10n, worst,random1; default: that of the experiment."
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="CIFAR: change a setting, for example epochs=60; may be repeated.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="CIFAR: cuda or cpu; default: a GPU if there is one.")
    ] = None,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="CIFAR: few images and four epochs, to check that everything works."),
    ] = False,
    closed: Annotated[
        bool, typer.Option("--closed", help="CIFAR: compare recipes without reading the test set.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Execute the runs of an experiment that are not yet in the folder of results.

    It can be stopped at any time; the same command resumes it. Several commands may share a folder. "all"
    runs every table and plot of the paper except those of CIFAR-10, and writes the report. The experiments on
    CIFAR need a folder with the images and should run on a GPU. cifar10n and cifar100n have human labels.

    Example: peerloss reproduce table-a1 --data-sets heart,thyroid -o runs/a1
    Example: peerloss reproduce cifar10n --noise worst --methods ce,peer --data-dir DATA -o runs
    """
    from peerloss.experiments import StoreWarning, load_experiment

    everything, images = name == "all", name in IMAGES
    _refuse_other_options(context, name)
    failed = False
    warnings.simplefilter("always", StoreWarning)  # printed as lines, and reset after the command
    with _interruptible(output):
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
            failed = _reproduce_images(on_images, output, data_dir, device, as_json=as_json)
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
        typer.echo(json.dumps(_as_json(experiment, summary, results)))
    else:
        say(f"{experiment.title} (test accuracy, mean over the finished runs)")
        Console().print(_table(results, experiment.methods))
        say(f"{_summary_text(summary)}; results in {output}.")
    for key, trace in list(summary.failed.items())[:3]:
        typer.echo(f"Failed: {key}\n{trace}", err=True)
    return bool(summary.failed)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _run_with_bar(
    experiment: Experiment, output: Path, backend: str, jobs: int, address: str | None, *, quiet: bool
) -> RunSummary:
    from peerloss.experiments import Store, run_experiment

    with Store(output) as store, training_bar(experiment.name, quiet=quiet):
        return run_experiment(experiment, store, backend=backend, n_jobs=jobs, address=address)


def _means(results: list[Result]) -> dict[tuple[str, str], tuple[float, int]]:
    """Return mean test accuracy and number of runs of each method and prior."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if result.test_accuracy is not None:
            accuracies.setdefault((result.method, result.prior), []).append(result.test_accuracy)
    return {place: (sum(values) / len(values), len(values)) for place, values in accuracies.items()}


def _counts(summary: RunSummary) -> dict[str, object]:
    return {
        "runs": summary.runs,
        "skipped": summary.skipped,
        "done": summary.done,
        "failed": len(summary.failed),
        "seconds": round(summary.seconds, 2),
    }


def _as_json(experiment: Experiment, summary: RunSummary, results: list[Result]) -> dict[str, object]:
    """Return the results for JSON; ``cells`` is the deprecated name of ``runs``."""
    means = [
        {"method": method, "prior": prior, "test_accuracy": mean, "runs": count, "cells": count}
        for (method, prior), (mean, count) in sorted(_means(results).items())
    ]
    names = {"experiment": experiment.name, "protocol": experiment.protocol, "cells": summary.runs}
    return names | _counts(summary) | {"means": means}


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


def _summary_text(summary: RunSummary) -> str:
    failed = f", {len(summary.failed)} failed" if summary.failed else ""
    return f"{summary.done} runs in {summary.seconds:.0f} s, {summary.skipped} already done{failed}"


def _reproduce_images(
    experiment: CifarExperiment, output: Path, data_dir: Path | None, device: str | None, *, as_json: bool
) -> bool:
    """Execute the missing runs on images, write and print the table, and return whether a run failed.

    ``table.md`` has every run in the folder, also those that were not requested now. Smoke tests and runs
    with a closed test set have pages of their own.
    """
    from peerloss._files import atomic_files
    from peerloss.experiments import Store, run_experiment
    from peerloss.experiments.cifar import SharedResources, cifar_means, cifar_table

    with Store(output) as store:
        summary = run_experiment(
            experiment,
            store,
            resources=SharedResources(
                data_dir, device, progress=not as_json and sys.stdout.isatty(), images=experiment.images
            ),
            on_progress=None if as_json else _print_start,
            on_record=None if as_json else _print_record,
        )
        records = store.records_of(experiment)
    name = f"table{'_closed' if experiment.closed else ''}{'_smoke' if experiment.smoke else ''}.md"
    page = output / experiment.name / name
    text = cifar_table(experiment, records)
    if records:
        with atomic_files(page) as (unfinished,):
            unfinished.write_text(text, encoding="utf-8")
    if as_json:
        minutes = round(sum(record["seconds"] for record in summary.records) / 60.0, 2)
        means = {"device_minutes": minutes, "means": cifar_means(experiment, summary.records)}
        typer.echo(json.dumps({"experiment": experiment.name} | _counts(summary) | means))
    else:
        typer.echo(text)
        typer.echo(f"{_summary_text(summary)}; table in {page}.")
    for key, reason in summary.failed.items():
        typer.echo(f"Failed: {key}: {reason}", err=True)
    return bool(summary.failed)


def _print_start(summary: RunSummary) -> None:
    """Print which run starts, if one does, and the estimated time left."""
    run: Any = summary.current
    if run is None:
        return
    number = summary.skipped + summary.done + len(summary.failed) + 1
    left = ""
    if summary.finished_cost:
        minutes = summary.seconds / summary.finished_cost * summary.remaining_cost / 60.0
        left = f", about {minutes:.0f} minutes left"
    typer.echo(f"Run {number} of {summary.runs}: {run.noise} {run.method} seed {run.seed}{left}", err=True)


def _print_record(record: Record) -> None:
    kind = "test" if "test" in record else "held_out"
    accuracies = ", ".join(f"{name} {100 * accuracy:.2f}" for name, accuracy in record[kind].items())
    typer.echo(
        f"  {kind.replace('_', ' ')}: {accuracies}; best epoch {record['best_epoch']}; "
        f"{record['seconds']:.0f} s",
        err=True,
    )
