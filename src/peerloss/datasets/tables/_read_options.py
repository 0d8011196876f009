"""How a file is to be read where the file itself does not say it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

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
    """Separator of the fields of a line, one character or ``"tab"``. Commas, semicolons and tabs are
    recognised."""
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
        names = {field.name for field in fields(cls)}
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
