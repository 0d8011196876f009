"""``peerloss review`` and ``peerloss apply`` from the command line."""

import json
from inspect import signature

import numpy as np
import pandas as pd
import pytest

from peerloss.audit.review import MAX_CHANGE, DecisionsFile
from peerloss.cli._review import apply
from tests.cli.audits import made_up, run


def test_apply_changes_only_what_was_decided(audited):
    """Decisions are applied, other cells do not change; suspects without a decision are kept by default."""
    folder, data, _, _ = audited
    with DecisionsFile(folder / "out" / "decisions.jsonl") as file:
        file.append(10, "change", "yes" if data["label"][10] == "no" else "no")
        file.append(20, "keep")
        file.append(30, "skip")
    result = run("apply", folder / "out", "-o", folder / "cleaned.csv")
    assert result.exit_code == 0, result.output
    cleaned = pd.read_csv(folder / "cleaned.csv")
    assert np.flatnonzero(cleaned["label"] != data["label"]).tolist() == [10]
    pd.testing.assert_frame_equal(cleaned.drop(columns="label"), data.drop(columns="label"))
    assert "1 label changed" in result.output


@pytest.mark.parametrize("rest", ["relabel", "drop"])
def test_apply_relabels_or_drops_undecided_suspects(audited, rest):
    """`--rest relabel` takes the suggestions, `--rest drop` drops the rows; decisions come first."""
    folder, data, clean, _ = audited
    wrong = pd.read_csv(folder / "out" / "labels.csv")["p_error"].to_numpy() > 0.5
    assert {10, 20, 30, 40} <= set(np.flatnonzero(wrong)) <= set(range(0, 60, 10))
    with DecisionsFile(folder / "out" / "decisions.jsonl") as file:
        file.append(0, "keep")
    result = run("apply", folder / "out", "-o", folder / "cleaned.csv", "--rest", rest, "--json")
    summary = json.loads(result.stdout)
    cleaned = pd.read_csv(folder / "cleaned.csv").set_index("id")
    assert cleaned.loc["r0", "label"] == data["label"][0]
    if rest == "relabel":
        expected = np.where(wrong, clean, data["label"])
        assert cleaned["label"].tolist()[1:] == expected.tolist()[1:]
        assert summary["dropped"] == 0
    else:
        assert summary["rows"] == len(cleaned) == 60 - summary["dropped"]
        assert not {"r10", "r20", "r30"} & set(cleaned.index)


@pytest.mark.parametrize("rest", ["relabel", "drop"])
def test_apply_refuses_to_change_many_rows_without_a_decision(audited, rest):
    """The message has the numbers and the remedies; nothing is written without --force."""
    folder, *_ = audited
    arguments = ("apply", folder / "out", "-o", folder / "cleaned.csv", "--rest", rest)
    limited = (*arguments, "--max-change", "0.05")
    result = run(*limited)
    assert result.exit_code == 2
    suspects = pd.read_csv(folder / "out" / "labels.csv").query("flagged")
    number = len(suspects) if rest == "drop" else (suspects["p_error"] > 0.5).sum()
    assert f"would change or drop {number} suspects of 60 rows ({number / 60:.1%})" in result.stderr
    assert "more than --max-change 0.05 allows" in result.stderr
    assert "--force" in result.stderr
    assert not (folder / "cleaned.csv").exists()
    assert signature(apply).parameters["max_change"].default == MAX_CHANGE
    assert run(*arguments, "--max-change", "0.5").exit_code == 0
    assert run(*limited, "--force").exit_code == 0
    assert run(*limited[:4], "--max-change", "0").exit_code == 0  # decisions of a person are not limited


