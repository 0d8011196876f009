"""The summary of a table: columns, classes, and what is odd about them, before anything is trained."""

import json

import numpy as np
import pandas as pd
import pytest

from peerloss.audit import describe_table
from peerloss.audit.table_summary import count_contradictions, describe_rows
from peerloss.datasets.label_spelling import prepare_labels
from peerloss.datasets.tables import Reading, ReadOptions
from peerloss.exceptions import InvalidInputError


def messy(n=400):
    rng = np.random.default_rng(0)
    words = [
        "the parcel came late and was wet",
        "all fine and quick, thank you",
        "never again from this shop",
    ]
    table = pd.DataFrame(
        {
            "id": np.arange(n),
            "x": rng.normal(size=n).round(6),
            "colour": rng.choice(["red", "blue"], n),
            "comment": [f"{rng.choice(words)} number {i}" for i in range(n)],
            "unit": "cm",
            "label": np.where(rng.random(n) < 0.5, "yes", "no"),
        }
    )
    table.loc[:2, "label"] = ["YES", "yes ", "maybe"]
    table.loc[3:6, "label"] = None
    return table


def test_every_column_has_a_kind_and_a_use():
    """Numbers, categories and text are told apart; columns that are not used have a reason."""
    summary = describe_table(messy(), "label")
    found = {column.name: (column.kind, column.used) for column in summary.columns}
    assert found == {
        "id": ("identifier", False),
        "x": ("number", True),
        "colour": ("category", True),
        "comment": ("text", True),
        "unit": ("constant", False),
    }
    assert "Column 'unit' is not used: it has the same value in every row." in summary.notes
    assert describe_table(messy(), "label", drop=["id", "unit"]).columns[0].name == "x"


def test_numbers_read_as_text_are_not_called_identifiers(tmp_path):
    """The note on their decimal commas is the only one; names are still called names."""
    lines = [f'"{i},{i % 10}5",n{i},{"ab"[i % 2]}' for i in range(60)]
    (tmp_path / "data.csv").write_text("\n".join(["price,name,label", *lines, ""]))
    notes = describe_table(tmp_path / "data.csv", "label").notes
    assert [note for note in notes if "'price'" in note] == [
        "Column 'price' is text because of decimal commas, as in '0,05'; use `--decimal ,`."
    ]
    assert "Column 'name' is not used: it differs in nearly every row, like a name or an identifier." in notes


def test_labels_are_counted_and_odd_ones_named():
    """Spellings, rare classes and missing labels are named with the options that change what is done."""
    summary = describe_table(messy(), "label")
    assert summary.rare == {"maybe": 1, "YES": 1, "yes ": 1}
    assert summary.unlabelled == 4
    assert summary.labelled == sum(summary.classes.values()) == 400 - 4 - 3
    notes = summary.notes
    assert "'yes', 'YES', 'yes ' look like one class; use `--tidy-labels` to merge them." in notes
    text = "1 row has the label 'maybe', too few to learn from, and is left out; use `--min-class-rows 1`"
    assert f"{text} to keep it." in notes
    assert "Rows without a label, left out: 4." in notes
    assert str(summary).endswith("In use: 393 of 400 rows, 3 of 5 columns, 2 classes.")
    assert summary.serious == ("'yes', 'YES', 'yes ' look like one class; use `--tidy-labels` to merge them",)


def test_tidy_labels_are_no_longer_serious():
    """What was merged is stated, and only the stray class is set aside."""
    summary = describe_table(messy(), "label", tidy=True)
    assert summary.tidied == {"YES": "yes", "yes ": "yes"}
    assert (summary.rare, summary.serious) == ({"maybe": 1}, ())
    assert "'yes ' is read as 'yes'." in summary.notes


def test_rows_that_contradict_others_are_counted():
    """Equal rows with other labels: mentioned if there are few, serious if there are many."""
    table = messy().drop(columns=["id", "comment"]).iloc[10:]
    few = pd.concat(
        [table, table.head(5).assign(label=table["label"].head(5).map({"yes": "no", "no": "yes"}))]
    )
    summary = describe_table(few.reset_index(drop=True), "label")
    assert summary.contradictions == 10
    assert "10 rows (2.5%) equal a row that has another label." in summary.notes
    assert summary.serious == ()
    categories = describe_table(table[["colour", "label"]].reset_index(drop=True), "label")
    assert categories.contradictions == 390
    assert categories.serious == ("390 rows (100.0%) equal a row that has another label",)


