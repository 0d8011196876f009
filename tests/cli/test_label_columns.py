"""`fit`, `audit` and `datasets` accept the same columns, with the same messages and the same summary."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from peerloss import load_model
from peerloss.audit import describe_table
from peerloss.cli import _predict, app
from peerloss.datasets import ReadOptions, iter_table
from peerloss.estimators.portfolio import _fit_portfolio

COMMANDS = ("fit", "audit", "datasets")
ROWS = 120


def run(command, data, *options):
    """Run a command on a file, with an output of its own, and ask for JSON."""
    output = [] if command == "datasets" else ["-o", str(data.parent / command)]
    return CliRunner().invoke(app, [command, str(data), "--target", "label", "--json", *output, *options])


def summary_of(command, data, *options):
    """Return what the command says of the table."""
    done = run(command, data, *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["table"]


def refused(data):
    """Return the one message with which all commands refuse the file."""
    done = [run(command, data) for command in COMMANDS]
    assert [each.exit_code for each in done] == [2, 2, 2], done[0].output
    (message,) = {each.stderr for each in done}
    return message


@pytest.fixture
def quick(monkeypatch):
    """Train one model instead of the portfolio."""
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"linear": LogisticRegression()})


def write(path, make_labels, **columns):
    """Write a table whose labels are made from the column x."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    table = pd.DataFrame({"x": x, "z": rng.normal(size=ROWS)}).assign(**columns)
    table.assign(label=make_labels(x)).to_csv(path, index=False)
    return path


def signs(x):
    """Return the labels 0 and 1."""
    return (x > 0).astype(int)


def with_minus_one(*cuts):
    """Return labels 0, 1, … of which every fourth is -1."""
    return lambda x: np.where(np.arange(ROWS) % 4 == 0, -1, np.digitize(x, cuts))


def with_a_stray_word(x):
    """Return the labels 0, 1 and 1.0, and one word."""
    labels = np.where(x > 0, np.where(np.arange(ROWS) % 2, "1", "1.0"), "0").astype(object)
    labels[5] = "oops"
    return labels


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            ["0.5", "1", "2"],
            "column 'label' must hold classes; it holds measurements such as 0.5. Convert them",
        ),
        (["1e17", "1", "2"], "column 'label' must hold class labels; found 1e+17. Floats cannot represent"),
        (["inf", "1", "2"], "column 'label' must hold class labels; found inf."),
        (
            ["-1", "0", "0"],
            "every label is '0'. 1 label -1 is taken as missing; use `--abstain none` if -1 is a class.",
        ),
    ],
)
def test_every_command_refuses_the_same_columns(tmp_path, labels, message):
    """Exit code 2 and one message, before anything is trained."""
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["x,label", *(f"{i},{label}" for i, label in enumerate(labels))]) + "\n")
    assert message in refused(data)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("cuts", [(0.0,), (-0.5, 0.5)], ids=["0 and 1", "0 to 2"])
