"""A page on this machine on which a person steps through suspects with the keyboard.

The server listens on 127.0.0.1 only. The first part of every address is a random token. Requests without it,
with another Host (as when a foreign name is made to point here) or from a page of another origin get an empty
404; requests with malformed headers get an empty 400. Answers are sent as text and put on the page as text.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from peerloss.audit._page import asset, cell_text, render
from peerloss.audit.review._decisions import ACTIONS, Journal, latest
from peerloss.exceptions import InvalidInputError, OutputError

if TYPE_CHECKING:
    from peerloss.audit._folder import AuditFolder

#: A decision is a short JSON object.
LARGEST_BODY = 4096
#: Suspects in one answer; the page asks for the next ones ahead of time.
BATCH = 20
#: Seconds that a silent connection is kept.
PATIENCE = 30
#: Headers that are read, besides Host and Origin.
READ_HEADERS = ("Sec-Fetch-Site", "Content-Type", "Content-Length")
#: Longer texts are cut on the page.
LONGEST_TEXT = 20_000


class Review:
    """Suspects of an audit and what was decided about them; safe to use from several threads."""

    def __init__(self, folder: AuditFolder) -> None:
        self.classes = folder.classes
        self.title = str(folder.manifest.get("source", folder.path.name))
        suspects = folder.suspects()
        self._suspects = suspects.to_dict("records")
        self._place = {int(row): place for place, row in enumerate(suspects["row"])}
        features = folder.features()
        self._names = [str(name) for name in features]
        folder.check_rows(suspects["row"], len(features))
        self._features = features.iloc[suspects["row"].to_numpy()].to_numpy(dtype=object)
        self._lock = threading.Lock()
        self._journal = Journal(folder.decisions_path)

    def __len__(self) -> int:
        return len(self._suspects)

    def batch(self, start: int) -> list[dict[str, Any]]:
        """Return some suspects as texts, in the order of their rank."""
        found = []
        for place in range(start, min(start + BATCH, len(self))):
            suspect = self._suspects[place]
            cells = [cell_text(value)[:LONGEST_TEXT] for value in self._features[place]]
            found.append(
                {
                    "place": place,
                    "name": str(suspect["name"]),
                    "given": str(suspect["given"]),
                    "suggested": str(suspect["suggested"]),
                    "p_error": round(float(suspect["p_error"]), 4),
                    "features": list(zip(self._names, cells, strict=True)),
                }
            )
        return found

    def state(self) -> dict[str, Any]:
        """Return how far the review is and which suspect comes next."""
        with self._lock:
            return self._state()

    def _state(self) -> dict[str, Any]:
        decided = latest(self._journal.decisions)
        counts = {action: 0 for action in ACTIONS if action != "undo"}
        for decision in decided.values():
            counts[decision.action] += 1
        waiting = (place for row, place in self._place.items() if row not in decided)
        return {"total": len(self), "next": min(waiting, default=len(self)), **counts}

    def decide(self, action: str, place: int | None, label: str | None) -> dict[str, Any]:
        """Write a decision (or take the last one back) and return the new state."""
        with self._lock:
            if action == "undo":
                if self._journal.decisions:
                    last = self._journal.decisions[-1]
                    self._journal.append(last.row, "undo")
                    return self._state() | {"next": self._place.get(last.row, 0)}
                return self._state()
            if place is None or not 0 <= place < len(self):
                raise ValueError("no such suspect")
            if (action == "change") != (label in self.classes):
                raise ValueError("no such label")
            self._journal.append(int(self._suspects[place]["row"]), action, label)
            return self._state()

    def close(self) -> None:
        """Close the file of decisions."""
        self._journal.close()


class ReviewServer(ThreadingHTTPServer):
    """Serves a review on 127.0.0.1; ``url`` is where."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, review: Review, port: int = 0) -> None:
        self.review = review
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise InvalidInputError(
                f"`port` {port} cannot be used: {error.strerror or error}. Choose another one (--port), or 0 "
                "for any that is free."
            ) from error
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    @property
    def url(self) -> str:
        """The address, token included."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report mistakes of this program, but not connections that the other side broke off."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def version_string(self) -> str:
        return "peerloss"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing: the token would stand in the log."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer requests that are none with nothing, instead of a page that describes the server."""
        self._refuse(HTTPStatus(code))

    def parse_request(self) -> bool:
        """Refuse a request whose Host is absent or repeated, or whose headers or address are malformed."""
        if not super().parse_request():
            return False
        hosts, origin = self.headers.get_all("Host", []), self.headers.get("Origin", "")
        read = [*hosts, origin, *(self.headers.get(name, "") for name in READ_HEADERS)]
        sound = len(hosts) == 1 and bool(hosts[0]) and all(map(_is_text, read))
        if not sound or not all(map(_is_address, (self.path, f"//{hosts[0]}", origin))):
            self._refuse(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        what = self._allowed()
        if what == "":
            self._send_page()
        elif what == "state":
            self._send_json(self.server.review.state())
        elif what is not None and what.startswith("suspects/") and what[9:].isdecimal() and len(what) < 20:
            self._send_json(self.server.review.batch(int(what[9:])))
        else:
            self._refuse()

    def do_POST(self) -> None:
        if self._allowed() != "decide" or self.headers.get("Content-Type") != "application/json":
            self._refuse()
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 6 or int(length) > LARGEST_BODY:
            self._refuse()
            return
        try:
            self._send_json(_decide(self.server.review, self.rfile.read(int(length))))
        except OutputError as error:
            self._send_json({"error": str(error)}, HTTPStatus.INSUFFICIENT_STORAGE)
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST)

    def _allowed(self) -> str | None:
        """Return what is asked for, if who asks may have it."""
        if self.headers.get("Host") not in self.server.hosts:
            return None
        if self.headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
            return None
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            return None
        _, _, rest = urlsplit(self.path).path.partition("/")
        token, slash, what = rest.partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return None
        return what

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        review = self.server.review
        page = render(
            "review.html",
            nonce=nonce,
            title=review.title,
            settings={"classes": review.classes, "batch": BATCH},
            style=asset("review.css"),
            script=asset("review.js"),
        )
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._send(page.encode(), "text/html; charset=utf-8", policy)

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
        self._send(text.encode("ascii"), "application/json", "default-src 'none'", status)

    def _send(self, body: bytes, kind: str, policy: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus = HTTPStatus.NOT_FOUND) -> None:
        """Answer with nothing, and hang up: what else the connection holds is not read."""
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _is_address(text: str) -> bool:
    try:
        urlsplit(text).port  # noqa: B018 - raises if the text is malformed
    except ValueError:
        return False
    return True


def _decide(review: Review, body: bytes) -> dict[str, Any]:
    """Check and carry out what the page asks for; ``ValueError`` where it makes no sense."""
    try:
        wish = json.loads(body)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(wish, dict):
        raise ValueError("no object")  # noqa: TRY004 - the caller answers every ValueError alike
    action, place, label = wish.get("action"), wish.get("place"), wish.get("label")
    if action not in ACTIONS or not (label is None or isinstance(label, str)):
        raise ValueError("no such action")
    if not (place is None or (isinstance(place, int) and not isinstance(place, bool))):
        raise ValueError("no such place")
    return review.decide(action, place, label)
