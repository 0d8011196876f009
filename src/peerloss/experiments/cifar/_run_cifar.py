"""``run_cifar``, the deprecated name of ``run_experiment`` for images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peerloss._deprecation import warn_renamed
from peerloss.experiments._run_experiment import RunSummary, run_experiment
from peerloss.experiments._store import Store
from peerloss.experiments.cifar._train_cifar import CHECKPOINT_EVERY, SharedResources

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peerloss.experiments._record import Record
    from peerloss.experiments.cifar._cifar_experiment import CifarExperiment


@dataclass
class CifarSummary(RunSummary):
    """The summary with the attributes that it had for images."""

    in_folder: list[Record] = field(default_factory=list)
    """All records of the experiment in the folder."""

    @property
    def epochs_done(self) -> int:
        """Number of epochs trained."""
        return self.size_done

    @property
    def epochs_left(self) -> int:
        """Number of remaining epochs."""
        return self.size_left


def run_cifar(
    experiment: CifarExperiment,
    folder: str | Path,
    *,
    data_dir: str | Path | None = None,
    device: str | None = None,
    checkpoint_every: int = CHECKPOINT_EVERY,
    on_run: Callable[[Any, CifarSummary], None] | None = None,
    on_result: Callable[[Record], None] | None = None,
    progress: bool = False,
    workshop: SharedResources | None = None,
) -> CifarSummary:
    """Run an experiment on images into a folder. Deprecated: use ``run_experiment``."""
    warn_renamed("run_cifar", "peerloss.experiments.run_experiment")

    def started(summary: RunSummary) -> None:
        if on_run is not None and summary.current is not None:
            on_run(summary.current, CifarSummary(**vars(summary)))

    resources = workshop or SharedResources(data_dir, device, checkpoint_every, progress)
    with Store(folder) as store:
        summary = run_experiment(
            experiment, store, resources=resources, on_progress=started, on_record=on_result
        )
        return CifarSummary(**vars(summary), in_folder=store.records_of(experiment))
