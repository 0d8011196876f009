"""``peerloss audit``: find labels of a table that are probably wrong."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import dataclass, replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._pages import label_text
from peerloss._progress import announce, phase
from peerloss.cli._options import jobs_option, refuse_unused, seed_option
from peerloss.cli._table_options import (
    DEFAULT_LEVEL,
    Abstain,
    Decimal,
    Encoding,
    Flags,
    Force,
    Level,
    MinClassRows,
    NaValues,
    Sep,
    Sheet,
    TidyLabels,
    Yes,
    check_learned,
    flag_options,
    read_options,
    show_summary,
)
from peerloss.cli._terminal import counted, say, say_json, training_bar, visible
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from peerloss.audit import LabelAudit
    from peerloss.datasets.label_spelling import PreparedLabels
    from peerloss.datasets.tables import Reading, ReadOptions, RowNumbers

#: Number of suspects printed; the page has more.
PRINTED_SUSPECTS = 10


@dataclass(frozen=True)
class Labelled:
    """The rows of a table that have a label, and their labels."""

    X: pd.DataFrame
    y: pd.Series | pd.DataFrame
    rows: NDArray[np.int64]
    """Positions of the rows in the file."""
    columns: list[str]
    """Columns of the file that hold labels; none if they come from another file."""
    features: pd.DataFrame
    """The features of all rows."""
    prepared: PreparedLabels
    """The labels of all rows; one column per annotator."""


def audit(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Argument(
            help="CSV, Excel, JSON lines, Parquet or ARFF file, or a folder of images with sub-folders."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    target: Annotated[
        list[str] | None, typer.Option(help="Column that holds the labels; repeat for several annotators.")
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            help="Labels of several annotators instead: a table with columns task (or item), worker, label."
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Column that names the rows, and the tasks of --reports. Without it, tasks are row numbers "
            "counted from 0.",
        ),
    ] = None,
    duplicates: Annotated[
        str,
        typer.Option(
            help="If an annotator labelled a task of --reports more than once: keep the first or last, or "
            "error."
        ),
    ] = "error",
    abstain: Abstain = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column not to learn from; may be repeated.")] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(help="File of out-of-fold probabilities, one column per class, instead of training."),
    ] = None,
    encoding: Encoding = None,
    sep: Sep = None,
    decimal: Decimal = None,
    na_values: NaValues = None,
    sheet: Sheet = None,
    tidy_labels: TidyLabels = False,
    min_class_rows: MinClassRows = None,
    yes: Yes = False,
    force: Force = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="Table of a folder of images: file names and labels, instead of class sub-folders."
        ),
    ] = None,
    file_column: Annotated[
        str | None, typer.Option(help="Column of --labels that names the images.  [default: file]")
    ] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out images that are missing or damaged.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="Pretrained model of images or texts: a folder (safetensors), or the name of a model to "
            "download from Hugging Face, timm:NAME or torchvision:NAME."
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column of texts from which --model makes features.")
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="Features to learn from, one row per row of the data: .npy, Parquet or CSV."),
    ] = None,
    flags: Flags = "auto",
    level: Level = DEFAULT_LEVEL,
    seed: Annotated[int, seed_option("Seed of folds and models.")] = 0,
    jobs: Annotated[int, jobs_option()] = 1,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Prefix text that looks like a formula with an apostrophe."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Find labels that are probably wrong, and write a folder with a page, a table and a copy of the data.

    A summary of the table is printed first: columns, classes, and what is odd about them.

    Then open index.html in the folder, step through the suspects with `peerloss review`, and write the
    cleaned table with `peerloss apply`.

    The images of a folder are labelled by the names of its sub-folders, or by a table (--labels).

    Example: peerloss audit data.csv --target label -o audit/

    Example: peerloss audit images/ -o audit/
    """
    from peerloss._probabilities import is_nothing_learned
    from peerloss.audit.folder import check_free, write_folder
    from peerloss.audit.table_summary import describe_rows
    from peerloss.cli._audit_inputs import (
        Source,
        drop_unusable,
        learned_features,
        open_source,
        read_probabilities,
    )
    from peerloss.datasets.tables import read_with_notes

    check_free(output)
    flagging = flag_options(flags, level)
    options = read_options(encoding, sep, decimal, na_values, sheet)
    source = Source(data, target or [], id_column)
    if data.is_dir() or labels is not None or file_column is not None or skip_unreadable:
        source = open_source(
            context,
            data,
            output,
            target=target or [],
            id_column=id_column,
            is_crowd=reports is not None,
            labels=labels,
            file_column=file_column,
            skip_unreadable=skip_unreadable,
            options=options,
        )
    reading = read_with_notes(source.path, options=options, labels=source.target)
    reading = replace(reading, table=reading.table.assign(**source.exact_columns))
    labelled = _labelled_rows(
        reading,
        source.path,
        options=options,
        target=source.target,
        reports=reports,
        id_column=source.id_column,
        duplicates=duplicates,
        abstain=abstain,
        drop=drop or [],
        tidy=tidy_labels,
        min_class_rows=min_class_rows,
        keep_rare=probabilities is not None,
    )
    learns = probabilities is None and features is None and source.images is None
    described = describe_rows(labelled.features, labelled.prepared, reading, learns=learns)
    show_summary(described, yes=yes, quiet=as_json)
    if source.images is not None:
        labelled = drop_unusable(source, labelled)
    proba = None if probabilities is None else read_probabilities(probabilities, labelled, options)
    learned, notes = None, list[str]()
    if source.images is not None or any(part is not None for part in (features, model, text_column)):
        learned, notes = learned_features(
            source,
            labelled,
            len(reading.table),
            has_probabilities=proba is not None,
            features=features,
            model=model,
            text_column=text_column,
            options=options,
            row_numbers=reading.row_numbers,
            seed=seed,
            quiet=as_json,
        )
    notes = [*notes, *_added_column(labelled, reading)]
    note = counted(len(labelled.X), "row")
    with training_bar(note, quiet=as_json), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        with phase("auditing", 0.0, 0.97):
            found = _find_issues(labelled, proba, learned, n_jobs=jobs, random_state=seed, **flagging)
        check_learned(found.reason if is_nothing_learned(found.reason) else "", force=force)
        announce("writing the folder", 0.97)
        write_folder(
            output,
            found,
            source.path,
            rows=labelled.rows,
            labels=labelled.columns,
            title=f"Labels of {data.name}",
            spreadsheet_safe=spreadsheet_safe,
            options=options,
            described=described,
            pictures=source.pictures,
            row_numbers=reading.row_numbers,
        )
    caught_notes = {str(note.message) for note in caught if issubclass(note.category, UserWarning)}
    summary = {
        "audit": str(output),
        "data": str(data),
        "labels": labelled.columns,
        "rows_without_label": described.unlabelled,
        "table": described.as_dict(),
        **found.summary(),
        "notes": [*source.notes, *notes, *sorted(caught_notes)],
    }
    if as_json:
        say_json(summary)
    else:
        _print(found, summary, labelled.rows, reading.row_numbers)


