"""The folder of an audit is read as it was written, or refused."""

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss.audit import find_label_issues
from peerloss.audit.folder import check_free, read_folder, write_folder
from peerloss.audit.review import Review, plan_cleaning, rerank
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import write_audit, write_pictures

TEXT = st.text(st.one_of(st.sampled_from(" ,;\"\t\r\n=+-@'1a"), st.characters(codec="utf-8")), max_size=6)
NAMES = st.lists(TEXT.map(lambda text: text.replace("\0", "")), min_size=12, max_size=12)
LABELS = ["-x\r", "=1+1"]


@pytest.fixture
def audit(tmp_path):
    write_audit(tmp_path)
    return tmp_path / "audit"


@given(names=NAMES, spreadsheet_safe=st.booleans())
@settings(max_examples=20)
def test_any_names_and_labels_are_read_back(names, spreadsheet_safe):
    """Texts with line ends, quotation marks, formulas and blanks are read as they were written."""
    y = pd.Series(pd.Categorical.from_codes(np.arange(12) % 2, LABELS), index=names)
    proba = np.where(np.arange(12)[:, None] % 2 == [0, 1], 0.8, 0.2)
    found = find_label_issues(None, y, pred_proba=proba)
    with tempfile.TemporaryDirectory() as home:
        data = Path(home, "data.csv")
        data.write_text("label\n" + "x\n" * 12)
        write_folder(
            Path(home, "audit"),
            found,
            data,
            rows=np.arange(12),
            labels=["label"],
            title="",
            spreadsheet_safe=spreadsheet_safe,
        )
        read = read_folder(Path(home, "audit")).labels
    assert read["name"].tolist() == names
    assert read["given"].tolist() == [LABELS[i % 2] for i in range(12)]
    assert read["suggested"].tolist() == found.table["suggested"].astype(str).tolist()


