"""Exports of an audit, and its page."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from peerloss.audit import _audit_page, _label_audit, find_label_issues
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import HOSTILE, made_audit


class Page(HTMLParser):
    """Collects tags, and the text outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self._inside = [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):  # noqa: D102 - the parser's own names
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, _tag):  # noqa: D102
        self._inside = ""

    def handle_data(self, data):  # noqa: D102
        if self._inside not in {"script", "style"}:
            self.text += data


def test_csv_round_trip(tmp_path):
    """The CSV table has the index first and all numbers."""
    audit, _, _ = made_audit()
    audit.to_csv(tmp_path / "new" / "table.csv")
    again = pd.read_csv(tmp_path / "new" / "table.csv", index_col="row")
    assert again["p_error"].to_numpy() == pytest.approx(audit.table["p_error"].to_numpy())
    assert again["given"].tolist() == audit.table["given"].tolist()


def test_parquet_round_trip(tmp_path):
    """The same in Parquet."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    audit, _, _ = made_audit()
    audit.to_parquet(tmp_path / "table.parquet")
    again = pd.read_parquet(tmp_path / "table.parquet")
    assert again["flagged"].tolist() == audit.table["flagged"].tolist()


@pytest.mark.parametrize(("method", "name"), [("to_csv", "a.txt"), ("to_parquet", "a.csv"), ("to_html", "a")])
def test_wrong_suffix_is_refused(tmp_path, method, name):
    """A file needs the suffix of its format; nothing is written."""
    audit, _, _ = made_audit()
    with pytest.raises(InvalidInputError, match="`path` must end in"):
        getattr(audit, method)(tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    """If writing fails, the old file remains and no other file is left."""
    audit, _, _ = made_audit()
    path = tmp_path / "table.csv"
    path.write_text("old")
    monkeypatch.setattr(_label_audit, "write_table", lambda to, *_, **__: (to.write("half"), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        audit.to_csv(path)
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_text() == "old"


def test_page_escapes_everything_and_is_self_contained(tmp_path):
    """Labels and features with markup are shown as text; no other file is loaded."""
    audit, _, _ = made_audit()
    audit.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert HOSTILE not in text
    assert HOSTILE in page.text
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "href" in attrs]


def test_page_shows_suspects_with_their_features_in_order(tmp_path):
    """One row per suspect with its features, most probable errors first."""
    audit, data, _ = made_audit()
    audit.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    first = audit.suspects.index[0]
    assert f">{data['size'][first]:.6g}<" in text
    assert text.count("<tr>") >= len(audit.suspects)
    assert f"{len(audit.suspects)} of 60 labels are suspect" in Page(text).text


def test_page_reports_that_the_noise_is_unknown(tmp_path):
    """The fallback is stated in a note at the top."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1, 1], size=100)
    with pytest.warns(UserWarning, match="cannot be estimated"):
        audit = find_label_issues(labels=rng.integers(2, size=100), pred_proba=proba)
    audit.to_html(tmp_path / "page.html")
    text = Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert "The noise rates cannot be estimated from these data" in text
    assert "Cannot be estimated from these data" in text


def test_many_classes_are_listed_instead_of_drawn(tmp_path):
    """A matrix of 30 classes is not drawn; confusions are counted."""
    rng = np.random.default_rng(0)
    codes = np.arange(3000) % 30
    given = np.where(rng.random(3000) < 0.2, (codes + 1) % 30, codes)
    sure = rng.uniform(0.4, 0.99, size=(3000, 1))  # a model that is surer of some rows than of others
    proba = np.tile((1 - sure) / 29, 30)
    proba[np.arange(3000), codes] = sure[:, 0]
    audit = find_label_issues(labels=given, pred_proba=proba)
    audit.to_html(tmp_path / "page.html")
    text = Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert "30 classes: the matrix is in audit.json" in text
    assert "Most frequent confusions" in text


def test_long_cells_are_cut_and_missing_ones_empty():
    """A long text is cut, with the full text in the title; missing values are empty."""
    cell = _audit_page._cell("x" * 200)
    assert cell["text"].endswith("…")
    assert cell["full"] == "x" * 200
    assert [_audit_page.cell_text(value) for value in (None, np.nan, pd.NA, pd.NaT, 0.1 + 0.2, True)] == [
        "", "", "", "", "0.3", "True",
    ]  # fmt: skip
    assert [_audit_page.cell_text(value) for value in ([1, None], np.array([np.nan, 2.0]), {}, ())] == [
        "[1, None]", "[nan  2.]", "{}", "()",
    ]  # fmt: skip


def test_the_numbers_of_an_audit_are_explained_once():
    """The glossary has the sentences that the pages show, which are short."""
    glossary = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert _label_audit.NUMBERS_EXPLAINED in glossary
    sentences = _label_audit.NUMBERS_EXPLAINED.split(". ")
    assert len(sentences) == 3
    assert all(len(sentence.split()) <= 30 and ";" not in sentence for sentence in sentences)


def test_headlines_are_without_symbols():
    """Headline and outlook use plain words; the paper's symbols are in `outlook.theory`."""
    audit, _, _ = made_audit()
    for text in (audit.headline, str(audit.outlook), str(audit)):
        assert not any(symbol in text for symbol in ("Σe", "Sgn", "xcess error", "T[i, j]"))
    assert "Σe" in audit.outlook.theory


def test_an_update_keeps_the_columns_that_are_shown():
    """The page of an updated audit shows the same columns as before."""
    audit, data, _ = made_audit()
    shown = data[["note"]]
    assert replace(audit, shown=shown).update({0: "cat"}).shown is shown


def test_spaces_around_labels_are_visible_on_the_page(tmp_path):
    """Quotes show them in the tables and filters; the CSV download has the label itself."""
    labels = np.array(["yes ", "no"])[np.arange(60) % 2]
    labels[::10] = "no"
    proba = np.where(np.arange(60)[:, None] % 2 == np.array([1, 0]), 0.95, 0.05)
    audit = find_label_issues(labels=labels, pred_proba=pd.DataFrame(proba, columns=["no", "yes "]))
    audit.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<option value="1">&#39;yes &#39;</option>' in text
    assert 'title="yes ">&#39;yes &#39;</td>' in text
