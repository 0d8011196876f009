"""Files that other programs write: empty lines, codes with zeros, other encodings of further tables."""

import json

import numpy as np
import pandas as pd
import pytest

from peerloss.audit.folder import read_folder
from peerloss.audit.review import Review
from tests.cli.audits import made_up, run
from tests.cli.messy import audit, described, fit
from tests.cli.messy import make_table as make_overlapping

pytestmark = pytest.mark.usefixtures("quick_models")


def make_table():
    """Return a table in which every tenth label is wrong, and its features show it."""
    table = make_overlapping()
    return table.assign(x=table["x"].abs() * np.where(np.arange(len(table)) % 2, 1.0, -1.0) * 3)


def with_empty_lines(table):
    """Return a table as CSV with three empty lines above the header, and two after its fifth row."""
    lines = table.to_csv(index=False).splitlines()
    return "\n".join(["", "", "", *lines[:6], "", "", *lines[6:]]) + "\n"


def test_row_numbers_are_those_of_the_file(tmp_path):
    """Console, page, review and rerank count empty lines, as a spreadsheet does."""
    (tmp_path / "data.csv").write_text(with_empty_lines(make_table()))
    done = audit(tmp_path)
    assert done.exit_code == 0, done.output
    folder = read_folder(tmp_path / "out")
    first = int(folder.suspects()["row"].iloc[0])
    expected = first + 5 if first < 5 else first + 7
    lines = (tmp_path / "data.csv").read_text().splitlines()
    assert lines[expected - 1].endswith(str(folder.labels["given"][first]))
    assert f"│ {expected} " in done.stdout
    review = Review(folder)
    assert review.batch(0)[0]["name"] == f"row {expected}"
    assert review.settings()["first_row"] == 5
    review.decide("keep", 0, None)
    review.close()
    page = (tmp_path / "out" / "index.html").read_text()
    assert "the first row of data is row 5." in page
    assert run("rerank", tmp_path / "out").exit_code == 0
    assert read_folder(tmp_path / "out").row_numbers == folder.row_numbers
    assert "the first row of data is row 5." in (tmp_path / "out" / "index.html").read_text()


def test_damaged_row_numbers_are_refused(tmp_path):
    """Rows are not shown with wrong numbers."""
    (tmp_path / "data.csv").write_text(with_empty_lines(make_table()))
    assert audit(tmp_path).exit_code == 0
    path = tmp_path / "out" / "audit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"row_numbers": [[1, 2]]}))
    done = run("review", tmp_path / "out", "--no-browser")
    assert (done.exit_code, "row numbers must be pairs" in done.output) == (2, True)


@pytest.mark.parametrize(("yes", "no"), [("01", "02"), ("1.0", "0.0"), ("007", "10")])
def test_labels_are_written_as_the_file_writes_them(tmp_path, yes, no):
    """Codes such as 01 stay text, and 1.0 does not become 1."""
    table = make_table()
    table.assign(label=table["label"].map({"Yes": yes, "No": no})).to_csv(tmp_path / "data.csv", index=False)
    assert audit(tmp_path).exit_code == 0
    done = run("apply", tmp_path / "out", "-o", tmp_path / "clean.csv", "--rest", "relabel", "--force")
    assert done.exit_code == 0, done.output
    before, after = (pd.read_csv(tmp_path / name, dtype=str)["label"] for name in ("data.csv", "clean.csv"))
    assert set(after) == {yes, no}
    assert (before != after).sum() > 10
    if "." not in yes:
        assert set(described(tmp_path)["classes"]) == {no, yes}


