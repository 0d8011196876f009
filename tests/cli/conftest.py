"""Fixtures of the tests of commands."""

import json

import pytest

from tests.cli.audits import made_up, run


@pytest.fixture
def audited(tmp_path):
    """Audit a table; return the folder, the data, the clean labels and the printed summary."""
    data, clean = made_up(tmp_path)
    result = run(
        "audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out", "--id", "id",
        "--probabilities", tmp_path / "proba.csv", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return tmp_path, data, clean, json.loads(result.stdout)
