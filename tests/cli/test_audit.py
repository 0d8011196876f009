"""``peerloss audit``, ``review`` and ``apply`` from the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from typer.testing import CliRunner

from peerloss.audit import _issues
from peerloss.audit.review._decisions import Journal
from peerloss.cli import app


@pytest.fixture
def run():
    def call(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return call


def made_up(folder, n=60):
    """Write a table with wrong labels in every tenth row, and probabilities of its labels."""
    clean = np.arange(n) % 2
    given = np.where(np.arange(n) % 10 == 0, 1 - clean, clean)
    p = np.where(clean == 1, 0.9, 0.1) + np.linspace(-0.05, 0.05, n)
    data = pd.DataFrame({"id": [f"r{i}" for i in range(n)], "x": clean + np.linspace(0, 0.3, n).round(3)})
    data["label"] = np.where(given == 1, "yes", "no")
    data.to_csv(folder / "data.csv", index=False)
    probabilities = pd.DataFrame({"probability_yes": p, "probability_no": 1 - p})
    probabilities.to_csv(folder / "proba.csv", index=False)
    return data, np.where(clean == 1, "yes", "no")


@pytest.fixture
def audited(run, tmp_path):
    data, clean = made_up(tmp_path)
    result = run(
        "audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out", "--id", "id",
        "--probabilities", tmp_path / "proba.csv", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return tmp_path, data, clean, json.loads(result.stdout)


def test_audit_writes_a_folder_and_says_what_is_in_it(audited):
    """Page, table, copy of the data and figures; the wrong labels are found."""
    folder, data, clean, told = audited
    assert sorted(p.name for p in (folder / "out").iterdir()) == [
        "audit.json",
        "data.csv",
        "index.html",
        "labels.csv",
    ]
    labels = pd.read_csv(folder / "out" / "labels.csv")
    wrong = (data["label"] != clean).to_numpy()
    assert labels["flagged"].to_numpy()[wrong].all()
    assert labels["name"].tolist() == data["id"].tolist()
    assert told["flagged"] == labels["flagged"].sum()
    assert (folder / "out" / "data.csv").read_bytes() == (folder / "data.csv").read_bytes()


class QuickPortfolio:
    """Stands in for PeerClassifier, which takes seconds."""

    def __init__(self, **_settings):
        pass

    def fit(self, X, y, **_more):
        """Cross-fit a logistic regression."""
        self.oof_proba_ = cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")
        return self


def test_audit_trains_models_without_probabilities(run, tmp_path, monkeypatch):
    """The portfolio is trained; gaps in labels are left out and told; the last line sums up."""
    monkeypatch.setattr(_issues, "PeerClassifier", QuickPortfolio)
    data, _ = made_up(tmp_path)
    data.loc[[3, 5], "label"] = None
    data.to_csv(tmp_path / "data.csv", index=False)
    result = run("audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out", "--drop", "id")
    assert result.exit_code == 0, result.output
    assert "Rows without a label, left out: 2" in result.output
    assert "labels are suspect" in result.output.strip().splitlines()[-1]
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert set(range(60)) - set(labels["row"]) == {3, 5}
    assert {0, 10, 20} <= set(labels["row"][labels["flagged"]]) <= set(range(0, 60, 10))


def test_apply_changes_only_what_was_decided(run, audited):
    """Decisions are applied, other cells are as they were; nobody's silence changes anything by default."""
    folder, data, _, _ = audited
    with Journal(folder / "out" / "decisions.jsonl") as journal:
        journal.append(10, "change", "yes" if data["label"][10] == "no" else "no")
        journal.append(20, "keep")
        journal.append(30, "skip")
    result = run("apply", folder / "out", "-o", folder / "cleaned.csv")
    assert result.exit_code == 0, result.output
    cleaned = pd.read_csv(folder / "cleaned.csv")
    assert np.flatnonzero(cleaned["label"] != data["label"]).tolist() == [10]
    pd.testing.assert_frame_equal(cleaned.drop(columns="label"), data.drop(columns="label"))
    assert "1 labels changed" in result.output


@pytest.mark.parametrize("rest", ["relabel", "drop"])
def test_apply_can_decide_the_rest(run, audited, rest):
    """`--rest relabel` takes suggestions, `--rest drop` leaves suspects out, but for what was decided."""
    folder, data, clean, _ = audited
    with Journal(folder / "out" / "decisions.jsonl") as journal:
        journal.append(0, "keep")
    result = run("apply", folder / "out", "-o", folder / "cleaned.csv", "--rest", rest, "--json")
    told = json.loads(result.stdout)
    cleaned = pd.read_csv(folder / "cleaned.csv").set_index("id")
    assert cleaned.loc["r0", "label"] == data["label"][0]
    if rest == "relabel":
        assert (cleaned["label"].to_numpy()[1:] == clean[1:]).all()
        assert told["dropped"] == 0
    else:
        assert told["rows"] == len(cleaned) == 60 - told["dropped"]
        assert not {"r10", "r20", "r30"} & set(cleaned.index)