def test_predictions_of_codes_are_codes(tmp_path):
    """`fit` and `predict` keep the zeros of labels."""
    table = make_table()
    table.assign(label=np.where(table["x"] > 0, "01", "02")).to_csv(tmp_path / "data.csv", index=False)
    assert fit(tmp_path).exit_code == 0
    done = run("predict", tmp_path / "model", tmp_path / "data.csv", "-o", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert set(pd.read_csv(tmp_path / "p.csv", dtype=str)["prediction"]) == {"01", "02"}


def test_labels_that_mean_missing_are_named_if_no_classes_are_left(tmp_path):
    """The word nan is never a class, but the message says that it was read as missing."""
    table = make_table()
    table.assign(label=table["label"].replace("No", "nan")).to_csv(tmp_path / "data.csv", index=False)
    for done in (audit(tmp_path), fit(tmp_path)):
        assert done.exit_code == 2
        assert (
            "must hold at least two classes; every label is 'Yes'. 100 labels 'nan' in column" in done.output
        )
        assert "are read as missing. Write them in another way if they are a class." in done.output


def test_a_column_of_names_is_not_taken_for_labels_silently(tmp_path):
    """The summary says that nearly every row has its own label, and the error names one of them."""
    make_table().assign(label=[f"p{i}" for i in range(200)]).to_csv(tmp_path / "data.csv", index=False)
    done = audit(tmp_path)
    assert "200 rows have 200 different labels; check that this column holds classes." in done.output
    assert done.exit_code == 2
    assert "must have at least two rows, so that one can be held out; 'p0' has one." in done.output
    assert "--min-class-rows=2" in done.output
    listed = run("datasets", tmp_path / "data.csv", "--target", "label").stdout
    assert "and 180 more" in listed


def test_long_names_leave_room_for_values(tmp_path):
    """A column with a very long name does not hide the table of `datasets`."""
    make_table().rename(columns={"x": "x" * 300}).to_csv(tmp_path / "data.csv", index=False)
    listed = run("datasets", tmp_path / "data.csv", "--target", "label").stdout
    assert "number, used" in listed


def test_probabilities_are_read_with_the_options_that_they_need(tmp_path):
    """A UTF-8 file with points and one like the main table give the same audit."""
    data, _ = made_up(tmp_path)
    data["label"] = data["label"].replace("no", "größer")
    data.to_csv(tmp_path / "data.csv", index=False, sep="!", encoding="cp1252", decimal=",")
    proba = pd.read_csv(tmp_path / "proba.csv").set_axis(["probability_yes", "probability_größer"], axis=1)
    proba.to_csv(tmp_path / "usual.csv", index=False)
    proba.to_csv(tmp_path / "same.csv", index=False, sep="!", encoding="cp1252", decimal=",")
    options = ["--target", "label", "--encoding", "cp1252", "--sep", "!", "--decimal", ","]
    found = []
    for name in ("usual.csv", "same.csv"):
        done = run(
            "audit", tmp_path / "data.csv", *options, "-o", tmp_path / name[:-4],
            "--probabilities", tmp_path / name,
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        found.append((tmp_path / name[:-4] / "labels.csv").read_bytes())
    assert found[0] == found[1]


def test_reports_and_features_are_read_with_the_options_that_they_need(tmp_path):
    """So are the labels of several annotators, and features of another program."""
    table = make_table()
    table[["x", "z"]].to_csv(tmp_path / "data.csv", index=False, encoding="utf-16", sep="!")
    label = table["label"].replace("No", "größer")
    reports = pd.DataFrame({"task": np.repeat(np.arange(200), 2), "worker": ["a", "b"] * 200})
    reports.assign(label=label.repeat(2).to_numpy()).to_csv(
        tmp_path / "reports.csv", index=False, encoding="utf-16", sep="!"
    )
    done = run(
        "audit", tmp_path / "data.csv", "--reports", tmp_path / "reports.csv", "--encoding", "utf-16",
        "--sep", "!", "-o", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["classes"] == ["Yes", "größer"]
    table.to_csv(tmp_path / "data.csv", index=False, encoding="utf-16", sep="!")
    table[["x", "z"]].to_csv(tmp_path / "x.csv", index=False, encoding="utf-16", sep="!")
    done = audit(tmp_path, "--features", tmp_path / "x.csv", "--encoding", "utf-16", "--sep", "!")
    assert done.exit_code == 0, done.output
