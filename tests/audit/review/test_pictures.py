"""The pictures that the review server sends, and those that it refuses."""

import json
import os
import threading
from pathlib import Path

import pytest

from peerloss.audit.folder import read_folder
from peerloss.audit.review import Review, ReviewServer, _server
from tests.audit.made_up import GIF, write_pictures
from tests.audit.review.test_server import send


@pytest.fixture
def serve(tmp_path):
    """Return a function that serves an audit with pictures."""
    running = []

    def start(**settings):
        folder, paths = write_pictures(tmp_path, **settings)
        server = ReviewServer(Review(read_folder(folder)))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        running.append(server)
        return server, paths

    yield start
    for server in running:
        server.shutdown()
        server.server_close()
        server.review.close()


def picture(server, row):
    return send(server, f"/{server.token}/picture/{row}")


def test_pictures_are_sent_with_their_type(serve):
    """A listed picture is sent with its type and `nosniff`; names with markup and blanks work."""
    server, _ = serve(names=lambda i: f"<b>'{i} &.gif")
    status, headers, content = picture(server, 3)
    assert (status, content) == (200, GIF)
    assert headers["Content-Type"] == "image/gif"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    suspect = server.review.batch(0)[0]
    assert suspect["picture"] == int(suspect["name"].removeprefix("row ")) - 2
    assert all(card["picture"] is not None for card in suspect["similar"])
    assert suspect["unusual"] == []


def test_other_files_are_refused(serve, monkeypatch):
    """Rows outside the list, missing files, folders, pipes, empty and too large files get an empty 404."""
    server, paths = serve()
    paths[1].unlink()
    paths[2].unlink()
    paths[2].mkdir()
    paths[3].write_bytes(b"")
    if hasattr(os, "mkfifo"):
        paths[4].unlink()
        os.mkfifo(paths[4])
    for row in (1, 2, 3, 4, 60, 10**9):
        status, _, content = picture(server, row)
        assert (status, content) == (404, b""), row
    assert picture(server, 5)[0] == 200
    monkeypatch.setattr(_server, "MAX_PICTURE", len(GIF) - 1)
    assert picture(server, 5)[::2] == (404, b"")
    for path in ("picture/", "picture/-1", "picture/../audit.json", "picture/1e3", "picture/%2e"):
        assert send(server, f"/{server.token}/{path}")[::2] == (404, b"")
    assert send(server, "/wrong/picture/5")[::2] == (404, b"")


def test_a_hostile_list_gives_no_other_files(serve, tmp_path):
    """Whatever the list says, only files that end and begin as images do are sent."""
    server, _ = serve()
    server.review.close()
    folder = server.review
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "secret.png").write_text("secret")
    hostile = [
        tmp_path / "secret.txt",
        tmp_path / "secret.png",
        Path("/etc/passwd"),
        tmp_path / "a.svg",
        Path("null\0.png"),
        Path(),
    ]
    folder._pictures = hostile
    for row in range(len(hostile)):
        assert picture(server, row)[::2] == (404, b"")


def test_ten_thousand_pictures_are_not_opened(tmp_path):
    """A list of 10,000 pictures that do not exist can be reviewed; pictures are read when shown."""
    folder, paths = write_pictures(tmp_path, number=10_000, make=False)
    assert not paths[0].exists()
    review = Review(read_folder(folder))
    assert review.batch(0)[0]["picture"] is not None
    assert len(json.loads((folder / "pictures.json").read_text())) == 10_000
    review.close()
