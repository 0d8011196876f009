"""Columns of text that are meant as numbers: recognised if there is one way to read them, else named."""

import numpy as np
import pandas as pd
import pytest

from peerloss.datasets import iter_table, read_table
from peerloss.datasets.tables import ReadOptions, read_with_notes
from peerloss.datasets.tables._number_text import parse_number
from peerloss.exceptions import InvalidInputError


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("1,5", ",", 1.5),
        ("1.234,5", ",", 1234.5),
        ("1.234", ",", 1234.0),
        ("1.23", ",", None),
        ("$1,234.00", ".", 1234.0),
        ("-$3", ".", -3.0),
        ("$-3", ".", -3.0),
        ("--3", ".", None),
        ("1 234", ".", 1234.0),
        ("1\u00a0234\u00a0567", ".", 1234567.0),
        ("1'234.5", ".", 1234.5),
        ("1,2345", ".", None),
        ("1,234 567", ".", None),
        ("0,123", ".", None),
        ("12 %", ".", 12.0),
        ("12,5 €", ",", 12.5),
        ("$12€", ".", None),
        (".5", ".", 0.5),
        ("5.", ".", 5.0),
        ("\u22122", ".", -2.0),
        ("1e-3", ".", 0.001),
        ("1e999", ".", None),
        ("inf", ".", np.inf),
        (" -Infinity", ",", -np.inf),
        ("\u2212INF", ".", -np.inf),
        ("infinite", ".", None),
        ("inf kg", ".", None),
        ("", ".", None),
        ("$", ".", None),
        (",", ".", None),
        ("12 apples", ".", 12.0),
        ("2.5 kg", ".", 2.5),
        ("20°C", ".", 20.0),
        ("80 km/h", ".", 80.0),
        ("EUR 1.234,50", ",", 1234.5),
        ("12 m", ".", 12.0),
        ("12A", ".", None),
        ("C0012", ".", None),
        ("(1,234.50)", ".", -1234.5),
        ("($3)", ".", -3.0),
        ("(-3)", ".", None),
        ("(3", ".", None),
        ("2020-01-02", ".", None),
        ("1.2.2020", ",", None),
        (" " * 5000 + "x", ".", None),
        ("9" * 5000, ".", None),
    ],
)
def test_texts_are_parsed_with_one_decimal_mark(text, decimal, number):
    """Thousands come in groups of three; what has another shape is not a number."""
    assert parse_number(text, decimal) == number


def test_parsed_numbers_are_those_that_were_written():
    """Any number that is written with thousands and units is read back, with either decimal mark."""
    rng = np.random.default_rng(0)
    for value in (rng.normal(size=200) * 10.0 ** rng.integers(0, 9, 200)).round(2):
        english = f"{value:,.2f}"
        german = english.translate(str.maketrans(",.", ".,"))
        for text in (english, f"${english}", f"{english} %"):
            assert parse_number(text, ".") == value
        assert parse_number(f"{german} €", ",") == value


def read(tmp_path, text, name="t.csv", **options):
    (tmp_path / name).write_text(text, encoding="utf-8")
    reading = read_with_notes(tmp_path / name, options=ReadOptions(**options))
    return reading.table, {note.column: note.text for note in reading.notes}, reading


def test_decimal_commas_are_recognised_without_commas_between_fields(tmp_path):
    """In a file with semicolons 1,5 is a number, and then 1.234 is a thousand in the same file."""
    table, notes, reading = read(tmp_path, "a;b;c\n1,5;1.234;x\n-2,25;999;y\n;12;z\n")
    assert table["a"].tolist()[:2] == [1.5, -2.25]
    assert table["b"].tolist() == [1234.0, 999.0, 12.0]
    assert (reading.decimal, notes) == (",", {"b": "is read as numbers; '1.234' is 1234"})


def test_decimal_points_stay_points_in_files_with_semicolons(tmp_path):
    """Semicolons alone do not change the meaning of a point."""
    table, notes, _ = read(tmp_path, "a;b\n1.5;1.234\n2.5;2.345\n")
    assert table["b"].tolist() == [1.234, 2.345]
    assert not notes


