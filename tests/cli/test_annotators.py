"""``peerloss annotators`` from the command line."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from peerloss.cli import app
from peerloss.crowd import aggregate_labels, read_reports, score_annotators
from tests.crowd.crowds import random_crowd
from tests.crowd.test_unpaid_copies import with_copier


def run(*arguments):
    return CliRunner().invoke(app, ["annotators", *map(str, arguments)])


@pytest.fixture
def crowd(tmp_path):
    """Write a table with a column item, whose codes start with a zero."""
    frame = random_crowd(0, n_tasks=40, n_workers=8)
    frame = frame.rename(columns={"task": "item"}).assign(
        item=[f"{t:03d}" for t in frame["task"]], label=np.array(["cat", "dog", "<b>"])[frame["label"]]
    )
    path = tmp_path / "crowd.csv"
    frame.to_csv(path, index=False)
    return path


def test_names_for_a_spreadsheet(tmp_path):
    """By default names are written unchanged; with the option no cell starts a formula."""
    frame = random_crowd(0, n_tasks=40, n_workers=8)
    frame = frame.assign(worker=[f"=w{w}\r" for w in frame["worker"]])
    frame.to_csv(tmp_path / "crowd.csv", index=False, quoting=csv.QUOTE_ALL)
    for option, first in ([], "="), (["--spreadsheet-safe"], "'="):
        done = run(tmp_path / "crowd.csv", "-o", tmp_path / "s.csv", *option)
        assert done.exit_code == 0, done.output
        written = pd.read_csv(tmp_path / "s.csv")
        assert len(written) == frame["worker"].nunique()
        assert written["worker"].str.startswith(first + "w").all()
        assert r"\r" in done.stdout


def test_files_hold_what_the_functions_return(crowd, tmp_path):
    """Scores, payments and labels are those of the library; the last line sums up."""
    out, labels, copies = tmp_path / "out" / "scores.csv", tmp_path / "labels.csv", tmp_path / "copies.csv"
    options = ["--budget", "99.99", "--aggregate", labels, "--copies", copies, "--seed", 5]
    done = run(crowd, "-o", out, *options)
    assert done.exit_code == 0, done.output
    table = pd.read_csv(crowd, dtype=str)
    expected = score_annotators(table, budget="99.99", random_state=5)
    written = pd.read_csv(out, dtype={"worker": str}).set_index("worker")
    pd.testing.assert_frame_equal(expected, written, check_index_type=False)
    assert sum(round(float(p) * 100) for p in written["payment"]) < 9999
    assert f"{written['payment'].sum():.2f} of at most 99.99" in done.stdout
    aggregated = pd.read_csv(labels, dtype={"task": str}).set_index("task")
    pd.testing.assert_frame_equal(aggregated, aggregate_labels(table), check_index_type=False)
    assert copies.read_text().startswith("worker,other,")
    assert "not an accuracy" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(f"written to {out}.")
    assert {path.name for path in tmp_path.iterdir()} == {"crowd.csv", "labels.csv", "copies.csv", "out"}


def test_the_untruthful_split_prints_a_warning(crowd, tmp_path):
    """The whole budget is paid, and the output warns that this is not truthful."""
    done = run(crowd, "-o", tmp_path / "s.csv", "--budget", "99.99", "--payment", "untruthful_split")
    assert done.exit_code == 0, done.output
    written = pd.read_csv(tmp_path / "s.csv")
    assert sum(round(float(p) * 100) for p in written["payment"]) == 9999
    assert "This split is not truthful" in done.stdout


def test_the_floor_is_paid_for_every_task(crowd, tmp_path):
    """`--floor` is the least pay per task."""
    done = run(crowd, "-o", tmp_path / "s.csv", "--budget", "500", "--floor", "0.25")
    assert done.exit_code == 0, done.output
    written = pd.read_csv(tmp_path / "s.csv")
    assert (written["payment"] >= 0.25 * written["n_tasks"]).all()


def test_one_of_several_labels_is_kept(tmp_path):
    """`--duplicates` keeps the first or the last label; the error names the columns of the file."""
    path = tmp_path / "c.csv"
    rows = [f"{t},{w},{'xy'[t % 2]}\n" for t in range(6) for w in "abc"]
    path.write_text("item,worker,label\n" + "".join(rows) + "0,a,y\n")
    done = run(path, "-o", tmp_path / "s.csv")
    assert done.exit_code == 2
    assert "columns 'item' and 'worker'); item 0, worker a has more" in done.stderr
    assert "--duplicates first" in done.stderr
    agreement = {}
    for kept in ("first", "last"):
        done = run(path, "-o", tmp_path / "s.csv", "--duplicates", kept)
        assert done.exit_code == 0, done.output
        agreement[kept] = pd.read_csv(tmp_path / "s.csv").set_index("worker").loc["a", "agreement"]
    assert agreement == {"first": 1.0, "last": pytest.approx(5 / 6)}


def test_known_labels_are_used(crowd, tmp_path):
    """`--gold` reads tasks and labels as text, and both files hold what the functions return with them."""
    gold, labels = tmp_path / "gold.csv", tmp_path / "labels.csv"
    gold.write_text("item,label\n003,dog\n007,cat\n011,\n")
    done = run(crowd, "-o", tmp_path / "s.csv", "--aggregate", labels, "--gold", gold)
    assert done.exit_code == 0, done.output
    assert "Tasks with a known label: 2." in done.stdout
    table, known = pd.read_csv(crowd, dtype=str), {"003": "dog", "007": "cat"}
    aggregated = pd.read_csv(labels, dtype={"task": str}).set_index("task")
    expected = aggregate_labels(table, gold=known)
    pd.testing.assert_frame_equal(aggregated, expected, check_index_type=False)
    assert aggregated.loc[["003", "007"], "label"].tolist() == ["dog", "cat"]
    written = pd.read_csv(tmp_path / "s.csv", dtype={"worker": str}).set_index("worker")
    scores = score_annotators(table, gold=known, random_state=0)
    pd.testing.assert_frame_equal(scores, written, check_index_type=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,label\n003,dog\n", "must have the columns task (or item) and label"),
        ("task,label\n003,dog\n003,cat\n", "must have one label per task; '003' has more"),
        ("task,label\n,dog\n", "must name the task of every label"),
        ("task,label\n999,dog\n", "must name tasks of the reports"),
        ("task,label\n003,cow\n", "must hold labels that a worker gave"),
    ],
)
def test_known_labels_that_do_not_match_are_refused(crowd, tmp_path, text, message):
    """The message names the fault of the gold file; nothing is written."""
    gold = tmp_path / "gold.csv"
    gold.write_text(text)
    done = run(crowd, "-o", tmp_path / "s.csv", "--gold", gold)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "s.csv").exists()


def test_the_gold_file_is_not_overwritten(crowd, tmp_path):
    """The output must not be the file of known labels."""
    gold = tmp_path / "gold.csv"
    gold.write_text("task,label\n003,dog\n")
    done = run(crowd, "-o", gold, "--gold", gold)
    assert done.exit_code == 2
    assert "must not be the input file" in done.stderr
    assert gold.read_text() == "task,label\n003,dog\n"


def test_warnings_about_classes_are_lines(crowd, tmp_path, monkeypatch):
    """A warning of the model is one line on stderr, and is part of the JSON summary."""
    monkeypatch.setattr("peerloss.crowd._report_matrix.PRIOR_FACTOR", 0.0)
    monkeypatch.setattr("peerloss.crowd._report_matrix.PRIOR_EXCESS", -1.0)
    done = run(crowd, "-o", tmp_path / "s.csv", "--json")
    assert done.exit_code == 0, done.output
    (message,) = json.loads(done.stdout)["warnings"]
    assert f"Warning: {message}" in done.stderr
    assert "of the votes, but is estimated to be the true label" in message


@pytest.mark.parametrize("mechanism", ["quadratic", "log"])
def test_other_mechanisms_and_json(crowd, tmp_path, mechanism):
    """JSON holds the summary and nothing else is printed."""
    done = run(crowd, "-o", tmp_path / "s.csv", "--mechanism", mechanism, "--jobs", 2, "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["mechanism"] == mechanism
    assert summary["workers"] == 8
    assert summary["labels"] == ["<b>", "cat", "dog"]
    assert summary["false_positive_rate"] == 0.05


def test_wide_and_long_tables_give_the_same_scores(crowd, tmp_path):
    """A table with one column per worker gives the same scores, with or without task names."""
    table = pd.read_csv(crowd, dtype=str)
    wide = table.set_index(["item", "worker"])["label"].unstack("worker")  # noqa: PD010 (text has no mean)
    wide.to_csv(tmp_path / "wide.csv")
    wide.to_csv(tmp_path / "nameless.csv", index=False)
    done = run(tmp_path / "wide.csv", "-o", tmp_path / "s.csv", "--wide")
    assert done.exit_code == 0, done.output
    exact = ["score", "n_tasks", "agreement", "accuracy", "uninformative"]
    expected = score_annotators(table, random_state=0)[exact]
    written = pd.read_csv(tmp_path / "s.csv", dtype={"worker": str}).set_index("worker")
    pd.testing.assert_frame_equal(written.loc[expected.index, exact], expected, check_index_type=False)
    nameless = score_annotators(read_reports(tmp_path / "nameless.csv", wide=True), random_state=0)[exact]
    pd.testing.assert_frame_equal(nameless.loc[expected.index], expected, check_index_type=False)


def test_rows_without_a_label_are_counted(tmp_path):
    """A missing label is not an answer; the command prints how many there were."""
    path = tmp_path / "c.csv"
    path.write_text(
        "task,worker,label\n" + "".join(f"{t},{w},{t % 2}\n" for t in range(5) for w in "abc") + "9,a,\n"
    )
    done = run(path, "-o", tmp_path / "s.csv")
    assert done.exit_code == 0, done.output
    assert "Rows without a label, left out: 1." in done.stdout


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("job,annotator,label\n1,a,x\n", [], "task (or item), worker missing among ['job',"),
        ("task,ann\n1,x\n", ["--wide"], "one column per worker, at least two"),
        ("task,ann,bob\n1,x,y\n1,y,y\n", ["--wide"], "one row per task; '1' has more"),
        ("task,worker,label\n1,a,x\n2,a,y\n", [], "a task with labels of two workers"),
        ("task,worker,label\n1,a,x\n1,a,y\n1,b,y\n", [], "task 1, worker a has more"),
        ("task,worker,label\n1,a,\n1,b,\n", [], "at least one report with a label"),
        ("task,worker,label\n1,a,x\n1,b,x\n", [], "at least two different labels"),
        ("task,worker,label\n1,,x\n1,b,y\n", [], "must name the worker of every report"),
        ("task,worker,label\n1,a\n", [], "line 2: expected 3 fields"),
        ("task,worker,label\n1,a,x\n1,b,y\n", ["--mechanism", "vote"], "`--mechanism` must be one of"),
        ("task,worker,label\n1,a,x\n1,b,y\n", ["--duplicates", "all"], "`--duplicates` must be one of"),
        ("task,worker,label\n1,a,x\n1,b,y\n", ["--payment", "all"], "`--payment` must be one of"),
        ("task,worker,label\n1,a,x\n1,b,y\n", ["--budget", "1.234"], "positive sum in whole cents"),
        (
            "task,worker,label\n1,a,x\n1,b,y\n",
            ["--budget", "1", "--payment", "untruthful_split"],
            "no weight is above zero",
        ),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, text, options, message):
    """The message names the fault; nothing is written."""
    path = tmp_path / "crowd.csv"
    path.write_text(text)
    done = run(path, "-o", tmp_path / "scores.csv", *options)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert [found.name for found in tmp_path.iterdir()] == ["crowd.csv"]


@pytest.mark.parametrize(
    ("output", "more", "message"),
    [
        ("crowd.csv", [], "must not be the input file"),
        ("scores.txt", [], "must be a file whose name ends in .csv"),
        ("s.csv", ["--aggregate", "s.csv"], "--aggregate and --output must be different files"),
    ],
)
def test_refuses_outputs_that_would_overwrite_files(crowd, monkeypatch, output, more, message):
    """Outputs must be CSV files that differ from the input and from each other."""
    monkeypatch.chdir(crowd.parent)
    before = crowd.read_bytes()
    done = run(crowd, "-o", output, *more)
    assert done.exit_code == 2
    assert message in done.stderr
    assert crowd.read_bytes() == before
    assert [path.name for path in crowd.parent.iterdir()] == ["crowd.csv"]


def test_columns_with_other_names_are_read(crowd, tmp_path):
    """The scores are those of the same table with the usual names; so are those with known labels."""
    names = ["image", "rater", "answer"]
    options = ["--task-column", "image", "--worker-column", "rater", "--label-column", "answer"]
    pd.read_csv(crowd, dtype=str).set_axis(names, axis=1).assign(task="unused").to_csv(
        tmp_path / "named.csv", index=False
    )
    (tmp_path / "gold.csv").write_text("task,label\n003,dog\n")
    (tmp_path / "gold named.csv").write_text("image,answer\n003,dog\n")
    written = []
    for table, gold, more in (
        (crowd, "gold.csv", []),
        (tmp_path / "named.csv", "gold.csv", options),
        (tmp_path / "named.csv", "gold named.csv", options),
    ):
        done = run(table, "-o", tmp_path / "s.csv", "--gold", tmp_path / gold, *more)
        assert done.exit_code == 0, done.output
        written.append((tmp_path / "s.csv").read_text())
    assert written == [written[0]] * 3


def test_other_encodings_separators_and_formats(crowd, tmp_path):
    """The scores are those of the usual file; a file of known labels may be UTF-8."""
    table = pd.read_csv(crowd, dtype=str).assign(label=lambda t: t["label"].replace("dog", "Grün"))
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "b.csv", index=False, encoding="cp1252", sep="!")
    table.to_json(tmp_path / "c.jsonl", orient="records", lines=True)
    (tmp_path / "gold.csv").write_text("task,label\n003,Grün\n", encoding="utf-8")
    written = []
    for name, more in (("a.csv", []), ("b.csv", ["--encoding", "cp1252", "--sep", "!"]), ("c.jsonl", [])):
        done = run(tmp_path / name, "-o", tmp_path / "s.csv", "--gold", tmp_path / "gold.csv", *more)
        assert done.exit_code == 0, done.output
        written.append((tmp_path / "s.csv").read_text())
    assert written == [written[0]] * 3


def test_spellings_are_named_and_merged(crowd, tmp_path):
    """Spellings of one label would count as disagreement; known labels are merged in the same way."""
    table = pd.read_csv(crowd, dtype=str)
    odd = table.assign(label=table["label"].where(table.index % 3 > 0, table["label"].str.upper() + " "))
    odd.to_csv(tmp_path / "odd.csv", index=False)
    for name, text in (("gold", "003,dog"), ("odd gold", "003,Dog ")):
        (tmp_path / f"{name}.csv").write_text(f"task,label\n{text}\n")
    usual = run(crowd, "-o", tmp_path / "a.csv", "--gold", tmp_path / "gold.csv")
    assert "--tidy-labels" not in usual.output
    named = run(tmp_path / "odd.csv", "-o", tmp_path / "b.csv")
    assert "'dog', 'DOG ' look like one class; use `--tidy-labels` to merge them." in named.output
    gold = ["--gold", tmp_path / "odd gold.csv"]
    merged = run(tmp_path / "odd.csv", "-o", tmp_path / "b.csv", "--tidy-labels", *gold)
    assert "look like one class" not in merged.output
    assert "'DOG ' is read as 'dog'." in merged.output
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "task (or item), label missing among ['image', 'worker', 'answer']"),
        ([], "--task-column, --worker-column, --label-column"),
        (["--task-column", "imag"], "has no column 'imag'; its columns are 'image', 'worker', 'answer'."),
        (["--task-column", "imag"], "Did you mean 'image'?"),
        (["--task-column", "image", "--label-column", "image"], "must be three different columns; got"),
        (["--wide", "--label-column", "answer"], "--label-column cannot be used with it"),
    ],
)
def test_missing_columns_are_listed_with_those_found(tmp_path, options, message):
    """The message names the columns of the file and the options; nothing is written."""
    (tmp_path / "c.csv").write_text("image,worker,answer\n1,a,x\n1,b,y\n")
    done = run(tmp_path / "c.csv", "-o", tmp_path / "s.csv", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "s.csv").exists()


def test_unpaid_copies_are_explained(tmp_path):
    """The output lists the workers and how many of their tasks are not paid; `--pay-copies` pays them."""
    table, _ = with_copier(0, 0.8)
    table.to_csv(tmp_path / "c.csv", index=False)
    done = run(tmp_path / "c.csv", "-o", tmp_path / "s.csv", "--budget", 100)
    assert done.exit_code == 0, done.output
    unpaid = 400 - pd.read_csv(tmp_path / "s.csv").set_index("worker").loc["copier", "paid_tasks"]
    assert "An answer is paid once" in done.stdout
    assert f"Tasks not paid: copier {unpaid:g}. Pay them with --pay-copies." in done.stdout
    done = run(tmp_path / "c.csv", "-o", tmp_path / "s.csv", "--budget", 100, "--pay-copies", "--json")
    assert json.loads(done.stdout)["unpaid_copies"] == {}


def test_one_worker_is_singular(tmp_path):
    """Numbers agree with their nouns."""
    rows = [f"{t},{w},{'xy'[t % 2]}\n" for t in range(30) for w in "abc"] + [f"{t},d,x\n" for t in range(30)]
    (tmp_path / "c.csv").write_text("task,worker,label\n" + "".join(rows))
    done = run(tmp_path / "c.csv", "-o", tmp_path / "s.csv")
    last = done.stdout.splitlines()[-1]
    assert last.startswith("120 reports of 4 workers on 30 tasks, 2 labels; ")
    assert "1 worker seems to guess" in last
