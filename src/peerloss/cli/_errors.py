"""Turn errors of the user or the file system into one line on stderr and exit code 2."""

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
    """End the command with exit code 2 and the message of an error of this library or the file system."""
    try:
        yield
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does; typer ends the command silently
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
        return f"the output could not be written: {error.strerror}. Existing files are unchanged."
    return f"{error.strerror}."
