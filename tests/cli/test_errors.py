"""A failed write ends every command with one line, and existing files are unchanged."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import Annotated

import numpy as np
import pandas as pd
import pytest
import typer
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

from peerloss import MarginPerceptron, save_model
from peerloss._files import atomic_folder
from peerloss.cli import _fit, app
from peerloss.cli._terminal import user_errors
from peerloss.estimators import TableEncoder
from peerloss.exceptions import InvalidInputError
from tests.crowd.crowds import random_crowd
from tests.experiments.tiny import write_spec

resource = pytest.importorskip("resource", reason="needs limits on the size of files")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make the input of every command."""
    tmp_path = tmp_path_factory.mktemp("made")
    clean = np.arange(60) % 2
    given = np.where(np.arange(60) % 10 == 0, 1 - clean, clean)
    table = pd.DataFrame({"x": clean + np.linspace(0, 0.3, 60), "label": np.array(["no", "yes"])[given]})
    table.to_csv(tmp_path / "data.csv", index=False)
    pd.DataFrame({"yes": 0.1 + 0.8 * clean, "no": 0.9 - 0.8 * clean}).to_csv(
        tmp_path / "proba.csv", index=False
    )
    random_crowd(0, n_tasks=40, n_workers=8).to_csv(tmp_path / "crowd.csv", index=False)
    pipeline = make_pipeline(TableEncoder(), MarginPerceptron(margin_grid=[1.0], random_state=0))
    save_model(pipeline.fit(table[["x"]], table["label"].to_numpy(dtype=str)), tmp_path / "model")
    assert run("audit", tmp_path).exit_code == 0
    return tmp_path


@pytest.fixture
def home(made, tmp_path):
    """Return a folder with the input of every command."""
    return shutil.copytree(made, tmp_path / "home")


def run(command, home, output=None):
    """Run a command that reads and writes in a folder."""
    table = [home / "data.csv", "--target", "label"]
    arguments = {
        "audit": [*table, "--probabilities", home / "proba.csv", "-o", output or home / "audit"],
        "fit": [*table, "-o", output or home / "model"],
        "predict": [home / "model", home / "data.csv", "-o", output or home / "predicted.csv"],
        "apply": [home / "audit", "-o", output or home / "cleaned.csv"],
        "annotators": [home / "crowd.csv", "-o", output or home / "scores.csv"],
    }[command]
    return CliRunner().invoke(app, [command, *map(str, arguments)])


