"""The options --jobs and --seed: values that cannot be used are refused before the work."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.audits import run


@pytest.fixture
def table(tmp_path):
    """Write a small table with labels."""
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=40), "label": ["no", "yes"] * 20})
    rows.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def arguments(command, table):
    """Return the arguments of a command apart from --jobs and --seed."""
    return {
        "fit": [table, "--target", "label", "-o", table.parent / "model"],
        "audit": [table, "--target", "label", "-o", table.parent / "audit"],
        "demo": ["-o", table.parent / "page.html"],
        "annotators": [table, "-o", table.parent / "scores.csv"],
        "predict": [table.parent, table, "-o", table.parent / "out.csv"],
    }[command]


@pytest.mark.parametrize("command", ["fit", "audit", "demo", "annotators", "predict"])
def test_zero_jobs_are_refused(command, table):
    """The message names the option, the values that are accepted, and the value received."""
    result = run(command, *arguments(command, table), "--jobs", "0")
    assert result.exit_code == 2
    words = " ".join(result.output.replace("│", " ").split())
    assert "--jobs" in words
    assert "must be an integer other than 0" in words
    assert "got 0. Use 1" in words
    assert "or -1 for all cores" in words


@pytest.mark.parametrize("seed", [-1, 2**32])
@pytest.mark.parametrize("command", ["fit", "demo", "annotators"])
def test_seeds_outside_the_range_of_numpy_are_refused(command, seed, table):
    """The message names the option, the range, and the value received."""
    result = run(command, *arguments(command, table), "--seed", str(seed))
    assert result.exit_code == 2
    words = " ".join(result.output.replace("│", " ").split())
    assert "--seed" in words
    assert f"must be an integer from 0 to 4294967295 (2**32 - 1); got {seed}" in words


def test_an_audit_refuses_large_seeds(table):
    """The message of the classifier names the option of the command."""
    result = run("audit", *arguments("audit", table), "--seed", str(2**32))
    assert result.exit_code == 2
    words = " ".join(result.output.replace("│", " ").split())
    assert "--seed" in words
    assert "2**32 - 1" in words
    assert "got 4294967296" in words
