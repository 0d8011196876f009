"""The review server over HTTP: which requests it permits, and when it saves decisions."""

import errno
import http.client
import json
import os
import socket
import threading
from urllib.parse import urlsplit

import pytest

from peerloss.audit.folder import read_folder
from peerloss.audit.review import Decision, Review, ReviewServer, View, read_decisions
from peerloss.audit.review._review_session import BATCH, MAX_NOTE
from peerloss.audit.review._server import MAX_BODY
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


def send(server, path=None, *, body=None, method=None, **headers):
    """Send a request; return status, headers and body."""
    url = urlsplit(server.url)
    connection = http.client.HTTPConnection("127.0.0.1", url.port, timeout=10)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    connection.request(
        method or ("GET" if body is None else "POST"),
        url.path if path is None else path,
        body=body,
        headers=headers,
    )
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), content


def send_bytes(server, content):
    """Send bytes and return the complete response."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(content)
        return b"".join(iter(lambda: connection.recv(4096), b""))


def decide(server, **decision):
    status, _, content = send(server, f"/{server.token}/decide", body=json.dumps(decision))
    return status, json.loads(content) if content else None


def test_it_listens_on_this_machine_only(server):
    """The socket is bound to 127.0.0.1, and the URL contains a long token."""
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.token) >= 32
    assert server.token in server.url


def test_a_port_in_use_is_refused(server):
    """The message names the port and the option to choose another one."""
    used = server.server_port
    with pytest.raises(InvalidInputError, match=rf"`port` {used} cannot be used: .*in use.*--port.*or 0"):
        ReviewServer(server.review, used)


def test_page_and_suspects(server, folder):
    """The page has a strict policy; suspects are sent in the order of their rank, as text."""
    status, headers, page = send(server)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    assert HOSTILE.encode() not in page
    _, headers, content = send(server, f"/{server.token}/suspects/0")
    assert headers["Content-Type"] == "application/json"
    found = json.loads(content)
    expected = folder.suspects()
    assert [suspect["name"] for suspect in found] == [f"row {row + 2}" for row in expected["row"][:BATCH]]
    features = {name: value for name, value, *_ in found[0]["features"]}
    assert features["note"].startswith(HOSTILE)
    assert "label" not in features


@pytest.mark.parametrize(
    "path",
    [
        "/", "", "/wrong/", "/{token}", "/{token}x/", "/{token}/../", "/{token}/data.csv",
        "/{token}/audit.json", "/{token}/suspects/", "/{token}/suspects/-1", "/{token}/suspects/1e3",
        "/favicon.ico", "/%2e%2e/",
        "/{token}/suspects/" + "9" * 50,
    ],
)  # fmt: skip
def test_other_urls_get_an_empty_response(server, path):
    """Without the token, or for unknown paths, there is no page, no listing and no file."""
    status, headers, content = send(server, path.replace("{token}", server.token))
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
def test_other_hosts_and_origins_get_nothing_even_with_the_token(server, headers):
    """Another host name (DNS rebinding) and pages of other origins can neither read nor decide."""
    assert send(server, **headers)[::2] == (404, b"")
    body = json.dumps({"action": "keep", "place": 0})
    assert send(server, f"/{server.token}/decide", body=body, **headers)[::2] == (404, b"")
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
    """The response is an empty 400, and nothing is printed."""
    host = f"127.0.0.1:{server.server_port}"
    text = "\r\n".join([f"GET /{server.token}/ HTTP/1.1", *lines, "", ""]).replace("{host}", host)
    assert send_bytes(server, text.encode("latin-1")).split(b"\r\n")[0] == b"HTTP/1.1 400 Bad Request"
    assert capfd.readouterr().err == ""


def test_a_malformed_address_is_a_bad_request(server, capfd):
    """The response is an empty 400, and nothing is printed."""
    response = send_bytes(
        server, f"GET http://[/ HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode()
    )
    assert response.startswith(b"HTTP/1.1 400")
    assert capfd.readouterr().err == ""


def test_own_origin_is_allowed(server):
    """The headers that a browser sends from the page itself are accepted."""
    host = f"127.0.0.1:{server.server_port}"
    status, _, _ = send(server, Host=host, Origin=f"http://{host}", Sec_Fetch_Site="same-origin")
    assert status == 200


def test_decisions_are_on_disk_before_the_response(server, folder):
    """Keep, change and skip are written immediately; the state counts them and has the next suspect."""
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


def test_a_decision_that_cannot_be_written_is_never_saved(server, folder, monkeypatch):
    """On a full disk the response is an error; later decisions do not save the refused ones."""
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
            status, response = decide(server, action="keep", place=place)
            assert status == 507
            assert "could not be written: No space left" in response["error"]
            assert "was not saved" in response["error"]
        assert server.review.state()["keep"] == 0
    assert decide(server, action="keep", place=3)[0] == 200
    assert [(d.row, d.action) for d in read_decisions(folder.decisions_path)] == [
        (rows[0], "skip"),
        (rows[3], "keep"),
    ]


def test_undo_goes_back(server, folder):
    """Undo cancels the last decision and goes back to its suspect; without decisions it does nothing."""
    assert decide(server, action="undo")[1]["next"] == 0
    decide(server, action="keep", place=0)
    decide(server, action="skip", place=1)
    assert decide(server, action="undo")[1]["next"] == 1
    assert decide(server, action="undo")[1]["next"] == 0
    assert read_decisions(folder.decisions_path) == []


def test_a_new_review_continues_where_the_last_one_stopped(server, folder):
    """Decisions are read again; the first suspect without a decision is next."""
    decide(server, action="keep", place=0)
    decide(server, action="keep", place=2)
    server.review.close()
    again = Review(folder)
    assert again.state()["next"] == 1
    again.close()


@pytest.mark.parametrize(
    "body",
    [
        "nonsense", "[]", "[" * 3000, '{"action": "eat", "place": 0}', '{"action": "keep"}',
        '{"action": "keep", "place": 999}', '{"action": "keep", "place": -1}',
        '{"action": "keep", "place": true}', '{"action": "keep", "place": "0"}',
        '{"action": "change", "place": 0}',
        '{"action": "change", "place": 0, "label": "dog"}', '{"action": "keep", "place": 0, "label": "cat"}',
        '{"action": "change", "place": 0, "label": ["cat"]}', '{"action": "keep", "place": 0, "note": 1}',
        '{"action": "keep", "place": 0, "view": []}',
        '{"action": "keep", "place": 0, "view": {"status": "x"}}',
        '{"action": "keep", "place": 0, "view": {"given": 1}}',
        json.dumps({"action": "keep", "place": 0, "note": "x" * (MAX_NOTE + 1)}),
    ],
    ids=range(18),
)  # fmt: skip
def test_invalid_decisions_are_refused_and_not_written(server, folder, body):
    """An invalid decision does not change the file."""
    status, _, content = send(server, f"/{server.token}/decide", body=body)
    assert (status, content) == (400, b"")
    assert folder.decisions_path.read_bytes() == b""


def test_large_and_foreign_bodies_are_refused(server):
    """Bodies over the limit, of another type (as from forms) or without a length are not read."""
    path = f"/{server.token}/decide"
    good = json.dumps({"action": "keep", "place": 0})
    assert send(server, path, body=" " * (MAX_BODY + 1))[0] == 404
    assert send(server, path, body=good, Content_Type="text/plain")[0] == 404
    assert send(server, path, method="POST", Content_Type="application/json", Content_Length="x")[0] == 404
    assert send(server, path, method="PUT", body=good)[::2] == (501, b"")
    assert server.review.state()["keep"] == 0


def test_json_inside_a_script_cannot_end_it(server, folder):
    """`</script>` in a label is escaped, so that it does not close the element."""
    settings = send(server)[2].decode().split('id="settings">')[1].split("</script>")[0]
    assert "<" not in settings
    read = json.loads(settings)
    assert (read["classes"], read["batch"]) == (folder.classes, BATCH)
    assert read["command"] == f"peerloss apply {folder.path} -o cleaned.csv"


def test_a_row_can_be_dropped_with_a_note_and_a_name(folder):
    """Notes and the name of the reviewer are saved with the decision, and undo is the reviewer's own."""
    first = Review(folder, reviewer="Ada")
    first.decide("drop", 0, None, note="not an animal")
    first.close()
    second = Review(folder, reviewer="Bo & Co")
    assert second.decide("undo", None, None)["drop"] == 1
    second.decide("keep", 0, None)
    listed = second.decisions()
    second.close()
    row = int(folder.suspects()["row"].iloc[0])
    assert read_decisions(folder.decisions_path) == [
        Decision(row, "drop", None, "not an animal", "Ada"),
        Decision(row, "keep", None, None, "Bo & Co"),
    ]
    assert listed["disagreements"] == [f"row {row + 2}"]
    assert [d["action"] for d in listed["decisions"]] == ["keep"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 200])
