"""``peerloss status``: the progress of the experiments in a folder."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 (typer reads annotations at run time)
from typing import Annotated

import typer

from peerloss.cli._terminal import counted, say, say_json, visible
from peerloss.exceptions import InvalidInputError


def status(
    results: Annotated[Path, typer.Argument(help="Folder that peerloss reproduce -o wrote.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Show how many runs of each experiment are done, by method. Damaged lines are reported as warnings.

    Example: peerloss status runs/a1
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from peerloss.experiments import Store, StoreWarning, progress

    if not results.is_dir():
        raise InvalidInputError(f"{results} is not a folder; use the one that peerloss reproduce -o wrote.")
    warnings.simplefilter("always", StoreWarning)  # printed as lines, and reset after the command
    plans = progress(Store(results))
    if as_json:
        # `cells` is the deprecated name of `runs`.
        say_json([asdict(plan) | {"cells": plan.runs} for plan in plans])
        return
    for plan in plans:
        say(f"{plan.experiment}, protocol {plan.protocol}: {plan.title}")
        table = Table()
        for heading in ("method", "done", "of"):
            table.add_column(heading, justify="left" if heading == "method" else "right")
        for method, (done, planned) in plan.by_method.items():
            table.add_row(Text(visible(method)), str(done), str(planned))
        Console().print(table)
        say(
            f"{plan.done:,} of {counted(plan.runs, 'run')} done, {counted(len(plan.seeds), 'seed')} from "
            f"{plan.seeds[0]}, "
            f"{plan.training_seconds:.0f} s of training; last finished: {plan.last_finished or 'none yet'}."
        )
    if not plans:
        say(f"No experiment has been started in {results}.")
