"""The command line of the service: start, say where, serve until told to stop."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from typing import NoReturn

from . import parent
from .database import Database, is_empty, missing, unusable
from .errors import StartError
from .faults import Fixture, load_fixture
from .ledger import Ledger
from .locking import DatabaseLock
from .routes import Routes
from .server import Server

TOKEN_VARIABLE = "FULFIL_SERVICE_TOKEN"
STOP_POLL_SECONDS = 0.02  # a runner waits for the end of its service at the end of each command
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise StartError("INVALID_USAGE", message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service and return its exit status.

    stdout gets one JSON line: ``{"origin", "ledgerId"}`` when requests are served, or
    ``{"error": {"code", "message"}}``. SIGTERM stops the service with status 0, and so does
    SIGINT unless it is to die with its parent: a terminal's Ctrl-C is meant for that one.
    """
    os.umask(0o077)
    try:
        options = _options(arguments)
        _until_ready(options.die_with_parent)
        _run(options)
    except StartError as error:
        _say({"error": {"code": error.code, "message": error.message}})
        return error.exit_status
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="python -m reference_service",
        description="The reference ledger of fulfil.",
        epilog=f"Clients must send the bearer token that {TOKEN_VARIABLE} holds.",
        allow_abbrev=False,
    )
    parser.add_argument("--database", required=True, metavar="FILE", help="SQLite file")
    parser.add_argument("--port", type=_port, default=0, help="0 (default): any free port")
    parser.add_argument("--fixture", metavar="FILE", help="JSON with stock and faults")
    parser.add_argument("--existing", action="store_true", help="never create the database")
    parser.add_argument(
        "--die-with-parent", type=int, metavar="PID", help="be killed when our parent PID ends"
    )
    parser.add_argument(
        "--lock-timeout",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="wait for another service to let go of the database (default: 5)",
    )
    return parser.parse_args(arguments)


def _until_ready(parent_pid: int | None) -> None:
    """What a signal does before there is anything to stop: leave at once, without a traceback."""
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))
    if parent_pid is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        parent.die_with(parent_pid)


def _run(options: argparse.Namespace) -> None:
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise StartError("TOKEN_MISSING", f"set {TOKEN_VARIABLE} to the token clients must send")
    fixture = load_fixture(options.fixture) if options.fixture else Fixture()
    # Two names of one file must meet at one lock.
    path = os.path.realpath(options.database)
    try:
        if options.existing and is_empty(path):
            raise missing(path)  # before the lock, whose file would be a trace
        with DatabaseLock.acquire(path, timeout=options.lock_timeout):
            database = Database.open(path, fixture.stock, existing=options.existing)
            with closing(Ledger(database)) as ledger:
                ledger.recover(fixture.faults.refused_kinds)
                routes = Routes(ledger, fixture.faults)
                _serve(_bind(options.port, os.fsencode(token), ledger, routes))
    except (sqlite3.Error, OSError) as error:
        raise unusable(path, error) from error


def _bind(port: int, token: bytes, ledger: Ledger, routes: Routes) -> Server:
    try:
        return Server(port, token, ledger, routes)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        code = "ADDRESS_IN_USE" if in_use else "ADDRESS_UNAVAILABLE"
        raise StartError(code, f"127.0.0.1:{port}: {error.strerror}") from error


def _serve(server: Server) -> None:
    """Serve until a stop signal. Threads inherit the mask, so the signal waits for sigwait."""
    awaited = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    accepting = threading.Thread(
        target=server.serve_forever, args=(STOP_POLL_SECONDS,), name="accept", daemon=True
    )
    accepting.start()
    _say({"origin": server.origin, "ledgerId": server.ledger.ledger_id})
    signal.sigwait(awaited)
    server.stop()


def _say(line: object) -> None:
    print(json.dumps(line), flush=True)


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 3600:
        raise ValueError
    return value
