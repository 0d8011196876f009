"""``peerloss review`` and ``peerloss apply``: a person decides on suspects, then the table is written."""

from __future__ import annotations

import warnings
import webbrowser
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from peerloss._files import check_output_file
from peerloss._pages import counted
from peerloss.cli._terminal import say, say_json
from peerloss.exceptions import InvalidInputError


def review(
    audit: Annotated[Path, typer.Argument(help="Folder that `peerloss audit` wrote.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    reviewer: Annotated[
        str | None, typer.Option(help="Your name, which is saved with your decisions.")
    ] = None,
    order: Annotated[
        str,
        typer.Option(help="Column of labels.csv to order suspects by, such as rank or p_error."),
    ] = "rank",
    accept_edits: Annotated[
        bool, typer.Option("--accept-edits", help="Accept manual edits of labels.csv.")
    ] = False,
) -> None:
    """Step through the suspects of an audit with the keyboard, on a page that only this machine can reach.

    Every decision is saved immediately. Stop with Ctrl+C; the next review continues where you stopped.
    Several people can review one after the other, each with --reviewer; the last decision on a row counts.

    Example: peerloss review audit/ --reviewer Ada
    """
    from peerloss.audit.folder import read_folder
    from peerloss.audit.review import DecisionsFileWarning, Review, ReviewServer

    folder = read_folder(audit, accept_edits=accept_edits)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DecisionsFileWarning)
        session = Review(folder, reviewer=reviewer, order=order)
    for warning in caught:
        say(f"Warning: {warning.message}", err=True)
    server = ReviewServer(session, port)
    say(f"Reviewing {counted(len(session), 'suspect')} at {server.url}")
    say("Keep the address secret: anyone who has it can decide. Stop with Ctrl+C.")
    if browser:
        webbrowser.open(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
        state = session.state()
        session.close()
    say(
        f"{state['keep']:,} kept, {state['change']:,} changed, {state['drop']:,} dropped, {state['skip']:,} "
        f"skipped of {counted(state['total'], 'suspect')}; saved in {folder.decisions_path}."
    )
    say(f"Next: {session.command}")


def apply(
    audit: Annotated[Path, typer.Argument(help="Folder that `peerloss audit` wrote.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: CSV, TSV, Parquet, JSON lines or Excel.")
    ],
    rest: Annotated[
        str,
        typer.Option(
            help="What to do with suspects without a decision: keep, relabel (if more likely wrong than "
            "right) or drop."
        ),
    ] = "keep",
    max_change: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Largest share of the rows that --rest may change or drop."),
    ] = 0.3,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Let --rest change any share, even if the audit could not estimate the noise.",
        ),
    ] = False,
    accept_edits: Annotated[
        bool, typer.Option("--accept-edits", help="Accept manual edits of labels.csv.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Write the audited table with the decisions of the review.

    Delimited text to .csv (or with tabs to .tsv) and JSON lines to .jsonl are copied unchanged except for the
    labels. Other tables are converted: values are written as they were read, without formats and formulas.

    Labels of several annotators become a column `label` (`label_1` if the table has one): the decision if
    there is one, or the majority label.

    Example: peerloss apply audit/ -o cleaned.csv --rest relabel
    """
    from peerloss._validation import check_choice
    from peerloss.audit.folder import read_folder
    from peerloss.audit.review import (
        UNDECIDED_POLICIES,
        check_automatic_changes,
        plan_cleaning,
        write_cleaned,
    )
    from peerloss.datasets.tables import check_output_format

    check_choice(rest, "--rest", UNDECIDED_POLICIES)
    check_output_format(output, "--output")
    check_output_file(output)
    folder = read_folder(audit, accept_edits=accept_edits)
    if output.resolve().parent == folder.path.resolve():
        raise InvalidInputError(f"--output must be outside the audit folder {audit}; got {output}.")
    cleaning = plan_cleaning(folder, rest)
    if not force and rest != "keep":
        check_automatic_changes(folder, cleaning, max_change=max_change)
    rows = write_cleaned(folder, cleaning, output)
    summary = {
        "cleaned": str(output),
        "rows": rows,
        "changed": len(cleaning.new_labels),
        "dropped": len(cleaning.dropped),
        "decided": cleaning.decided,
        "undecided": cleaning.undecided,
        "disagreements": len(cleaning.disputed),
        "rest": rest,
    }
    if as_json:
        say_json(summary)
        return
    say(
        f"{counted(rows, 'row')}, {counted(len(cleaning.new_labels), 'label')} changed, "
        f"{counted(len(cleaning.dropped), 'row')} dropped. {counted(cleaning.decided, 'suspect')} with a "
        f"decision; {cleaning.undecided:,} without ({rest}). Written to {output}."
    )
    if cleaning.disputed:
        differing = counted(len(cleaning.disputed), "row")
        say(f"Reviewers decided differently on {differing}; the last decision counts.")
