"""The command line: parse, call, print. Heavy imports happen inside the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from peerloss._version import __version__
from peerloss.cli._annotators import annotators
from peerloss.cli._audit import audit
from peerloss.cli._bound import bound
from peerloss.cli._datasets import datasets
from peerloss.cli._demo import demo
from peerloss.cli._doctor import doctor
from peerloss.cli._errors import user_errors
from peerloss.cli._fit import fit
from peerloss.cli._predict import predict
from peerloss.cli._report import report
from peerloss.cli._reproduce import reproduce
from peerloss.cli._review import apply, review
from peerloss.cli._status import status
from peerloss.cli._terminal import tolerate_encodings

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="peerloss",
    help="Learning from noisy labels without knowing the noise rates.",
    epilog="`peerloss COMMAND --help` shows an example; `peerloss --install-completion` completes with Tab.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: Commands in the order in which one meets them, each with its line in `peerloss --help`.
COMMANDS: dict[Callable[..., None], str] = {
    demo: "A minute: plain training against peer loss.",
    doctor: "What works here, what to install for the rest.",
    fit: "Train on a table with noisy labels.",
    predict: "Predict a table with a trained model.",
    audit: "Find labels that are probably wrong.",
    review: "Decide on the suspects of an audit.",
    apply: "Write the table with the decisions.",
    annotators: "Score and pay annotators without gold labels.",
    datasets: "List data sets, or describe one.",
    bound: "What the theorems promise for given rates.",
    reproduce: "Run tables and figures of the paper.",
    status: "How far the runs in a folder have come.",
    report: "The runs of a folder as a page.",
}
for command, line in COMMANDS.items():
    app.command(short_help=line)(user_errors()(command))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learning from noisy labels without knowing the noise rates."""
    tolerate_encodings()
