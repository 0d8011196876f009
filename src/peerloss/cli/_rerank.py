"""``peerloss rerank``: rank the rows of an audit again with the decisions of its review."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from peerloss._pages import counted
from peerloss.cli._terminal import say, say_json


def rerank(
    audit: Annotated[Path, typer.Argument(help="Folder that `peerloss audit` wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Use the decisions of a review as known labels, and rank the other rows again without training.

    Decided rows also improve the estimated noise. Run it between two sessions of `peerloss review`.

    Example: peerloss rerank audit/
    """
    from peerloss.audit.folder import read_folder
    from peerloss.audit.review import rerank as rerank_folder

    found, n_known = rerank_folder(read_folder(audit))
    if as_json:
        say_json({"audit": str(audit), "decisions": n_known, **found.summary()})
        return
    say(f"{counted(n_known, 'label')} known from decisions. {found.headline} Written to {audit}.")
