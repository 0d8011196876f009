"""The page and its files are written completely or not at all."""

import json
import re
from pathlib import Path

import pytest

from peerloss._installing import install_command
from peerloss.exceptions import InvalidInputError
from peerloss.report import _write, build_report, report_numbers, write_report
from peerloss.report._write import file_name
from tests.report.made_up import HOSTILE, everything, record, store


def test_pictures_tables_and_numbers_are_written_next_to_the_page(page, report):
    """PNG, Markdown, CSV and JSON in a folder of the page's name; hostile names stay inside it."""
    names = sorted(path.name for path in page.with_suffix("").iterdir())
    assert [name for name in names if not name.endswith(".png")] == [
        "curves-paper.csv", "curves-paper.md", "figures.json", "table-a1-paper.csv", "table-a1-paper.md",
    ]  # fmt: skip
    pictures = [path for path in page.with_suffix("").iterdir() if path.suffix == ".png"]
    assert len(pictures) == 5
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n") for path in pictures)
    assert sorted(path.name for path in page.parent.iterdir()) == ["page", "page.html"]
    written = json.loads((page.with_suffix("") / "figures.json").read_text())
    assert written == json.loads(json.dumps(report_numbers(report)))


@pytest.mark.parametrize("name", ["../../etc", HOSTILE, "…", "a" * 999, ".hidden", "C:\\x"])
def test_any_name_becomes_a_safe_file_name(name):
    """No separators, no leading dot, no endless names."""
    made = file_name(name, 0.1)
    assert Path(made).name == made
    assert not made.startswith(".")
    assert 0 < len(made) <= 120


def test_a_hostile_experiment_is_written_inside_the_folder(tmp_path):
    """Names of experiments become file names; none of them leaves the folder."""
    pytest.importorskip("matplotlib", reason="pages need peerloss[report]")
    records = [record(experiment="../../out", method=method) for method in ("peer", "nn")]
    page = tmp_path / "deep" / "page.html"
    written = write_report(build_report(store(tmp_path / "results", records)), page)
    assert written[-1] == page
    assert all(path.parent in {page.parent, page.with_suffix("")} for path in written)


def test_nothing_changes_when_a_file_cannot_be_written(tmp_path, monkeypatch):
    """The disk is full at the second file: the old files stay, and nothing else is left."""
    old = tmp_path / "a.txt"
    old.write_bytes(b"old")
    write = Path.write_bytes

    def full(path, content):
        if path.name == "b.txt":
            write(path, content[:1])
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        _write._write_files({old: b"new", tmp_path / "b.txt": b"new"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert old.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("name", "message"), [("page.pdf", r"must end in \.html"), ("folder.html", "is a folder")]
)
def test_the_path_of_a_page_is_checked(tmp_path, name, message):
    """Before anything is drawn."""
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InvalidInputError, match=message):
        write_report(build_report(store(tmp_path / "results", everything())), tmp_path / name)


def test_missing_packages_are_named_with_the_command(tmp_path, monkeypatch, report):
    """The numbers need neither; pages do, and the message says how to install them."""
    monkeypatch.setattr(_write, "find_spec", lambda name: None if name == "jinja2" else object())
    with pytest.raises(InvalidInputError, match=re.escape(f"need jinja2: {install_command('report')}.")):
        write_report(report, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
