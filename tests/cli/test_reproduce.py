"""peerloss reproduce and peerloss status."""

import json

import pytest
from typer.testing import CliRunner

from peerloss.cli import _reproduce as command
from peerloss.cli import app
from peerloss.experiments import load_experiment
from peerloss.experiments._store import write_plan
from tests.experiments.tiny import write_spec


@pytest.fixture
def spec(tmp_path):
    return str(write_spec(tmp_path))


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(spec, folder, *more):
    return invoke("reproduce", spec, "--methods", "peer,pam", "--jobs", "1", "-o", folder, *more)


def test_reproduce_prints_a_summary(spec, tmp_path):
    """A table of means and a line of counts; the second time everything is done."""
    first = run(spec, tmp_path / "r")
    assert first.exit_code == 0, first.output
    assert "peer" in first.output
    assert "16 runs in" in first.stdout.splitlines()[-1]
    assert "0 runs in" in run(spec, tmp_path / "r").stdout.splitlines()[-1]


def test_reproduce_prints_json_alone(spec, tmp_path):
    """Counts, and mean accuracy by method and prior."""
    result = json.loads(run(spec, tmp_path / "r", "--json", "--data-sets", "heart", "--seeds", "1").stdout)
    assert (result["runs"], result["done"], result["skipped"], result["failed"]) == (4, 4, 0, 0)
    assert all(entry["cells"] == entry["runs"] for entry in [result, *result["means"]]), "the deprecated name"
    places = [(entry["method"], entry["prior"], entry["runs"]) for entry in result["means"]]
    assert places == [(m, p, 1) for m in ("pam", "peer") for p in ("equalized", "original")]


def test_status_counts_against_the_plan(spec, tmp_path):
    """Done and planned by method; two plans are two entries."""
    run(spec, tmp_path / "r", "--data-sets", "heart")
    (path,) = (tmp_path / "r").glob("records-*")
    kept = path.read_text().splitlines()[:-1]
    path.write_text("\n".join(kept) + "\n")
    (plan,) = json.loads(invoke("status", tmp_path / "r", "--json").stdout)
    assert (plan["runs"], plan["done"]) == (8, 7)
    assert plan["cells"] == plan["runs"], "the deprecated name"
    assert sum(done for done, _ in plan["by_method"].values()) == 7
    assert "7 of 8 runs done" in invoke("status", tmp_path / "r").stdout
    run(spec, tmp_path / "r", "--data-sets", "thyroid")
    assert len(json.loads(invoke("status", tmp_path / "r", "--json").stdout)) == 2


def test_status_reports_an_incomplete_line(spec, tmp_path):
    """On the error stream; the JSON stays JSON."""
    run(spec, tmp_path / "r", "--data-sets", "heart")
    (path,) = (tmp_path / "r").glob("records-*")
    path.write_bytes(path.read_bytes()[:-10])
    result = invoke("status", tmp_path / "r", "--json")
    assert "last line is incomplete" in result.stderr
    assert json.loads(result.stdout)[0]["done"] == 7


