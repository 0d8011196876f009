"""peerloss reproduce and peerloss status."""

import json

import pytest
from typer.testing import CliRunner

from peerloss.cli import _reproduce as command
from peerloss.cli import app
from tests.experiments.tiny import write_spec


@pytest.fixture
def spec(tmp_path):
    return str(write_spec(tmp_path))


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(spec, folder, *more):
    return invoke("reproduce", spec, "--methods", "peer,pam", "--jobs", "1", "-o", folder, *more)


def test_reproduce_runs_skips_and_tells(spec, tmp_path):
    """A table of means and a summary; the second time everything is there."""
    first = run(spec, tmp_path / "r")
    assert first.exit_code == 0, first.output
    assert "peer" in first.output
    assert "16 cells run" in first.stdout.splitlines()[-1]
    assert "0 cells run in" in run(spec, tmp_path / "r").stdout.splitlines()[-1]


def test_reproduce_prints_json_alone(spec, tmp_path):
    """Counts, and mean accuracy by method and prior."""
    told = json.loads(run(spec, tmp_path / "r", "--json", "--data-sets", "heart", "--seeds", "1").stdout)
    assert (told["cells"], told["done"], told["skipped"], told["failed"]) == (4, 4, 0, 0)
    places = [(entry["method"], entry["prior"], entry["cells"]) for entry in told["means"]]
    assert places == [(m, p, 1) for m in ("pam", "peer") for p in ("equalized", "original")]


def test_status_counts_against_the_plan(spec, tmp_path):
    """Done and planned by method; two plans are two entries."""
    run(spec, tmp_path / "r", "--data-sets", "heart")
    (path,) = (tmp_path / "r").glob("records-*")
    kept = path.read_text().splitlines()[:-1]
    path.write_text("\n".join(kept) + "\n")
    (plan,) = json.loads(invoke("status", tmp_path / "r", "--json").stdout)
    assert (plan["cells"], plan["done"]) == (8, 7)
    assert sum(done for done, _ in plan["by_method"].values()) == 7
    assert "7 of 8 cells done" in invoke("status", tmp_path / "r").stdout
    run(spec, tmp_path / "r", "--data-sets", "thyroid")
    assert len(json.loads(invoke("status", tmp_path / "r", "--json").stdout)) == 2


def test_status_tells_of_an_incomplete_line(spec, tmp_path):
    """On the error stream; the JSON stays JSON."""
    run(spec, tmp_path / "r", "--data-sets", "heart")
    (path,) = (tmp_path / "r").glob("records-*")
    path.write_bytes(path.read_bytes()[:-10])
    told = invoke("status", tmp_path / "r", "--json")
    assert "last line is incomplete" in told.stderr
    assert json.loads(told.stdout)[0]["done"] == 7


def test_status_of_an_empty_folder_and_of_none(tmp_path):
    """The first says so; the second is an error."""
    assert "No experiment" in invoke("status", tmp_path).stdout
    missing = invoke("status", tmp_path / "none")
    assert missing.exit_code == 2
    assert "is not a folder" in missing.stderr


def test_a_damaged_plan_is_named(tmp_path):
    """With what to do."""
    (tmp_path / "plan-1.json").write_text("{}")
    told = invoke("status", tmp_path)
    assert told.exit_code == 2
    assert "plan-1.json is not a plan" in told.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["table-a2"], "must be one of"),
        (["table-a1", "--data-sets", "hart"], "heart"),
        (["table-a1", "--methods", "svm"], "c-svm"),
        (["table-a1", "--protocol", "mine"], "'paper', 'fair'"),
        (["table-a1", "--backend", "dask"], "'joblib', 'ray'"),
    ],
)
def test_mistakes_end_with_code_2_and_the_known_names(tmp_path, arguments, told):
    """Before anything is trained."""
    run = invoke("reproduce", *arguments, "-o", tmp_path / "r")
    assert run.exit_code == 2
    assert told in run.stderr


def test_ctrl_c_says_how_to_go_on(spec, tmp_path, monkeypatch):
    """Exit code 130, as shells expect."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_run_with_bar", interrupted)
    told = run(spec, tmp_path / "r")
    assert told.exit_code == 130
    assert "the same command goes on" in told.stderr


def test_all_runs_everything_and_writes_the_page(spec, tmp_path, monkeypatch):
    """Each experiment in turn into one folder, then the report; data sets cannot be chosen."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(command, "ALL", (spec, spec))
    done = invoke("reproduce", "all", "-o", tmp_path / "out", "--jobs", "1", "--seeds", "1")
    assert done.exit_code == 0, done.output
    assert done.output.count("results in") == 2
    assert "0 cells run" in done.output, "the second time everything is there"
    assert (tmp_path / "out" / "report.html").exists()
    assert invoke("reproduce", "all", "--data-sets", "heart").exit_code == 2
