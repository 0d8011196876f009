"""``peerloss reproduce cifar10`` and ``cifar10n``: the deep loop on images, with the table it ends in."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from peerloss.experiments.cifar import CifarExperiment, CifarRun, CifarSummary

#: As in ``peerloss.experiments.cifar``, which is imported when it is needed.
CIFAR = ("cifar10", "cifar10n")


def reproduce_cifar(
    name: str,
    output: Path,
    *,
    noise: Sequence[str] | None,
    methods: Sequence[str] | None,
    seeds: int | None,
    first_seed: int,
    changes: Sequence[str],
    smoke: bool,
    data_dir: Path | None,
    device: str | None,
    as_json: bool,
    closed: bool,
) -> bool:
    """Run what is missing, write and print the table, and return whether a run failed.

    ``table.md`` has every run that the folder holds, those that were not asked for now included. Smoke tests
    are never among them, nor are runs with the test set ``closed``: they have pages of their own.
    """
    from peerloss.experiments.cifar import cifar_table, load_cifar, run_cifar

    experiment = load_cifar(
        name,
        noise=noise,
        methods=methods,
        seeds=seeds,
        first_seed=first_seed,
        changes=changes,
        smoke=smoke,
        closed=closed,
    )
    summary = run_cifar(
        experiment,
        output,
        data_dir=data_dir,
        device=device,
        on_run=None if as_json else _announce,
        on_result=None if as_json else _tell_result,
        progress=not as_json and sys.stdout.isatty(),
    )
    page = output / name / f"table{'_closed' if closed else ''}{'_smoke' if smoke else ''}.md"
    text = cifar_table(experiment, summary.in_folder)
    if summary.in_folder:
        _write(page, text)
    if as_json:
        typer.echo(json.dumps(_as_json(experiment, summary)))
    else:
        typer.echo(text)
        failed = f", {len(summary.failed)} failed" if summary.failed else ""
        told = f"{summary.done} runs in {summary.seconds:.0f} s, {summary.skipped} were there{failed}"
        typer.echo(f"{told}; table in {page}.")
    for key, reason in summary.failed.items():
        typer.echo(f"Failed: {key}: {reason}", err=True)
    return bool(summary.failed)


def _announce(run: CifarRun, so_far: CifarSummary) -> None:
    number = so_far.skipped + so_far.done + len(so_far.failed) + 1
    left = ""
    if so_far.epochs_done:
        minutes = so_far.seconds / so_far.epochs_done * so_far.epochs_left / 60.0
        left = f", about {minutes:.0f} minutes left"
    typer.echo(f"Run {number} of {so_far.runs}: {run.noise} {run.method} seed {run.seed}{left}", err=True)


def _tell_result(record: dict[str, Any]) -> None:
    kind = "test" if "test" in record else "held_out"
    told = ", ".join(f"{name} {100 * accuracy:.2f}" for name, accuracy in record[kind].items())
    typer.echo(
        f"  {kind.replace('_', ' ')}: {told}; best epoch {record['best_epoch']}; {record['seconds']:.0f} s",
        err=True,
    )


def _as_json(experiment: CifarExperiment, summary: CifarSummary) -> dict[str, Any]:
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


def _write(page: Path, text: str) -> None:
    from peerloss._files import atomic_stream

    with atomic_stream(page) as stream:
        stream.write(text.encode())
