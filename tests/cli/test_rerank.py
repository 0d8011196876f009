"""``peerloss rerank`` from the command line."""

import json

import pandas as pd

from peerloss.audit.review import DecisionsFile
from tests.cli.audits import run


def decide(folder, clean):
    """Decide on the first three suspects as their clean labels say."""
    labels = pd.read_csv(folder / "labels.csv").query("flagged").sort_values("rank").head(3)
    with DecisionsFile(folder / "decisions.jsonl") as file:
        for row, given in zip(labels["row"].tolist(), labels["given"], strict=True):
            if given == clean[row]:
                file.append(row, "keep")
            else:
                file.append(row, "change", str(clean[row]))


def test_decisions_become_known_labels(audited):
    """The labels of the folder change, and `apply` works as before."""
    folder, _, clean, _ = audited
    decide(folder / "out", clean)
    result = run("rerank", folder / "out")
    assert result.exit_code == 0, result.output
    assert "3 labels known from decisions." in result.output
    labels = pd.read_csv(folder / "out" / "labels.csv").sort_values("rank")
    assert labels["p_error"].isin([0.0, 1.0]).sum() == 3
    assert run("apply", folder / "out", "-o", folder / "cleaned.csv").exit_code == 0


def test_json(audited):
    """`--json` prints the summary of the new audit."""
    folder, _, clean, _ = audited
    decide(folder / "out", clean)
    summary = json.loads(run("rerank", folder / "out", "--json").stdout)
    assert summary["decisions"] == 3
    assert summary["rows"] == 60


def test_without_decisions_nothing_is_written(audited):
    """The message says what to do."""
    folder, *_ = audited
    before = (folder / "out" / "labels.csv").read_bytes()
    result = run("rerank", folder / "out")
    assert result.exit_code == 2
    assert "has no decisions yet" in result.stderr
    assert (folder / "out" / "labels.csv").read_bytes() == before
