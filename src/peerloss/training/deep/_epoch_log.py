"""The progress of a training: a CSV file, TensorBoard if it is installed, and a progress bar."""

from __future__ import annotations

import csv
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from peerloss._files import atomic_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

Record = dict[str, float]
#: Name of the table in the folder of the log.
TABLE = "metrics.csv"


class EpochLog:
    """Writes one line per epoch into ``folder``, for a training of which ``done`` epochs are finished."""

    def __init__(self, folder: Path, *, done: int = 0) -> None:
        self._table = folder / TABLE
        if not done:
            _keep_earlier(self._table)
        self._board: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (optional)

            # Epochs after the last checkpoint are repeated, so their old values are removed.
            self._board = SummaryWriter(str(folder), purge_step=done + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._board is not None:
            self._board.close()

    def write(self, history: list[Record]) -> None:
        """Rewrite the table, so that no line is repeated after a resume; add the last epoch to the board."""
        names = dict.fromkeys(name for record in history for name in record)
        with atomic_stream(self._table, "w") as stream:
            writer = csv.DictWriter(stream, list(names), restval="")
            writer.writeheader()
            writer.writerows(history)
        if self._board is not None:
            for name, value in history[-1].items():
                self._board.add_scalar(name, value, int(history[-1]["epoch"]))
            self._board.flush()


def _keep_earlier(table: Path) -> None:
    """Rename the table of an earlier training to ``metrics-1.csv``, ``metrics-2.csv`` and so on."""
    if table.exists():
        number = next(n for n in count(1) if not table.with_stem(f"{table.stem}-{n}").exists())
        table.rename(table.with_stem(f"{table.stem}-{number}"))


def progress_bar(epochs: int, *, done: int, show: bool) -> AbstractContextManager[Callable[[Record], None]]:
    """Return a context that yields a function to call after each epoch."""
    return _bar(epochs, done) if show else nullcontext(lambda _: None)


@contextmanager
def _bar(epochs: int, done: int) -> Iterator[Callable[[Record], None]]:
    from rich.progress import (  # noqa: PLC0415 (only if a bar is shown)
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("epochs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}")) as progress:
        task = progress.add_task("", total=epochs, completed=done)

        def advance(record: Record) -> None:
            values = " ".join(f"{name} {value:.4g}" for name, value in record.items() if name != "epoch")
            progress.update(task, advance=1, description=values)

        yield advance