def test_quoted_decimal_commas_are_named_with_the_option(tmp_path):
    """Between commas "1,5" may be a list, so that it stays text until --decimal is given."""
    text = 'a,b\n"1,5",x\n"2,5",y\n'
    table, notes, _ = read(tmp_path, text)
    assert table["a"].tolist() == ["1,5", "2,5"]
    assert notes == {"a": "is text because of decimal commas, as in '1,5'; use `--decimal ,`"}
    table, notes, _ = read(tmp_path, text, decimal=",")
    assert table["a"].tolist() == [1.5, 2.5]


def test_thousands_that_may_be_decimals_are_decided_by_other_columns(tmp_path):
    """1,234 alone is ambiguous; a column with decimal points decides it, or the option."""
    table, notes, _ = read(tmp_path, 'a,b\n"1,234",3\n"5,678",4\n')
    assert notes == {"a": "is text because '1,234' may be 1234 or 1.234; use `--decimal .` or `--decimal ,`"}
    for text, options in (
        ('a,b\n"1,234",3.5\n"5,678",4\n', {}),
        ('a,b\n"1,234",3\n"5,678",4\n', {"decimal": "."}),
    ):
        table, _, _ = read(tmp_path, text, **options)
        assert table["a"].tolist() == [1234.0, 5678.0]


@pytest.mark.parametrize(
    ("values", "numbers", "example"),
    [
        (["$1,234.00", "$5.50", "7"], [1234.0, 5.5, 7.0], "'$1,234.00' is 1234"),
        (["1 234", "56", "7 000 000"], [1234.0, 56.0, 7e6], "'1 234' is 1234"),
        (["12 %", "7 %", ""], [12.0, 7.0, np.nan], "'12 %' is 12"),
        (["1.5 kg", "20 kg", "3 kg"], [1.5, 20.0, 3.0], "'1.5 kg' is 1.5"),
        (["(4.50)", "2.00", "(1.00)"], [-4.5, 2.0, -1.0], "'(4.50)' is -4.5"),
    ],
)
def test_currencies_thousands_and_units_are_numbers(tmp_path, values, numbers, example):
    """The note shows how a value was read."""
    table, notes, _ = read(tmp_path, "a;b\n" + "".join(f"{value};x\n" for value in values))
    np.testing.assert_array_equal(table["a"], numbers)
    assert notes == {"a": f"is read as numbers; {example}"}


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (["$5", "€6"], "is text because it mixes '€' and '$'; convert its values to one unit"),
        (["5", "6 %"], "is text because it mixes '%' and no unit; convert its values to one unit"),
        (["5 kg", "600 g"], "is text because it mixes 'kg' and 'g'; convert its values to one unit"),
        (
            ["1.5", "2,25"],
            "is text because decimal points and commas are mixed, as in '2,25'; correct the file",
        ),
    ],
)
def test_mixed_units_and_marks_stay_text(tmp_path, values, note):
    """A wrong scale would be worse than a column of text."""
    table, notes, _ = read(tmp_path, "a;b\n" + "".join(f"{value};x\n" for value in values))
    assert table["a"].tolist() == values
    assert notes == {"a": note}


@pytest.mark.parametrize("values", [["1st", "2nd", "3rd", "4th"], ["(1)", "(2)", "(3)"], ["12A", "12B"]])
def test_codes_are_not_numbers(tmp_path, values):
    """Letters that differ, and parentheses around all values, belong to names."""
    table, notes, _ = read(tmp_path, "a;b\n" + "".join(f"{value};x\n" for value in values))
    assert table["a"].tolist() == values
    assert not notes


def test_stray_words_in_a_column_of_numbers_are_named(tmp_path):
    """The note counts them and has the options that make them missing; with these the column is numbers."""
    rows = [str(i) for i in range(40)] + ["unknown", "n. a.", "unknown"]
    text = "age,b\n" + "".join(f"{row},x\n" for row in rows)
    _, notes, _ = read(tmp_path, text)
    assert notes == {
        "age": "is text because of 3 values, 'unknown', 'n. a.'; if they mean a missing number, use "
        "`--na-values unknown --na-values 'n. a.'`"
    }
    table, notes, _ = read(tmp_path, text, na_values=["unknown", "n. a."])
    assert table["age"].isna().sum() == 3
    assert table["age"].sum() == sum(range(40))
    assert not notes


