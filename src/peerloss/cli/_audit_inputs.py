"""Inputs of ``peerloss audit`` besides a table: images, texts, files of features and of probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from peerloss.cli._terminal import training_bar
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import typer
    from numpy.typing import NDArray

    from peerloss.cli._audit import Labelled
    from peerloss.datasets import ImageFolder, ReadOptions
    from peerloss.datasets.label_spelling import PreparedLabels
    from peerloss.datasets.tables import RowNumbers

#: Endings of images that browsers show.
SHOWN = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
#: Rows that a note names.
LISTED = 5
#: Prefix of the columns of probabilities that `peerloss predict` writes.
PREFIX = "probability_"
#: What is said of features that were computed without a model.
WEAK = (
    "The features of the images are statistics of texture, outline and colour, which are weak for photos. "
    "Pass a pretrained model with --model for better results."
)


@dataclass(frozen=True)
class Source:
    """The table that is audited, and the images of its rows."""

    path: Path
    """The table: the user's file, or one that was made from class sub-folders."""
    target: list[str]
    id_column: str | None
    images: ImageFolder | None = None
    exact_columns: dict[str, Any] = field(default_factory=dict)
    """Columns of names of files and folders, as they are: "007" is not the number 7."""
    pictures: list[Path] | None = None
    """The image of each row, as an absolute path; a path that does not exist if it cannot be shown."""
    notes: list[str] = field(default_factory=list)
    """What was left out, and which images the review cannot show."""


def drop_unusable(source: Source, labelled: Labelled) -> Labelled:
    """Leave out rows whose image was skipped."""
    if source.images is None or source.images.usable.all():
        return labelled
    kept = source.images.usable[labelled.rows]
    if not kept.any():
        raise InvalidInputError(f"{source.path}: no row has both a label and an image that can be used.")
    return replace(labelled, X=labelled.X[kept], y=labelled.y[kept], rows=labelled.rows[kept])


def _source(path: Path, target: list[str], id_column: str | None, images: ImageFolder, *names: str) -> Source:
    """Return the source of images; the columns ``names`` are used as they are."""
    hidden = images.folder / "not-shown.png"
    n_hidden = sum(ok and not _is_shown(file) for file, ok in zip(images.paths, images.usable, strict=True))
    note = f"Images of types that browsers do not show, audited but without a picture: {n_hidden:,}."
    return Source(
        path,
        target,
        id_column or images.file_column,
        images,
        {name: images.table[name].to_numpy(dtype=object) for name in names},
        [(file if _is_shown(file) else hidden).absolute() for file in images.paths],
        [*images.notes, *([note] if n_hidden else [])],
    )


def _is_shown(path: Path) -> bool:
    return path.suffix.lower() in SHOWN


def open_source(
    context: typer.Context,
    data: Path,
    output: Path,
    *,
    target: list[str],
    id_column: str | None,
    is_crowd: bool,
    labels: Path | None,
    file_column: str | None,
    skip_unreadable: bool,
    options: ReadOptions,
) -> Source:
    """Return the table to audit; for a folder of images, check all of them and find or make their table.

    ``is_crowd`` means that labels come from --reports.
    """
    if not data.is_dir():
        used = {
            "--labels": labels,
            "--file-column": file_column,
            "--skip-unreadable": skip_unreadable or None,
        }
        wrong = [option for option, value in used.items() if value is not None]
        if wrong:
            raise InvalidInputError(f"{wrong[0]} needs a folder of images; {data} is not a folder.")
        return Source(data, target, id_column)
    from peerloss.datasets import read_image_folder

    if is_crowd:
        raise InvalidInputError(
            "--reports is for tables; for images, pass --labels with one column per annotator, and --target "
            "for each of them."
        )
    if output.resolve().is_relative_to(data.resolve()):
        raise InvalidInputError(f"--output must be outside the folder of images {data}; got {output}.")
    if labels is None and (set(target) - {"label"} or file_column):
        raise InvalidInputError(
            "--target and --file-column name columns of --labels, a table with one row per image; without "
            "it, the sub-folders are the labels."
        )
    column = file_column or "file"
    images = read_image_folder(
        data,
        labels,
        file_column=column,
        label_column=target[0] if target else "label",
        skip_unreadable=skip_unreadable,
        options=options,
    )
    if labels is not None:
        return _source(labels, target, id_column, images, column)
    images = replace(
        images,
        table=images.table[images.usable].reset_index(drop=True),
        paths=[path for path, ok in zip(images.paths, images.usable, strict=True) if ok],
        usable=images.usable[images.usable],
    )
    path = _write_table(context, images.table, data.resolve().name)
    return _source(path, ["label"], id_column, images, "file", "label")


