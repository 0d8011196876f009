"""What goes wrong on the user's side becomes one line on stderr and exit code 2."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from peerloss._files import WRITE_ERRORS
from peerloss.cli._terminal import say
from peerloss.exceptions import PeerLossError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def user_errors() -> Iterator[None]:
    """End the command with the message of an error of this library or of the file system."""
    try:
        yield
    except BrokenPipeError:  # the reader has seen enough, as in `| head`; typer ends the command quietly
        raise
    except (PeerLossError, OSError) as error:
        say(f"Error: {_message(error)}", err=True)
        raise typer.Exit(code=2) from error


def _message(error: Exception) -> str:
    if isinstance(error, PeerLossError) or not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}."
    if error.errno in WRITE_ERRORS:  # standard output, or a temporary file
        return f"the output could not be written: {error.strerror}. Nothing that was there before was lost."
    return f"{error.strerror}."
