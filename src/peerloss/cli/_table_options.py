"""Options of all commands that read a table, and the summary that they print before the work.

The options describe the main table. Other tables of a command, such as --probabilities, are read with those
of them that they need (:func:`peerloss.datasets.tables.options_for_other`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._options import refuse_unused
from peerloss.cli._terminal import say
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from peerloss.audit import TableSummary
    from peerloss.datasets import ReadOptions

Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of a text file, such as latin-1; UTF-8 if omitted.")
]
Sep = Annotated[
    str | None,
    typer.Option(
        "--sep",
        help="Character between fields, such as : or tab; commas, semicolons, tabs and bars are recognised.",
    ),
]
Decimal = Annotated[str | None, typer.Option("--decimal", help="Decimal mark of numbers: . or a comma.")]
NaValues = Annotated[
    list[str] | None, typer.Option("--na-values", help="Text that means a missing value; may be repeated.")
]
Sheet = Annotated[str | None, typer.Option("--sheet", help="Sheet of an Excel file; the first if omitted.")]
Abstain = Annotated[
    str | None,
    typer.Option(
        "--abstain",
        help="Label that means 'no label'. If omitted, -1 means it in a column whose other labels are "
        "non-negative integers, but -1 and 1 alone are two classes. If -1 is a class, pass 'none'.",
    ),
]
TidyLabels = Annotated[
    bool,
    typer.Option(
        "--tidy-labels",
        help="Merge labels that differ only in case, spaces, hyphens or underscores, and 1 and 1.0.",
    ),
]
MinClassRows = Annotated[
    int | None,
    typer.Option(
        "--min-class-rows",
        min=1,
        help="Leave out classes with fewer rows. If omitted, those with fewer than 5 rows, if together they "
        "are at most 5 % of the rows.",
    ),
]
Flags = Annotated[
    str,
    typer.Option(
        "--flags",
        help="Which rows are suspects. auto: the best expected balance of precision and recall (F1), and "
        "none if the labels look clean; f1: the same, even if they look clean; precision: as many as --level "
        "allows.",
    ),
]
DEFAULT_LEVEL = 0.8
Level = Annotated[
    float,
    typer.Option(
        "--level", help="With --flags precision: the least expected share of wrong labels among the suspects."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Write the result even if nothing can be learned from the table.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether to continue.")]


def read_options(
    encoding: str | None,
    sep: str | None,
    decimal: str | None,
    na_values: Sequence[str] | None,
    sheet: str | None,
) -> ReadOptions:
    """Return the options of a command."""
    from peerloss.datasets import ReadOptions

    return ReadOptions(
        encoding=encoding, sep=sep, decimal=decimal, na_values=tuple(na_values or ()), sheet=sheet
    )


def flag_options(flags: str, level: float) -> dict[str, Any]:
    """Return the arguments of ``find_label_issues`` for the options of an audit."""
    from peerloss._validation import FLAG_TARGETS, check_choice, check_in_range

    check_choice(flags, "--flags", FLAG_TARGETS)
    check_in_range(level, "--level", 0.0, 1.0, low_open=True)
    if flags != "precision" and level != DEFAULT_LEVEL:
        refuse_unused("--level", needs="--flags precision")
    return {"target": flags, "level": level}


def show_summary(summary: TableSummary, *, yes: bool, quiet: bool) -> None:
    """Print the summary, unless ``quiet``; at a terminal, ask whether to continue if something is serious."""
    if quiet:
        return
    for line in str(summary).splitlines():
        say(line)
    if summary.serious and not yes and sys.stdin.isatty() and not typer.confirm("Continue?", err=True):
        say("Nothing was written.", err=True)
        raise typer.Exit(code=1)


def check_learned(reason: str, *, force: bool) -> None:
    """Refuse to write a result if nothing was learned, for the ``reason``, unless ``force``."""
    if reason and not force:
        raise InvalidInputError(
            f"{reason}. Nothing was written. Add columns that say something about the labels, check that the "
            "labels belong to these rows, or pass --force to write the result anyway."
        )
