"""Small pictures inside a page, and the list of pictures in an audit folder."""

import json
import os

import numpy as np
import pytest

from peerloss.audit import _audit_page, _picture_files
from peerloss.audit._picture_files import MAX_BYTES, small_picture
from peerloss.audit.folder import read_folder
from peerloss.datasets import _read_image
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import GIF, write_pictures


def test_small_files_are_embedded_as_they_are(tmp_path):
    """The media type follows from the ending, in any case of letters."""
    (tmp_path / "a.GIF").write_bytes(GIF)
    assert small_picture(tmp_path / "a.GIF").startswith("data:image/gif;base64,R0lGOD")


def test_large_pictures_are_reduced(tmp_path):
    """A large photograph becomes a few kilobytes."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    noise = np.random.default_rng(0).integers(0, 255, size=(600, 400, 3), dtype=np.uint8)
    image.fromarray(noise).save(tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > MAX_BYTES
    shown = small_picture(tmp_path / "a.png")
    assert shown.startswith("data:image/jpeg;base64,")
    assert len(shown) < 40_000


def test_files_that_are_not_pictures_are_left_out(tmp_path):
    """Missing and damaged files, folders, pipes and other endings are not shown."""
    (tmp_path / "text.svg").write_text("<svg/>")
    (tmp_path / "damaged.png").write_bytes(b"x" * (MAX_BYTES + 1))
    (tmp_path / "folder.png").mkdir()
    names = ["text.svg", "damaged.png", "folder.png", "missing.png", "null\0.png"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
        names.append("pipe.png")
    assert [small_picture(tmp_path / name) for name in names] == [""] * len(names)


@pytest.mark.parametrize("content", [b"root:x:0:0", b"BMW 3", b"RIFF____WAVE", b"\x89PN", b""])
def test_other_small_files_are_not_embedded(tmp_path, content):
    """A file with the name of a picture is embedded only if it begins like one."""
    (tmp_path / "a.png").write_bytes(content)
    assert small_picture(tmp_path / "a.png") == ""


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_files_of_every_format_are_embedded(tmp_path, kind):
    """All formats that browsers show are recognised by their first bytes."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    path = tmp_path / f"a.{kind.lower()}"
    image.new("RGB", (4, 4)).save(path, kind)
    assert small_picture(path).startswith(f"data:image/{kind.lower()};base64,")


def test_too_many_pixels_are_not_decoded(tmp_path, monkeypatch):
    """The limit is the one for images that are audited."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    assert _picture_files.MAX_PIXELS == _read_image.MAX_PIXELS
    monkeypatch.setattr(_picture_files, "MAX_BYTES", 0)
    image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    assert small_picture(tmp_path / "a.png")
    monkeypatch.setattr(_picture_files, "MAX_PIXELS", 199)
    assert small_picture(tmp_path / "a.png") == ""


def test_the_page_shows_the_first_pictures_only(tmp_path, monkeypatch):
    """Pictures of the first suspects are inside the page; nothing is loaded from elsewhere."""
    monkeypatch.setattr(_audit_page, "MAX_PICTURES", 2)
    folder, _ = write_pictures(tmp_path)
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/gif;base64,') == 2
    assert page.count("<img") == 2


def test_paths_are_stored_absolute(tmp_path, monkeypatch):
    """The review finds the pictures from any folder; the list is hashed."""
    monkeypatch.chdir(tmp_path)
    folder, paths = write_pictures(tmp_path, relative=True)
    read = read_folder(folder)
    assert read.pictures() == [tmp_path / path for path in paths]
    file = folder / "pictures.json"
    for text in ('["/etc/passwd.png"]', "[1]", "{}"):
        file.write_text(text)
        with pytest.raises(InvalidInputError, match=r"pictures\.json was changed since the audit"):
            read_folder(folder)
    for text in ("[1]", "{}", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(InvalidInputError, match="is a damaged audit"):
            read.pictures()


def test_wrong_pictures_are_refused(tmp_path):
    """Other endings and too short lists are refused, and nothing is written."""
    with pytest.raises(InvalidInputError, match=r"must end in one of \.png, .*got .*a\.svg"):
        write_pictures(tmp_path, names=lambda i: "a.svg" if i == 7 else f"{i}.gif")
    with pytest.raises(InvalidInputError, match="one path per row of the data, at least 60; got 59"):
        write_pictures(tmp_path, number=59)
    assert not (tmp_path / "audit").exists()


def test_audits_without_pictures_have_no_list(tmp_path):
    """The manifest has no hash of a file that does not exist."""
    folder, _ = write_pictures(tmp_path, number=None)
    assert read_folder(folder).pictures() is None
    assert "pictures_sha256" not in json.loads((folder / "audit.json").read_text())
