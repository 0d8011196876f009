"""A progress bar on stderr for commands that train the portfolio."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def training_bar(note: str, *, quiet: bool) -> Iterator[None]:
    """Show the progress of the training inside the block; the bar disappears at the end.

    Parameters
    ----------
    note
        Text next to the bar.
    quiet
        Show nothing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    from peerloss.estimators.portfolio import listening

    columns = (TextColumn(note), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), "left", TimeLeft())
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal  # no bar in log files
    with Progress(*columns, console=console, disable=hidden, transient=True) as bar:
        task = bar.add_task(note, total=None)
        with listening(lambda done, total: bar.update(task, completed=done, total=total)):
            yield
