"""``peerloss demo``: plain training compared with peer loss."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peerloss._progress import reporter
from peerloss.cli._options import jobs_option, seed_option
from peerloss.cli._terminal import say_json, training_bar
from peerloss.exceptions import InvalidInputError


def demo(
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds (splits and initial weights) per case.")
    ] = 8,
    seed: Annotated[int, seed_option("The first seed; 0 to 7 were used to choose the loss.")] = 200,
    steps: Annotated[int, typer.Option(min=1, help="Training steps per network.")] = 1000,
    jobs: Annotated[int, jobs_option()] = 1,
    output: Annotated[Path, typer.Option("-o", "--output", help="The HTML page to write.")] = Path(
        "demo/page.html"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Train the same small network on noisy labels with the plain loss and with peer loss.

    Prints the accuracy on clean labels as a table and writes it, with a picture, as an HTML page.

    Example: peerloss demo --seeds 4
    """
    from rich.console import Console
    from rich.table import Table

    from peerloss.experiments.demo import CASES, run_demo
    from peerloss.report import check_page_path, write_demo

    check_page_path(output)
    rows = []
    with training_bar("demo", quiet=as_json):
        report = reporter(len(CASES))
        for row in run_demo(seeds=seeds, first_seed=seed, max_steps=steps, n_jobs=jobs):
            rows.append(row)
            report(len(rows))
    if as_json:
        say_json([row.as_dict() for row in rows])
        return
    table = Table(title=f"Accuracy on clean test labels after training on noisy ones ({seeds} seeds)")
    for heading in ("data set", "noise e_neg, e_pos", "plain", "peer loss", "gain"):
        table.add_column(heading, justify="left" if heading == "data set" else "right")
    for row in rows:
        table.add_row(
            row.data_set,
            f"{row.e_neg:g}, {row.e_pos:g}",
            _with_error(row.plain, row.plain_error),
            _with_error(row.peer, row.peer_error),
            f"{row.peer - row.plain:+.3f}",
        )
    Console().print(table)
    try:
        write_demo(rows, output, steps=steps)
        typer.echo(f"Page written to {output}.")
    except InvalidInputError as error:  # matplotlib or jinja2 is missing; the table is printed in any case
        typer.echo(f"The page was not written: {error}", err=True)
    gain = sum(row.peer - row.plain for row in rows) / len(rows)
    typer.echo(
        f"Peer loss: {gain:+.3f} accuracy on average, without knowing the noise rates (± standard error)."
    )


def _with_error(mean: float, error: float | None) -> str:
    return f"{mean:.3f}" if error is None else f"{mean:.3f} ± {error:.3f}"
