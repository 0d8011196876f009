"""The demonstration."""

import json
from concurrent.futures.process import BrokenProcessPool

import pytest
from typer.testing import CliRunner

import peerloss
from peerloss.cli import app
from peerloss.experiments import demo as demo_module
from peerloss.experiments.demo import CASES, run_demo


def test_demo_prints_a_table_and_a_summary_and_writes_a_page(tmp_path):
    """One row per case, with error bars, a page, and one line with the result."""
    pytest.importorskip("matplotlib", reason="the page needs peerloss[report]")
    page = tmp_path / "new" / "page.html"
    run = CliRunner().invoke(app, ["demo", "--seeds", "2", "--steps", "20", "-o", str(page)])
    assert run.exit_code == 0, run.output
    assert str(page) in run.output.replace("\n", "")
    written = page.read_text(encoding="utf-8")
    assert written.count("<tr>") == 1 + len(CASES)
    assert "data:image/png;base64," in written
    for name, *_ in CASES:
        assert name in run.output
    assert "±" in run.output
    assert "on average" in run.output.splitlines()[-1]


def test_a_wrong_path_is_reported_before_training(tmp_path):
    """A page ends in .html; nothing is trained for a page that cannot be written."""
    run = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "page.pdf")])
    assert run.exit_code == 2
    assert "must end in .html" in run.stderr


def test_demo_prints_json_alone():
    """Numbers only, the same for the same seed and any number of processes."""
    outputs = [
        CliRunner().invoke(app, ["demo", "--seeds", "1", "--steps", "20", "--json", "--jobs", jobs]).stdout
        for jobs in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    rows = json.loads(outputs[0])
    assert len(rows) == len(CASES)
    assert rows[0]["plain_error"] is None, "one seed has no standard error"


def test_peer_loss_is_better_if_noise_is_asymmetric():
    """On splice with rates .2 and .4 peer loss is better than plain training on clean test labels."""
    splice = next(row for row in run_demo(seeds=2) if row.data_set == "splice")
    assert splice.peer > splice.plain + 0.03


def test_version_and_help():
    """They contain the version and the name of the command."""
    assert CliRunner().invoke(app, ["--version"]).stdout.strip() == peerloss.__version__
    assert "demo" in CliRunner().invoke(app, ["--help"]).stdout


def test_a_killed_worker_is_reported(tmp_path, monkeypatch):
    """The message does not claim that results were kept: the demonstration stores none before its end."""

    def killed(**_):
        raise BrokenProcessPool

    monkeypatch.setattr(demo_module, "Parallel", killed)
    done = CliRunner().invoke(app, ["demo", "--seeds", "1", "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 2
    assert "A worker process was killed" in done.stderr
    assert "Nothing was stored. Run it again, with a smaller --jobs if memory is short." in done.stderr
