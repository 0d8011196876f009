"""``peerloss audit`` of images, texts with a model, and files of features."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.audits import made_up, run
from tests.datasets.made_images import Image, picture, write_images

pytestmark = pytest.mark.usefixtures("quick_models")


@pytest.fixture
def images(tmp_path):
    """Write class folders in which three images of 30 lie in the wrong one; return the folder."""
    folder = write_images(tmp_path / "images", 30)
    for i in (3, 7, 11):
        Image.fromarray(picture("dog", 5000 + i)).save(folder / "cat" / f"{i:03}.png")
    return folder


def audit(*arguments):
    result = run("audit", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_class_folders_are_audited_and_applied(images, tmp_path):
    """Images in the wrong folder are found; `apply` writes a table of files and corrected labels."""
    summary = audit(images, "-o", tmp_path / "out")
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    wrong = [f"cat/{i:03}.png" for i in (3, 7, 11)]
    assert sorted(labels["name"][labels["flagged"]]) == wrong
    assert summary["data"] == str(images)
    assert any("weak" in note for note in summary["notes"])
    pictures = json.loads((tmp_path / "out" / "pictures.json").read_text())
    assert pictures[3] == str(images / "cat" / "003.png")
    assert len(pictures) == 60
    manifest = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert manifest["source"] == "images.csv"
    result = run("apply", tmp_path / "out", "-o", tmp_path / "cleaned.csv", "--rest", "relabel")
    assert result.exit_code == 0, result.output
    cleaned = pd.read_csv(tmp_path / "cleaned.csv", index_col="file")
    assert list(cleaned) == ["label"]
    assert cleaned.loc[wrong, "label"].tolist() == ["dog"] * 3
    assert cleaned["label"].value_counts().to_dict() == {"cat": 27, "dog": 33}


def test_names_of_folders_are_labels_as_they_are(images, tmp_path):
    """Folders 007 and NA are not the number 7 and a missing label."""
    (images / "cat").rename(images / "007")
    (images / "dog").rename(images / "NA")
    summary = audit(images, "-o", tmp_path / "out")
    assert summary["classes"] == ["007", "NA"]
    assert run("apply", tmp_path / "out", "-o", tmp_path / "c.csv", "--rest", "relabel").exit_code == 0
    lines = (tmp_path / "c.csv").read_text().splitlines()
    assert lines[1] == "007/000.png,007"
    assert lines[4] == "007/003.png,NA"


def table_of(images, tmp_path, **columns):
    """Write a table of all files, labelled by their folders, in another order."""
    files = sorted(path.relative_to(images).as_posix() for path in images.rglob("*.png"))[::-1]
    table = pd.DataFrame({"image": files, "kind": [name[:3] for name in files], **columns})
    table.to_csv(tmp_path / "labels.csv", index=False)
    return table


OPTIONS = ("--file-column", "image", "--target", "kind")


def test_a_table_of_labels_is_audited_and_applied(images, tmp_path):
    """The table is copied as it is; other columns are kept and not learned from."""
    table = table_of(images, tmp_path, person=["ann"] * 60)
    summary = audit(images, "--labels", tmp_path / "labels.csv", *OPTIONS, "-o", tmp_path / "out")
    assert summary["labels"] == ["kind"]
    assert summary["flagged"] == 3
    assert run("apply", tmp_path / "out", "-o", tmp_path / "c.csv", "--rest", "relabel").exit_code == 0
    cleaned = pd.read_csv(tmp_path / "c.csv")
    changed = cleaned["kind"] != table["kind"]
    assert sorted(cleaned["image"][changed]) == [f"cat/{i:03}.png" for i in (3, 7, 11)]
    assert cleaned.drop(columns="kind").equals(table.drop(columns="kind"))


def test_several_annotators_label_images(images, tmp_path):
    """One column per annotator."""
    table_of(images, tmp_path, second=["cat"] * 10 + ["dog"] * 20 + ["cat"] * 30)
    summary = audit(
        images, "--labels", tmp_path / "labels.csv", *OPTIONS, "--target", "second", "-o", tmp_path / "out"
    )
    assert summary["labels"] == ["kind", "second"]


def test_skipped_images_are_left_out_and_named(images, tmp_path):
    """With --skip-unreadable the rest is audited; labels keep their row numbers in the table."""
    table = table_of(images, tmp_path)
    (images / table["image"][1]).unlink()
    (images / table["image"][2]).write_bytes(b"")
    summary = audit(
        images, "--labels", tmp_path / "labels.csv", *OPTIONS, "--skip-unreadable", "-o", tmp_path / "out"
    )
    assert f"not in the folder: 1 ({table['image'][1]})" in summary["notes"][0]
    assert "unreadable images: 1" in summary["notes"][0]
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert labels["row"].tolist() == [0, *range(3, 60)]
    pictures = json.loads((tmp_path / "out" / "pictures.json").read_text())
    assert pictures[:3] == [str(images / "dog" / "029.png"), *[str(images / "not-shown.png")] * 2]
    (images / "dog" / "000.png").write_bytes(b"")
    audit(images, "--skip-unreadable", "-o", tmp_path / "out")  # replaces the first audit
    assert len(json.loads((tmp_path / "out" / "pictures.json").read_text())) == 57


def test_images_that_browsers_do_not_show_are_audited(images, tmp_path):
    """A TIFF file has no picture in the review, and a note says so."""
    Image.open(images / "cat" / "000.png").save(images / "cat" / "000.tif")
    (images / "cat" / "000.png").unlink()
    summary = audit(images, "-o", tmp_path / "out")
    assert summary["rows"] == 60
    assert "without a picture: 1." in summary["notes"][0]
    assert json.loads((tmp_path / "out" / "pictures.json").read_text())[0].endswith("not-shown.png")


def damaged(folder, _tmp_path):
    (folder / "cat" / "000.png").write_bytes(b"")


def missing(folder, _tmp_path):
    (folder / "cat" / "000.png").unlink()


def unlabelled(_folder, tmp_path):
    table = pd.read_csv(tmp_path / "labels.csv").assign(kind=None)
    table.to_csv(tmp_path / "labels.csv", index=False)


def same(_folder, _tmp_path):
    pass


TABLE = ("--labels", "labels.csv", *OPTIONS)


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        (damaged, (), "unreadable images: 1 (cat/000.png is empty). Correct"),
        (damaged, (), "or leave them out with --skip-unreadable"),
        (missing, TABLE, "images in the table, but not in the folder: 1 (cat/000.png)"),
        (unlabelled, TABLE, "no row has a label"),
        (same, ("--target", "kind"), "name columns of --labels"),
        (same, ("--file-column", "kind"), "name columns of --labels"),
        (same, TABLE[:4], "pass --target, the column of the labels"),
        (same, (*TABLE[:4], "--target", "knd"), "Did you mean 'kind'?"),
        (same, ("--reports", "labels.csv"), "--reports is for tables"),
        (same, ("--text-column", "file"), "--text-column is for tables"),
        (same, ("--model", "./none"), "it does not exist"),
        (same, ("--features", "none.npy"), "it does not exist"),
        (same, ("--features", "x.npy", "--model", "y"), "pass either --features (a file) or --model"),
        (same, (*TABLE, "--probabilities", "p.csv", "--model", "y"), "--model is not used with"),
    ],
)  # fmt: skip
def test_bad_images_are_refused_and_nothing_is_written(
    images, tmp_path, monkeypatch, spoil, options, message
):
    """The message names the files or the option; no folder is left behind, not even a hidden one."""
    monkeypatch.chdir(tmp_path)
    table_of(images, tmp_path)
    pd.DataFrame({"cat": [0.5] * 60, "dog": [0.5] * 60}).to_csv(tmp_path / "p.csv", index=False)
    spoil(images, tmp_path)
    before = sorted(tmp_path.iterdir())
    result = run("audit", "images", *options, "-o", "out")
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_the_audit_is_not_written_into_the_images(images):
    """It would be read as a class the next time."""
    result = run("audit", images, "-o", images / "audit")
    assert result.exit_code == 2
    assert "must be outside the folder of images" in result.output


@pytest.mark.parametrize("option", [("--labels", "x.csv"), ("--file-column", "x"), ("--skip-unreadable",)])
def test_options_of_images_need_a_folder(tmp_path, option):
    """They would be ignored without a word."""
    made_up(tmp_path)
    result = run("audit", tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "out", *option)
    assert result.exit_code == 2
    assert f"{option[0]} needs a folder of images" in result.output


def test_nothing_usable_and_labelled_is_refused(images, tmp_path):
    """The only labelled images may be the damaged ones."""
    table = table_of(images, tmp_path)
    table.assign(kind=["cat", "dog"] + [None] * 58).to_csv(tmp_path / "labels.csv", index=False)
    for name in table["image"][:2]:
        (images / name).write_bytes(b"")
    result = run(
        "audit", images, "--labels", tmp_path / "labels.csv", *OPTIONS, "--skip-unreadable",
        "-o", tmp_path / "out",
    )  # fmt: skip
    assert result.exit_code == 2
    assert "no row has both a label and an image that can be used" in result.output


def test_features_from_a_file(tmp_path):
    """The features are used instead of the columns; wide ones are reduced, and the note says so."""
    data, clean = made_up(tmp_path)
    wide = np.random.default_rng(0).normal(size=(60, 100))
    wide[:, :50] += 4 * (clean == "yes")[:, None]
    np.save(tmp_path / "x.npy", wide)
    data.assign(x=0.0).to_csv(tmp_path / "data.csv", index=False)
    options = ("--target", "label", "--id", "id", "-o", tmp_path / "out", "--features", tmp_path / "x.npy")
    summary = audit(tmp_path / "data.csv", *options)
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert set(labels["row"][labels["rank"] <= 6]) == set(range(0, 60, 10))
    assert "The 100 features were reduced to 60 principal components." in summary["notes"]
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<th" in page
    assert ">x<" in page.replace("\n", "").replace(" ", "")  # the page shows the column of the table


def reviews(tmp_path):
    """Write a table of short reviews, two of which have the wrong label, and one is empty."""
    texts = ["the film was very good", "the film was very bad"] * 30
    labels = ["yes", "no"] * 30
    labels[4], labels[9], texts[20] = "no", "yes", ""
    table = pd.DataFrame({"review": texts, "stars": np.arange(60) % 7, "label": labels})
    table.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def test_texts_with_a_model(tmp_path):
    """The model's features replace the column; empty texts are counted and named."""
    models = pytest.importorskip("tests.features.models", reason="needs transformers")
    model = models.save_bert(tmp_path / "bert")
    data = reviews(tmp_path)
    options = ("--target", "label", "-o", tmp_path / "out", "--model", model, "--text-column", "review")
    summary = audit(data, *options)
    labels = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert {4, 9} <= set(labels["row"][labels["flagged"]]) <= {4, 9, 20}
    assert summary["notes"][0] == "Empty texts in column 'review': 1, in rows 22."
    summary = audit(data, *options, "--drop", "stars")
    assert summary["flagged"] >= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--text-column", "review"), "--text-column needs --model"),
        (("--model", "./none"), "the column of texts; columns of text in"),
        (("--model", "./none", "--text-column", "reviw"), "Did you mean 'review'?"),
        (("--model", "./none", "--text-column", "review"), "it does not exist"),
    ],
)
def test_bad_options_of_texts_are_refused(tmp_path, options, message):
    """Nothing is written."""
    result = run("audit", reviews(tmp_path), "--target", "label", "-o", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()