#: Damage to one record of a store, by name.
DAMAGE = {
    "deep nesting": lambda line: line[:-1] + ', "more": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "some nesting": lambda line: line[:-1] + ', "more": ' + "[" * 400 + "]" * 400 + "}",
    "lone surrogate": lambda line: line[:-1] + ', "versions": {"python": "\\ud83d"}}',
    "no seconds": lambda line: line.replace('"seconds"', '"second"'),
    "no trials": lambda line: line.replace('"trials"', '"trails"'),
    "no choice": lambda line: line.replace('"choose"', '"chose"'),
    "wrong seed": lambda line: line.replace('"seed": ', '"seed": "x", "sead": '),
    "wrong trials": lambda line: line.replace('"noisy_validation": [', '"noisy_validation": ["x", '),
    "not a number": lambda line: line.replace('"seconds": ', '"seconds": NaN, "second": '),
    "no object": lambda _: "17",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_one_damaged_record_does_not_affect_the_others(spec, tmp_path, damage):
    """Status, report and reproduce skip it with one line of warning, and reproduce repeats its run."""
    run(spec, tmp_path / "r", "--data-sets", "heart")
    (path,) = (tmp_path / "r").glob("records-*")
    *others, last = path.read_text().splitlines()
    path.write_text("\n".join([*others, damage(last), ""]))
    result = invoke("status", tmp_path / "r", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)[0]["done"] == 7
    line = f"Warning: {path.name}: 1 of its 8 lines cannot be read as records and are skipped"
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1
    result = invoke("report", tmp_path / "r", "--json")
    assert result.exit_code == 0, result.output
    assert [section["experiment"] for section in json.loads(result.stdout)] == ["tiny"]
    result = run(spec, tmp_path / "r", "--data-sets", "heart", "--json")
    assert result.exit_code == 0, result.output
    assert (json.loads(result.stdout)["skipped"], json.loads(result.stdout)["done"]) == (7, 1)
    assert result.stderr.startswith(line)


def test_records_that_contradict_each_other_are_reported_in_one_line(spec, tmp_path):
    """Another number of trials under the same settings: the message names the record and the remedy."""
    run(spec, tmp_path / "r", "--data-sets", "heart", "--seeds", "3")
    (path,) = (tmp_path / "r").glob("records-*")
    *others, last = path.read_text().splitlines()
    record = json.loads(last)
    record["trials"] = {"settings": {}, "noisy_validation": [0.5] * 9, "test_accuracy": [0.5] * 9}
    path.write_text("\n".join([*others, json.dumps(record), ""]))
    result = run(spec, tmp_path / "r", "--data-sets", "heart", "--seeds", "3", "--json")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: Records contradict each other: the one with the key {record['key']!r}")


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(spec, tmp_path):
    """As on a read-only disk: nothing was run, and no traceback is printed."""
    (tmp_path / "file").touch()
    result = run(spec, tmp_path / "file" / "r")
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert str(tmp_path / "file") in result.stderr.replace("\n", "")
    assert "Traceback" not in result.stderr


def test_a_full_disk_is_reported_in_one_line(spec, tmp_path):
    """The command ends with the error and the name of the file; finished runs are kept."""
    resource = pytest.importorskip("resource", reason="this system has no limits on files")
    assert run(spec, tmp_path / "r", "--data-sets", "heart").exit_code == 0
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, usual[1]))  # for the plan and a record or none
    try:
        result = run(spec, tmp_path / "r", "--data-sets", "thyroid", "--json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert "records-" in result.stderr
    again = json.loads(run(spec, tmp_path / "r", "--json").stdout)
    assert again["skipped"] in (8, 9), "those of the first call, and what fitted on the disk"
    assert again["skipped"] + again["done"] == 16


def test_status_of_an_empty_and_of_a_missing_folder(tmp_path):
    """The first prints a message; the second is an error."""
    assert "No experiment" in invoke("status", tmp_path).stdout
    missing = invoke("status", tmp_path / "none")
    assert missing.exit_code == 2
    assert "is not a folder" in missing.stderr


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "{}",
        lambda _: "[" * 100_000,
        lambda text: text.replace('"title"', '"titel"'),
        lambda text: text.replace('"tiny"', '"\\ud83d"'),
        lambda text: text.replace('"seeds": [', '"seeds": [], "sedes": ['),
        lambda text: text.replace('"seeds": [', '"seeds": ["0"], "sedes": ['),
        lambda text: text.replace('"rows": [', '"rows": [["heart", 0.1]], "rosw": ['),
        lambda text: text.replace('"specs": [', '"specs": 3, "sepcs": ['),
    ],
)
def test_a_damaged_plan_is_named(spec, tmp_path, damage):
    """With what to do."""
    write_plan(tmp_path, load_experiment(spec))
    (path,) = tmp_path.glob("plan-*.json")
    text = path.read_text()
    path.unlink()
    (tmp_path / "plan-1.json").write_text(damage(text))
    result = invoke("status", tmp_path)
    assert result.exit_code == 2
    assert "plan-1.json is not a plan" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table-a2"], "must be one of"),
        (["table-a1", "--data-sets", "hart"], "heart"),
        (["table-a1", "--methods", "svm"], "c-svm"),
        (["table-a1", "--protocol", "mine"], "'paper', 'fair'"),
        (["table-a1", "--backend", "dask"], "'joblib', 'ray'"),
    ],
)
def test_mistakes_end_with_code_2_and_the_known_names(tmp_path, arguments, message):
    """Before anything is trained."""
    run = invoke("reproduce", *arguments, "-o", tmp_path / "r")
    assert run.exit_code == 2
    assert message in run.stderr


def test_ctrl_c_prints_how_to_resume(spec, tmp_path, monkeypatch):
    """Exit code 130, as shells expect."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_run_with_bar", interrupted)
    result = run(spec, tmp_path / "r")
    assert result.exit_code == 130
    assert "the same command resumes" in result.stderr


def test_all_runs_everything_and_writes_the_page(spec, tmp_path, monkeypatch):
    """Each experiment in turn into one folder, then the report; data sets cannot be chosen."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(command, "ALL", (spec, spec))
    done = invoke("reproduce", "all", "-o", tmp_path / "out", "--jobs", "1", "--seeds", "1")
    assert done.exit_code == 0, done.output
    assert done.output.count("results in") == 2
    assert "0 runs in" in done.output, "the second time everything is done"
    assert (tmp_path / "out" / "report.html").exists()
    assert invoke("reproduce", "all", "--data-sets", "heart").exit_code == 2
