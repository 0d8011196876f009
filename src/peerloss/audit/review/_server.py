"""The local web page on which a person decides on the suspects of an audit.

The server listens on 127.0.0.1 only. Every URL starts with a random token. Requests without it, with another
Host (as in DNS rebinding) or from a page of another origin get an empty 404; requests with malformed headers
get an empty 400. Data are sent as JSON and shown on the page as text, never as markup. Pictures are sent only
if the audit lists them, from files whose names end, and whose contents begin, as those of images do.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import stat
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from peerloss._pages import render
from peerloss.audit._picture_files import MAX_PICTURE, N_FIRST, PICTURE_TYPES, is_picture
from peerloss.audit.review._decisions_file import ACTIONS
from peerloss.audit.review._review_session import STATUSES, View
from peerloss.exceptions import InvalidInputError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss.audit.review._review_session import Review

#: Largest request body in bytes: a decision with a note, whose characters may be escapes.
MAX_BODY = 16_384
#: How much of a picture is read at once, in bytes.
CHUNK = 1 << 16
#: A pipe must not block, and Windows must not change line ends.
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
#: Seconds until an idle connection is closed.
IDLE_SECONDS = 30
#: Headers that are read, besides Host and Origin.
READ_HEADERS = ("Sec-Fetch-Site", "Content-Type", "Content-Length")


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
        elif resource == "decisions":
            self._send_json(self.server.review.decisions())
        elif resource and re.fullmatch(r"picture/[0-9]{1,10}", resource):
            self._send_picture(int(resource.removeprefix("picture/")))
        else:
            self._refuse()

    def do_POST(self) -> None:
        resource = self._permitted_resource()
        permitted = resource in {"decide", "view"}
        permitted &= self.headers.get("Content-Type") == "application/json"
        length = self.headers.get("Content-Length", "")
        if not permitted or not length.isdecimal() or len(length) > 6 or int(length) > MAX_BODY:
            self._refuse()
            return
        try:
            answer = _decide if resource == "decide" else _look
            self._send_json(answer(self.server.review, _parse(self.rfile.read(int(length)))))
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
            settings=review.settings(),
        )
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        self._send(page.encode(), "text/html; charset=utf-8", policy)

    def _send_picture(self, row: int) -> None:
        """Send the picture of a row piece by piece, or an empty 404 if there is no such file."""
        path = self.server.review.picture(row)
        kind = None if path is None else PICTURE_TYPES.get(path.suffix.lower())
        if path is None or kind is None:
            self._refuse()
            return
        file = _open_picture(path)
        if file is None:
            self._refuse()
            return
        with file:
            left = os.fstat(file.fileno()).st_size
            self._send_head(left, kind, "default-src 'none'", HTTPStatus.OK)
            while left and (part := file.read(min(CHUNK, left))):
                self.wfile.write(part)
                left -= len(part)
        self.close_connection = self.close_connection or bool(left)  # the file became shorter

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
        self._send(text.encode("ascii"), "application/json", "default-src 'none'", status)

    def _send(self, body: bytes, kind: str, policy: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send_head(len(body), kind, policy, status)
        self.wfile.write(body)

    def _send_head(self, length: int, kind: str, policy: str, status: HTTPStatus) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(length)),
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()

    def _refuse(self, status: HTTPStatus = HTTPStatus.NOT_FOUND) -> None:
        """Send an empty response and close the connection without reading the rest of it."""
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()


def _open_picture(path: Path) -> IO[bytes] | None:
    """Open a regular file that begins like a picture and is not too large, or return ``None``."""
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except (OSError, ValueError):  # ValueError: a null character in the name
        return None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= MAX_PICTURE:
        os.close(descriptor)
        return None
    file = os.fdopen(descriptor, "rb")
    if not is_picture(file.read(N_FIRST)):
        file.close()
        return None
    file.seek(0)
    return file


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


def _is_url(text: str) -> bool:
    try:
        urlsplit(text).port  # noqa: B018 - raises if the text is malformed
    except ValueError:
        return False
    return True


def _parse(body: bytes) -> dict[str, Any]:
    """Return the object that a request of the page holds; raise ``ValueError`` if it is invalid."""
    try:
        request = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(request, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the caller handles every ValueError the same way
    return request


def _decide(review: Review, request: dict[str, Any]) -> dict[str, Any]:
    """Check and carry out a decision; raise ``ValueError`` if it is invalid."""
    action, label, note = request.get("action"), request.get("label"), request.get("note")
    if action not in ACTIONS or not all(text is None or isinstance(text, str) for text in (label, note)):
        raise ValueError("no such action")
    return review.decide(action, _place(request, "place"), label, note=note, view=_view(request))


def _look(review: Review, request: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a view, after a place; raise ``ValueError`` if it is invalid."""
    after = _place(request, "after")
    return review.state(_view(request), -1 if after is None else after)


def _place(request: dict[str, Any], name: str) -> int | None:
    place = request.get(name)
    if not (place is None or (isinstance(place, int) and not isinstance(place, bool))):
        raise ValueError("no such place")
    return place


def _view(request: dict[str, Any]) -> View:
    view = request.get("view", {})
    if not isinstance(view, dict):
        raise ValueError("not a view")  # noqa: TRY004 - as above
    status, given, suggested = view.get("status", STATUSES[0]), view.get("given"), view.get("suggested")
    if status not in STATUSES or not all(
        text is None or isinstance(text, str) for text in (given, suggested)
    ):
        raise ValueError("no such view")
    return View(status, given, suggested)