def _added_column(labelled: Labelled, reading: Reading) -> list[str]:
    """Say how `peerloss apply` calls the column that it adds, if that is not its usual name."""
    if len(labelled.columns) == 1:
        return []
    from peerloss.audit.review import new_label_column

    name = new_label_column(list(map(str, reading.table.columns)))
    if name == "label":
        return []
    return [f"The table has a column 'label'. `peerloss apply` will add the cleaned labels as {name!r}."]


def _labelled_rows(
    reading: Reading,
    data: Path,
    *,
    options: ReadOptions,
    target: list[str],
    reports: Path | None,
    id_column: str | None,
    duplicates: str,
    abstain: str | None,
    drop: list[str],
    tidy: bool,
    min_class_rows: int | None,
    keep_rare: bool,
) -> Labelled:
    import numpy as np
    import pandas as pd

    from peerloss._validation import check_choice
    from peerloss.audit.table_summary import as_classes, check_classes
    from peerloss.cli._audit_inputs import prepare_reports, row_names
    from peerloss.crowd.report_tables import read_matched_reports, read_row_names
    from peerloss.datasets import require_columns
    from peerloss.datasets.label_spelling import prepare_labels, respell
    from peerloss.datasets.tables import options_for_other, quoted
    from peerloss.peer_prediction.reports import DUPLICATES

    if target and reports is not None:
        raise InvalidInputError(
            "pass either --target (a column of labels) or --reports (a table of labels), not both."
        )
    if not target and reports is None:
        raise InvalidInputError(
            "pass --target, the column of the labels, or --reports, a table of labels; the columns of "
            f"{data} are {quoted(reading.table)}."
        )
    table, where = reading.table, str(data)
    left_out = [*target, *drop, *([id_column] if id_column else [])]
    require_columns(table.columns, left_out, where=where)
    if id_column is not None:
        converted = id_column in {note.column for note in reading.notes if note.to_numbers}
        is_text = converted or reports is not None
        names = read_row_names(data, id_column, options=options) if is_text else table[id_column]
        table = table.set_index(row_names(names, where, reading.row_numbers))
    X = table.drop(columns=left_out)
    check_choice(duplicates, "--duplicates", DUPLICATES)
    if reports is None and duplicates != "error":
        refuse_unused("--duplicates", needs="--reports")
    if reports is not None:
        found = read_matched_reports(
            reports,
            table.index,
            id_column=id_column,
            duplicates=duplicates,
            abstain=abstain,
            options=options_for_other(reports, options),
        )
        prepared = prepare_reports(found, table.index, tidy=tidy)
        y: pd.Series | pd.DataFrame = found.assign(label=respell(found["label"], prepared.tidied))
        unlabelled = ~np.asarray(table.index.isin(found["task"]))
    else:
        prepared = prepare_labels(
            as_classes(table[target], where=where, abstain=abstain, tidy=tidy),
            tidy=tidy,
            min_class_rows=min_class_rows,
            keep_rare=keep_rare,
            minus_one=abstain is None,
        )
        labels = prepared.labels
        unlabelled = labels.isna().all(axis=1).to_numpy()
        y = labels.loc[~unlabelled, target[0]] if len(target) == 1 else labels[~unlabelled]
    rows = np.flatnonzero(~unlabelled)
    holder = "--reports" if reports is not None else f"{where}: column {quoted(target)}"
    everything = pd.Series(prepared.labels.to_numpy(dtype=object).ravel())
    check_classes(everything, where=holder, words=reading.words, minus_one=prepared.minus_one)
    return Labelled(X.iloc[rows], y, rows, target, X, prepared)


