"""The list of data sets and the description of one."""

import json

import pytest
from typer.testing import CliRunner

from peerloss import list_datasets
from peerloss.cli import app
from peerloss.datasets import OTHER_DATASETS


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["datasets", *arguments])


def test_the_list_shows_every_data_set():
    """Rows, features, share of class 1 and citation; the last line names the command for details."""
    answer = run()
    assert answer.exit_code == 0, answer.output
    for name in [*list_datasets(), *OTHER_DATASETS]:
        assert name in answer.stdout
    assert "54.5%" in answer.stdout
    assert "10.24432/C52P4X" in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("12 data sets.")


def test_the_list_as_json():
    """The JSON holds all numbers of the table."""
    described = {each["name"]: each for each in json.loads(run("--json").stdout)}
    assert described.keys() == {*list_datasets(), *OTHER_DATASETS}
    assert described["heart"]["classes"] == {"disease": 138, "no disease": 165}
    breast = described["breast"]
    assert (breast["text_features"], breast["missing_values"]) == (8, 9)


def test_one_data_set_is_described_with_its_notes():
    """The note on the reversed class of german is in the text and in the JSON."""
    answer = run("german")
    assert answer.exit_code == 0, answer.output
    assert "bad: 300 (30.0%)" in answer.stdout
    assert "reversed" in answer.stdout
    assert answer.stdout.splitlines()[-1] == "german: 1,000 rows, 20 features, 2 classes."
    assert any("reversed" in note for note in json.loads(run("german", "--json").stdout)["notes"])


def test_a_file_is_described(tmp_path):
    """Counts of a file are shown; square brackets in labels are not interpreted as markup."""
    (tmp_path / "mine.csv").write_text("x,kind,label\n1,u,[red]\n,v,b\n3,,b\n")
    answer = run("mine.csv", "--target", "label", "--data-dir", str(tmp_path))
    assert answer.exit_code == 0, answer.output
    assert "[red]: 1 (33.3%)" in answer.stdout
    assert "class 0" not in answer.stdout, "labels of a file have no codes"
    assert answer.stdout.splitlines()[-1] == "mine.csv: 3 rows, 2 features, 2 classes."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iris"], "NAME must be one of heart"),
        (["no.csv", "--target", "y"], "no.csv does not exist"),
        (["heart", "--target", "y"], "--target names a column of a file"),
        (["openml:x"], "'openml:' and a number"),
    ],
)
def test_errors_end_with_code_2(arguments, message):
    """The message is on stderr; nothing else is printed."""
    answer = run(*arguments)
    assert answer.exit_code == 2
    assert answer.stderr.startswith("Error: ")
    assert message in answer.stderr
    assert not answer.stdout
