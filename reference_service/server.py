"""The listening socket, the connections in hand, and stopping."""

from __future__ import annotations

import http.server
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .handler import Handler, report
from .ledger import Ledger
from .routes import Routes

MAX_CONNECTIONS = 64
"""Further connections wait in the kernel's queue, unread."""
STOP_SECONDS = 5.0


class Server(http.server.ThreadingHTTPServer):
    """One thread for each connection, at most MAX_CONNECTIONS of them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, token: bytes, ledger: Ledger, routes: Routes) -> None:
        self.token = token
        self.ledger = ledger
        self.routes = routes
        self._changed = threading.Condition()
        self._connections = 0
        self._requests = 0
        self._stopping = False
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def origin(self) -> str:
        """Where clients find the server."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def full(self) -> bool:
        """Whether new connections have to wait."""
        return self._connections >= MAX_CONNECTIONS

    def server_bind(self) -> None:
        """Bind without the look-up of our own name in the DNS that HTTPServer makes."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, once there is a place for it."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self.full)
            if self._stopping:
                request.close()
                return
            self._connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and give its place to the next."""
        super().shutdown_request(request)
        with self._changed:
            self._connections -= 1
            self._changed.notify_all()

    @contextmanager
    def request_in_hand(self) -> Iterator[bool]:
        """Count a request until it is answered; the value is False once the service stops."""
        with self._changed:
            self._requests += 1
            admitted = not self._stopping
        try:
            yield admitted
        finally:
            with self._changed:
                self._requests -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Accept nothing more; wait up to STOP_SECONDS for what is in hand.

        What is cut off then stays claimed, and the next start settles it.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.shutdown()
        self.server_close()
        with self._changed:
            self._changed.wait_for(lambda: self._requests == 0, timeout=STOP_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line what escaped a connection, unless it is the client going away."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            report("connection", error)
