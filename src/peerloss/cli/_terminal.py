"""Output of the commands: text without control characters, errors and warnings as lines, a progress bar."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import unicodedata
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from peerloss._files import WRITE_ERRORS
from peerloss.exceptions import PeerLossError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Control and format characters (such as escape sequences), line separators, lone surrogates.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def visible(text: object) -> str:
    r"""Return text in which control characters are written as escapes.

    >>> visible("a\x1b[2Jb é")
    'a\\x1b[2Jb é'
    """
    return re.sub(
        r"[^ -~]",
        lambda found: (
            found[0].encode("unicode_escape", "backslashreplace").decode("ascii")
            if unicodedata.category(found[0]) in _HIDDEN
            else found[0]
        ),
        str(text),
    )


def say(line: object, *, err: bool = False) -> None:
    """Print one line; its text cannot control the terminal."""
    typer.echo(visible(line), err=err)


def say_json(value: Any) -> None:
    """Print JSON in ASCII, which every encoding can write."""
    typer.echo(json.dumps(value, indent=2))


def tolerate_encodings() -> None:
    """Write characters that the encoding of the terminal lacks as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


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


@contextmanager
def training_bar(note: str, *, quiet: bool) -> Iterator[None]:
    """Show the progress of the training inside the block, unless ``quiet``; the bar disappears at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    from peerloss.estimators.portfolio import listening

    columns = (TextColumn(note), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), "left", TimeLeft())
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal  # no bar in log files
    with Progress(*columns, console=console, disable=hidden, transient=True) as bar:
        task = bar.add_task(note, total=None)
        with listening(lambda done, total: bar.update(task, completed=done, total=total)):
            yield
