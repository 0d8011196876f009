"""The command line: parse, call, print. Heavy imports happen inside the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from peerloss._version import __version__
from peerloss.cli._annotators import annotators
from peerloss.cli._audit import audit
from peerloss.cli._bound import bound
from peerloss.cli._datasets import datasets
from peerloss.cli._demo import demo
from peerloss.cli._doctor import doctor
from peerloss.cli._fit import fit
from peerloss.cli._predict import predict
from peerloss.cli._report import report
from peerloss.cli._reproduce import reproduce
from peerloss.cli._review import apply, review
from peerloss.cli._status import status

app = typer.Typer(
    name="peerloss",
    help="Learning from noisy labels without knowing the noise rates.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learning from noisy labels without knowing the noise rates."""


app.command()(annotators)
app.command()(apply)
app.command()(audit)
app.command()(bound)
app.command()(datasets)
app.command()(demo)
app.command()(doctor)
app.command()(fit)
app.command()(predict)
app.command()(report)
app.command()(reproduce)
app.command()(review)
app.command()(status)
