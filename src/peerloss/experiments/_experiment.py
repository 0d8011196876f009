"""What all experiments have in common; ``tables`` and ``cifar`` are the two families."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from peerloss._deprecation import warn_renamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from peerloss.experiments._record import Record


class Run:
    """One method on one noisy data set with one seed; each family has its own subclass."""

    experiment: str
    method: str
    seed: int

    @property
    def key(self) -> str:
        """Unique name: the same run with the same recipe has the same key everywhere."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Number of epochs or trials, for estimates of the remaining time."""
        raise NotImplementedError


@dataclass(frozen=True)
class Outcome:
    """What became of runs that were executed together: one record each, or one error for all."""

    runs: Sequence[Run]
    records: Sequence[Record]
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Experiment:
    """The runs of a TOML file under one protocol, checked. Made by :func:`load_experiment`."""

    name: str
    protocol: str
    title: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...]

    #: The options of :func:`run_experiment` that this family uses.
    OPTIONS: ClassVar[tuple[str, ...]] = ()
    #: Whether runs are executed one after another in this process.
    IS_SEQUENTIAL: ClassVar[bool] = False

    def runs(self) -> Sequence[Any]:
        """Return all runs, in the order of the tables."""
        raise NotImplementedError

    def plan(self) -> dict[str, Any]:
        """Return the fields of the plan that identify the runs."""
        raise NotImplementedError

    def batches(self, runs: Sequence[Any]) -> list[list[Any]]:
        """Return ``runs`` in the order of execution; those in one list are executed together."""
        raise NotImplementedError

    def prepare(self, options: dict[str, Any], runs: Sequence[Any]) -> dict[str, Any]:
        """Check the ``options`` and load what the missing ``runs`` need, before anything is written."""
        raise NotImplementedError

    def execute(self, batches: Iterable[list[Any]], folder: Any, **options: Any) -> Iterator[Outcome]:
        """Execute the ``batches`` of runs and yield one outcome for each as soon as it is known.

        A batch is taken when it can start. ``folder`` is that of the store, ``options`` are from
        :meth:`prepare`.
        """
        raise NotImplementedError

    def cells(self) -> Sequence[Any]:
        """Return :meth:`runs`, under its deprecated name."""
        warn_renamed("Experiment.cells", "Experiment.runs")
        return self.runs()
