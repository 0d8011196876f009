"""Print errors of the user or the file system, and warnings of a results folder, as one line on stderr."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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


@contextmanager
def store_warnings() -> Iterator[None]:
    """Print each ``StoreWarning`` as one line on stderr; other warnings are shown as usual."""
    from peerloss.experiments import StoreWarning

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, StoreWarning):
                say(f"Warning: {message}", err=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", StoreWarning)
        yield