def test_ordinary_text_is_not_mentioned(tmp_path):
    """Names, mixed codes and columns with many words stay text without a note."""
    _, notes, _ = read(tmp_path, "a,b,c\nx1,red,1\ny2,2,x\nz3,3,y\n")
    assert not notes


def test_the_option_is_the_only_decimal_mark(tmp_path):
    """With --decimal , a column of 1.5 stays text, and the note says why."""
    table, notes, _ = read(tmp_path, "a;b\n1.5;x\n2.5;y\n", decimal=",")
    assert table["a"].tolist() == ["1.5", "2.5"]
    assert notes == {"a": "is text because '1.5' is not a number with the decimal mark ','"}


def test_chunks_are_read_like_the_entire_file(tmp_path):
    """The first chunk determines the decimal mark; currencies are numbers in every chunk."""
    rows = "".join(f"{i},5;${i}.000;w{i}\n" for i in range(1, 10))
    path = tmp_path / "t.csv"
    path.write_text("a;b;c\n" + rows)
    joined = pd.concat(iter_table(path, chunk_rows=2, kinds={"a": "number", "b": "number"}))
    assert joined["a"].tolist() == [i + 0.5 for i in range(1, 10)]
    assert joined["b"].tolist() == [1000.0 * i for i in range(1, 10)]
    pd.testing.assert_frame_equal(joined, read_table(path))


def test_chunks_have_thousands_where_the_entire_file_has_them(tmp_path):
    """With decimal commas 2.000 is two thousand in chunks, too, and 2.50 is not a number."""
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,5;2.000\n2,5;300\n")
    joined = pd.concat(iter_table(path, chunk_rows=1, kinds={"a": "number", "b": "number"}))
    assert joined["b"].tolist() == [2000.0, 300.0]
    pd.testing.assert_frame_equal(joined, read_table(path))
    path.write_text("a;b\n1,5;2.50\n2,5;300\n")
    with pytest.raises(InvalidInputError, match=r"line 2: column 'b' must hold numbers.*got '2.50'"):
        list(iter_table(path, kinds={"a": "number", "b": "number"}))


def test_chunks_refuse_numbers_that_can_be_read_in_two_ways(tmp_path):
    """A model needs a number where the entire file would have text; the message has the option."""
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1,234;2\n")
    with pytest.raises(
        InvalidInputError, match=r"column 'a' must hold numbers, but is text because '1,234' may be 1234 or"
    ):
        list(iter_table(path, kinds={"a": "number", "b": "number"}))
    (chunk,) = iter_table(path, kinds={"a": "number"}, options=ReadOptions(decimal=","))
    assert chunk["a"].tolist() == [1.234]


def test_text_in_a_column_of_numbers_is_refused_with_a_remedy(tmp_path):
    """A model needs numbers: the message has the line, the value and the option."""
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,x\nunknown,y\n"2,5",z\n')
    with pytest.raises(
        InvalidInputError, match=r"line 3: column 'a' must hold numbers.*use --na-values unknown"
    ):
        list(iter_table(path, kinds={"a": "number"}))
    options = ReadOptions(na_values=("unknown",))
    with pytest.raises(
        InvalidInputError, match=r"line 4: .*got '2,5'.*use --decimal , if that is the decimal"
    ):
        list(iter_table(path, kinds={"a": "number"}, options=options))


@pytest.mark.parametrize(
    ("cells", "mix"),
    [(["2.5 kg", "300 g"], "'kg' and 'g'"), (["12", "13AB"], "'AB' and no unit"), (["$3", "4"], "")],
)
def test_chunks_refuse_mixed_units_as_the_entire_file_does(tmp_path, cells, mix):
    """A model that was trained on kilograms must not read 300 g as 300; a currency may be missing."""
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["weight", *cells]) + "\n")
    chunks = iter_table(path, kinds={"weight": "number"})
    if not mix:
        assert pd.concat(chunks)["weight"].tolist() == [3.0, 4.0]
        return
    with pytest.raises(
        InvalidInputError,
        match=rf"line \d: column 'weight' must hold.*mixes {mix}\. Convert",
    ):
        list(chunks)
    assert pd.api.types.is_string_dtype(read_table(path)["weight"])
