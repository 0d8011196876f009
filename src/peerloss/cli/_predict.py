"""``peerloss predict``: predict the rows of a table with a saved model."""

from __future__ import annotations

import os
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._files import atomic_files, check_output_file
from peerloss._progress import reporter
from peerloss.cli._options import jobs_option
from peerloss.cli._table_options import (
    Decimal,
    Encoding,
    NaValues,
    Sep,
    Sheet,
    read_options,
)
from peerloss.cli._terminal import counted, say, say_json, training_bar
from peerloss.exceptions import InvalidInputError, ModelFolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from peerloss.datasets import ReadOptions

#: Rows per chunk; each thread holds one chunk in memory.
CHUNK_ROWS = 20_000


def predict(
    model: Annotated[Path, typer.Argument(help="Model folder that `peerloss fit` wrote.")],
    data: Annotated[
        Path,
        typer.Argument(help="CSV, Excel, JSON lines, Parquet or ARFF file with the columns of the training."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: CSV, TSV, Parquet, JSON lines or Excel.")
    ],
    id_columns: Annotated[
        list[str] | None,
        typer.Option("--id", help="Column to copy into the output; may be repeated."),
    ] = None,
    encoding: Encoding = None,
    sep: Sep = None,
    decimal: Decimal = None,
    na_values: NaValues = None,
    sheet: Sheet = None,
    seed: Annotated[
        int | None, typer.Option(help="Deprecated; has no effect, because predictions are not random.")
    ] = None,
    jobs: Annotated[int, jobs_option("threads")] = 1,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Prefix text that looks like a formula with an apostrophe."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Predict the clean labels of a table. The memory used does not grow with the number of rows.

    The output has the columns of --id (without --id: row numbers from 0), the prediction, and a probability
    for each class. Values given to `peerloss fit --na-values` also count as missing here, and the decimal
    mark of the training is tried first.

    Example: peerloss predict model/ new.csv -o predictions.csv --id customer
    """
    if seed is not None:
        typer.echo("Warning: --seed is deprecated and has no effect; predictions are not random.", err=True)
    from peerloss.datasets import iter_table
    from peerloss.datasets.tables import find_row_numbers

    suffix = _check_output(output, data)
    options, trained_decimal = _options(model, read_options(encoding, sep, decimal, na_values, sheet))

    # Imports scikit-learn and torch: a wrong path was reported before.
    from peerloss.persistence import load_model

    loaded, ids = load_model(model), id_columns or []
    cores = os.cpu_count() or 1
    threads = max(1, min(cores, jobs if jobs > 0 else cores + 1 + jobs))  # as joblib counts them
    # Features have the kinds of the model; identifiers are text.
    kinds: dict[str, Any] = dict.fromkeys(ids, "text") | _kinds(loaded)
    options = _with_decimal(data, options, trained_decimal, kinds)
    rows_read = iter_table(data, chunk_rows=CHUNK_ROWS, kinds=kinds, options=options)
    total = _estimate_rows(data)

    def locate(row: int) -> int:
        return find_row_numbers(data, options)[row]

    with training_bar("predicting", quiet=as_json or total is None):
        chunks = _reported(_predicted(loaded, rows_read, ids, threads, locate), total or 0)
        counts = _write(output, chunks, suffix=suffix, spreadsheet_safe=spreadsheet_safe)
    rows = sum(counts.values())
    if as_json:
        paths = {"model": str(model), "predictions": str(output)}
        say_json(paths | {"rows": rows, "predicted": dict(counts)})
    else:
        shares = ", ".join(f"{label} {count / rows:.1%}" for label, count in sorted(counts.items()))
        say(f"{counted(rows, 'row')} predicted ({shares}); written to {output}.")


def _check_output(output: Path, data: Path) -> str:
    from peerloss.datasets.tables import check_output_format

    suffix = check_output_format(output, "--output")
    check_output_file(output)
    if output.exists() and data.exists() and output.samefile(data):
        raise InvalidInputError(f"--output must not be the input table {data}. Choose another name.")
    return suffix


def _options(model: Path, given: ReadOptions) -> tuple[ReadOptions, str | None]:
    """Add the missing values of the training to the options, and return its decimal mark.

    Encoding and the like belong to each file.
    """
    from peerloss.datasets import ReadOptions
    from peerloss.persistence import read_manifest

    try:
        trained = ReadOptions.from_dict(read_manifest(model).get("reading", {}))
    except (InvalidInputError, AttributeError, TypeError) as error:
        raise ModelFolderError(f"{model}: its manifest is damaged: {error}. Save the model again.") from error
    missing = tuple(dict.fromkeys([*trained.na_values, *given.na_values]))
    return replace(given, na_values=missing), trained.decimal


def _with_decimal(
    data: Path, options: ReadOptions, trained: str | None, kinds: Mapping[str, Any]
) -> ReadOptions:
    """Use the decimal mark of the training if none is named and the first rows can be read with it.

    Otherwise the mark is recognised from the file, which may have another format.
    """
    from peerloss.datasets import iter_table
    from peerloss.datasets.tables import TEXT_SUFFIXES, check_csv

    if trained is None or options.decimal is not None or not data.is_file():
        return options
    try:
        tried = replace(options, decimal=trained)
        if data.name.lower().endswith(TEXT_SUFFIXES):
            found = check_csv(data, options)
            if found.delimiter == trained:
                return options
            rows = replace(found, options=tried).chunks(CHUNK_ROWS, kinds)
        else:
            rows = iter_table(data, chunk_rows=CHUNK_ROWS, kinds=kinds, options=tried)
        next(rows)
    except InvalidInputError:  # what is wrong with the file is reported when it is read
        return options
    return tried


def _kinds(model: Any) -> dict[str, str]:
    from peerloss.estimators import TableEncoder

    first = model.steps[0][1] if hasattr(model, "steps") else model
    if isinstance(first, TableEncoder):
        return first.kinds_
    if not hasattr(model, "feature_names_in_"):
        raise ModelFolderError(
            f"this {type(first).__name__} was fitted without column names, so its columns cannot be found in "
            "a table. Fit it on a DataFrame, or predict with it in Python: load_model(folder).predict(X)."
        )
    return dict.fromkeys(map(str, model.feature_names_in_), "number")


def _predicted(
    model: Any,
    chunks: Iterator[pd.DataFrame],
    id_columns: list[str],
    threads: int,
    locate: Callable[[int], int] = int,
) -> Iterator[pd.DataFrame]:
    """Predict one chunk per thread at a time and yield them in order.

    ``locate`` returns the number in the file of a row of the table, for messages.
    """
    columns = list(_kinds(model))
    waiting: deque[Future[pd.DataFrame]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for chunk in chunks:
            waiting.append(pool.submit(_predict_chunk, model, chunk, columns, id_columns, locate))
            if len(waiting) == threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _predict_chunk(
    model: Any,
    chunk: pd.DataFrame,
    columns: list[str],
    id_columns: list[str],
    locate: Callable[[int], int],
) -> pd.DataFrame:
    import pandas as pd

    from peerloss._infinite_features import check_no_infinity

    try:
        proba = model.predict_proba(chunk[columns])
    except ValueError:  # if the reason is infinity, say in which row of the file
        check_no_infinity(chunk[columns], locate=lambda row: locate(int(chunk.index[row])), is_part=True)
        raise
    identifiers: dict[str, Any] = {name: chunk[name] for name in id_columns} or {"row": chunk.index}
    predicted = {"prediction": model.classes_[proba.argmax(axis=1)]}
    probabilities = {f"probability_{label}": proba[:, k] for k, label in enumerate(model.classes_)}
    clash = sorted(set(identifiers) & {*predicted, *probabilities})
    if clash:
        raise InvalidInputError(
            f"--id must not be {clash[0]!r}, which the output also has. Rename that column first."
        )
    return pd.DataFrame({**identifiers, **predicted, **probabilities})


def _reported(chunks: Iterator[pd.DataFrame], total: int) -> Iterator[pd.DataFrame]:
    """Yield the chunks, and report which share of about ``total`` rows is done."""
    report, done = reporter(total), 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        report(done)


def _estimate_rows(data: Path) -> int | None:
    """Count the lines of a text file, for the remaining time; ``None`` for other formats."""
    if data.suffix.lower() not in {".csv", ".tsv", ".txt", ".jsonl", ".ndjson"} or not data.is_file():
        return None
    with data.open("rb") as stream:
        return max(1, sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b"")) - 1)


def _write(
    output: Path, chunks: Iterator[pd.DataFrame], *, suffix: str, spreadsheet_safe: bool
) -> Counter[str]:
    """Write the chunks and return how often each label is predicted."""
    from peerloss.datasets.tables import write_chunks

    counts: Counter[str] = Counter()

    def tallied() -> Iterator[pd.DataFrame]:
        for chunk in chunks:
            counts.update(map(str, chunk["prediction"]))
            yield chunk

    with atomic_files(output) as (path,):
        write_chunks(path, tallied(), suffix=suffix, spreadsheet_safe=spreadsheet_safe)
    return counts