def _write_table(context: typer.Context, table: pd.DataFrame, name: str) -> Path:
    """Write the table of class sub-folders to a folder that is removed when the command ends."""
    from peerloss.datasets.tables import write_table

    path = Path(context.with_resource(TemporaryDirectory())) / f"{name or 'images'}.csv"
    with path.open("x", encoding="utf-8", newline="") as stream:
        write_table(stream, table)
    return path


def learned_features(
    source: Source,
    labelled: Labelled,
    n_rows: int,
    *,
    has_probabilities: bool,
    features: Path | None,
    model: str | None,
    text_column: str | None,
    options: ReadOptions,
    row_numbers: RowNumbers,
    seed: int,
    quiet: bool,
) -> tuple[Any, list[str]]:
    """Return what is learned from, one row per labelled row, and notes; ``None`` means the columns.

    ``n_rows`` is the number of rows of the table.
    """
    used = {"--features": features, "--model": model, "--text-column": text_column}
    if has_probabilities:
        wrong = [option for option, value in used.items() if value is not None]
        if wrong:
            raise InvalidInputError(f"{wrong[0]} is not used with --probabilities, which replaces training.")
        return None, []
    if features is not None and (model is not None or text_column is not None):
        raise InvalidInputError("pass either --features (a file) or --model, not both.")
    if features is not None:
        return _from_file(features, labelled, n_rows, options, seed)
    if source.images is not None:
        if text_column is not None:
            raise InvalidInputError("--text-column is for tables of texts, not for a folder of images.")
        return _from_images(source.images, labelled, model, seed=seed, quiet=quiet)
    if model is None and text_column is None:
        return None, []
    rows = [row_numbers[row] for row in labelled.rows]
    return _from_texts(labelled, rows, model, text_column, str(source.path), quiet=quiet)


def _from_file(
    path: Path, labelled: Labelled, n_rows: int, options: ReadOptions, seed: int
) -> tuple[Any, list[str]]:
    from peerloss.datasets.tables import options_for_other
    from peerloss.features import principal_components, read_features

    found = read_features(path, n_rows=n_rows, options=options_for_other(path, options))
    kept: NDArray[np.float64] = principal_components(found[labelled.rows], random_state=seed)
    notes = []
    if kept.shape[1] < found.shape[1]:
        notes.append(f"The {found.shape[1]} features were reduced to {kept.shape[1]} principal components.")
    return kept, notes


def _from_images(
    images: ImageFolder, labelled: Labelled, model: str | None, *, seed: int, quiet: bool
) -> tuple[Any, list[str]]:
    from peerloss.features import image_features

    paths = [images.paths[row] for row in labelled.rows]
    with training_bar("features of images", quiet=quiet):
        found = image_features(paths, model=model, random_state=seed)
    return found, [WEAK] if model is None else []


