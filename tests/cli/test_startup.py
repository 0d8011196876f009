"""Which packages a command imports: those that do not train need neither torch nor scikit-learn."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from tests.cli.test_terminal import audit

#: Packages that take longer to import than pandas, or that only training and pictures need.
HEAVY = ("torch", "skops", "sklearn", "scipy", "matplotlib", "numba", "joblib")
#: Runs commands in one process and prints, as JSON, the exit code and the heavy imports after each.
SCRIPT = """
import contextlib, io, json, sys
from peerloss.cli import app
heavy, commands = json.loads(sys.argv[1])
found = []
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            app(command)
        except SystemExit as end:
            found.append([end.code or 0, sorted(set(heavy) & set(sys.modules))])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return the exit code, heavy imports and command of each quick command, by its name."""
    folder = tmp_path_factory.mktemp("quick")
    assert audit(folder).exit_code == 0
    table, absent, made = folder / "data.csv", folder / "absent.csv", folder / "out"
    full = folder / "full"
    full.mkdir()
    (full / "note.txt").touch()
    pd.DataFrame({"task": ["a"], "worker": ["w"], "label": ["x"]}).to_csv(folder / "one.csv", index=False)
    new = folder / "new"
    commands = {
        "help": (0, "--help"),
        "version": (0, "--version"),
        "help of a command": (0, "fit", "--help"),
        "doctor": (0, "doctor"),
        "status": (0, "status", folder),
        "apply": (0, "apply", made, "-o", folder / "cleaned.csv"),
        "apply, no audit": (2, "apply", folder, "-o", folder / "cleaned.csv"),
        "review, no audit": (2, "review", folder),
        "audit, no file": (2, "audit", absent, "--target", "label", "-o", new),
        "audit, no column": (2, "audit", table, "--target", "y", "-o", new),
        "audit, output exists": (2, "audit", table, "--target", "label", "-o", full),
        "fit, no file": (2, "fit", absent, "--target", "label", "-o", new),
        "fit, no column": (2, "fit", table, "--target", "y", "-o", new),
        "fit, output exists": (2, "fit", table, "--target", "label", "-o", full),
        "fit, wrong metric": (2, "fit", table, "--target", "label", "-o", new, "--metric", "f1"),
        "predict, no model": (2, "predict", folder, table, "-o", folder / "p.csv"),
        "datasets, no file": (2, "datasets", absent),
        "datasets, no column": (2, "datasets", table, "--target", "y"),
        "annotators, no file": (2, "annotators", absent, "-o", folder / "s.csv"),
        "annotators, no column": (2, "annotators", table, "-o", folder / "s.csv"),
        "annotators, wrong option": (2, "annotators", table, "-o", folder / "s.csv", "--payment", "x"),
    }
    lines = [[str(word) for word in words] for _, *words in commands.values()]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([HEAVY, lines])], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    return {
        name: (expected, *got) for (name, (expected, *_)), got in zip(commands.items(), found, strict=True)
    }


def test_commands_that_do_not_train_import_nothing_heavy(results):
    """Help, version, doctor, status and apply, and every error before the training."""
    assert {name: heavy for name, (_, _, heavy) in results.items() if heavy} == {}


def test_the_commands_end_as_expected(results):
    """Without this the test above could pass with commands that fail for another reason."""
    assert {name: code for name, (expected, code, _) in results.items() if code != expected} == {}