@contextmanager
def small_files():
    """Limit the size of files to a few bytes, as if the disk were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


COMMANDS = ["audit", "fit", "predict", "apply", "annotators"]


def quick_model(task, **_):
    """Train a fast model instead of the portfolio, which takes seconds."""
    classifier = MarginPerceptron(margin_grid=[1.0], random_state=0)
    return make_pipeline(TableEncoder(), classifier).fit(task.X, task.y)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_reported_in_one_line(home, monkeypatch, command):
    """Exit code 2; the message names the output; no file was changed or left behind."""
    monkeypatch.setattr(_fit, "_train", quick_model)
    (home / "predicted.csv").write_text("old")
    (home / "scores.csv").write_text("old")
    before = contents(home)
    with small_files():
        done = run(command, home)
    assert done.exit_code == 2, done.output
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("Error: "))
    assert "could not be written: File too large. The previous content is unchanged" in line
    assert "Traceback" not in done.output
    assert contents(home) == before


def test_a_full_disk_ends_experiments_with_advice(tmp_path):
    """One line names the file and how to continue; earlier records are kept, and continuing works."""
    arguments = ["reproduce", write_spec(tmp_path), "--methods", "pam", "--data-sets", "heart", "--jobs", "1"]
    arguments = [str(argument) for argument in [*arguments, "--json", "-o", tmp_path / "runs"]]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    (path,) = (tmp_path / "runs").glob("records-*.jsonl")
    kept = path.read_text().splitlines(keepends=True)[:1]
    path.write_text("".join(kept))
    with small_files():
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "could not be written: File too large. All earlier records are kept. Free some space, then" in line
    assert path.read_text() == "".join(kept)
    assert json.loads(CliRunner().invoke(app, arguments).stdout)["done"] == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_outputs_are_checked_before_the_work(home, monkeypatch, command):
    """An output that cannot be written ends the command before anything is read or trained."""
    monkeypatch.setattr("peerloss.datasets.read_table", None)
    monkeypatch.setattr("peerloss.persistence.load_model", None)
    monkeypatch.setattr("peerloss.crowd.read_reports", None)
    done = run(command, home, output=home / "data.csv" / "out.csv")
    assert done.exit_code == 2, done.output
    assert "data.csv is a file. Choose another path" in done.stderr


@pytest.mark.parametrize("command", ["audit", "fit"])
def test_the_current_folder_is_refused_before_the_work(home, monkeypatch, command):
    """An output folder is replaced by a new one, which is impossible for the current folder."""
    monkeypatch.setattr("peerloss.datasets.read_table", None)
    (home / "empty").mkdir()
    monkeypatch.chdir(home / "empty")
    done = run(command, home, output=".")
    assert done.exit_code == 2, done.output
    assert "current folder" in done.stderr


@pytest.mark.parametrize("command", ["audit", "fit"])
def test_a_symbolic_link_is_kept(home, monkeypatch, command):
    """The content of its target is replaced."""
    monkeypatch.setattr(_fit, "_train", quick_model)
    monkeypatch.setattr(_fit, "_summarise", lambda *_: {})
    monkeypatch.setattr(_fit, "_print", lambda *_: None)
    (home / "link").symlink_to("real")
    for _ in range(2):
        done = run(command, home, output=home / "link")
        assert done.exit_code == 0, done.output
    assert (home / "link").is_symlink()
    assert (home / "real").is_dir()
    assert not [path for path in home.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_next_run_removes_left_overs_of_a_killed_one(home, monkeypatch, command):
    """Hidden folders of the same output are removed if no process has locked them."""
    monkeypatch.setattr(_fit, "_train", quick_model)
    monkeypatch.setattr(_fit, "_summarise", lambda *_: {})
    monkeypatch.setattr(_fit, "_print", lambda *_: None)
    names = {"audit": "audit", "fit": "model", "predict": "predicted.csv", "apply": "cleaned.csv"}
    for ending in ("partial", "old") if command in {"audit", "fit"} else ("partial",):
        stale = home / f".{names.get(command, 'scores.csv')}.0123456789abcdef.{ending}"
        stale.mkdir()
        (stale / "half").write_text("half")
    assert run(command, home).exit_code == 0
    assert not [path for path in home.iterdir() if path.name.startswith(".")]


def test_a_folder_in_use_is_kept(home):
    """A concurrent audit keeps its unfinished folder."""
    with atomic_folder(home / "audit") as fresh:
        (fresh / "half").write_text("half")
        assert run("audit", home).exit_code == 0
        assert (fresh / "half").exists()


def test_other_system_errors_name_the_file(capsys):
    """The message is one line without the error number."""
    with pytest.raises(typer.Exit), user_errors():
        raise FileNotFoundError(2, "No such file or directory", "lost.csv")
    assert capsys.readouterr().err == "Error: lost.csv: No such file or directory.\n"
    with pytest.raises(typer.Exit), user_errors():
        raise OSError(98, "Address already in use")
    assert capsys.readouterr().err == "Error: Address already in use.\n"
    with pytest.raises(BrokenPipeError), user_errors():
        raise BrokenPipeError(32, "Broken pipe")


def test_messages_name_the_options_of_the_command(capsys):
    """The library names its parameters; the command line names options and arguments."""

    def command(
        message: str,
        name: Annotated[str, typer.Argument()] = "",  # noqa: ARG001
        jobs: Annotated[int, typer.Option()] = 1,  # noqa: ARG001
        changes: Annotated[str, typer.Option("--set", "-s")] = "",  # noqa: ARG001
        noise: Annotated[str, typer.Option()] = "",  # noqa: ARG001
    ):
        raise InvalidInputError(message)

    for message, printed in {
        "`n_jobs` must be 1.": "--jobs must be 1.",
        "Memory is short; use a smaller `n_jobs`.": "Memory is short; use a smaller --jobs.",
        "`changes` must be name=value.": "--set must be name=value.",
        "`noise` must be a rate.": "--noise must be a rate.",
        "tiny.toml must have `noise`.": "tiny.toml must have `noise`.",
        "`name` must be known.": "NAME must be known.",
        "`alpha` must be finite.": "`alpha` must be finite.",
        "`X` must have a column.": "the table must have a column.",
    }.items():
        with pytest.raises(typer.Exit):
            user_errors(command)(command)(message)
        assert capsys.readouterr().err == f"Error: {printed}\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize(
    ("argument", "code"), [("datasets", 2), ("--help", 1), ("fit --help", 1), ("--version", 1)]
)
def test_standard_output_may_be_full(argument, code):
    """One line on stderr and an exit code; no traceback, not even when Python exits."""
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "peerloss", *argument.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == code
    assert done.stderr.startswith("Error: the output could not be written: No space left on device.")
    assert len(done.stderr.splitlines()) == 1
