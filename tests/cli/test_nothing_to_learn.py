"""Tables with nothing to learn from: the commands say so and write nothing."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from peerloss.estimators.portfolio import _fit_portfolio
from tests.cli.audits import made_up, run


@pytest.fixture(autouse=True)
def _quick(monkeypatch, quick_models):  # noqa: ARG001 (a fixture)
    """Train one logistic regression instead of the portfolio; in a fit, one that learns nothing."""
    models = {"linear": LogisticRegression(C=1e-6)}
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: models)


@pytest.fixture
def table(tmp_path):
    """Write a table whose labels do not depend on its columns; return its path."""
    rng = np.random.default_rng(0)
    path = tmp_path / "data.csv"
    pd.DataFrame(
        {"x": rng.normal(size=300), "z": rng.normal(size=300), "label": rng.choice(list("abc"), 300)}
    ).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("command", ["audit", "fit"])
def test_nothing_is_written_unless_forced(table, command):
    """The error says why and names the option; with it, the folder is written."""
    arguments = (command, table, "--target", "label", "-o", table.parent / "out")
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert "Error: nothing can be learned from these columns" in done.stderr
    assert "Nothing was written." in done.stderr
    assert "--force" in done.stderr
    assert [path.name for path in table.parent.iterdir()] == ["data.csv"]
    done = run(*arguments, "--force")
    assert done.exit_code == 0, done.output
    assert (table.parent / "out").is_dir()


def test_the_console_says_it_once_and_shows_no_empty_table(table):
    """The reason is in the last line alone."""
    done = run("audit", table, "--target", "label", "-o", table.parent / "out", "--force")
    assert done.output.count("nothing can be learned from these columns") == 1
    assert "nothing can be learned" in done.stdout.splitlines()[-1]
    assert "Most probable errors" not in done.stdout


def test_the_page_does_not_call_the_rows_probable_errors(table):
    """No tile or picture says that labels are probably wrong, and there is no empty table of suspects."""
    out = table.parent / "out"
    assert run("audit", table, "--target", "label", "-o", out, "--force").exit_code == 0
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "No label is flagged." in page
    for text in (
        "0 of 300 labels are suspect",
        "more likely wrong than right.",
        'id="table"',
        'class="likely"',
    ):
        assert text not in page


def test_folders_with_spaces_are_quoted_in_the_next_command(tmp_path):
    """The command can be copied as it is."""
    made_up(tmp_path)
    out = tmp_path / "my audit"
    arguments = ("audit", tmp_path / "data.csv", "--target", "label", "-o", out)
    done = run(*arguments, "--probabilities", tmp_path / "proba.csv")
    assert done.exit_code == 0, done.output
    assert f"run `peerloss review '{out}'`." in done.stdout
    assert json.loads((out / "audit.json").read_text())["summary"]["reason"] == ""
