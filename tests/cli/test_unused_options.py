"""Options that have no effect without another one are refused before the work."""

import numpy as np
import pandas as pd
import pytest

from tests.cli.audits import run


@pytest.fixture
def table(tmp_path):
    """Write labels of three workers for twenty tasks, which can also be read as a table with labels."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"task": np.repeat(np.arange(20), 3), "worker": list("abc") * 20})
    rows.assign(label=rng.integers(2, size=60)).to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


@pytest.mark.parametrize(
    ("command", "given", "needed"),
    [
        ("annotators", ["--pay-copies"], "--budget"),
        ("annotators", ["--payment", "untruthful_split"], "--budget"),
        ("audit", ["--level", "0.9"], "--flags precision"),
        ("audit", ["--level", "0.9", "--flags", "f1"], "--flags precision"),
        ("audit", ["--duplicates", "last"], "--reports"),
    ],
)
def test_an_option_without_an_effect_is_refused(command, given, needed, table):
    """The message names both options, and nothing is written."""
    output = table.parent / "output"
    target = ["--target", "label"] if command == "audit" else []
    result = run(command, table, *target, "-o", output, *given)
    assert result.exit_code == 2
    words = " ".join(result.output.replace("│", " ").split())
    assert f"`{given[0]}` has no effect without {needed}. Add {needed}, or leave out {given[0]}." in words
    assert not output.exists()
