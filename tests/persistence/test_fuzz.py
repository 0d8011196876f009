"""Corrupted model folders with correct hashes give an error or a prediction, never a crash."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")
if sys.platform == "win32":
    pytest.skip("needs fork", allow_module_level=True)

from tests.persistence import fuzz_models

ROOT = Path(__file__).parents[2]


def fuzz(home, kinds, n_cases):
    """Return the number of cases per outcome, after checking that none is a crash."""
    models = home / "models"
    models.mkdir()
    fuzz_models.save_models(models, kinds)
    # The cases are forked from a new process, because the threads of this one would not survive a fork.
    paths = [str(ROOT), *(path for path in sys.path if path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.persistence.fuzz_folders", str(models), "0", str(n_cases)]
    done = subprocess.run(command, env=environment, cwd=home, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["bad"]
    assert sum(found["counts"].values()) == n_cases
    return found["counts"]


@pytest.mark.filterwarnings("ignore")
def test_corrupted_folders_do_not_crash(tmp_path):
    """At least one case of every kind of model; many are rejected, some give other predictions."""
    assert fuzz(tmp_path, fuzz_models.KINDS, 40)["rejected"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_thousand_corrupted_folders_do_not_crash(tmp_path):
    """The same for more cases, and for the portfolio of PeerClassifier."""
    assert fuzz(tmp_path, fuzz_models.KINDS | fuzz_models.LONG_KINDS, 1000)["rejected"] > 100