@pytest.mark.parametrize(
    ("options", "is_class", "is_noted"),
    [([], False, True), (["--abstain", "-1"], False, False), (["--abstain", "none"], True, False)],
    ids=["omitted", "missing", "a class"],
)
def test_every_command_takes_minus_one_for_the_same(tmp_path, cuts, options, is_class, is_noted):
    """The summary says it before the training; `--abstain` states either meaning."""
    data = write(tmp_path / "data.csv", with_minus_one(*cuts))
    codes = list(range(len(cuts) + 1))
    classes = ["-1", *map(str, codes)] if is_class else list(map(str, codes))
    note = f"{ROWS // 4} labels -1 are taken as missing; use `--abstain none` if -1 is a class."
    for command in COMMANDS:
        table = summary_of(command, data, *options)
        assert sorted(table["classes"]) == classes
        assert table["rows_without_label"] == (0 if is_class else ROWS // 4)
        assert [each for each in table["notes"] if "-1" in each] == [note] * is_noted
        assert table["minus_one_taken_as_missing"] == (ROWS // 4 if is_noted else 0)
    # As text, because the classifier takes the integer -1 for a missing label.
    assert load_model(tmp_path / "fit").classes_.tolist() == (classes if is_class else codes)


@pytest.mark.parametrize("abstain", ["-1", "-1.0", " -1"])
@pytest.mark.parametrize("gap", [False, True], ids=["every row", "one row has no label"])
@pytest.mark.usefixtures("quick")
def test_abstain_is_a_number_in_a_column_of_numbers(tmp_path, abstain, gap):
    """-1.0 is -1, whether or not another label is missing, which would make -1 the float -1.0."""

    def labels(x):
        made = with_minus_one(-0.5, 0.5)(x).astype(object)
        made[1] = "" if gap else made[1]
        return made

    data = write(tmp_path / "data.csv", labels)
    for command in COMMANDS:
        table = summary_of(command, data, "--abstain", abstain)
        assert sorted(table["classes"]) == ["0", "1", "2"]
        assert table["rows_without_label"] == ROWS // 4 + gap


def test_abstain_keeps_large_integers():
    """A column of integers with a missing value would be floats, which are not exact."""
    large = 2**60 + 1
    table = pd.DataFrame({"x": [0.5, 1.5, 2.5, 4.5], "label": [-1, large, large + 2, large]})
    assert describe_table(table, "label", abstain="-1").classes == {str(large): 2, str(large + 2): 1}
    assert describe_table(table, "label", abstain=str(large)).classes == {"-1": 1, str(large + 2): 1}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("command", COMMANDS)
def test_abstain_has_spellings_too(tmp_path, command):
    """`--tidy-labels` merges spellings of the label that means "no label", so they mean it as well."""
    words = np.array(["Unsure", "unsure ", "unsure", "-"])

    def labels(x):
        return np.where(np.arange(ROWS) % 4 < 3, words[np.arange(ROWS) % 4], np.where(x > 0, "yes", "no"))

    data = write(tmp_path / "data.csv", labels)
    table = summary_of(command, data, "--abstain", "unsure", "--tidy-labels")
    assert sorted(table["classes"]) == ["no", "yes"]
    assert table["rows_without_label"] == 3 * ROWS // 4


@pytest.mark.usefixtures("quick")
def test_minus_one_and_one_are_two_classes(tmp_path):
    """All commands agree on the exception, too; -1 stays an integer."""
    data = write(tmp_path / "data.csv", lambda x: np.where(x > 0, 1, -1))
    for command in COMMANDS:
        assert sorted(summary_of(command, data)["classes"]) == ["-1", "1"]
    assert load_model(tmp_path / "fit").classes_.tolist() == [-1, 1]


def test_the_summary_asks_about_minus_one_beside_zero_and_one(tmp_path):
    """These may be three classes, so it is serious; with more classes it is a note."""
    found = describe_table(write(tmp_path / "a.csv", with_minus_one(0.0)), "label")
    assert found.serious == ("30 labels -1 are taken as missing; use `--abstain none` if -1 is a class",)
    assert sum("labels -1 are" in note for note in found.notes) == 1
    more = describe_table(write(tmp_path / "b.csv", with_minus_one(-0.5, 0.5)), "label")
    assert (more.serious, more.minus_one) == ((), 30)
    assert describe_table(tmp_path / "a.csv", "label", abstain="none").classes["-1"] == 30


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_stray_word_does_not_split_a_number_without_a_note(tmp_path, command):
    """1 and 1.0 are then text; `--tidy-labels` merges them."""
    data = write(tmp_path / "data.csv", with_a_stray_word)
    merged = summary_of(command, data, "--tidy-labels")
    assert sorted(merged["classes"]) == ["0", "1"]
    assert "'1.0' is read as '1'." in merged["notes"]
    if command == "audit":
        (tmp_path / "audit").rename(tmp_path / "first")
    notes = summary_of(command, data)["notes"]
    assert "'1', '1.0' look like one class; use `--tidy-labels` to merge them." in notes


@pytest.mark.parametrize("text", ["inf", "Infinity", "-inf", "1e999"])
@pytest.mark.parametrize("more", [{}, {"colour": ["red", "blue"] * (ROWS // 2)}], ids=["numbers", "text"])
def test_every_command_refuses_infinity(tmp_path, text, more):
    """One message with the column, the number of rows and the row in the file, before anything is trained."""
    prices = np.where(np.isin(np.arange(ROWS), (7, 9)), text, "1.5").astype(object)
    prices[0] = "2.5"
    data = write(tmp_path / "data.csv", signs, price=prices, **more)
    message = refused(data)
    assert "column 'price' has infinity in 2 of 120 rows, the first is row 9. Replace it with NaN" in message
    value = "-inf" if text == "-inf" else "inf"
    assert f"`--na-values {value}`" in message
    assert summary_of("datasets", data, "--na-values", value)["rows"] == ROWS


@pytest.mark.usefixtures("quick")
def test_infinity_that_nothing_learns_from_is_not_refused(tmp_path):
    """In a column that is left out, or beside given probabilities."""
    data = write(tmp_path / "data.csv", signs, price=np.inf)
    assert run("audit", data, "--drop", "price").exit_code == 0
    (tmp_path / "audit").rename(tmp_path / "first")
    pd.DataFrame({"0": [0.4] * ROWS, "1": 0.6}).to_csv(tmp_path / "proba.csv", index=False)
    done = run("audit", data, "--probabilities", str(tmp_path / "proba.csv"), "--force")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("price", ["{}.5 kg", "${},000.00", "{}"])
def test_infinity_in_text_that_is_read_as_numbers_is_infinity(tmp_path, price):
    """Such a column is not text because of it, and infinity needs no unit."""
    prices = [price.format(1 + i % 9) for i in range(ROWS)]
    prices[7] = "inf"
    data = write(tmp_path / "data.csv", signs, price=prices)
    assert "column 'price' has infinity in 1 of 120 rows, the first is row 9" in refused(data)


@pytest.mark.parametrize("text", ["inf", "Infinity", "-Infinity", "\u2212inf"])
@pytest.mark.parametrize("suffix", [".csv", ".xlsx", ".jsonl"])
def test_what_the_message_about_infinity_recommends_helps(tmp_path, text, suffix):
    """`--na-values inf` makes infinity missing in any spelling, also in text that is read as numbers."""
    if suffix == ".xlsx":
        pytest.importorskip("openpyxl")
    prices = [f"${1 + i % 9}.50" for i in range(ROWS)]
    prices[7] = text
    made = pd.read_csv(write(tmp_path / "made.csv", signs, price=prices))
    data = tmp_path / f"data{suffix}"
    if suffix == ".csv":
        made.to_csv(data, index=False)
    elif suffix == ".xlsx":
        made.to_excel(data, index=False)
    else:
        made.to_json(data, orient="records", lines=True)
    value = "inf" if text in {"inf", "Infinity"} else "-inf"
    message = run("datasets", data).stderr
    assert "column 'price' has infinity in 1 of 120 rows" in message
    assert f"`--na-values {value}`" in message
    table = summary_of("datasets", data, "--na-values", value)
    assert "Column 'price' is read as numbers; '$1.50' is 1.5." in table["notes"]
    (chunk,) = iter_table(data, kinds={"price": "number"}, options=ReadOptions(na_values=(value,)))
    assert np.flatnonzero(chunk["price"].isna()).tolist() == [7]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("unit", ["", " kg"])
@pytest.mark.parametrize("chunk_rows", [_predict.CHUNK_ROWS, 10], ids=["one chunk", "many chunks"])
def test_predict_refuses_infinity(tmp_path, monkeypatch, unit, chunk_rows):
    """Infinity in a column of the model is an error, in another column it is not.

    The message has the row of the file, as that of `fit` does, and does not count the rows of one chunk.
    """
    monkeypatch.setattr(_predict, "CHUNK_ROWS", chunk_rows)
    prices = [f"{i % 7}.5{unit}" for i in range(ROWS)]
    assert run("fit", write(tmp_path / "data.csv", signs, price=prices)).exit_code == 0
    new = write(tmp_path / "new.csv", signs, price=[*prices[:-1], "inf"])
    arguments = ["predict", str(tmp_path / "fit"), str(new), "-o", str(tmp_path / "out.csv")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "column 'price' has infinity first in row 121. Replace it with NaN" in done.stderr
    assert not (tmp_path / "out.csv").exists()
    assert CliRunner().invoke(app, [*arguments, "--na-values", "inf"]).exit_code == 0
    write(new, signs, price=prices, other=np.inf)
    assert CliRunner().invoke(app, arguments).exit_code == 0
