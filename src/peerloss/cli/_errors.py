"""What goes wrong on the user's side becomes one line on stderr and exit code 2."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from peerloss.exceptions import PeerLossError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def user_errors() -> Iterator[None]:
    """End the command with the message of an error of ours or of the file system."""
    try:
        yield
    except (PeerLossError, OSError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(code=2) from error
