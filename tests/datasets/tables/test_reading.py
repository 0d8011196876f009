"""Options for what a file does not say itself: encoding, separator, decimal mark, missing values, sheet."""

import importlib.util

import pandas as pd
import pytest

from peerloss.datasets import iter_table, read_table
from peerloss.datasets.tables import ReadOptions, append_field, read_with_notes, replace_field
from peerloss.exceptions import InvalidInputError

TEXT = "name,größe\ncafé,1\nMüller,2\n"


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_other_encodings_are_refused_by_default_and_read_by_name(tmp_path, encoding):
    """The error names the encoding to try; with it the text is right, entirely and in chunks."""
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode(encoding))
    named = "utf-16" if encoding == "utf-16" else "latin-1"
    with pytest.raises(
        InvalidInputError, match=rf"not UTF-8 text.*--encoding {named}\), or save the file as UTF-8"
    ):
        read_table(path)
    options = ReadOptions(encoding=encoding)
    table = read_table(path, options=options)
    assert table.to_dict("list") == {"name": ["café", "Müller"], "größe": [1, 2]}
    pd.testing.assert_frame_equal(pd.concat(iter_table(path, chunk_rows=1, options=options)), table)


def test_a_wrong_encoding_is_refused(tmp_path):
    """The message names the encoding that was passed."""
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode())
    with pytest.raises(InvalidInputError, match=r"not ascii text.*Pass another encoding"):
        read_table(path, options=ReadOptions(encoding="ascii"))
    with pytest.raises(InvalidInputError, match="not utf-16 text"):
        read_table(path, options=ReadOptions(encoding="utf-16"))
    assert len(read_table(path, options=ReadOptions(encoding="utf8"))) == 2


@pytest.mark.parametrize("sep", ["|", "^", "]", ":", "tab", "\\t"])
def test_any_separator_can_be_named(tmp_path, sep):
    """Characters with a meaning in regular expressions are separators like others."""
    char = "\t" if sep in {"tab", "\\t"} else sep
    path = tmp_path / "t.txt"
    path.write_text(f'a{char}b\n"x, y"{char}1.5\n"u{char}v"{char}2.5\n')
    table = read_table(path, options=ReadOptions(sep=sep))
    assert table.to_dict("list") == {"a": ["x, y", f"u{char}v"], "b": [1.5, 2.5]}
    source = f'"u{char}v"{char}2\r\n'
    assert replace_field(source, 1, f"a{char}b", char) == f'"u{char}v"{char}"a{char}b"\r\n'
    assert append_field(source, f"a{char}b", char) == f'"u{char}v"{char}2{char}"a{char}b"\r\n'


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoding": "latin-9000"}, "`encoding` must be the name of a text encoding.*got 'latin-9000'"),
        ({"encoding": "rot13"}, "`encoding` must be the name of a text encoding"),
        ({"encoding": "a\0b"}, "`encoding` must be"),
        ({"sep": ",,"}, "`sep` must be one character.*got ',,'"),
        ({"sep": " "}, "`sep` must be one character"),
        ({"sep": "a"}, "`sep` must be one character"),
        ({"decimal": ";"}, "`decimal` must be"),
        ({"decimal": ",", "sep": ","}, "`decimal` must differ from the separator; both are ','"),
    ],
)
def test_impossible_options_are_refused(options, message):
    """The message names the option and what is accepted."""
    with pytest.raises(InvalidInputError, match=message):
        ReadOptions(**options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t.csv", {"sheet": "x"}),
        ("t.parquet", {"encoding": "latin-1"}),
        ("t.xlsx", {"sep": ";"}),
        ("t.arff", {"decimal": ","}),
    ],
)
def test_options_without_a_meaning_for_the_format_are_refused(tmp_path, name, options):
    """Nothing is ignored silently."""
    (tmp_path / name).write_text("a,b\n1,2\n")
    option = next(iter(options))
    with pytest.raises(InvalidInputError, match=rf"`{option}` applies to files.*Omit {option}"):
        read_table(tmp_path / name, options=ReadOptions(**options))