def test_apply_keeps_cells_as_they_are_written(run, tmp_path):
    """Semicolons, quotes, spellings of numbers and rows without a label come through unchanged."""
    n = 40
    rows = ["number;text;class"]
    rows += [f'1.{i:03d}0;"a ""quoted"" text; {i}";{"b" if i % 2 else "a"}' for i in range(n)]
    rows += ["2;no label;"]
    (tmp_path / "data.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    proba = pd.DataFrame({"a": [0.9, 0.1] * (n // 2) + [0.5], "b": [0.1, 0.9] * (n // 2) + [0.5]})
    proba.to_csv(tmp_path / "p.csv", index=False)
    result = run(
        "audit",
        tmp_path / "data.csv",
        "--target",
        "class",
        "-o",
        tmp_path / "out",
        "--probabilities",
        tmp_path / "p.csv",
    )
    assert result.exit_code == 0, result.output
    with Journal(tmp_path / "out" / "decisions.jsonl") as journal:
        journal.append(0, "change", "b")
    assert run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv").exit_code == 0
    cleaned = (tmp_path / "cleaned.csv").read_text(encoding="utf-8").splitlines()
    assert cleaned[1] == rows[1][:-1] + "b"
    assert cleaned[2:] == rows[2:]


def test_line_ends_in_cells_survive_audit_and_apply(run, tmp_path):
    """A bare carriage return in a quoted cell is part of the cell: as many rows come out as went in."""
    rows = [f'"n\r{i}\r", 1.{i % 2} ,{"yes" if i % 2 else "no"}\r\n' for i in range(60)]
    content = "".join(["id,x,label\r\n", *rows]).encode()
    (tmp_path / "data.csv").write_bytes(content)
    pd.DataFrame({"no": [0.9, 0.1] * 30, "yes": [0.1, 0.9] * 30}).to_csv(tmp_path / "p.csv", index=False)
    result = run(
        "audit", tmp_path / "data.csv", "--target", "label", "--id", "id", "-o", tmp_path / "out",
        "--probabilities", tmp_path / "p.csv",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert labels["name"].tolist() == [f"n\r{i}\r" for i in range(60)]
    assert run("apply", tmp_path / "out", "-o", tmp_path / "same.csv").exit_code == 0
    assert (tmp_path / "same.csv").read_bytes() == content
    with Journal(tmp_path / "out" / "decisions.jsonl") as journal:
        journal.append(7, "change", "no")
    assert run("apply", tmp_path / "out", "-o", tmp_path / "changed.csv").exit_code == 0
    rows[7] = rows[7].replace("yes", "no")
    assert (tmp_path / "changed.csv").read_bytes() == "".join(["id,x,label\r\n", *rows]).encode()


def test_labels_that_were_changed_are_not_applied(run, audited):
    """A table that was cut at the end of a line is refused, unless the change is accepted."""
    folder, *_ = audited
    labels = folder / "out" / "labels.csv"
    labels.write_bytes(b"".join(labels.read_bytes().splitlines(keepends=True)[:31]))
    arguments = ("apply", folder / "out", "-o", folder / "cleaned.csv", "--rest", "relabel")
    result = run(*arguments)
    assert result.exit_code == 2
    assert "labels.csv is not as the audit wrote it" in result.stderr
    assert not (folder / "cleaned.csv").exists()
    result = run(*arguments, "--accept-edits")
    assert result.exit_code == 0, result.output
    assert "3 labels changed" in result.output


def test_labels_for_a_spreadsheet_are_applied_as_they_were(run, tmp_path):
    """`--spreadsheet-safe` changes what labels.csv shows, not what is applied."""
    table = pd.DataFrame({"x": range(40), "label": ["=a", "b"] * 20})
    table.loc[0, "label"] = "b"
    table.to_csv(tmp_path / "data.csv", index=False)
    pd.DataFrame({"=a": [0.9, 0.1] * 20, "b": [0.1, 0.9] * 20}).to_csv(tmp_path / "p.csv", index=False)
    result = run(
        "audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out",
        "--probabilities", tmp_path / "p.csv", "--spreadsheet-safe",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "'=a" in set(pd.read_csv(tmp_path / "out" / "labels.csv")["given"])
    result = run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv", "--rest", "relabel")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(tmp_path / "cleaned.csv")["label"].tolist() == ["=a", "b"] * 20


def test_several_annotators_become_one_label(run, tmp_path):
    """A column an annotator, with abstentions; apply adds a column with the majority or the decision."""
    clean = np.arange(40) % 2
    table = pd.DataFrame({"x": clean * 1.0, "ann": clean, "bob": clean, "cy": 1 - clean})
    table.loc[:9, "cy"] = -1
    table.to_csv(tmp_path / "data.csv", index=False)
    targets = [part for name in ("ann", "bob", "cy") for part in ("--target", name)]
    result = run(
        "audit", tmp_path / "data.csv", *targets, "--abstain", "-1", "--drop", "x", "-o", tmp_path / "out"
    )
    assert result.exit_code == 0, result.output
    with Journal(tmp_path / "out" / "decisions.jsonl") as journal:
        journal.append(4, "change", "1")
    assert run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv").exit_code == 0
    cleaned = pd.read_csv(tmp_path / "cleaned.csv")
    expected = clean.copy()
    expected[4] = 1
    assert cleaned["label"].tolist() == expected.tolist()
    assert cleaned["cy"].tolist() == table["cy"].tolist()


def test_a_table_of_reports(run, tmp_path):
    """Labels in a file of their own, tasks named by --id."""
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


def audit_reports(run, folder, *options):
    files = [folder / "data.csv", "--reports", folder / "reports.csv", "-o", folder / "out"]
    return run("audit", *files, "--json", *options)


@pytest.mark.parametrize("order", [None, 0])
@pytest.mark.parametrize("features", ["--drop", "--probabilities"])
def test_reports_without_id_are_matched_by_row_number(run, tmp_path, order, features):
    """Tasks are numbers of rows, counted from 0, in any order; unlabelled rows are left out."""
    _, clean = made_up(tmp_path)
    long_table(tmp_path, clean[2:], range(2, 60), order)
    more = ["--drop", "x", "--drop", "label", "--drop", "id"]
    more += ["--probabilities", tmp_path / "proba.csv"] if features == "--probabilities" else []
    result = audit_reports(run, tmp_path, *more)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows_without_label"] == 2
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert labels["row"].tolist() == list(range(2, 60))
    assert labels["given"].tolist() == clean[2:].tolist()
    assert labels["suggested"].tolist() == clean[2:].tolist()


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
def test_numbers_as_names_match_across_files(run, tmp_path, ids, tasks):
    """1 and 1.0 are one name in both files; 01 and 1 are two."""
    data, clean = made_up(tmp_path)
    names = [ids(i) for i in range(2, 60)]
    data[["x"]].iloc[2:].assign(number=names).to_csv(tmp_path / "data.csv", index=False)
    long_table(tmp_path, clean[2:], [tasks(i) for i in range(2, 60)], order=1)
    result = audit_reports(run, tmp_path, "--id", "number", "--drop", "x")
    assert result.exit_code == 0, result.output
    labels = pd.read_csv(tmp_path / "out" / "labels.csv", dtype=str)
    assert labels["given"].tolist() == clean[2:].tolist()


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (
            range(1, 61),
            [],
            "without --id, tasks must be numbers of rows, counted from 0: 0 to 59; found '60'",
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
def test_reports_that_do_not_match_are_refused(run, tmp_path, names, options, message):
    """The message says what tasks must be and what was found; nothing is written."""
    _, clean = made_up(tmp_path)
    long_table(tmp_path, clean, names)
    before = sorted(tmp_path.iterdir())
    result = audit_reports(run, tmp_path, *options)
    assert result.exit_code == 2
    assert message in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_one_of_several_reports_is_kept(run, tmp_path):
    """`--duplicates last` keeps the last label of each annotator and task."""
    _, clean = made_up(tmp_path)
    table = long_table(tmp_path, clean, range(60))
    wrong = table.assign(label=np.where(table["label"] == "yes", "no", "yes"))
    pd.concat([wrong, table]).to_csv(tmp_path / "reports.csv", index=False)
    more = ["--drop", "x", "--drop", "label", "--drop", "id", "--duplicates", "last"]
    assert audit_reports(run, tmp_path, *more).exit_code == 0
    assert pd.read_csv(tmp_path / "out" / "labels.csv")["given"].tolist() == clean.tolist()


@pytest.mark.parametrize("id_column", [None, "number"])
@pytest.mark.parametrize("kept", ["first", "last"])
def test_one_report_is_kept_of_a_task_that_is_written_in_two_ways(run, tmp_path, id_column, kept):
    """3 and 3.0 are one task; which of its labels counts is chosen like that of any other task."""
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
    result = audit_reports(run, tmp_path, *more, "--duplicates", kept)
    assert result.exit_code == 0, result.output
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert labels["given"].tolist() == clean.tolist()
    result = audit_reports(run, tmp_path, *more)
    assert result.exit_code == 2
    assert "reports.csv must hold one label for each task and worker" in result.stderr


def wrong_proba(folder):
    pd.DataFrame({"yes": ["a"] * 60, "no": ["b"] * 60}).to_csv(folder / "proba.csv", index=False)


def not_one(folder):
    pd.DataFrame({"yes": [0.9] * 60, "no": [0.9] * 60}).to_csv(folder / "proba.csv", index=False)


def other_classes(folder):
    pd.DataFrame({"yes": [0.9] * 60, "maybe": [0.1] * 60}).to_csv(folder / "proba.csv", index=False)


def too_short(folder):
    pd.DataFrame({"yes": [0.9] * 5, "no": [0.1] * 5}).to_csv(folder / "proba.csv", index=False)


def same_id(folder):
    data = pd.read_csv(folder / "data.csv")
    data.loc[7, "id"] = "r3"
    data.to_csv(folder / "data.csv", index=False)


def nothing(_folder):
    pass


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (wrong_proba, ["--target", "label"], "must hold numbers"),
        (not_one, ["--target", "label"], "sum of 1.8"),
        (other_classes, ["--target", "label"], "column for each label; 'no' is missing"),
        (too_short, ["--target", "label"], "one row for each row of the data; it has 5"),
        (same_id, ["--target", "label"], "'r3' comes more than once"),
        (nothing, ["--target", "lable"], "lable"),
        (nothing, ["--target", "x"], "must hold classes; it holds measurements"),
        (nothing, [], "--target"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(run, tmp_path, spoil, options, message):
    """One line says what is wrong; no folder is left behind, not even a hidden one."""
    made_up(tmp_path)
    spoil(tmp_path)
    before = sorted(tmp_path.iterdir())
    result = run(
        "audit", tmp_path / "data.csv", *options, "--id", "id", "-o", tmp_path / "out",
        "--probabilities", tmp_path / "proba.csv",
    )  # fmt: skip
    assert result.exit_code == 2
    assert message in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_with_decisions_is_not_replaced(run, audited):
    """An audit may be made anew, but not over a person's work, nor over anything else."""
    folder, *_ = audited
    arguments = (
        "audit", folder / "data.csv", "--target", "label", "-o", folder / "out",
        "--probabilities", folder / "proba.csv",
    )  # fmt: skip
    assert run(*arguments).exit_code == 0
    (folder / "out" / "decisions.jsonl").write_text("")
    result = run(*arguments)
    assert result.exit_code == 2
    assert "holds decisions of a review" in result.output
    result = run(*arguments[:4], "-o", folder, *arguments[6:])
    assert result.exit_code == 2
    assert "holds other things" in result.output
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("command", ["review", "apply"])
def test_folders_that_are_no_audit_are_refused(run, audited, command):
    """No manifest, a damaged one, changed data, or a manifest that points elsewhere: all are told."""
    folder, *_ = audited
    extra = ["--no-browser"] if command == "review" else ["-o", str(folder / "cleaned.csv")]
    assert "is not an audit" in run(command, folder, *extra).output
    data, manifest = folder / "out" / "data.csv", folder / "out" / "audit.json"
    whole = data.read_bytes()
    data.write_bytes(whole + b"r99,1,no\n")
    assert "was changed since" in run(command, folder / "out", *extra).output
    data.write_bytes(whole)
    written = manifest.read_text()
    manifest.write_text(written.replace('"data.csv"', '"../data.csv"'))
    assert "not an audit that this version can read" in run(command, folder / "out", *extra).output
    manifest.write_text("{")
    assert "damaged audit" in run(command, folder / "out", *extra).output
    assert not (folder / "cleaned.csv").exists()


def test_apply_refuses_decisions_of_another_audit(run, audited):
    """A row or a label that the audit does not know stops everything."""
    folder, *_ = audited
    with Journal(folder / "out" / "decisions.jsonl") as journal:
        journal.append(5, "change", "maybe")
    result = run("apply", folder / "out", "-o", folder / "cleaned.csv")
    assert result.exit_code == 2
    assert "not of this audit" in result.output
    assert not (folder / "cleaned.csv").exists()


@pytest.mark.parametrize("name", ["cleaned.txt", "out/cleaned.csv"])
def test_apply_refuses_odd_places(run, audited, name):
    """The output is a CSV outside of the audit."""
    folder, *_ = audited
    result = run("apply", folder / "out", "-o", folder / name)
    assert result.exit_code == 2
    assert "--output must" in result.output
