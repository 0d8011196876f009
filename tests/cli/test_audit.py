"""``peerloss audit`` from the command line."""

import json

import pandas as pd
import pytest

from peerloss.audit._stored_evidence import read_evidence
from peerloss.audit.folder import read_folder
from peerloss.posterior.flags import FlagRule
from tests.cli.audits import made_up, run


def test_audit_writes_a_folder_and_a_summary(audited):
    """The folder has the page, the labels, a copy of the data and the manifest; wrong labels are found."""
    folder, data, clean, summary = audited
    assert sorted(p.name for p in (folder / "out").iterdir()) == [
        "audit.json",
        "data.csv",
        "explanations.json",
        "index.html",
        "labels.csv",
        "probabilities.npy",
    ]
    labels = pd.read_csv(folder / "out" / "labels.csv")
    wrong = (data["label"] != clean).to_numpy()
    assert labels["flagged"].to_numpy()[wrong].all()
    assert labels["name"].tolist() == data["id"].tolist()
    assert summary["flagged"] == labels["flagged"].sum()
    assert (folder / "out" / "data.csv").read_bytes() == (folder / "data.csv").read_bytes()


@pytest.mark.usefixtures("quick_models")
def test_audit_trains_models_without_probabilities(tmp_path):
    """The portfolio is trained; rows without a label are left out and counted; the last line sums up."""
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


def test_the_user_chooses_which_rows_are_suspects(tmp_path):
    """Suspects of a precision of 1 are fewer than those of the best F1; `rerank` keeps the rule."""
    made_up(tmp_path)
    audit = ("audit", tmp_path / "data.csv", "--target", "label", "--id", "id", "--json")
    audit = (*audit, "--probabilities", tmp_path / "proba.csv")
    found = {}
    for name, rule in {"f1": ["--flags", "f1"], "sure": ["--flags", "precision", "--level", "0.999"]}.items():
        result = run(*audit, "-o", tmp_path / name, *rule)
        assert result.exit_code == 0, result.output
        found[name] = json.loads(result.stdout)["flagged"]
    assert found["sure"] < found["f1"]
    assert read_evidence(read_folder(tmp_path / "sure")).rule == FlagRule("precision", 0.999)


def not_numbers(folder):
    pd.DataFrame({"yes": ["a"] * 60, "no": ["b"] * 60}).to_csv(folder / "proba.csv", index=False)


def not_summing_to_one(folder):
    pd.DataFrame({"yes": [0.9] * 60, "no": [0.9] * 60}).to_csv(folder / "proba.csv", index=False)


def other_classes(folder):
    pd.DataFrame({"yes": [0.9] * 60, "maybe": [0.1] * 60}).to_csv(folder / "proba.csv", index=False)


def too_short(folder):
    pd.DataFrame({"yes": [0.9] * 5, "no": [0.1] * 5}).to_csv(folder / "proba.csv", index=False)


def too_long(folder):
    pd.DataFrame({"yes": [0.9] * 61, "no": [0.1] * 61}).to_csv(folder / "proba.csv", index=False)


def same_id(folder):
    data = pd.read_csv(folder / "data.csv")
    data.loc[7, "id"] = "r3"
    data.to_csv(folder / "data.csv", index=False)


def one_class(folder):
    pd.read_csv(folder / "data.csv").assign(label="yes").to_csv(folder / "data.csv", index=False)


def unchanged(_folder):
    pass


@pytest.mark.parametrize(
    ("corrupt", "options", "message"),
    [
        (not_numbers, ["--target", "label"], "must hold numbers"),
        (not_summing_to_one, ["--target", "label"], "sum of 1.8"),
        (other_classes, ["--target", "label"], "one column per label; 'no' is missing"),
        (too_short, ["--target", "label"], "one row per row of the data; it has 5"),
        (too_long, ["--target", "label"], "one row per row of the data; it has 61, the data 60"),
        (same_id, ["--target", "label"], "'r3' occurs more than once"),
        (unchanged, ["--target", "lable"], "lable"),
        (unchanged, ["--target", "x"], "must hold classes; it holds measurements"),
        (one_class, ["--target", "label"], "column 'label' must hold at least two classes; every label is"),
        (unchanged, [], "pass --target, the column of the labels, or --reports"),
        (unchanged, [], "data.csv are 'id', 'x', 'label'."),
        (unchanged, ["--target", "label", "--reports", "r.csv"], "not both."),
        (unchanged, ["--target", "label", "--flags", "recall"], "`--flags` must be one of"),
        (unchanged, ["--target", "label", "--level", "1.2"], "`--level` must lie in (0, 1]; got 1.2"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(tmp_path, corrupt, options, message):
    """The message names the fault; no folder is left behind, not even a hidden one."""
    made_up(tmp_path)
    corrupt(tmp_path)
    before = sorted(tmp_path.iterdir())
    result = run(
        "audit", tmp_path / "data.csv", *options, "--id", "id", "-o", tmp_path / "out",
        "--probabilities", tmp_path / "proba.csv",
    )  # fmt: skip
    assert result.exit_code == 2
    assert message in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_a_number_that_means_no_label_is_found_among_missing_labels(tmp_path):
    """-1 is meant whether the file has empty labels or not, and however the number is written."""
    for given in ("-1", "-1.0"):
        data, _ = made_up(tmp_path)
        numbers = data["label"].map({"no": "0", "yes": "1"})
        data.assign(label=numbers.mask(data.index == 3, given).mask(data.index == 5)).to_csv(
            tmp_path / "data.csv", index=False
        )
        proba = pd.read_csv(tmp_path / "proba.csv").set_axis(["1", "0"], axis=1)
        proba.to_csv(tmp_path / "proba.csv", index=False)
        result = run(
            "audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out", "--json",
            "--probabilities", tmp_path / "proba.csv", "--abstain", given,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        summary = json.loads(result.stdout)
        assert (summary["rows_without_label"], sorted(summary["classes"])) == (2, ["0", "1"])


def test_a_folder_with_decisions_is_not_replaced(audited):
    """An audit may replace an audit, but not one with decisions, nor other files."""
    folder, *_ = audited
    arguments = (
        "audit", folder / "data.csv", "--target", "label", "-o", folder / "out",
        "--probabilities", folder / "proba.csv",
    )  # fmt: skip
    assert run(*arguments).exit_code == 0
    (folder / "out" / "decisions.jsonl").write_text("")  # a review in which nothing was decided
    assert run(*arguments).exit_code == 0
    assert not (folder / "out" / "decisions.jsonl").exists()
    (folder / "out" / "decisions.jsonl").write_text('{"row": 0, "action": "keep"}\n')
    result = run(*arguments)
    assert result.exit_code == 2
    assert "contains decisions of a review" in result.output
    result = run(*arguments[:4], "-o", folder, *arguments[6:])
    assert result.exit_code == 2
    assert "contains other files" in result.output
    assert not list(folder.glob(".*"))
