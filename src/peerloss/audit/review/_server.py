"""The suspects of an audit with the decisions on them, and the local web page on which a person decides.

The server listens on 127.0.0.1 only. Every URL starts with a random token. Requests without it, with another
Host (as in DNS rebinding) or from a page of another origin get an empty 404; requests with malformed headers
get an empty 400. Data are sent as JSON and shown on the page as text, never as markup.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from peerloss._pages import render
from peerloss.audit._audit_page import cell_text
from peerloss.audit.review._decisions_file import ACTIONS, DecisionsFile, latest
from peerloss.exceptions import InvalidInputError, OutputError

if TYPE_CHECKING:
    from peerloss.audit.folder import AuditFolder

#: Suspects per response; the page requests the next ones in advance.
BATCH = 20
#: Longer texts are truncated on the page.
MAX_TEXT = 20_000
#: Largest request body in bytes; a decision is a short JSON object.
MAX_BODY = 4096
#: Seconds until an idle connection is closed.
IDLE_SECONDS = 30
#: Headers that are read, besides Host and Origin.
READ_HEADERS = ("Sec-Fetch-Site", "Content-Type", "Content-Length")


class Review:
    """Suspects of an audit and the decisions on them; safe to use from several threads.

    A *place* is the position of a suspect in the order of ranks, from 0.
    """

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
        self._lock = threading.RLock()
        self._file = DecisionsFile(folder.decisions_path)

    def __len__(self) -> int:
        return len(self._suspects)

    def batch(self, start: int) -> list[dict[str, Any]]:
        """Return up to ``BATCH`` suspects as text, in the order of their rank."""
        return [
            {
                "place": place,
                "name": str(suspect["name"]),
                "given": str(suspect["given"]),
                "suggested": str(suspect["suggested"]),
                "p_error": round(float(suspect["p_error"]), 4),
                "features": [
                    (name, cell_text(value)[:MAX_TEXT])
                    for name, value in zip(self._names, self._features[place], strict=True)
                ],
            }
            for place, suspect in enumerate(self._suspects[start : start + BATCH], start=start)
        ]

    def state(self) -> dict[str, Any]:
        """Return the number of decisions of each kind and the place of the next suspect."""
        with self._lock:
            decided = latest(self._file.decisions)
        actions = [decision.action for decision in decided.values()]
        counts = {action: actions.count(action) for action in ACTIONS if action != "undo"}
        undecided = (place for row, place in self._place.items() if row not in decided)
        return {"total": len(self), "next": min(undecided, default=len(self)), **counts}

    def decide(self, action: str, place: int | None, label: str | None) -> dict[str, Any]:
        """Write a decision, or undo the last one, and return the new state.

        Raise ``ValueError`` if there is no such suspect or label, ``OutputError`` if it cannot be written.
        """
        with self._lock:
            if action == "undo":
                if not self._file.decisions:
                    return self.state()
                row = self._file.decisions[-1].row
                self._file.append(row, "undo")
                return self.state() | {"next": self._place.get(row, 0)}
            if place is None or not 0 <= place < len(self):
                raise ValueError("no such suspect")
            if (action == "change") != (label in self.classes):
                raise ValueError("no such label")
            self._file.append(int(self._suspects[place]["row"]), action, label)
            return self.state()

    def close(self) -> None:
        """Close the file of decisions."""
        self._file.close()


class ReviewServer(ThreadingHTTPServer):
    """Serve a review on 127.0.0.1, at ``url``."""

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
                "for any free port."
            ) from error
        self.hosts = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")}

    @property
    def url(self) -> str:
        """The address, including the token."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors of this program, but not connections that the client closed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def version_string(self) -> str:
        return "peerloss"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing, because the log would contain the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Send an empty response to invalid requests, instead of a page that describes the server."""
        self._refuse(HTTPStatus(code))

    def parse_request(self) -> bool:
        """Refuse a request with a missing or repeated Host, or with a malformed header or URL."""
        if not super().parse_request():
            return False
        hosts, origin = self.headers.get_all("Host", []), self.headers.get("Origin", "")
        read = [*hosts, origin, *(self.headers.get(name, "") for name in READ_HEADERS)]
        valid = len(hosts) == 1 and bool(hosts[0]) and all(map(_is_text, read))
        if not valid or not all(map(_is_url, (self.path, f"//{hosts[0]}", origin))):
            self._refuse(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        resource = self._permitted_resource()
        if resource == "":
            self._send_page()
        elif resource == "state":
            self._send_json(self.server.review.state())
        elif resource and re.fullmatch(r"suspects/[0-9]{1,10}", resource):
            self._send_json(self.server.review.batch(int(resource.removeprefix("suspects/"))))
        else:
            self._refuse()

    def do_POST(self) -> None:
        permitted = self._permitted_resource() == "decide"
        permitted &= self.headers.get("Content-Type") == "application/json"
        length = self.headers.get("Content-Length", "")
        if not permitted or not length.isdecimal() or len(length) > 6 or int(length) > MAX_BODY:
            self._refuse()
            return
        try:
            self._send_json(_decide(self.server.review, self.rfile.read(int(length))))
        except OutputError as error:
            self._send_json({"error": str(error)}, HTTPStatus.INSUFFICIENT_STORAGE)
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST)

    def _permitted_resource(self) -> str | None:
        """Return the path behind the token, or ``None`` if the request is not permitted."""
        if self.headers.get("Host") not in self.server.hosts:
            return None
        if self.headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
            return None
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self.server.hosts:
            return None
        _, _, rest = urlsplit(self.path).path.partition("/")
        token, slash, resource = rest.partition("/")
        if not slash or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return None
        return resource

    def _send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        review = self.server.review
        page = render(
            "peerloss.audit.review",
            "review.html",
            nonce=nonce,
            title=review.title,
            settings={"classes": review.classes, "batch": BATCH},
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
        """Send an empty response and close the connection without reading the rest of it."""
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _is_url(text: str) -> bool:
    try:
        urlsplit(text).port  # noqa: B018 - raises if the text is malformed
    except ValueError:
        return False
    return True


def _decide(review: Review, body: bytes) -> dict[str, Any]:
    """Check and carry out a request of the page; raise ``ValueError`` if it is invalid."""
    try:
        request = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(request, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the caller handles every ValueError the same way
    action, place, label = request.get("action"), request.get("place"), request.get("label")
    if action not in ACTIONS or not (label is None or isinstance(label, str)):
        raise ValueError("no such action")
    if not (place is None or (isinstance(place, int) and not isinstance(place, bool))):
        raise ValueError("no such place")
    return review.decide(action, place, label)
