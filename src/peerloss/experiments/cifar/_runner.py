"""Run what the folder of results does not hold yet; go on with what was stopped."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from peerloss._device import resolve_device
from peerloss._version import __version__
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.experiments._cells import FORMAT
from peerloss.experiments._provenance import commit, machine, versions
from peerloss.experiments._store import Store
from peerloss.experiments.cifar._spec import SMOKE_WIDTH, check_noise
from peerloss.experiments.cifar._work import Workshop, checkpoint_file, execute

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss.experiments.cifar._spec import CifarExperiment, CifarRun

#: An epoch on a fast GPU takes half a second, its checkpoint a tenth: so seldom it costs nothing to speak of.
CHECKPOINT_EVERY = 10


@dataclass
class CifarSummary:
    """What came of it."""

    runs: int = 0
    """Asked for."""
    skipped: int = 0
    """There already."""
    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Key → what went wrong."""
    seconds: float = 0.0
    """Since the command began."""
    epochs_done: int = 0
    epochs_left: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    """Of all runs asked for that are there, old and new."""
    in_folder: list[dict[str, Any]] = field(default_factory=list)
    """All that the folder has of this experiment, whatever the noise, method, seed and settings; smoke tests
    and closed runs only where these were asked for, and then nothing else."""


def run_cifar(
    experiment: CifarExperiment,
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: str | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    on_run: Callable[[CifarRun, CifarSummary], None] | None = None,
    on_result: Callable[[dict[str, Any]], None] | None = None,
    progress: bool = False,
    workshop: Workshop | None = None,
) -> CifarSummary:
    """Run an experiment into ``folder``, the most important runs first.

    Parameters
    ----------
    experiment
        From :func:`load_cifar`, which also says whether the test set stays closed.
    folder
        Records go to ``folder/NAME`` (JSON lines, as :class:`~peerloss.experiments.Store` writes them);
        ``folder/NAME/unfinished`` has the checkpoint of a run that was stopped.
    data_dir
        Folder of CIFAR-10, as in :func:`~peerloss.datasets.load_cifar10`.
    device
        ``None`` takes a GPU where there is one.
    checkpoint_every
        Epochs between checkpoints.
    on_run, on_result
        Called before a run, with what is done so far, and after it with its record.
    progress
        Whether to show a bar for each run.
    workshop
        Images and networks of an earlier experiment in this process, not to be read and compiled again. It
        takes the place of ``data_dir`` and ``device``.
    """
    own = Path(folder) / experiment.name
    started = time.perf_counter()
    runs = experiment.runs()
    summary = CifarSummary(runs=len(runs))
    with Store(own, is_usable=is_run_record) as store:
        left = [run for run in runs if run.key not in store.done()]
        summary.skipped = len(runs) - len(left)
        summary.epochs_left = sum(run.recipe.epochs for run in left)
        for run in left:
            workshop = workshop or Workshop(data_dir, resolve_device(device))
            if on_run is not None:
                on_run(run, summary)
            stem = own / "unfinished" / run.key.replace("/", "_").replace(":", "_")
            try:
                figures = execute(run, workshop, stem, checkpoint_every=checkpoint_every, progress=progress)
            except DivergenceError as error:
                summary.failed[run.key] = str(error)
                continue
            finally:
                summary.epochs_done += run.recipe.epochs
                summary.epochs_left -= run.recipe.epochs
                summary.seconds = time.perf_counter() - started
            record = {**_identity(run), **figures, **_where(workshop.device)}
            store.append([record])
            for stage in range(len(run.stages())):
                checkpoint_file(stem, stage).unlink(missing_ok=True)
            summary.done += 1
            if on_result is not None:
                on_result(record)
        wanted = {run.key for run in runs}
        summary.in_folder = [record for record in store.records() if _is_like(record, experiment)]
        summary.records = [record for record in summary.in_folder if record["key"] in wanted]
    summary.seconds = time.perf_counter() - started
    return summary


def is_run_record(record: dict[str, Any]) -> bool:
    """Whether a record of a folder has what a table reads, of the right kinds."""
    try:
        check_noise(record["noise"])
        run = record["run"]
        accuracies = record["held_out" if run.get("closed", False) else "test"]
        return (
            all(isinstance(record[name], str) for name in ("experiment", "method", "device", "commit"))
            and all(type(run[name]) is int for name in ("width", "holdout"))
            and isinstance(record["versions"], dict)
            and all(0 <= figure < math.inf for figure in (record["seconds"], *accuracies.values()))
        )
    except (InvalidInputError, KeyError, TypeError, AttributeError):
        return False


def _is_like(record: dict[str, Any], experiment: CifarExperiment) -> bool:
    """Return whether a record is of that experiment, and as it a smoke test or not, closed or not."""
    if record["experiment"] != experiment.name:
        return False
    settings = record["run"]
    smoke = settings.get("smoke", settings["width"] == SMOKE_WIDTH)  # records before there was such a mark
    return (smoke, settings.get("closed", False)) == (experiment.smoke, experiment.closed)


def _identity(run: CifarRun) -> dict[str, Any]:
    settings = run.settings()
    names = ("experiment", "noise", "method", "seed")
    return {"format": FORMAT, "key": run.key, **{name: settings[name] for name in names}, "run": settings}


def _where(device: torch.device) -> dict[str, Any]:
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "versions": versions() | {"peerloss": __version__},  # run from a checkout it is not installed
        "machine": machine(),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
