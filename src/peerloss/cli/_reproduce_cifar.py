"""``peerloss reproduce cifar10`` and ``cifar10n``: deep networks on images, and their table."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss.experiments import Record, RunSummary
    from peerloss.experiments.cifar import CifarExperiment

#: ``peerloss.experiments.IMAGE_EXPERIMENTS``; the package is imported only when it is needed.
IMAGES = ("cifar10", "cifar10n")


def reproduce_images(
    experiment: CifarExperiment, output: Path, data_dir: Path | None, device: str | None, *, as_json: bool
) -> bool:
    """Execute the missing runs, write and print the table, and return whether a run failed.

    ``table.md`` has every run in the folder, also those that were not requested now. Smoke tests and runs
    with a closed test set have pages of their own.
    """
    from peerloss._files import atomic_files
    from peerloss.experiments import Store, run_experiment
    from peerloss.experiments.cifar import SharedResources, cifar_table

    with Store(output) as store:
        summary = run_experiment(
            experiment,
            store,
            resources=SharedResources(data_dir, device, progress=not as_json and sys.stdout.isatty()),
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
        typer.echo(json.dumps(_as_json(experiment, summary)))
    else:
        failed = f", {len(summary.failed)} failed" if summary.failed else ""
        typer.echo(text)
        typer.echo(
            f"{summary.done} runs in {summary.seconds:.0f} s, {summary.skipped} already done{failed}; "
            f"table in {page}."
        )
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
    if summary.size_done:
        minutes = summary.seconds / summary.size_done * summary.size_left / 60.0
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


def _as_json(experiment: CifarExperiment, summary: RunSummary) -> dict[str, Any]:
    from peerloss.experiments.cifar import cifar_means

    return {
        "experiment": experiment.name,
        "runs": summary.runs,
        "skipped": summary.skipped,
        "done": summary.done,
        "failed": len(summary.failed),
        "seconds": round(summary.seconds, 2),
        "device_minutes": round(sum(record["seconds"] for record in summary.records) / 60.0, 2),
        "means": cifar_means(experiment, summary.records),
    }
