"""The command line: parse options, call the library, print. Slow imports happen inside the commands."""

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
from peerloss.cli._fit import fit
from peerloss.cli._predict import predict
from peerloss.cli._report import report
from peerloss.cli._reproduce import reproduce
from peerloss.cli._rerank import rerank
from peerloss.cli._review import apply, review
from peerloss.cli._status import status
from peerloss.cli._terminal import Group, tolerate_encodings, user_errors

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="peerloss",
    cls=Group,
    help="Learning from noisy labels without knowing the noise rates.",
    epilog="`peerloss COMMAND --help` shows an example. `peerloss --install-completion` adds Tab completion.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: Commands in the order of `peerloss --help`, each with its line there.
COMMANDS: dict[Callable[..., None], str] = {
    demo: "Compare plain training with peer loss in a minute.",
    doctor: "Check the installation, devices and data.",
    fit: "Train on a table with noisy labels.",
    predict: "Predict the labels of a table with a trained model.",
    audit: "Find labels that are probably wrong.",
    review: "Review the suspect labels of an audit.",
    rerank: "Rank the rows of an audit again with the decisions.",
    apply: "Write the table with the reviewed labels.",
    annotators: "Score and pay annotators without gold labels.",
    datasets: "List the data sets, or describe one.",
    bound: "Evaluate the theorems for given noise rates.",
    reproduce: "Reproduce tables and figures of the paper.",
    status: "Show the progress of experiments.",
    report: "Write the results as an HTML page.",
}
for command, line in COMMANDS.items():
    app.command(short_help=line)(user_errors(command)(command))


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