def _find_issues(labelled: Labelled, proba: pd.DataFrame | None, learned: Any, **settings: Any) -> LabelAudit:
    from peerloss.audit import find_label_issues
    from peerloss.cli._audit_inputs import match_probabilities

    y: Any = labelled.y
    # Rare classes were left out of the labels already, as the options say.
    if learned is not None:
        return replace(find_label_issues(learned, y, min_class_rows=1, **settings), shown=labelled.X)
    if proba is None:
        X = labelled.X if labelled.X.shape[1] else None
        return find_label_issues(X, y, min_class_rows=1, **settings)
    matched, y = match_probabilities(proba, y)
    return find_label_issues(labelled.X, y, pred_proba=matched, **settings)


def _print(
    found: LabelAudit, summary: dict[str, Any], rows: NDArray[np.int64], row_numbers: RowNumbers
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from peerloss._pages import row_text

    suspects = found.table.assign(position=rows)[found.table["flagged"]].sort_values("rank")
    suspects = suspects.head(PRINTED_SUSPECTS)
    shown = Table("row", "given", "suggested", "P(wrong)", "P(suggested)", title="Most probable errors")
    for name, row in zip(suspects.index, suspects.to_dict("records"), strict=True):
        labels = (label_text(row["given"]), label_text(row["suggested"]))
        numbers = (f"{row['p_error']:.3f}", f"{row['p_suggested']:.3f}")
        cells = [row_text(name, row["position"], row_numbers[row["position"]]), *labels, *numbers]
        shown.add_row(*(Text(visible(cell)[:60]) for cell in cells))
    if len(suspects):
        Console().print(shown)
    row_noise = [] if found.row_noise is None or not found.row_noise.refused else [found.row_noise]
    # The headline says why the noise rates are not known.
    notes = [note for note in summary["notes"] if not found.reason or found.reason not in note]
    for line in (*notes, *row_noise, found.outlook):
        say(line)
    folder = shlex.quote(summary["audit"])
    say(f"Next: open {summary['audit']}/index.html, or run `peerloss review {folder}`.")
    say(f"{found.headline} Written to {summary['audit']}.")