def test_truncated_labels_are_refused(audit):
    """A table that was truncated at the end of a line is refused, unless changes are accepted."""
    lines = (audit / "labels.csv").read_bytes().splitlines(keepends=True)
    (audit / "labels.csv").write_bytes(b"".join(lines[: len(lines) // 2]))
    with pytest.raises(InvalidInputError, match=r"labels\.csv was changed since the audit.*--accept-edits"):
        read_folder(audit)
    assert len(read_folder(audit, accept_edits=True).labels) == len(lines) // 2 - 1


def edited(audit, change):
    table = pd.read_csv(audit / "labels.csv")
    change(table).to_csv(audit / "labels.csv", index=False)


def test_edits_can_be_accepted(audit):
    """Accepted edits are used by `--rest relabel`."""
    edited(audit, lambda t: t.assign(p_error=0.9, suggested="cat", flagged=True))
    with pytest.raises(InvalidInputError, match="--accept-edits"):
        read_folder(audit)
    folder = read_folder(audit, accept_edits=True)
    assert set(plan_cleaning(folder, "relabel").new_labels.values()) == {"cat"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.assign(suggested="unknown"), "suggested of row 0 must be a label.*got 'unknown'"),
        (lambda t: t.assign(given="unknown"), "given of row 0 must be a label of the audit"),
        (lambda t: pd.concat([t, t.head(1)]), "row 0 occurs more than once"),
        (lambda t: t.assign(flagged="maybe"), "not an audit that this version can read"),
        (lambda t: t.assign(rank=t["rank"] + 0.5), "not an audit that this version can read"),
        (lambda t: t.assign(p_error=1.5), r"damaged audit: p_error in labels\.csv must hold numbers from 0"),
        (lambda t: t.assign(p_error=np.inf), "p_error in .* must hold numbers from 0 to 1"),
        (lambda t: t.assign(p_suggested=-0.5), "p_suggested in .* must hold numbers from 0 to 1"),
    ],
)  # fmt: skip
def test_invalid_edits_are_refused(audit, change, message):
    """Labels must be those of the audit, with one line per row."""
    edited(audit, change)
    with pytest.raises(InvalidInputError, match=message):
        read_folder(audit, accept_edits=True)


def test_a_stale_probability_is_not_used(audit):
    """The probability of a suggestion does not count after an edit; without edits it does."""
    assert "p_suggested" in read_folder(audit, accept_edits=True).labels
    changes = {"p_error": 0.9, "p_suggested": 0.0, "given": "cat", "suggested": "bird & co", "flagged": True}
    edited(audit, lambda t: t.assign(**changes))
    folder = read_folder(audit, accept_edits=True)
    assert "p_suggested" not in folder.labels
    assert len(plan_cleaning(folder, "relabel").new_labels) == 60


def forged(audit, **changes):
    """Write a manifest with other entries and the SHA-256 of the files as they are."""
    manifest = json.loads((audit / "audit.json").read_text())
    for name, key in (("labels.csv", "labels_sha256"), ("pictures.json", "pictures_sha256")):
        if (audit / name).exists():
            manifest[key] = hashlib.sha256((audit / name).read_bytes()).hexdigest()
    (audit / "audit.json").write_text(json.dumps(manifest | changes))
    return manifest


def test_repeated_classes_are_refused(audit):
    """Probabilities would belong to two classes of the same name."""
    summary = json.loads((audit / "audit.json").read_text())["summary"]
    forged(audit, summary=summary | {"classes": ["cat", "cat", "bird & co"]})
    with pytest.raises(InvalidInputError, match=r"the classes in audit\.json must be different"):
        read_folder(audit)


def test_a_forged_audit_is_ranked_again_or_refused(tmp_path):
    """A short list of pictures and a missing setting do no harm; unknown labels are refused."""
    audit, _ = write_pictures(tmp_path)
    (audit / "pictures.json").write_text("[]")
    manifest = forged(audit)
    del manifest["spreadsheet_safe"]
    (audit / "audit.json").write_text(json.dumps(manifest))
    (audit / "decisions.jsonl").write_text('{"row": 0, "action": "keep"}\n')
    rerank(read_folder(audit))
    assert "<img" not in (audit / "index.html").read_text(encoding="utf-8")
    edited(audit, lambda t: t.assign(given="unknown"))
    forged(audit)
    with pytest.raises(InvalidInputError, match="the given label 'unknown' is not among the classes"):
        rerank(read_folder(audit))


def test_rows_beyond_the_data_are_refused(audit):
    """The review cannot show rows that do not exist."""
    edited(audit, lambda t: t.assign(row=t["row"] + 7, flagged=True))
    with pytest.raises(InvalidInputError, match="names row 66, but the data have 60 rows"):
        Review(read_folder(audit, accept_edits=True))


def test_audits_of_format_1_need_accept_edits(audit):
    """Format 1 did not record the SHA-256 of labels.csv."""
    manifest = json.loads((audit / "audit.json").read_text())
    del manifest["labels_sha256"], manifest["spreadsheet_safe"]
    (audit / "audit.json").write_text(json.dumps(manifest | {"format": 1}))
    edited(audit, lambda t: t.drop(columns="p_suggested"))
    with pytest.raises(InvalidInputError, match=r"written by an earlier version.*--accept-edits"):
        read_folder(audit)
    assert len(read_folder(audit, accept_edits=True).labels) == 60


def test_audits_of_format_2_are_read(audit):
    """They have no p_suggested, and the suggestion may be the given label, which is then no change."""
    edited(audit, lambda t: t.drop(columns="p_suggested").assign(suggested=t["given"]))
    manifest = json.loads((audit / "audit.json").read_text())
    digest = hashlib.sha256((audit / "labels.csv").read_bytes()).hexdigest()
    (audit / "audit.json").write_text(json.dumps(manifest | {"format": 2, "labels_sha256": digest}))
    folder = read_folder(audit)
    assert "p_suggested" not in folder.labels
    assert plan_cleaning(folder, "relabel").new_labels == {}


def test_further_columns_are_kept(audit):
    """Columns that another version adds to labels.csv do not make the folder unreadable."""
    edited(audit, lambda t: t.assign(gain=0.5))
    assert read_folder(audit, accept_edits=True).labels["gain"].tolist() == [0.5] * 60


def test_a_link_is_followed_and_the_current_folder_refused(tmp_path, monkeypatch):
    """The target of a link is replaced; the current folder is refused immediately."""
    write_audit(tmp_path)
    (tmp_path / "audit").rename(tmp_path / "real")
    (tmp_path / "audit").symlink_to("real")
    write_audit(tmp_path)
    assert (tmp_path / "audit").is_symlink()
    assert read_folder(tmp_path / "real").path == tmp_path / "real"
    monkeypatch.chdir(tmp_path / "real")
    with pytest.raises(InvalidInputError, match="is the current folder"):
        check_free(Path())


def test_an_audit_under_its_hidden_name_is_restored(tmp_path):
    """A process that is killed between two renames leaves the folder under a hidden name."""
    write_audit(tmp_path)
    (tmp_path / "audit").rename(tmp_path / f".audit.{'0' * 16}.old")
    assert len(read_folder(tmp_path / "audit").labels) == 60


def test_the_table_says_why_rows_are_suspect(tmp_path):
    """Suspects have the labels of similar rows and unusual values, other rows an empty text."""
    write_audit(tmp_path)
    labels = read_folder(tmp_path / "audit").labels
    assert labels["flagged"].any()
    assert labels.loc[labels["flagged"], "why"].str.startswith("similar rows: ").all()
    assert (labels.loc[~labels["flagged"], "why"] == "").all()
