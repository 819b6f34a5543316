"""One connection: requests are read strictly, answered by Routes, written as JSON."""

from __future__ import annotations

import hmac
import http.server
import json
import re
import socket
import sqlite3
import sys
import time
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

from .errors import Refusal
from .protocol import MAX_BODY_BYTES
from .routes import DROPPED, Answer, Call

if TYPE_CHECKING:
    from .server import Server

IDLE_SECONDS = 30.0
"""How long a connection may stay silent. More than HTTP clients keep an idle one for reuse (5 s
in httpx), so that a request does not cross our closing of its connection."""
LINGER_SECONDS = 1.0
LINGER_BYTES = 1024 * 1024
MAX_LINE_BYTES = 65536
LOGGED_CHARACTERS = 500
"""How much of a method, path or query the request log keeps: even strangers can fill it."""

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,19}")


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the requests of one connection, one after the other."""

    server: Server
    protocol_version = "HTTP/1.1"
    # For a line that names no version. With the 0.9 of the base class errors had no status line.
    default_request_version = "HTTP/1.0"
    timeout = IDLE_SECONDS
    wbufsize = -1  # the whole answer leaves in one write
    disable_nagle_algorithm = True
    _unread = False  # bytes may be coming that no request will be read from

    def handle_one_request(self) -> None:
        """Serve one request. A client that is gone or silent ends the connection, no more."""
        try:
            if self._read_head():
                self._serve()
        except OSError:
            self.close_connection = True

    def handle_expect_100(self) -> bool:
        """Say nothing yet: _read_body asks for the body once it is wanted."""
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what could not be parsed as HTTP (called by the base class)."""
        status = HTTPStatus(code)
        self._unread = True
        if self.command:
            self._log(*self._target(), status=code)
        name = "INVALID_REQUEST" if code == 400 else status.name
        self._send(_refused(Refusal(code, name, status.phrase)))

    def version_string(self) -> str:
        """What the Server header says."""
        return "fulfil-reference-service"

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to stderr: requests are logged in the ledger."""

    def finish(self) -> None:
        """End the connection so that the last answer arrives.

        To close a socket with unread bytes in it resets the connection, and that can take the
        answer away from the client; so what still comes is read and dropped, within limits.
        """
        super().finish()
        if not self._unread:
            return
        left, deadline = LINGER_BYTES, time.monotonic() + LINGER_SECONDS
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := deadline - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                dropped = len(self.connection.recv(65536))
                if dropped == 0:
                    return
                left -= dropped

    def _read_head(self) -> bool:
        """Read a request line and headers; False where there is nothing to serve."""
        self.command = ""
        self.request_version = self.default_request_version
        self.requestline = ""
        try:
            self.raw_requestline = self.rfile.readline(MAX_LINE_BYTES + 1)
            if len(self.raw_requestline) > MAX_LINE_BYTES:
                self.send_error(414)
                return False
            if not self.raw_requestline:
                self.close_connection = True
                return False
            return self.parse_request()
        except TimeoutError:
            self.close_connection = True
            if self.command:
                self.send_error(408)
            return False

    def _serve(self) -> None:
        with self.server.request_in_hand() as admitted:
            if admitted:
                answer = self._answer(*self._target())
            else:
                self._unread = True
                message = "the service is stopping; nothing was done"
                answer = _refused(Refusal(503, "STOPPING", message))
            self._send(answer)

    def _answer(self, path: str, query: str) -> Answer:
        """Log the request, do it, and log its status before the client can see the answer."""
        seq: int | None = None
        try:
            call = self._receive(path, query)
            seq = self._log(path, query, key=call.key)
            answer = call.run()
        except Refusal as refusal:
            answer = _refused(refusal)
        except OSError:
            raise  # the connection: nobody is left to answer
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            report(f"{self.command} {path!a}", error)
            answer = _refused(Refusal(500, "INTERNAL", "the service failed; its stderr says more"))
        try:
            if seq is None:
                self._log(path, query, status=answer.status)
            else:
                self.server.ledger.log_answer(seq, answer.status)
        except sqlite3.Error as error:  # what was done is done, and the client is to know it
            report("request log", error)
        return answer

    def _receive(self, path: str, query: str) -> Call:
        """Read the rest of the request, its cheapest and most general conditions first."""
        self._unread = True
        length = self._length()
        self._unread = bool(length)
        self._check_host()
        self._check_token()
        method = self.server.routes.method(path)
        if method is None:
            raise Refusal(404, "NOT_FOUND", "no such path")
        if method != self.command:
            raise Refusal(405, "METHOD_NOT_ALLOWED", f"use {method}", {"Allow": method})
        if method == "POST":
            body = self._read_body(length)
        elif length:
            raise Refusal(400, "INVALID_REQUEST", "a GET has no body")
        else:
            body = b""
        return self.server.routes.call(path, query, body)

    def _length(self) -> int | None:
        """The length of the body; Refusal where it is not certain where the request ends."""
        if self.request_version not in ("HTTP/1.0", "HTTP/1.1"):
            raise Refusal(505, "HTTP_VERSION_NOT_SUPPORTED", "use HTTP/1.1")
        if len(self.requestline.split()) != 3 or self.headers.defects:
            raise Refusal(400, "INVALID_REQUEST", "malformed request line or headers")
        if "Transfer-Encoding" in self.headers:
            raise Refusal(501, "NOT_IMPLEMENTED", "no transfer encodings; send a Content-Length")
        lengths = self.headers.get_all("Content-Length", [])
        if not lengths:
            return None
        if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
            raise Refusal(400, "INVALID_REQUEST", "Content-Length must be one decimal number")
        return int(lengths[0])

    def _check_host(self) -> None:
        """Refuse names that are not ours: a web page can make its own resolve to 127.0.0.1."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
            raise Refusal(421, "INVALID_HOST", "the Host must be 127.0.0.1, localhost or [::1]")

    def _check_token(self) -> None:
        values = self.headers.get_all("Authorization", [])
        scheme, _, credentials = (values[0] if len(values) == 1 else "").partition(" ")
        given = credentials.strip().encode("latin-1")  # as the headers were decoded
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self.server.token):
            headers = {"WWW-Authenticate": "Bearer"}
            raise Refusal(401, "UNAUTHORIZED", "a valid bearer token is required", headers)

    def _read_body(self, length: int | None) -> bytes:
        if length is None:
            self._unread = True  # who means to send one anyway must not have it taken for a request
            raise Refusal(411, "LENGTH_REQUIRED", "send a Content-Length")
        if length > MAX_BODY_BYTES:
            raise Refusal(413, "BODY_LIMIT", f"a body has at most {MAX_BODY_BYTES} bytes")
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
            self.wfile.flush()
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise Refusal(408, "REQUEST_TIMEOUT", "the body did not arrive") from None
        if len(body) < length:
            raise Refusal(400, "INVALID_REQUEST", "the body is shorter than its Content-Length")
        self._unread = False
        return body

    def _target(self) -> tuple[str, str]:
        path, _, query = self.path.partition("?")
        return path, query

    def _log(
        self, path: str, query: str, *, key: str | None = None, status: int | None = None
    ) -> int:
        shown = (part[:LOGGED_CHARACTERS] for part in (self.command, path, query))
        return self.server.ledger.log_request(*shown, key=key, status=status)

    def _send(self, answer: Answer) -> None:
        if answer is DROPPED:
            self.close_connection = True
            return
        if self.request_version == "HTTP/0.9":  # the base class would leave out the status line
            self.request_version = self.default_request_version
        # While others wait for a place, a connection is good for one request.
        if self._unread or self.server.full or self.request_version == "HTTP/1.0":
            self.close_connection = True
        body = json.dumps(answer.body, ensure_ascii=False).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


def _refused(refusal: Refusal) -> Answer:
    error = {"code": refusal.code, "message": refusal.message}
    return Answer(refusal.status, {"error": error}, refusal.headers)


def report(where: str, error: BaseException | None) -> None:
    """One line on stderr about a failure that is ours."""
    with suppress(OSError):  # stderr may have gone with whoever started us
        print(f"reference_service: {where}: {type(error).__name__}: {error}", file=sys.stderr)
