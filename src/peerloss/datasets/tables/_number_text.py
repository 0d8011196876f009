"""Columns of text that are meant as numbers: decimal commas, thousands, currencies, units, stray words.

A column becomes numbers only if every value can be read in one way. Otherwise it stays text, and a note says
which option reads it as numbers.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Values that decide whether the rest of a column is examined.
SAMPLE = 1000
#: A column with at least this share of numbers and at most so many other values was meant as numbers.
NUMBERS_SHARE, MAX_STRAYS = 0.8, 10
#: Longer texts are not numbers; matching a very long one would take very long.
MAX_LENGTH = 64
_SPACES = "' \u00a0\u202f"
#: Signs of currencies, which some values of a column may lack.
_CURRENCIES = frozenset("$€£¥")
#: With more units than this a column holds codes, such as 12 AB, and not quantities.
MAX_UNITS = 3


def _pattern(decimal: str) -> re.Pattern[str]:
    thousands = re.escape(("," if decimal == "." else ".") + _SPACES)
    mark, sign = re.escape(decimal), r"([+\-\u2212]?)\s*"
    grouped = rf"[1-9]\d{{0,2}}(?P<mark>[{thousands}])\d{{3}}(?:(?P=mark)\d{{3}})*"
    digits = rf"((?:{grouped}|\d+)(?:{mark}\d*)?|{mark}\d+)"
    letter = r"[^\W\d_]"
    # A single letter needs a space, because 12A is a code. So does the code of a currency before the number.
    before = r"((?:[$€£¥]|[A-Z]{3}\s)?)\s*"
    after = rf"((?:[%‰$€£¥]|°{letter}?|{letter}{{2,10}}(?:/{letter}{{1,3}})?[²³]?|(?<=\s){letter})?)"
    return re.compile(rf"\s*{sign}{before}{sign}{digits}([eE][+-]?\d+)?\s*{after}\s*")


#: Infinity, as pandas reads it in a column of numbers. It has no unit.
_INFINITY = re.compile(r"\s*[+\-\u2212]?inf(?:inity)?\s*", re.IGNORECASE)
_PATTERNS = {mark: _pattern(mark) for mark in ".,"}
#: What is removed between digits, and the comma that becomes a point.
_PLAIN = {mark: str.maketrans(",", ".", _SPACES + ("," if mark == "." else ".")) for mark in ".,"}


class ColumnNote(NamedTuple):
    """How a column was read, if not as it is written."""

    column: str
    text: str
    """A clause whose subject is the column."""
    to_numbers: bool
    """Whether text was read as numbers; otherwise the column stays text, and ``text`` says what to do."""


class _Parsed(NamedTuple):
    number: float
    unit: str


class _Readings(NamedTuple):
    """The distinct values of a column, and what they are with a decimal point and a decimal comma."""

    values: list[str | float]
    parsed: dict[str, list[_Parsed | None]]

    @property
    def texts(self) -> list[str]:
        """The values that are text; cells of a workbook may be numbers."""
        return [value for value in self.values if isinstance(value, str)]

    @property
    def ways(self) -> list[str]:
        """The decimal marks with which all values are numbers."""
        return [mark for mark, found in self.parsed.items() if None not in found]

    @property
    def strays(self) -> list[str]:
        """The values that are not numbers with either mark."""
        both = zip(self.values, *self.parsed.values(), strict=True)
        return [str(value) for value, *found in both if not any(found)]

    @property
    def units(self) -> set[str]:
        """The units of the values, empty for a number without one."""
        return _units(each for parsed in self.parsed.values() for each in parsed)

    @property
    def has_codes(self) -> bool:
        """Whether what looks like numbers are codes: all in parentheses, or with many kinds of letters."""
        words = [unit for unit in self.units if unit.isalpha()]
        all_enclosed = len(self.texts) == len(self.values) and all(map(_is_enclosed, self.texts))
        return len(words) > MAX_UNITS or all_enclosed

    def numbers(self, mark: str) -> dict[str | float, float]:
        """Return the number of each value."""
        return {v: found.number for v, found in zip(self.values, self.parsed[mark], strict=True) if found}


def parse_number(text: str, decimal: str) -> float | None:
    """Return the number that a text shows, or ``None``.

    Currencies, percent signs and other units are left out, so that 12 % is 12. Parentheses around a number
    mean that it is negative, as in accounts.

    >>> parse_number("$1,234.50", "."), parse_number("1.234,5 €", ","), parse_number("1,23", ".")
    (1234.5, 1234.5, None)
    >>> parse_number("2.5 kg", "."), parse_number("(30.00)", ".")
    (2.5, -30.0)
    """
    found = _parse(text, decimal)
    return None if found is None else found.number


def _parse(text: str, decimal: str) -> _Parsed | None:
    if len(text) > MAX_LENGTH:
        return None
    if _INFINITY.fullmatch(text):
        return _Parsed(float(text.replace("\u2212", "-")), "")
    is_enclosed = _is_enclosed(text)
    found = _PATTERNS[decimal].fullmatch(text.strip()[1:-1] if is_enclosed else text)
    if found is None:
        return None
    sign, prefix, inner_sign, digits, _, exponent, suffix = found.groups()
    if (sign and inner_sign) or (prefix and suffix) or (is_enclosed and (sign or inner_sign)):
        return None
    number = float(digits.translate(_PLAIN[decimal]) + (exponent or ""))
    if not math.isfinite(number):
        return None
    is_negative = is_enclosed or (sign or inner_sign) in {"-", "\u2212"}
    return _Parsed(-number if is_negative else number, prefix.strip() or suffix)


def _is_enclosed(text: str) -> bool:
    return text.strip().startswith("(") and text.strip().endswith(")")


def _parse_cell(value: str | float, decimal: str) -> _Parsed | None:
    return _parse(value, decimal) if isinstance(value, str) else _Parsed(float(value), "")


def interpret_text(
    table: pd.DataFrame,
    *,
    decimal: str | None,
    usual: str | None,
    commas: bool,
    skip: Iterable[str] = (),
) -> tuple[pd.DataFrame, list[ColumnNote]]:
    """Replace text columns that are meant as numbers; return notes on these and on doubtful ones.

    Parameters
    ----------
    table
        Columns of numbers and of text.
    decimal
        The decimal mark, if the user has named it.
    usual
        The decimal mark that other columns use, if known; it decides whether 1,234 is a thousand.
    commas
        Whether decimal commas need no option, because commas do not separate the fields of the file.
    skip
        Columns that stay as they are, such as labels.
    """
    new: dict[str, pd.Series] = {}
    notes, skipped = [], set(skip)
    for name in table:
        column = table[name]
        if str(name) in skipped or pd.api.types.is_numeric_dtype(column):
            continue
        numbers, note = _interpret(column, decimal=decimal, usual=usual, commas=commas)
        if numbers is not None:
            new[str(name)] = numbers
        if note:
            notes.append(ColumnNote(str(name), note, numbers is not None))
    return table.assign(**new) if new else table, notes


def has_decimal_commas(table: pd.DataFrame, *, skip: Iterable[str] = ()) -> bool:
    """Return whether a column of text consists of numbers with decimal commas, and of nothing else."""
    columns = (table[name] for name in table if str(name) not in set(skip))
    texts = (column for column in columns if not pd.api.types.is_numeric_dtype(column))
    return any((found := _readings(text)) is not None and found.ways == [","] for text in texts)


def _interpret(
    column: pd.Series, *, decimal: str | None, usual: str | None, commas: bool
) -> tuple[pd.Series | None, str]:
    found = _readings(column)
    if found is None:
        return None, ""
    if found.has_codes:
        return None, ""
    strays = found.strays
    if strays:
        return None, _note_on_strays(column, strays)
    mark, note = _choose(found, decimal=decimal, usual=usual, commas=commas)
    note = _mixed_units(found) or note
    if note or mark is None:
        return None, note
    numbers = found.numbers(mark)
    example = max(
        found.texts[:SAMPLE],
        key=lambda value: (math.isfinite(numbers[value]), len(re.sub(r"[\d\s]", "", value))),
    )
    read = column.astype(object).map(numbers.__getitem__, na_action="ignore").astype("float64")
    return read, f"is read as numbers; {example!r} is {numbers[example]:.15g}"


def _readings(column: pd.Series) -> _Readings | None:
    """Parse the values of a column, unless most of the first ones are not numbers."""
    values = pd.unique(column.dropna().astype(object)).tolist()
    sample = values[:SAMPLE]
    readable = sum(any(_parse_cell(value, mark) for mark in ".,") for value in sample)
    if 2 * readable < len(sample) or not any(isinstance(value, str) for value in values):
        return None
    return _Readings(values, {mark: [_parse_cell(value, mark) for value in values] for mark in ".,"})


def _choose(
    found: _Readings, *, decimal: str | None, usual: str | None, commas: bool
) -> tuple[str | None, str]:
    """Return the decimal mark of a column, or a note that says why it is not known."""
    ways, first = found.ways, found.texts[0]
    marked = next((value for value in found.texts if "," in value), first)
    if not ways:
        return (
            None,
            f"is text because decimal points and commas are mixed, as in {marked!r}; correct the file",
        )
    if decimal is not None:
        note = f"is text because {first!r} is not a number with the decimal mark {decimal!r}"
        return (decimal, "") if decimal in ways else (None, note)
    if ways == [","] and not commas:
        return None, f"is text because of decimal commas, as in {marked!r}; use `--decimal ,`"
    if len(ways) == 1 or found.parsed["."] == found.parsed[","]:
        return ways[0], ""
    if usual is not None:
        return usual, ""
    both = " or ".join(f"{parse_number(marked, mark):.15g}" for mark in ".,")
    return None, f"is text because {marked!r} may be {both}; use `--decimal .` or `--decimal ,`"


def _note_on_strays(column: pd.Series, strays: list[str]) -> str:
    rows = column.dropna().astype(str).isin(strays)
    wrong = int(rows.sum())
    if len(strays) > MAX_STRAYS or wrong > (1.0 - NUMBERS_SHARE) * len(rows):
        return ""
    shown = ", ".join(map(repr, strays[:3])) + (f" and {len(strays) - 3} more" if len(strays) > 3 else "")
    options = " ".join(f"--na-values {shlex.quote(value)}" for value in strays)
    return (
        f"is text because of {wrong:,} value{'s' * (wrong != 1)}, {shown}; if "
        f"{'it means' if wrong == 1 else 'they mean'} a missing number, use `{options}`"
    )


def _mixed_units(found: _Readings) -> str:
    """Return a note if values have different units."""
    mix = _mix(found.units)
    return f"is text because it mixes {mix}; convert its values to one unit" if mix else ""


def different_units(numbers: Iterable[str], decimal: str, *, plain: bool) -> str:
    """Return the units of texts that are numbers, for a message; nothing if they have one unit.

    Parameters
    ----------
    numbers
        Texts that :func:`parse_number` can read with the mark ``decimal``.
    plain
        Whether there are also numbers without a unit.

    >>> different_units(["2.5 kg", "300 g"], ".", plain=False)
    "'kg' and 'g'"
    """
    return _mix(_units(_parse(text, decimal) for text in numbers) | ({""} if plain else set()))


def _units(parsed: Iterable[_Parsed | None]) -> set[str]:
    return {each.unit for each in parsed if each is not None and math.isfinite(each.number)}


def _mix(units: set[str]) -> str:
    """List units that differ, such as $ and €, or that only some values have, such as %."""
    if len(units) > 1 and not (units - {""} <= _CURRENCIES and len(units - {""}) == 1):
        return " and ".join(repr(unit) if unit else "no unit" for unit in sorted(units, reverse=True))
    return ""