def test_names_of_reviewers_are_checked(folder, name):
    """Empty and very long names are refused before the file is opened."""
    with pytest.raises(InvalidInputError, match="`reviewer` must be a name of 1 to 100 characters"):
        Review(folder, reviewer=name)
    assert not folder.decisions_path.exists()


def test_views_filter_by_label_and_status(server, folder):
    """A view has the suspects with these labels; skipped rows come again, one after the other."""
    suspects = folder.suspects()
    given, suggested = suspects[["given", "suggested"]].iloc[-1]
    view = {"given": given, "suggested": suggested}
    same = ((suspects["given"] == given) & (suspects["suggested"] == suggested)).to_numpy()
    _, _, content = send(server, f"/{server.token}/view", body=json.dumps({"view": view}))
    state = json.loads(content)
    assert (state["matching"], state["next"]) == (same.sum(), same.argmax())
    for place in (0, 2, 4):
        decide(server, action="skip", place=place)
    decide(server, action="keep", place=1)
    review = server.review
    assert review.state(View("skipped"))["next"] == 0
    assert review.state(View("skipped"), after=0)["next"] == 2
    again = decide(server, action="skip", place=4, view={"status": "skipped"})[1]
    assert again["next"] == len(suspects)  # the end, instead of the first one again
    assert review.state(View("decided"))["next"] == 1
    assert review.state(View("decided"))["decision"]["action"] == "keep"
    assert review.state(View("all"))["matching"] == len(suspects)
    assert send(server, f"/{server.token}/view", body='{"after": "x"}')[0] == 400


