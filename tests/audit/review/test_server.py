"""The review server by plain HTTP: who gets what, and what is written when."""

import errno
import http.client
import json
import os
import socket
import threading
from urllib.parse import urlsplit

import pytest

from peerloss.audit.folder import read_folder
from peerloss.audit.review import Review, ReviewServer, read_decisions
from peerloss.audit.review._review_session import BATCH
from peerloss.audit.review._server import MAX_BODY, script_json
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import HOSTILE, write_audit


@pytest.fixture
def folder(tmp_path):
    write_audit(tmp_path)
    return read_folder(tmp_path / "audit")


@pytest.fixture
def server(folder):
    review = Review(folder)
    server = ReviewServer(review)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    review.close()


def ask(server, path=None, *, body=None, method=None, **headers):
    """Send a request; return status, headers and body."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection("127.0.0.1", where.port, timeout=10)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    connection.request(
        method or ("GET" if body is None else "POST"),
        where.path if path is None else path,
        body=body,
        headers=headers,
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def raw(server, content):
    """Send bytes and return the whole answer."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(content)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def decide(server, **wish):
    status, _, content = ask(server, f"/{server.token}/decide", body=json.dumps(wish))
    return status, json.loads(content) if content else None


def test_it_listens_on_this_machine_only(server):
    """The socket is bound to 127.0.0.1, and every server has a token of its own."""
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 32
    assert server.token in server.url


def test_a_port_that_is_taken_is_named_with_the_remedy(server):
    """The system's own words would not say which address, or what to do."""
    taken = server.server_port
    with pytest.raises(InvalidInputError, match=rf"`port` {taken} cannot be used: .*in use.*--port.*or 0"):
        ReviewServer(server.review, taken)


def test_page_and_suspects(server, folder):
    """The page comes with a strict policy; suspects come in the order of their rank, as text."""
    status, headers, page = ask(server)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert HOSTILE.encode() not in page
    _, headers, content = ask(server, f"/{server.token}/suspects/0")
    assert headers["Content-Type"] == "application/json"
    found = json.loads(content)
    expected = folder.suspects()
    assert [suspect["name"] for suspect in found] == expected["name"].tolist()[:BATCH]
    assert dict(found[0]["features"])["note"].startswith(HOSTILE)
    assert "label" not in dict(found[0]["features"])


@pytest.mark.parametrize(
    "path",
    [
        "/", "", "/wrong/", "/{token}", "/{token}x/", "/{token}/../", "/{token}/data.csv",
        "/{token}/audit.json", "/{token}/suspects/", "/{token}/suspects/-1", "/{token}/suspects/1e3",
        "/favicon.ico", "/%2e%2e/",
        "/{token}/suspects/" + "9" * 50,
    ],
)  # fmt: skip
def test_other_addresses_get_nothing(server, path):
    """Without the token, or past what there is, the answer is empty: no page, no listing, no file."""
    status, headers, content = ask(server, path.replace("{token}", server.token))
    assert (status, content) == (404, b"")
    assert "Content-Type" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "localhost.evil.example:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_foreign_hosts_and_origins_get_nothing_even_with_the_token(server, headers):
    """A name made to point here (DNS rebinding) and pages from elsewhere neither read nor decide."""
    assert ask(server, **headers)[::2] == (404, b"")
    body = json.dumps({"action": "keep", "place": 0})
    assert ask(server, f"/{server.token}/decide", body=body, **headers)[::2] == (404, b"")
    assert server.review.state()["keep"] == 0


@pytest.mark.parametrize(
    "lines",
    [
        [], ["Host: "], ["Host: \xff"], ["Host: [::1"], ["Host: 127.0.0.1:99999"], ["Host: {host}"] * 2,
        ["Host: {host}", "Origin: http://["], ["Host: {host}", "Origin: \xff"],
        ["Host: {host}", "Content-Length: \xb2"], ["Host: {host}\x00"],
    ],
)  # fmt: skip
def test_malformed_headers_are_a_bad_request(server, capfd, lines):
    """An empty answer 400, and nothing on the terminal."""
    host = f"127.0.0.1:{server.server_port}"
    text = "\r\n".join([f"GET /{server.token}/ HTTP/1.1", *lines, "", ""]).replace("{host}", host)
    assert raw(server, text.encode("latin-1")).split(b"\r\n")[0] == b"HTTP/1.1 400 Bad Request"
    assert capfd.readouterr().err == ""


