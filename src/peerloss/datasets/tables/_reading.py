"""How a file is read: what the user says about it, and what was found in it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pandas as pd

    from peerloss.datasets.label_spelling import WordUse
    from peerloss.datasets.tables._number_text import ColumnNote

#: Endings of delimited text.
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
ARFF_SUFFIXES = (".arff", ".arff.gz")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
EXCEL_SUFFIXES = (".xlsx", ".xlsm")
#: Endings of the names of readable files.
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *PARQUET_SUFFIXES, *ARFF_SUFFIXES, *JSON_SUFFIXES, *EXCEL_SUFFIXES)
#: Option → endings of the files that it applies to; ``na_values`` applies to all files.
_APPLIES_TO = {
    "encoding": (*TEXT_SUFFIXES, *ARFF_SUFFIXES, *JSON_SUFFIXES),
    "sep": TEXT_SUFFIXES,
    "decimal": (*TEXT_SUFFIXES, *JSON_SUFFIXES, *EXCEL_SUFFIXES),
    "sheet": EXCEL_SUFFIXES,
}


def applies_to(option: str) -> tuple[str, ...]:
    """Return the endings of the files that an option applies to."""
    return _APPLIES_TO[option]


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    r"""How to read a file; what is ``None`` is recognised from the file.

    Raises
    ------
    InvalidInputError
        If the encoding is unknown, or the separator or decimal mark is not one of the accepted characters.

    Examples
    --------
    >>> ReadOptions(sep="tab", na_values=("unknown",)).as_dict()
    {'sep': '\t', 'na_values': ['unknown']}
    """

    encoding: str | None = None
    """Encoding of a text file, such as ``"latin-1"`` or ``"utf-16"``; the default is UTF-8."""
    sep: str | None = None
    """Separator of the fields of a line, one character or ``"tab"``. Commas, semicolons, tabs and bars
    are recognised."""
    decimal: str | None = None
    """``"."`` or ``","``. The other one may then separate thousands."""
    na_values: tuple[str, ...] = ()
    """Texts that mean a missing value, besides the empty field, ``?``, ``NA`` and similar ones."""
    sheet: str | None = None
    """Sheet of a workbook, by its name; the default is the first one."""

    def __post_init__(self) -> None:
        if self.encoding is not None:
            _check_encoding(self.encoding)
        if self.sep is not None:
            object.__setattr__(self, "sep", _check_sep(self.sep))
        if self.decimal is not None:
            check_choice(self.decimal, "decimal", (".", ","))
            if self.sep == self.decimal:
                raise InvalidInputError(
                    f"`decimal` must differ from the separator; both are {self.decimal!r}. Which one is it?"
                )
        object.__setattr__(self, "na_values", tuple(map(str, self.na_values)))

    def as_dict(self) -> dict[str, Any]:
        """Return the options that are set, for JSON."""
        found = asdict(self) | {"na_values": list(self.na_values)}
        return {name: value for name, value in found.items() if value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReadOptions:
        """Return the options of :meth:`as_dict`; unknown names and wrong types are refused.

        Parameters
        ----------
        values
            Names and values of options, from a file.
        """
        names = {each.name for each in fields(cls)}
        texts = {name: value for name, value in values.items() if name != "na_values"}
        missing = values.get("na_values", [])
        valid = isinstance(missing, list | tuple) and all(isinstance(text, str) for text in missing)
        if not (valid and set(values) <= names and all(isinstance(text, str) for text in texts.values())):
            raise InvalidInputError(f"reading options must be text named {sorted(names)}; got {values!r}.")
        return cls(**texts, na_values=tuple(missing))

    def check_applies(self, path: Path) -> None:
        """Refuse options that have no meaning for the format of a file.

        Parameters
        ----------
        path
            The file; the ending of its name is its format.
        """
        name = path.name.lower()
        for option, suffixes in _APPLIES_TO.items():
            if getattr(self, option) is not None and not name.endswith(suffixes):
                raise InvalidInputError(
                    f"`{option}` applies to files whose names end in {', '.join(suffixes)}; got {path}. "
                    f"Omit {option}."
                )

    @property
    def missing_texts(self) -> list[str]:
        """Texts that mean a missing value in addition to those of pandas."""
        return ["?", *self.na_values]  # "?" as in the data sets of UCI


def _check_encoding(encoding: str) -> None:
    try:
        is_text = isinstance("a".encode(encoding), bytes)
    except (LookupError, ValueError):  # ValueError: NUL characters, or not an encoding of text
        is_text = False
    if not is_text:
        raise InvalidInputError(
            f"`encoding` must be the name of a text encoding, such as utf-8, latin-1 or utf-16; got "
            f"{encoding!r}."
        )


def _check_sep(sep: str) -> str:
    char = "\t" if sep in {"tab", "\\t"} else sep
    if len(char) != 1 or char.isalnum() or char in " \"'\r\n\0.\\-+_":
        raise InvalidInputError(
            "`sep` must be one character between the fields of a line, such as , or ; or | or 'tab'; got "
            f"{sep!r}."
        )
    return char


@dataclass(frozen=True)
class RowNumbers:
    """The number of each row of a table in its file, in which the header and empty lines are counted.

    Examples
    --------
    >>> numbers = RowNumbers.of([2, 3, 6])  # two empty lines before the last row
    >>> numbers.starts, numbers[2]
    (((0, 2), (2, 6)), 6)
    """

    starts: tuple[tuple[int, int], ...] = ((0, 1),)
    """Each row, from 0, whose number is not one more than the number before it, and this number."""

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Self:
        """Return the numbers of all rows, which increase; without rows, ``starts`` is empty."""
        starts: list[tuple[int, int]] = []
        for row, number in enumerate(numbers):
            if not starts or number - row != starts[-1][1] - starts[-1][0]:
                starts.append((row, number))
        return cls(tuple(starts))

    @classmethod
    def usual(cls, name: str) -> Self:
        """Return the numbers of the rows of a file of this name, if it has no empty lines.

        >>> [RowNumbers.usual(name)[0] for name in ("data.csv", "data.xlsm", "data.parquet")]
        [2, 2, 1]
        """
        has_header = name.lower().endswith((*TEXT_SUFFIXES, *EXCEL_SUFFIXES))
        return cls(((0, 2 if has_header else 1),))

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Return the numbers whose ``starts`` were stored as lists; refuse anything else."""
        pairs = values if isinstance(values, list) else []
        valid = all(isinstance(p, list) and len(p) == 2 and all(type(n) is int for n in p) for p in pairs)
        rows = [pair[0] for pair in pairs] if valid else []
        if rows[:1] != [0] or rows != sorted(set(rows)):
            raise InvalidInputError(f"row numbers must be pairs of integers, from row 0; got {values!r}.")
        return cls(tuple((row, number) for row, number in pairs))

    def __getitem__(self, row: int) -> int:
        first, number = self.starts[bisect_right(self.starts, row, key=lambda start: start[0]) - 1]
        return number + row - first


@dataclass(frozen=True, eq=False)
class Reading:
    """A table that was read from a file, and what was decided about its columns."""

    table: pd.DataFrame
    notes: tuple[ColumnNote, ...] = ()
    """Columns of text that were read as numbers, or that were probably meant as numbers."""
    words: tuple[WordUse, ...] = ()
    """Words such as NA in columns of labels, and whether they are a class."""
    decimal: str | None = None
    """The decimal mark that was named or recognised; ``None`` if there was nothing to recognise."""
    row_numbers: RowNumbers = field(default_factory=RowNumbers)
    """The numbers of the rows in the file; counted from 1 in files without lines."""
