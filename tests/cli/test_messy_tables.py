"""Files as people have them: what every command says about them, and that all commands read them alike."""

import json

import pandas as pd
import pytest

from peerloss.audit.review import DecisionsFile
from peerloss.datasets import read_table
from tests.cli.audits import run
from tests.cli.messy import ROWS, audit, described, fit, make_table, misspell

pytestmark = pytest.mark.usefixtures("quick_models")


def test_spellings_of_a_label_are_named_before_the_training(tmp_path):
    """Quotes show the space; the summary comes before the result, in audit, fit and datasets."""
    misspell(make_table()).to_csv(tmp_path / "data.csv", index=False)
    expected = "'Yes', 'yes ', 'YES' look like one class; use `--tidy-labels` to merge them."
    done = audit(tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout.index(expected) < done.stdout.index("Most probable errors")
    assert expected in described(tmp_path)["notes"]
    assert expected in fit(tmp_path).stdout


def test_the_page_says_how_the_table_was_read(tmp_path):
    """The summary of the console is on the page, escaped, also after the rows are ranked again."""
    table = misspell(make_table()).assign(**{"<b>unit</b>": "cm"})
    table.to_csv(tmp_path / "data.csv", index=False)
    result = audit(tmp_path, "--tidy-labels")
    assert result.exit_code == 0, result.output
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(0, "keep")
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "How the table was read" in page
    assert "&lt;b&gt;unit&lt;/b&gt;" in page
    assert "<b>unit</b>" not in page
    assert run("rerank", tmp_path / "out").exit_code == 0
    assert "How the table was read" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_tidy_labels_are_audited_reviewed_and_applied(tmp_path):
    """Six spellings become two classes; the written table has the tidy spelling in every row."""
    misspell(make_table()).to_csv(tmp_path / "data.csv", index=False)
    done = audit(tmp_path, "--tidy-labels", "--json")
    summary = json.loads(done.stdout)
    assert summary["classes"] == ["No", "Yes"]
    assert summary["table"]["tidied"] == {"YES": "Yes", "yes ": "Yes", "NO": "No", "no ": "No"}
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(4, "change", "Yes")
    for name in ("cleaned.csv", "cleaned.jsonl"):
        assert run("apply", tmp_path / "out", "-o", tmp_path / name).exit_code == 0
        wanted = make_table()["label"].tolist()
        wanted[4] = "Yes"
        assert read_table(tmp_path / name)["label"].tolist() == wanted
    fitted = json.loads(fit(tmp_path, "--tidy-labels", "--json").stdout)
    assert fitted["classes"] == {"No": 100, "Yes": 100}


def write_german(folder):
    table = make_table()
    table.rename(columns={"z": "größe"}).to_csv(
        folder / "data.csv", index=False, sep=";", decimal=",", encoding="latin-1"
    )
    return table


def test_other_encodings_and_decimal_commas_in_every_command(tmp_path):
    """Refused with the option; with it read alike everywhere, and written back in the same encoding."""
    table = write_german(tmp_path)
    for command in (audit, fit):
        done = command(tmp_path)
        assert done.exit_code == 2
        assert "line 1: not UTF-8 text" in done.stderr
        assert "--encoding latin-1" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.csv"], "nothing is written"
    options = ("--encoding", "latin-1")
    notes = described(tmp_path, *options)["notes"]
    assert notes == ["Numbers are read with decimal commas."]
    done = audit(tmp_path, *options)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["options"] == {"encoding": "latin-1"}
    assert run("apply", tmp_path / "out", "-o", tmp_path / "same.csv").exit_code == 0
    assert (tmp_path / "same.csv").read_bytes() == (tmp_path / "data.csv").read_bytes()
    assert run("apply", tmp_path / "out", "-o", tmp_path / "same.jsonl").exit_code == 0
    assert read_table(tmp_path / "same.jsonl")["größe"].tolist() == table["z"].tolist()
    assert fit(tmp_path, *options).exit_code == 0
    done = run("predict", tmp_path / "model", tmp_path / "data.csv", "-o", tmp_path / "p.csv", *options)
    assert done.exit_code == 0, done.output
    assert len(pd.read_csv(tmp_path / "p.csv")) == ROWS


def test_the_review_reads_the_table_with_the_options_of_the_audit(tmp_path):
    """Features of the review are those of the audit, in its encoding."""
    from peerloss.audit.folder import read_folder  # noqa: PLC0415 - used here only

    table = write_german(tmp_path)
    assert audit(tmp_path, "--encoding", "latin-1").exit_code == 0
    features = read_folder(tmp_path / "out").features()
    assert features["größe"].tolist() == table["z"].tolist()


def test_numbers_in_text_are_read_and_stray_words_named(tmp_path):
    """A currency is a number; one "unknown" is named with its option, which predict remembers."""
    table = make_table().assign(
        price=[f"${1000 + i:,}.50" for i in range(ROWS)], age=[str(20 + i % 60) for i in range(ROWS)]
    )
    table.loc[7, "age"] = "unknown"
    table.to_csv(tmp_path / "data.csv", index=False)
    notes = described(tmp_path)["notes"]
    assert "Column 'price' is read as numbers; '$1,000.50' is 1000.5." in notes
    stray = (
        "Column 'age' is text because of 1 value, 'unknown'; if it means a missing number, use "
        "`--na-values unknown`."
    )
    assert stray in notes
    done = fit(tmp_path, "--na-values", "unknown", "--json")
    assert json.loads(done.stdout)["columns"] == dict.fromkeys(["x", "z", "price", "age"], "number")
    done = run("predict", tmp_path / "model", tmp_path / "data.csv", "-o", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    table.assign(age="many").to_csv(tmp_path / "other.csv", index=False)
    done = run("predict", tmp_path / "model", tmp_path / "other.csv", "-o", tmp_path / "q.csv")
    assert (done.exit_code, "line 2: column 'age' must hold numbers" in done.stderr) == (2, True)
    assert not (tmp_path / "q.csv").exists()
    options = ("--na-values", "many")
    done = run("predict", tmp_path / "model", tmp_path / "other.csv", "-o", tmp_path / "q.csv", *options)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("suffix", "package"), [(".xlsx", "openpyxl"), (".jsonl", "json"), (".parquet", "pyarrow")]
)
def test_other_formats_in_and_out(tmp_path, suffix, package):
    """The audit of another format finds what it finds in CSV; apply and predict write the format."""
    pytest.importorskip(package, reason=f"needs {package}")
    table = make_table()
    if suffix == ".xlsx":
        with pd.ExcelWriter(tmp_path / "data.xlsx") as book:
            pd.DataFrame({"note": ["see the next sheet"]}).to_excel(book, sheet_name="readme", index=False)
            table.to_excel(book, sheet_name="rows", index=False)
        options = ("--sheet", "rows")
    else:
        options = ()
        if suffix == ".jsonl":
            table.to_json(tmp_path / "data.jsonl", orient="records", lines=True)
        else:
            table.to_parquet(tmp_path / "data.parquet")
    name = f"data{suffix}"
    table.to_csv(tmp_path / "data.csv", index=False)
    assert audit(tmp_path).exit_code == 0
    expected = pd.read_csv(tmp_path / "out" / "labels.csv")
    done = audit(tmp_path, *options, name=name)
    assert done.exit_code == 0, done.output
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out" / "labels.csv"), expected)
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(3, "change", "No")
    cleaned = tmp_path / f"cleaned{suffix}"
    assert run("apply", tmp_path / "out", "-o", cleaned).exit_code == 0
    pd.testing.assert_frame_equal(read_table(cleaned), read_table(tmp_path / "data.csv").assign(
        label=table["label"].where(table.index != 3, "No")
    ))  # fmt: skip
    assert fit(tmp_path, *options, name=name).exit_code == 0
    predicted = tmp_path / f"p{suffix}"
    done = run("predict", tmp_path / "model", tmp_path / name, "-o", predicted, *options)
    assert done.exit_code == 0, done.output
    assert list(read_table(predicted)) == ["row", "prediction", "probability_No", "probability_Yes"]
    assert described(tmp_path, *options, name=name)["classes"] == {"No": 100, "Yes": 100}


def test_integer_labels_stay_integers_in_other_formats(tmp_path):
    """A changed label is a number like the others."""
    table = make_table().assign(label=lambda frame: (frame["label"] == "Yes").astype(int))
    table.to_csv(tmp_path / "data.csv", index=False)
    assert audit(tmp_path).exit_code == 0
    with DecisionsFile(tmp_path / "out" / "decisions.jsonl") as file:
        file.append(3, "change", "0")
    assert run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.jsonl").exit_code == 0
    assert read_table(tmp_path / "cleaned.jsonl")["label"].tolist() == table["label"].where(
        table.index != 3, 0
    ).tolist()  # fmt: skip


def test_frequent_words_for_missing_values_are_classes(tmp_path):
    """None is a class if it is frequent, and counted if it is not."""
    table = make_table()
    table.assign(label=table["label"].replace("No", "None")).to_csv(tmp_path / "data.csv", index=False)
    assert json.loads(audit(tmp_path, "--json").stdout)["classes"] == ["None", "Yes"]
    note = "100 labels 'None' in column 'label' are read as a class; `--na-values None` makes them missing."
    assert note in described(tmp_path)["notes"]
    table.loc[:2, "label"] = "NA"
    table.to_csv(tmp_path / "data.csv", index=False)
    found = described(tmp_path)
    assert "3 labels 'NA' in column 'label' are read as missing." in found["notes"]
    assert found["rows_without_label"] == 3


def test_stray_labels_are_set_aside(tmp_path):
    """They are named with their number and the option; folds are not cut; apply copies their rows."""
    table = make_table()
    table.loc[[5, 99], "label"] = "maybe"
    table.to_csv(tmp_path / "data.csv", index=False)
    note = (
        "2 rows have the label 'maybe', too few to learn from, and are left out; use `--min-class-rows 2` to"
    )
    done = audit(tmp_path)
    assert note in done.stdout
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert set(range(ROWS)) - set(labels["row"]) == {5, 99}
    assert run("apply", tmp_path / "out", "-o", tmp_path / "same.csv").exit_code == 0
    assert (tmp_path / "same.csv").read_bytes() == (tmp_path / "data.csv").read_bytes()
    done = fit(tmp_path, "--json")
    fitted = json.loads(done.stdout)
    assert (fitted["rows"], fitted["classes"]) == (198, {"No": 99, "Yes": 99})
    assert fitted["table"]["set_aside"] == {"maybe": 2}
    assert not [text for text in fitted["notes"] if "fold" in text]
    assert described(tmp_path, "--min-class-rows", "2")["set_aside"] == {}
    done = audit(tmp_path, "--min-class-rows", "150")
    assert done.exit_code == 2
    assert "--min-class-rows must leave at least two classes" in done.stderr


def test_datasets_accepts_missing_labels_as_audit_does(tmp_path):
    """Rows without a label are counted and left out."""
    table = make_table()
    table.loc[:9, "label"] = None
    table.to_csv(tmp_path / "data.csv", index=False)
    done = run("datasets", tmp_path / "data.csv", "--target", "label")
    assert done.exit_code == 0, done.output
    assert "Rows without a label, left out: 10." in done.stdout
    assert done.stdout.splitlines()[-1] == "data.csv: 190 rows, 2 features, 2 classes."
    done = run("datasets", tmp_path / "data.csv")
    assert (done.exit_code, "--target must name the column of the labels" in done.stderr) == (2, True)


def test_labels_of_several_annotators_are_tidied(tmp_path):
    """Spellings are compared across annotators and in reports; the audit has the tidy classes."""
    table = make_table(40)
    table.assign(second=table["label"].str.lower()).to_csv(tmp_path / "wide.csv", index=False)
    done = run(
        "audit", tmp_path / "wide.csv", "--target", "label", "--target", "second", "--drop", "x",
        "--drop", "z", "-o", tmp_path / "wide", "--tidy-labels", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["classes"] == ["No", "Yes"]
    table[["x"]].to_csv(tmp_path / "rows.csv", index=False)
    reports = pd.concat([
        pd.DataFrame({"task": range(40), "worker": "u", "label": table["label"]}),
        pd.DataFrame({"task": range(40), "worker": "v", "label": table["label"].str.lower()}),
        pd.DataFrame({"task": range(30), "worker": "w", "label": table["label"][:30]}),
    ])  # fmt: skip
    reports.to_csv(tmp_path / "reports.csv", index=False)
    done = run(
        "audit", tmp_path / "rows.csv", "--reports", tmp_path / "reports.csv", "--drop", "x",
        "-o", tmp_path / "reported", "--tidy-labels", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["classes"] == ["No", "Yes"]


def test_ids_that_look_like_numbers_are_names(tmp_path):
    """1 234 is a name as it is written if the column names the rows."""
    table = make_table().assign(code=[f"{1 + i // 50} {100 + i}" for i in range(ROWS)])
    table.to_csv(tmp_path / "data.csv", index=False)
    assert audit(tmp_path, "--id", "code").exit_code == 0
    assert pd.read_csv(tmp_path / "out" / "labels.csv")["name"].tolist() == table["code"].tolist()


def test_damaged_options_of_folders_are_refused(tmp_path):
    """Manifests come from outside: an unknown option or type is an error, not a guess."""
    make_table().to_csv(tmp_path / "data.csv", index=False)
    assert audit(tmp_path).exit_code == 0
    assert fit(tmp_path).exit_code == 0
    manifest = tmp_path / "out" / "audit.json"
    content = json.loads(manifest.read_text())
    for damage in ({"options": {"sep": 3}}, {"options": []}, {"table": {"tidied": {"a": 1}}}, {"table": 3}):
        manifest.write_text(json.dumps(content | damage))
        done = run("apply", tmp_path / "out", "-o", tmp_path / "c.csv")
        assert done.exit_code == 2, damage
        assert "Run `peerloss audit` again" in done.stderr
    manifest = tmp_path / "model" / "manifest.json"
    content = json.loads(manifest.read_text())
    for reading in ({"sep": 3}, [], "x"):
        manifest.write_text(json.dumps(content | {"reading": reading}))
        done = run("predict", tmp_path / "model", tmp_path / "data.csv", "-o", tmp_path / "p.csv")
        assert (done.exit_code, "manifest is damaged" in done.stderr) == (2, True), done.output


def test_labels_that_the_encoding_lacks_are_refused(tmp_path):
    """Labels from another file may not exist in the encoding of the table; nothing is written."""
    (tmp_path / "rows.csv").write_text("größe\n" + "1\n2\n" * 20, encoding="latin-1")
    rows = "".join(f"{i},{w},{'łódź' if i % 2 else 'b'}\n" for i in range(40) for w in "uv")
    (tmp_path / "reports.csv").write_text(f"task,worker,label\n{rows}", encoding="utf-8")
    done = run(
        "audit", tmp_path / "rows.csv", "--reports", tmp_path / "reports.csv", "--encoding", "latin-1",
        "--drop", "größe", "-o", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    done = run("apply", tmp_path / "out", "-o", tmp_path / "c.csv")
    assert done.exit_code == 2
    assert "a label cannot be written in the encoding of the table, latin-1" in done.stderr
    assert not (tmp_path / "c.csv").exists()
    assert run("apply", tmp_path / "out", "-o", tmp_path / "c.jsonl").exit_code == 0
    assert "łódź" in (tmp_path / "c.jsonl").read_text(encoding="utf-8")


def test_predict_reads_numbers_with_the_decimal_mark_of_the_training(tmp_path):
    """1,234 is not a thousand after training on decimal commas; files in another format are recognised."""
    make_table().to_csv(tmp_path / "data.csv", index=False, sep=";", decimal=",")
    assert fit(tmp_path, "--json").exit_code == 0

    def predicted(text, *options, name="new.csv"):
        (tmp_path / name).write_text(text)
        done = run("predict", tmp_path / "model", tmp_path / name, "-o", tmp_path / "p.csv", *options)
        assert done.exit_code == 0, done.output
        return (tmp_path / "p.csv").read_text()

    expected = predicted("x,z\n1.234,2.345\n")
    assert predicted("x;z\n1,234;2,345\n") == expected
    assert predicted("x;z\n1.2340;2.3450\n") == expected
    assert predicted('{"x": 1.234, "z": "2,345"}\n', name="new.jsonl") == expected
    assert predicted("x;z\n1.234;2.345\n", "--decimal", ".") == expected


def test_tidied_labels_are_written_without_spaces_before_them(tmp_path):
    """Programs that do not ignore these spaces see one spelling; other columns keep theirs."""
    table = misspell(make_table()).astype(str)
    lines = [f" {x}, {z}, {label}" for x, z, label in table.itertuples(index=False)]
    (tmp_path / "data.csv").write_text("\n".join([" x, z, label", *lines, ""]))
    assert audit(tmp_path, "--tidy-labels", "--json").exit_code == 0
    assert run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv").exit_code == 0
    written = (tmp_path / "cleaned.csv").read_text().splitlines()
    rows = zip(table["x"], table["z"], make_table()["label"], strict=True)
    assert written == [" x, z, label", *(f" {x}, {z},{label}" for x, z, label in rows)]
