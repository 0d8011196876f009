"""``peerloss audit --reports``: labels of several annotators in a separate table."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.audits import made_up, run


def test_a_table_of_reports(tmp_path):
    """Labels come from a separate file, with tasks named by --id."""
    data, clean = made_up(tmp_path)
    data[["id", "x"]].to_csv(tmp_path / "data.csv", index=False)
    reports = pd.DataFrame([(f"r{i}", who, clean[i]) for i in range(60) for who in ("ann", "bob")])
    reports.set_axis(["item", "worker", "label"], axis=1).to_csv(tmp_path / "reports.csv", index=False)
    result = run(
        "audit", tmp_path / "data.csv", "--reports", tmp_path / "reports.csv", "--id", "id", "--drop", "x",
        "-o", tmp_path / "out", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 60


def long_table(folder, clean, names, order=None, column="item"):
    """Write reports of three annotators on the rows with these names."""
    rows = [
        (name, who, label) for name, label in zip(names, clean, strict=True) for who in ("ann", "bob", "cy")
    ]
    table = pd.DataFrame(rows, columns=[column, "worker", "label"])
    table = table.sample(frac=1, random_state=order) if order is not None else table
    table.to_csv(folder / "reports.csv", index=False)
    return table


def audit_reports(folder, *options):
    files = [folder / "data.csv", "--reports", folder / "reports.csv", "-o", folder / "out"]
    return run("audit", *files, "--json", *options)


@pytest.mark.parametrize("order", [None, 0])
@pytest.mark.parametrize("features", ["--drop", "--probabilities"])
def test_reports_without_id_are_matched_by_row_number(tmp_path, order, features):
    """Tasks are row numbers, counted from 0, in any order; rows without labels are left out."""
    _, clean = made_up(tmp_path)
    long_table(tmp_path, clean[2:], range(2, 60), order)
    more = ["--drop", "x", "--drop", "label", "--drop", "id"]
    more += ["--probabilities", tmp_path / "proba.csv"] if features == "--probabilities" else []
    result = audit_reports(tmp_path, *more)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows_without_label"] == 2
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert labels["row"].tolist() == list(range(2, 60))
    assert labels["given"].tolist() == clean[2:].tolist()
    assert (labels["suggested"] != labels["given"]).all()


@pytest.mark.parametrize(
    ("ids", "tasks"),
    [
        (lambda i: i + 7, lambda i: i + 7),
        (lambda i: i + 7, lambda i: f"{i + 7}.0"),
        (lambda i: f"{i + 7}.0", lambda i: i + 7),
        (lambda i: f"{i:03d}", lambda i: f"{i:03d}"),
        (lambda i: f"0{i}" if i % 2 else f"{i - 1}", lambda i: f"0{i}" if i % 2 else f"{i - 1}"),
    ],
)
def test_numbers_as_names_match_across_files(tmp_path, ids, tasks):
    """1 and 1.0 are the same name in both files; 01 and 1 are different."""
    data, clean = made_up(tmp_path)
    names = [ids(i) for i in range(2, 60)]
    data[["x"]].iloc[2:].assign(number=names).to_csv(tmp_path / "data.csv", index=False)
    long_table(tmp_path, clean[2:], [tasks(i) for i in range(2, 60)], order=1)
    result = audit_reports(tmp_path, "--id", "number", "--drop", "x")
    assert result.exit_code == 0, result.output
    labels = pd.read_csv(tmp_path / "out" / "labels.csv", dtype=str)
    assert labels["given"].tolist() == clean[2:].tolist()


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (
            range(1, 61),
            [],
            "without --id, tasks must be row numbers, counted from 0: 0 to 59; found '60'",
        ),
        ([f"r{i}" for i in range(60)], [], "found 'r0'. If tasks are counted from 1"),
        ([f"{i:03d}" for i in range(60)], [], "found '000'"),
        (range(60), ["--id", "id"], "every task must be an entry of --id 'id', such as 'r0'; '0' is not"),
        (
            [f"r{i}" for i in range(60)],
            ["--id", "id", "--duplicates", "all"],
            "`--duplicates` must be one of",
        ),
        ([f"r{i // 2}" for i in range(60)], ["--id", "id"], "item r0, worker ann has more"),
    ],
)
def test_reports_that_do_not_match_are_refused(tmp_path, names, options, message):
    """The message shows which tasks are expected and which were found; nothing is written."""
    _, clean = made_up(tmp_path)
    long_table(tmp_path, clean, names)
    before = sorted(tmp_path.iterdir())
    result = audit_reports(tmp_path, *options)
    assert result.exit_code == 2
    assert message in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_one_of_several_reports_is_kept(tmp_path):
    """`--duplicates last` keeps the last label of each annotator and task."""
    _, clean = made_up(tmp_path)
    table = long_table(tmp_path, clean, range(60))
    wrong = table.assign(label=np.where(table["label"] == "yes", "no", "yes"))
    pd.concat([wrong, table]).to_csv(tmp_path / "reports.csv", index=False)
    more = ["--drop", "x", "--drop", "label", "--drop", "id", "--duplicates", "last"]
    assert audit_reports(tmp_path, *more).exit_code == 0
    assert pd.read_csv(tmp_path / "out" / "labels.csv")["given"].tolist() == clean.tolist()


@pytest.mark.parametrize("id_column", [None, "number"])
@pytest.mark.parametrize("kept", ["first", "last"])
def test_duplicates_of_a_task_in_two_spellings(tmp_path, id_column, kept):
    """3 and 3.0 are one task, so that their reports are duplicates."""
    data, clean = made_up(tmp_path)
    data.assign(number=range(60)).to_csv(tmp_path / "data.csv", index=False)
    table = long_table(tmp_path, clean, range(60))
    wrong = table.assign(
        label=np.where(table["label"] == "yes", "no", "yes"), item=table["item"].map("{}.0".format)
    )
    both = [table, wrong] if kept == "first" else [wrong, table]
    pd.concat(both).to_csv(tmp_path / "reports.csv", index=False)
    more = ["--drop", "x", "--drop", "label", "--drop", "id"]
    more += ["--id", id_column] if id_column else ["--drop", "number"]
    result = audit_reports(tmp_path, *more, "--duplicates", kept)
    assert result.exit_code == 0, result.output
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert labels["given"].tolist() == clean.tolist()
    result = audit_reports(tmp_path, *more)
    assert result.exit_code == 2
    assert "reports.csv must hold one label per task and worker" in result.stderr
