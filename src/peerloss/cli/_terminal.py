"""Print text safely: control characters and characters outside the encoding are shown as escapes."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata
from typing import Any

import typer

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
