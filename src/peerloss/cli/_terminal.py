"""Output of the commands: text without control characters, errors and warnings as lines, a progress bar."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import unicodedata
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_type_hints

import typer
from typer.core import TyperGroup
from typer.models import ArgumentInfo

from peerloss._deprecation import RenamedWarning
from peerloss._files import WRITE_ERRORS
from peerloss._progress import show_progress
from peerloss.exceptions import DivergenceWarning, IdentifiabilityWarning, PeerLossError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

#: Control and format characters (such as escape sequences), line separators, lone surrogates.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
#: Parameters of the library that a message may name anywhere → the parameters of the commands.
_PARAMETERS = {
    "changes": "changes",
    "data_dir": "data_dir",
    "excess": "target_excess",
    "first_seed": "seed",
    "max_steps": "steps",
    "min_class_rows": "min_class_rows",
    "n_hypotheses": "hypotheses",
    "n_jobs": "jobs",
    "n_samples": "samples",
    "random_state": "seed",
    "skip_unreadable": "skip_unreadable",
    "target": "target",
}


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


def counted(number: int, one: str, several: str | None = None) -> str:
    """Return a number with its noun: "1 row", "2,000 rows".

    >>> counted(1, "row"), counted(2000, "row"), counted(0, "class", "classes")
    ('1 row', '2,000 rows', '0 classes')
    """
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def say(line: object, *, err: bool = False) -> None:
    """Print one line; its text cannot control the terminal."""
    typer.echo(visible(line), err=err)


def say_json(value: Any) -> None:
    """Print JSON in ASCII, which every encoding can write; NaN and infinity, which JSON lacks, are null."""
    typer.echo(json.dumps(_finite_or_none(value), indent=2, allow_nan=False))


def _finite_or_none(value: Any) -> Any:
    """Replace NaN and infinity by ``None``, recursively."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite_or_none(entry) for key, entry in value.items()}
    return [_finite_or_none(entry) for entry in value] if isinstance(value, list | tuple) else value


def tolerate_encodings() -> None:
    """Write characters that the encoding of the terminal lacks as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Group(TyperGroup):
    """The commands. If the help or the version cannot be printed, one line and exit code 1 report it."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; errors inside a command are reported by :func:`user_errors`."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            say(f"Error: {_message(error)}", err=True)
            sys.exit(1)


@contextmanager
def user_errors(command: Callable[..., None] | None = None) -> Iterator[None]:
    """End the command with exit code 2 and the message of an error of this library or the file system.

    The message names the options of ``command`` instead of the parameters of the library. Warnings of the
    library become lines.
    """
    try:
        with _warnings_as_lines(command):
            yield
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does; typer ends the command silently
        raise
    except (PeerLossError, OSError) as error:
        message = _message(error)
        if command is not None and isinstance(error, PeerLossError):
            message = _with_options(message, command)
        say(f"Error: {message}", err=True)
        raise typer.Exit(code=2) from error


def _with_options(message: str, command: Callable[..., None]) -> str:
    """Replace parameters of the library in a message by the options of a command: `n_jobs` by --jobs.

    `X` is the table that the command reads.
    Inside a message, a name such as `noise` may be a key of a file. It is replaced only where it begins the
    message, as in "`noise` must be".
    """
    options = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        for info in getattr(hint, "__metadata__", ()):
            declared = (info.default, *(info.param_decls or ()))  # typer stores the first one as `default`
            usual = name.upper() if isinstance(info, ArgumentInfo) else f"--{name.replace('_', '-')}"
            options[name] = next((text for text in declared if str(text).startswith("--")), usual)
    own = {"X": "the table"} | {
        parameter: options[name] for parameter, name in _PARAMETERS.items() if name in options
    }

    def replace(found: re.Match[str]) -> str:
        known = options | own if found.start() == 0 else own
        return known.get(found[1], found[0])

    return re.sub(r"`(\w+)`", replace, message)


def _message(error: Exception) -> str:
    if isinstance(error, PeerLossError) or not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}."
    if error.errno in WRITE_ERRORS:  # standard output, or a temporary file
        return f"the output could not be written: {error.strerror}. Existing files are unchanged."
    return f"{error.strerror}."


@contextmanager
def _warnings_as_lines(command: Callable[..., None] | None) -> Iterator[None]:
    """Print warnings of this library as lines on stderr, each text once, in the words of the command.

    Those about deprecated names are printed too, which Python hides by default. Warnings of other libraries
    are shown as usual.
    """
    printed: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            text = str(message) if command is None else _with_options(str(message), command)
            if not category.__module__.startswith("peerloss."):
                usual(message, category, *where, **more)
            elif text not in printed:
                printed.add(text)
                say(f"Warning: {text}", err=True)

        warnings.showwarning = show
        for kind in (RenamedWarning, IdentifiabilityWarning, DivergenceWarning):
            warnings.simplefilter("always", kind)
        yield


def training_bar(note: str, *, quiet: bool) -> AbstractContextManager[None]:
    """Show phase, percentage, elapsed time and time left of the work inside the block, unless ``quiet``.

    The line disappears at the end. Log files get none.
    """
    return show_progress(note, show=not quiet, terminal_only=True)