def test_apply_refuses_automatic_changes_if_the_noise_is_unknown(tmp_path):
    """Labels unrelated to the probabilities: --rest keep works, relabel and drop need --force."""
    made_up(tmp_path)
    rng = np.random.default_rng(0)
    p = rng.uniform(0.2, 0.8, size=60)
    pd.DataFrame({"yes": p, "no": 1 - p}).to_csv(tmp_path / "proba.csv", index=False)
    result = run(
        "audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out",
        "--probabilities", tmp_path / "proba.csv",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    arguments = ("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv", "--max-change", "1", "--rest")
    for rest in ("relabel", "drop"):
        result = run(*arguments, rest)
        assert result.exit_code == 2
        assert "the audit could not estimate how many labels are wrong" in result.stderr
        assert "Nothing was written" in result.stderr
        assert not (tmp_path / "cleaned.csv").exists()
    assert run(*arguments, "keep").exit_code == 0
    assert run(*arguments, "drop", "--force").exit_code == 0


def test_apply_drops_rows_and_names_disagreements(audited):
    """Rows that a person dropped are left out, without --rest; the last of several decisions counts."""
    folder, data, _, _ = audited
    with DecisionsFile(folder / "out" / "decisions.jsonl") as file:
        file.append(10, "drop", note="unreadable", reviewer="Ada")
        file.append(20, "drop", reviewer="Ada")
        file.append(20, "keep", reviewer="Bo")
    result = run("apply", folder / "out", "-o", folder / "cleaned.csv")
    assert result.exit_code == 0, result.output
    assert "59 rows, 0 labels changed, 1 row dropped. 2 suspects with a decision" in result.output
    assert "Reviewers decided differently on 1 row; the last decision counts." in result.output
    cleaned = pd.read_csv(folder / "cleaned.csv")
    pd.testing.assert_frame_equal(cleaned, data.drop(index=10).reset_index(drop=True))


def test_apply_keeps_cells_as_they_are_written(tmp_path):
    """Semicolons, quotes, spellings of numbers and rows without a label are copied unchanged."""
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
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(0, "change", "b")
    assert run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv").exit_code == 0
    cleaned = (tmp_path / "cleaned.csv").read_text(encoding="utf-8").splitlines()
    assert cleaned[1] == rows[1][:-1] + "b"
    assert cleaned[2:] == rows[2:]


def test_line_ends_in_cells_survive_audit_and_apply(tmp_path):
    """A bare carriage return in a quoted cell is part of the cell and does not start a row."""
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
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(7, "change", "no")
    assert run("apply", tmp_path / "out", "-o", tmp_path / "changed.csv").exit_code == 0
    rows[7] = rows[7].replace("yes", "no")
    assert (tmp_path / "changed.csv").read_bytes() == "".join(["id,x,label\r\n", *rows]).encode()


def test_labels_that_were_changed_are_not_applied(audited):
    """A table that was truncated at the end of a line is refused, unless the change is accepted."""
    folder, *_ = audited
    labels = folder / "out" / "labels.csv"
    labels.write_bytes(b"".join(labels.read_bytes().splitlines(keepends=True)[:31]))
    arguments = ("apply", folder / "out", "-o", folder / "cleaned.csv", "--rest", "relabel")
    result = run(*arguments)
    assert result.exit_code == 2
    assert "labels.csv was changed since the audit" in result.stderr
    assert not (folder / "cleaned.csv").exists()
    result = run(*arguments, "--accept-edits")
    assert result.exit_code == 0, result.output
    assert "3 labels changed" in result.output


def test_spreadsheet_safe_labels_are_applied_unchanged(tmp_path):
    """`--spreadsheet-safe` changes the texts in labels.csv, not the labels that are applied."""
    table = pd.DataFrame({"x": range(40), "label": ["=a", "b"] * 20})
    table.loc[[0, 2, 4], "label"], table.loc[[1, 3, 5], "label"] = "b", "=a"
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


def test_several_annotators_become_one_label(tmp_path):
    """With one column per annotator, apply adds a column with the majority's label or the decision."""
    clean = np.arange(40) % 2
    table = pd.DataFrame({"x": clean * 1.0, "ann": clean, "bob": clean, "cy": 1 - clean})
    table.loc[:9, "cy"] = -1
    table.to_csv(tmp_path / "data.csv", index=False)
    targets = [part for name in ("ann", "bob", "cy") for part in ("--target", name)]
    result = run(
        "audit", tmp_path / "data.csv", *targets, "--abstain", "-1", "--drop", "x", "-o", tmp_path / "out"
    )
    assert result.exit_code == 0, result.output
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(4, "change", "1")
    assert run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv").exit_code == 0
    cleaned = pd.read_csv(tmp_path / "cleaned.csv")
    expected = clean.copy()
    expected[4] = 1
    assert cleaned["label"].tolist() == expected.tolist()
    assert cleaned["cy"].tolist() == table["cy"].tolist()


@pytest.mark.parametrize("command", ["review", "apply"])
def test_folders_that_are_not_audits_are_refused(audited, command):
    """A missing or damaged manifest, changed data and a manifest with another path are refused."""
    folder, *_ = audited
    extra = ["--no-browser"] if command == "review" else ["-o", str(folder / "cleaned.csv")]
    assert "is not an audit" in run(command, folder, *extra).output
    data, manifest = folder / "out" / "data.csv", folder / "out" / "audit.json"
    original = data.read_bytes()
    data.write_bytes(original + b"r99,1,no\n")
    assert "was changed since" in run(command, folder / "out", *extra).output
    data.write_bytes(original)
    written = manifest.read_text()
    manifest.write_text(written.replace('"data.csv"', '"../data.csv"'))
    assert "not an audit that this version can read" in run(command, folder / "out", *extra).output
    manifest.write_text("{")
    assert "damaged audit" in run(command, folder / "out", *extra).output
    assert not (folder / "cleaned.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--order", "gian"],
            "--order must be a column of numbers in labels.csv: p_error, p_suggested, rank",
        ),
        (["--reviewer", " "], "--reviewer must be a name of 1 to 100 characters; got ' '"),
    ],
)
def test_review_refuses_unknown_orders_and_empty_names(audited, options, message):
    """The message has the option and what is accepted; no file of decisions is made."""
    folder, *_ = audited
    result = run("review", folder / "out", "--no-browser", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (folder / "out" / "decisions.jsonl").exists()


def test_apply_refuses_decisions_of_another_audit(audited):
    """A row or a label that is not in the audit is an error, and nothing is written."""
    folder, *_ = audited
    with DecisionsFile(folder / "out" / "decisions.jsonl") as file:
        file.append(5, "change", "maybe")
    result = run("apply", folder / "out", "-o", folder / "cleaned.csv")
    assert result.exit_code == 2
    assert "not belong to this audit" in result.output
    assert not (folder / "cleaned.csv").exists()


@pytest.mark.parametrize("name", ["cleaned.txt", "out/cleaned.csv"])
def test_apply_refuses_other_outputs(audited, name):
    """The output must be a CSV file outside the audit folder."""
    folder, *_ = audited
    result = run("apply", folder / "out", "-o", folder / name)
    assert result.exit_code == 2
    assert "--output must" in result.output


@pytest.mark.parametrize("labels", [('"no"', '"yes"'), ("0", "1"), ("false", "true"), ("0.0", "1.0")])
def test_json_lines_are_copied_except_for_labels(tmp_path, labels):
    """Numbers, escapes, spaces, blank lines and keys keep their text; labels keep their type."""
    data, _ = made_up(tmp_path)
    given = [labels[label == "yes"] for label in data["label"]]
    lines = [
        f'{{"p":  "$1,00{i % 10}.50", "x": {x}0e0, "t\\u00e9": "\\"label\\": 5, {i}", "label" :{label}}}\n'
        for i, (x, label) in enumerate(zip(data["x"], given, strict=True))
    ]
    lines[7] = "\r\n" + lines[7]
    (tmp_path / "data.jsonl").write_text("".join(lines), encoding="utf-8", newline="")
    names = {'"no"': "no", '"yes"': "yes", "0.0": "0", "1.0": "1"}
    no, yes = (names.get(label, label) for label in labels)
    proba = pd.read_csv(tmp_path / "proba.csv").set_axis([yes, no], axis=1)
    proba.to_csv(tmp_path / "proba.csv", index=False)
    result = run(
        "audit", tmp_path / "data.jsonl", "--target", "label", "-o", tmp_path / "out",
        "--probabilities", tmp_path / "proba.csv",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(3, "change", no)
        file.append(9, "drop")
    assert given[3] == labels[1]
    result = run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.jsonl")
    assert result.exit_code == 0, result.output
    lines[3] = lines[3].replace(f'"label" :{labels[1]}', f'"label" :{labels[0]}')
    assert (tmp_path / "cleaned.jsonl").read_bytes().decode() == "".join(lines[:9] + lines[10:])