def test_a_malformed_address_is_a_bad_request(server, capfd):
    """As with headers."""
    answer = raw(server, f"GET http://[/ HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400")
    assert capfd.readouterr().err == ""


def test_own_origin_is_allowed(server):
    """What a browser sends from the page itself is let through."""
    host = f"127.0.0.1:{server.server_port}"
    status, _, _ = ask(server, Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")
    assert status == 200


def test_decisions_are_on_disk_before_the_answer(server, folder):
    """Keep, change and skip are written at once; the state counts them and names the next suspect."""
    rows = folder.suspects()["row"].tolist()
    assert decide(server, action="keep", place=0)[1]["next"] == 1
    assert decide(server, action="change", place=1, label=HOSTILE)[1]["change"] == 1
    state = decide(server, action="skip", place=2)[1]
    assert (state["keep"], state["change"], state["skip"], state["next"]) == (1, 1, 1, 3)
    assert [(d.row, d.action, d.label) for d in read_decisions(folder.decisions_path)] == [
        (rows[0], "keep", None),
        (rows[1], "change", HOSTILE),
        (rows[2], "skip", None),
    ]


def test_a_decision_that_cannot_be_written_is_refused_for_good(server, folder, monkeypatch):
    """On a full disk the page is told; later decisions do not bring the refused ones along."""
    rows = folder.suspects()["row"].tolist()
    write = os.write

    def full(descriptor, content):
        if b"keep" not in bytes(content):
            return write(descriptor, content)
        write(descriptor, content[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    decide(server, action="skip", place=0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for place in (1, 2):
            status, told = decide(server, action="keep", place=place)
            assert status == 507
            assert "could not be written: No space left" in told["error"]
            assert "was not saved" in told["error"]
        assert server.review.state()["keep"] == 0
    assert decide(server, action="keep", place=3)[0] == 200
    assert [(d.row, d.action) for d in read_decisions(folder.decisions_path)] == [
        (rows[0], "skip"),
        (rows[3], "keep"),
    ]


def test_undo_goes_back(server, folder):
    """Undo takes back the last decision and shows its suspect; without any it does nothing."""
    assert decide(server, action="undo")[1]["next"] == 0
    decide(server, action="keep", place=0)
    decide(server, action="skip", place=1)
    assert decide(server, action="undo")[1]["next"] == 1
    assert decide(server, action="undo")[1]["next"] == 0
    assert read_decisions(folder.decisions_path) == []


def test_a_new_server_goes_on_where_the_old_one_was(server, folder):
    """Decisions are read again; the first suspect without one comes next."""
    decide(server, action="keep", place=0)
    decide(server, action="keep", place=2)
    server.review.close()
    again = Review(folder)
    assert again.state()["next"] == 1
    again.close()


@pytest.mark.parametrize(
    "wish",
    [
        "nonsense", "[]", "[" * 3000, '{"action": "eat", "place": 0}', '{"action": "keep"}',
        '{"action": "keep", "place": 999}', '{"action": "keep", "place": -1}',
        '{"action": "keep", "place": true}', '{"action": "keep", "place": "0"}',
        '{"action": "change", "place": 0}',
        '{"action": "change", "place": 0, "label": "dog"}', '{"action": "keep", "place": 0, "label": "cat"}',
        '{"action": "change", "place": 0, "label": ["cat"]}',
    ],
    ids=range(13),
)  # fmt: skip
def test_nonsense_is_refused_and_not_written(server, folder, wish):
    """A decision that makes no sense leaves the file as it was."""
    status, _, content = ask(server, f"/{server.token}/decide", body=wish)
    assert (status, content) == (400, b"")
    assert folder.decisions_path.read_bytes() == b""


def test_large_and_foreign_bodies_are_refused(server):
    """Bodies over the limit, of another type (as forms send) or without a length are not read."""
    path = f"/{server.token}/decide"
    good = json.dumps({"action": "keep", "place": 0})
    assert ask(server, path, body=" " * (MAX_BODY + 1))[0] == 404
    assert ask(server, path, body=good, Content_Type="text/plain")[0] == 404
    assert ask(server, path, method="POST", Content_Type="application/json", Content_Length="x")[0] == 404
    assert ask(server, path, method="PUT", body=good)[::2] == (501, b"")
    assert server.review.state()["keep"] == 0


def test_json_inside_a_script_cannot_end_it():
    """`</script>` in a label is escaped, so that it does not close the element."""
    assert "<" not in script_json({"label": "</script><b>&"})