def test_options_survive_json():
    """A folder stores the options that are set, and refuses anything else."""
    options = ReadOptions(encoding="latin-1", sep="tab", decimal=",", na_values=("-", "unknown"))
    assert ReadOptions.from_dict(options.as_dict()) == options
    assert ReadOptions().as_dict() == {}
    for damaged in ({"seep": ","}, {"sep": 1}, {"na_values": "x"}, {"na_values": [1]}):
        with pytest.raises(InvalidInputError, match="reading options must be text named"):
            ReadOptions.from_dict(damaged)


def test_missing_values_can_be_named_in_every_format(tmp_path):
    """Words and numbers; the usual ones stay missing."""
    frame = pd.DataFrame({"x": [1.0, -999.0, 3.0], "kind": ["u", "unknown", "v"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    names = ["t.csv", "t.jsonl"]
    if importlib.util.find_spec("pyarrow"):
        frame.to_parquet(tmp_path / "t.parquet")
        names.append("t.parquet")
    if importlib.util.find_spec("arff"):
        (tmp_path / "t.arff").write_text(
            "@relation t\n@attribute x numeric\n@attribute kind string\n@data\n1,u\n-999,unknown\n3,v\n"
        )
        names.append("t.arff")
    options = ReadOptions(na_values=("-999", "unknown"))
    for name in names:
        table = read_table(tmp_path / name, options=options)
        assert table.isna().to_numpy().tolist() == [[False] * 2, [True] * 2, [False] * 2], name
        joined = pd.concat(iter_table(tmp_path / name, chunk_rows=2, options=options))
        assert joined["x"].isna().tolist() == [False, True, False], name


def labels_of(tmp_path, values, **options):
    path = tmp_path / "t.csv"
    path.write_text("x,label\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    reading = read_with_notes(path, options=ReadOptions(**options), labels=["label"])
    return reading.table["label"], [word[1:] for word in reading.words]


def test_frequent_words_for_missing_values_are_labels(tmp_path):
    """At least 5 % and 10 rows of NA or None are a class; --na-values makes them missing."""
    values = ["None"] * 20 + ["scratch"] * 30 + [""] * 2
    labels, words = labels_of(tmp_path, values)
    assert labels.value_counts().to_dict() == {"scratch": 30, "None": 20}
    assert words == [("None", 20, True)]
    labels, words = labels_of(tmp_path, values, na_values=["None"])
    assert labels.isna().sum() == 22
    assert words == []


@pytest.mark.parametrize(
    ("values", "word"),
    [
        (["NA"] * 9 + ["a"] * 50, ("NA", 9, False)),
        (["NA"] * 10 + ["a"] * 500, ("NA", 10, False)),
        (["NA"] * 20 + ["1"] * 30, ("NA", 20, False)),
    ],
    ids=["few rows", "small share", "numbers"],
)
def test_rare_words_for_missing_values_are_missing_labels(tmp_path, values, word):
    """They are counted; among numbers such a word is never a class."""
    labels, words = labels_of(tmp_path, values)
    assert labels.isna().sum() == word[1]
    assert words == [word]


def test_markers_of_programs_are_never_labels(tmp_path):
    """NaN and <NA> are missing however frequent they are, and they are counted."""
    labels, words = labels_of(tmp_path, ["nan"] * 20 + ["<NA>"] * 19 + ["a"] * 30)
    assert labels.isna().sum() == 39
    assert words == [("nan", 20, False), ("<NA>", 19, False)]


def test_label_columns_must_exist(tmp_path):
    """The message suggests a similar name."""
    (tmp_path / "t.csv").write_text("x,label\n1,a\n")
    (tmp_path / "t.jsonl").write_text('{"x": 1, "label": "a"}\n')
    for name in ("t.csv", "t.jsonl"):
        with pytest.raises(InvalidInputError, match=r"no column 'lable'.*Did you mean 'label'"):
            read_with_notes(tmp_path / name, labels=["lable"])