def test_another_order(folder):
    """Suspects can be ordered by a column of numbers; other columns are refused with those that exist."""
    review = Review(folder, order="p_suggested")
    ordered = [suspect["p_suggested"] for suspect in review.batch(0)]
    review.close()
    assert ordered == sorted(ordered, reverse=True)
    for name in ("name", "flagged", "nothing"):
        with pytest.raises(
            InvalidInputError, match="`order` must be a column of numbers.*rank.*got '" + name
        ):
            Review(folder, order=name)


def test_suspects_have_reasons_and_examples(server):
    """Each suspect has the probabilities of the classes and similar rows of both labels."""
    for suspect in server.review.batch(0):
        assert sum(p for _, p in suspect["probabilities"]) == pytest.approx(1.0, abs=1e-3)
        labels = [card["label"] for card in suspect["similar"]]
        assert labels == [suspect["given"]] * 2 + [suspect["suggested"]] * 2
        assert len(suspect["nearest"]) == 3
        assert all(len(column) == 6 for column in suspect["features"])


def test_the_decisions_are_listed(server):
    """The last page gets every row with its decision, newest first."""
    decide(server, action="change", place=1, label=HOSTILE, note="<b>")
    decide(server, action="skip", place=0)
    status, _, content = send(server, f"/{server.token}/decisions")
    found = json.loads(content)
    assert (status, found["total"], found["disagreements"]) == (200, 2, [])
    assert [(d["action"], d["label"], d["note"]) for d in found["decisions"]] == [
        ("skip", None, None),
        ("change", HOSTILE, "<b>"),
    ]
