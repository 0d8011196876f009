"""peerloss report."""

import json

import pytest
from typer.testing import CliRunner

from peerloss.cli import app
from tests.report.made_up import everything, row, store


def invoke(*arguments):
    return CliRunner().invoke(app, ["report", *(str(argument) for argument in arguments)])


def test_report_writes_a_page_and_prints_its_path(tmp_path):
    """Next to the results by default; what is missing is printed to the error stream."""
    pytest.importorskip("matplotlib", reason="pages need peerloss[report]")
    store(tmp_path, row({"peer": [0.8], "nn": [0.7]}))
    result = invoke(tmp_path)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "report" / "table-a1-paper.md").exists()
    assert "report.html: table-a1 (paper); 4 more files in" in result.stdout
    assert "Note: curves has not been run" in result.stderr
    again = invoke(tmp_path, "-o", tmp_path / "other" / "page.html")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "other" / "page.html").exists()


def test_report_prints_json_alone(tmp_path):
    """Numbers only; nothing is written."""
    store(tmp_path, everything())
    before = sorted(tmp_path.iterdir())
    result = invoke(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert [(s["experiment"], s["protocol"]) for s in json.loads(result.stdout)] == [
        ("table-a1", "paper"), ("curves", "paper"), ("boundary", "paper"), ("invariance", "paper"),
    ]  # fmt: skip
    assert sorted(tmp_path.iterdir()) == before


def test_mistakes_end_with_code_2(tmp_path):
    """A missing folder, an empty one, a page with another suffix, both kinds of output: one line each."""
    for arguments, message in (
        ([tmp_path / "none"], "must be a folder"),
        ([tmp_path], "has no finished run"),
        (
            [store(tmp_path / "r", row({"peer": [0.8], "nn": [0.7]})), "-o", tmp_path / "a.pdf"],
            "must end in .html",
        ),
        ([tmp_path / "r", "-o", tmp_path / "a.html", "--json"], "-o and --json cannot be used together"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert message in result.stderr.replace("\n", " ")