def test_contradictions_are_those_of_a_naive_search():
    """Missing values are equal to missing values."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"a": rng.choice([1.0, np.nan], 30), "b": rng.choice(["u", None, "v"], 30)})
    labels = pd.Series(rng.choice(["p", "q"], 30))
    rows = [tuple(map(str, row)) for row in X.itertuples(index=False)]
    naive = sum(any(rows[i] == rows[j] and labels[i] != labels[j] for j in range(30)) for i in range(30))
    assert count_contradictions(X, labels) == naive
    assert count_contradictions(X[[]], labels) == 0


def test_an_unbalanced_table_is_mentioned():
    """The most frequent label is named with its share."""
    table = pd.DataFrame({"x": np.cos(range(100)), "label": ["legit"] * 95 + ["fraud"] * 5})
    assert "The label 'legit' has 95.0% of the rows." in describe_table(table, "label").notes


def test_a_file_is_described_with_how_it_was_read(tmp_path):
    """Notes of the reader are part of the summary; options are those of the reader."""
    path = tmp_path / "t.csv"
    rows = "".join(f"{i},{i % 7};${i * i}.50;{'None' if i % 2 else 'ja'}\n" for i in range(30))
    path.write_text(f"größe;price;label\n{rows}", encoding="latin-1")
    summary = describe_table(path, "label", options=ReadOptions(encoding="latin-1"))
    assert summary.notes == (
        "Numbers are read with decimal commas.",
        "Column 'price' is read as numbers; '$0.50' is 0.5.",
        "15 labels 'None' in column 'label' are read as a class; `--na-values None` makes them missing.",
    )
    assert summary.columns[0].name == "größe"


def test_the_summary_is_json():
    """Every part is plain, and labels of any type are text."""
    table = messy().assign(label=[0, 1] * 200)
    plain = json.loads(json.dumps(describe_table(table, "label").as_dict()))
    assert plain["classes"] == {"0": 200, "1": 200}
    assert plain["rows_in_use"] == 400
    assert plain["columns"][0] == {
        "name": "id", "kind": "identifier", "used": False, "why": "numbers the rows", "note": "",
    }  # fmt: skip


def test_wide_tables_list_the_columns_that_need_a_word():
    """At most thirty columns are listed, unused ones first; many classes are cut."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200, 50)), columns=[f"x{i}" for i in range(50)])
    table["unit"] = "cm"
    text = str(describe_table(table.assign(label=np.arange(200) % 40), "label"))
    assert "'unit'  constant    not used" in text
    assert "and 21 more columns" in text
    assert "and 20 more." in text
    assert "'x49'" not in text


def test_labels_of_several_annotators_are_described_together():
    """Their spellings are compared across columns; equal rows do not contradict each other."""
    labels = pd.DataFrame({"u": ["Yes", "no", None], "v": ["yes", None, None]})
    X = pd.DataFrame({"x": [1.0, 1.0, 2.0]})
    summary = describe_rows(X, prepare_labels(labels), Reading(X), learns=False)
    assert summary.classes == {"Yes": 1, "no": 1, "yes": 1}
    assert (summary.unlabelled, summary.contradictions) == (1, 0)
    assert str(summary).endswith("In use: 2 of 3 rows, no columns, 3 classes.")
    summary = describe_rows(X, prepare_labels(labels[["u"]].assign(u="yes")), Reading(X), learns=False)
    assert str(summary).endswith("In use: 3 of 3 rows, no columns, 1 class.")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("lable", "The table has no column 'lable'"),
        ("x", "column 'x' must hold classes; it holds measurements"),
    ],
)
def test_wrong_targets_are_refused(target, message):
    """The message names the column."""
    with pytest.raises(InvalidInputError, match=message):
        describe_table(messy(), target)


def test_tables_without_features_or_rows_in_use():
    """There is nothing to describe, but no error either."""
    table = pd.DataFrame({"label": ["a", "b"]})
    assert describe_table(table, "label").columns == ()
    assert describe_table(table.assign(x=[1, 1]), "label").columns[0].used is False
    assert describe_table(pd.DataFrame({"x": [1.0, 2.0], "label": [None, None]}), "label").classes == {}