def _from_texts(
    labelled: Labelled, rows: list[int], model: str | None, column: str | None, where: str, *, quiet: bool
) -> tuple[Any, list[str]]:
    """Return the features of a text column; other columns are used besides.

    ``rows`` are the numbers of the labelled rows in the file.
    """
    import pandas as pd

    from peerloss.datasets import column_kinds, require_columns
    from peerloss.datasets.tables import free_names
    from peerloss.features import text_features

    X = labelled.X
    if model is None:
        raise InvalidInputError(
            "--text-column needs --model, the name or folder of a model. Without both, columns of free text "
            "are recognised and their words are counted (TF-IDF)."
        )
    if column is None:
        found = ", ".join(repr(name) for name, kind in column_kinds(X).items() if kind == "text")
        raise InvalidInputError(
            f"--model needs --text-column, the column of texts; columns of text in {where}: "
            f"{found or 'none'}."
        )
    require_columns(X.columns, [column], where=where)
    texts = [text if isinstance(text, str) else "" for text in X[column].astype(object)]
    empty = [row for row, text in zip(rows, texts, strict=True) if not text.strip()]
    with training_bar("features of texts", quiet=quiet):
        vectors = text_features(texts, model=model)
    names = free_names(column, vectors.shape[1], set(X.columns))
    named = pd.DataFrame(vectors, index=X.index, columns=names)
    rest = X.drop(columns=column)
    notes = []
    if empty:
        listed = ", ".join(map(str, empty[:LISTED])) + (", …" if len(empty) > LISTED else "")
        notes.append(f"Empty texts in column {column!r}: {len(empty):,}, in rows {listed}.")
    return (pd.concat([rest, named], axis=1) if rest.shape[1] else vectors), notes


def row_names(column: pd.Series, where: str, row_numbers: RowNumbers) -> pd.Index:
    """Return the names of the rows; each row must have its own."""
    import pandas as pd

    if column.isna().any():
        first = int(column.isna().to_numpy().argmax())
        raise InvalidInputError(
            f"{where}: --id {column.name!r} must name every row; row {row_numbers[first]} has no name."
        )
    repeated = column[column.duplicated()]
    if len(repeated):
        raise InvalidInputError(
            f"{where}: --id {column.name!r} must be different in every row; {repeated.iloc[0]!r} occurs more "
            "than once."
        )
    names: pd.Index = pd.Index(column.to_numpy(), name=str(column.name))
    return names


def read_probabilities(path: Path, labelled: Labelled, options: ReadOptions) -> pd.DataFrame:
    """Read out-of-fold probabilities, one row per row of the data; return those of the labelled rows.

    ``options`` are those of the data.
    """
    from peerloss.datasets import read_table
    from peerloss.datasets.tables import options_for_other

    table, n_rows = read_table(path, options=options_for_other(path, options)), len(labelled.features)
    if len(table) != n_rows:
        raise InvalidInputError(
            f"{path} must have one row per row of the data; it has {len(table):,}, the data {n_rows:,}."
        )
    return table.rename(columns=lambda name: str(name).removeprefix(PREFIX)).iloc[labelled.rows]


def match_probabilities(
    proba: pd.DataFrame, y: pd.Series | pd.DataFrame
) -> tuple[NDArray[np.float64], pd.Series | pd.DataFrame]:
    """Return the columns of the labels as an array, and the labels in the order of these columns."""
    import pandas as pd

    names = _label_names(y)
    missing = [name for name in names if name not in proba]
    if missing:
        raise InvalidInputError(
            f"--probabilities must have one column per label; {missing[0]!r} is missing among "
            f"{[str(name) for name in proba][:10]}."
        )
    if isinstance(y, pd.Series):  # classes of several annotators are sorted
        names = [name for name in proba if name in names]
        y = pd.Series(pd.Categorical(y.astype(str), categories=names), index=y.index, name=y.name)
    return proba[names].to_numpy(), y


def _label_names(y: pd.Series | pd.DataFrame) -> list[str]:
    """List the labels of one or several annotators, sorted."""
    import pandas as pd

    if isinstance(y, pd.DataFrame):
        y = y["label"] if {"worker", "label"} <= set(y.columns) else pd.Series(y.to_numpy().ravel())
    labels = y.dropna().unique()
    try:
        return [str(label) for label in sorted(labels)]
    except TypeError:  # labels of several types; the audit refuses them if they must be sorted
        return sorted(map(str, labels))


def prepare_reports(reports: pd.DataFrame, rows: pd.Index, *, tidy: bool) -> PreparedLabels:
    """Return the labels of several annotators, one column per label of a row."""
    from peerloss.datasets.label_spelling import prepare_labels

    place = reports.groupby("task", observed=True).cumcount()
    labels = reports["label"].astype(object).set_axis([reports["task"].astype(object), place])
    wide = labels.unstack()  # noqa: PD010 - pivot_table is slow for text
    return prepare_labels(wide.reindex(rows), tidy=tidy, keep_rare=True)
