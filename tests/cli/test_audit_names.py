"""``peerloss audit`` and ``apply`` with names of files, columns and annotators that are unusual."""

import json
import os
import sys

import numpy as np
import pandas as pd
import pytest

from peerloss.audit.review import DecisionsFile
from tests.cli.audits import made_up, run


def audited(folder, *options):
    return run("audit", folder / "data.csv", *options, "-o", folder / "out", "--json")


@pytest.mark.parametrize("given_as", ["targets", "reports"])
def test_the_cleaned_labels_get_a_free_name(tmp_path, given_as):
    """A table with a column `label` is audited and cleaned; the summary says how the new column is called."""
    data, clean = made_up(tmp_path)
    people = ["ann", "bob", "cy"]
    table = data.assign(ann=clean, bob=clean, cy=data["label"])
    table.to_csv(tmp_path / "data.csv", index=False)
    options = ["--drop", "id", "--drop", "x", "--drop", "label"]
    if given_as == "targets":
        options += [part for name in people for part in ("--target", name)]
    else:
        long = table[people].melt(var_name="worker", value_name="label", ignore_index=False)
        long.rename_axis("task").reset_index().to_csv(tmp_path / "reports.csv", index=False)
        options += [part for name in people for part in ("--drop", name)]
        options += ["--reports", tmp_path / "reports.csv"]
    result = audited(tmp_path, *options)
    assert result.exit_code == 0, result.output
    note = "The table has a column 'label'. `peerloss apply` will add the cleaned labels as 'label_1'."
    assert note in json.loads(result.stdout)["notes"]
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(4, "change", "yes")
    result = run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv")
    assert result.exit_code == 0, result.output
    cleaned = pd.read_csv(tmp_path / "cleaned.csv")
    pd.testing.assert_frame_equal(cleaned.drop(columns="label_1"), table)
    expected = np.where(np.arange(60) == 4, "yes", clean)
    assert cleaned["label_1"].tolist() == expected.tolist()


def test_reports_of_one_worker_are_one_label_per_row(tmp_path):
    """They give the result of the same labels in a column, not that of a crowd of one."""
    data, _ = made_up(tmp_path)
    data[["id", "x"]].assign(label=data["label"]).to_csv(tmp_path / "data.csv", index=False)
    options = ["--probabilities", tmp_path / "proba.csv", "--id", "id"]
    result = audited(tmp_path, "--target", "label", *options)
    assert result.exit_code == 0, result.output
    one = json.loads(result.stdout)
    labels = pd.read_csv(tmp_path / "out" / "labels.csv").drop(columns="why")
    reports = data.rename(columns={"id": "task"})[["task", "label"]].assign(worker="ann").iloc[::-1]
    reports.to_csv(tmp_path / "reports.csv", index=False)
    result = audited(tmp_path, "--reports", tmp_path / "reports.csv", "--drop", "label", *options)
    assert result.exit_code == 0, result.output
    two = json.loads(result.stdout)
    assert two["expected_errors"] == one["expected_errors"] > 3
    again = pd.read_csv(tmp_path / "out" / "labels.csv").drop(columns="why")
    pd.testing.assert_frame_equal(again, labels)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse names that are not UTF-8")
def test_names_of_files_that_are_not_utf8(tmp_path):
    """The audit, its review and its ranking work; the page shows the bytes as escapes."""
    made_up(tmp_path)
    name = os.fsdecode(b"\xff\xfe.csv")
    (tmp_path / "data.csv").rename(tmp_path / name)
    out = tmp_path / os.fsdecode(b"out\xfd")
    options = ["--target", "label", "--drop", "id", "--probabilities", tmp_path / "proba.csv"]
    result = run("audit", tmp_path / name, *options, "-o", out)
    assert result.exit_code == 0, result.output
    page = (out / "index.html").read_text(encoding="utf-8")
    assert r"Labels of \xff\xfe.csv" in page
    assert json.loads((out / "audit.json").read_text(encoding="utf-8"))["source"] == r"\xff\xfe.csv"
    with DecisionsFile(out / "decisions.jsonl") as file:
        file.append(4, "change", "no")
    result = run("rerank", out)
    assert result.exit_code == 0, result.output
    assert r"Labels of \xff\xfe.csv" in (out / "index.html").read_text(encoding="utf-8")
    assert run("apply", out, "-o", tmp_path / "cleaned.csv").exit_code == 0
