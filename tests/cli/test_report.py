"""peerloss report."""

import json

import pytest
from typer.testing import CliRunner

from peerloss.cli import app
from tests.report.made_up import everything, row, store


def invoke(*arguments):
    return CliRunner().invoke(app, ["report", *(str(argument) for argument in arguments)])


def test_report_writes_a_page_and_says_where(tmp_path):
    """Beside the results unless told otherwise; what is missing goes to the error stream."""
    pytest.importorskip("matplotlib", reason="pages need peerloss[report]")
    store(tmp_path, row({"peer": [0.8], "nn": [0.7]}))
    told = invoke(tmp_path)
    assert told.exit_code == 0, told.output
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "report" / "table-a1-paper.md").exists()
    assert "report.html: table-a1 (paper); 4 files more in" in told.stdout
    assert "Note: curves has not been run" in told.stderr
    again = invoke(tmp_path, "-o", tmp_path / "other" / "page.html")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "other" / "page.html").exists()


def test_report_prints_json_alone(tmp_path):
    """Figures only; nothing is written."""
    store(tmp_path, everything())
    before = sorted(tmp_path.iterdir())
    told = invoke(tmp_path, "--json")
    assert told.exit_code == 0, told.output
    assert [(s["experiment"], s["protocol"]) for s in json.loads(told.stdout)] == [
        ("table-a1", "paper"), ("curves", "paper"), ("boundary", "paper"), ("invariance", "paper"),
    ]  # fmt: skip
    assert sorted(tmp_path.iterdir()) == before


def test_mistakes_end_with_code_2(tmp_path):
    """No folder, an empty one, a page that is none, both kinds of output: one line each."""
    for arguments, message in (
        ([tmp_path / "none"], "must be a folder"),
        ([tmp_path], "holds no finished cell"),
        (
            [store(tmp_path / "r", row({"peer": [0.8], "nn": [0.7]})), "-o", tmp_path / "a.pdf"],
            "must end in .html",
        ),
        ([tmp_path / "r", "-o", tmp_path / "a.html", "--json"], "either -o or --json"),
    ):
        told = invoke(*arguments)
        assert told.exit_code == 2
        assert message in told.stderr.replace("\n", " ")
