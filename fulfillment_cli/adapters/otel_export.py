"""What traces and metrics share: who they are from, and that no run waits for a collector.

The export has a thread of its own, short timeouts, and no way to raise: a collector that is slow,
away or wrong is nothing that a run should notice.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from opentelemetry.sdk.resources import Resource

from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.version import __version__

EXPORT_SECONDS = 1.0
"""Longest that a command waits for what it told to be taken, once, at its end."""

# What the SDK has to say about a collector goes to whoever listens, not to the terminal.
logging.getLogger("opentelemetry").addHandler(logging.NullHandler())


@functools.cache
def resource() -> Resource:
    """This process. Reads the OTEL_* variables that it knows."""
    named = {"service.version": __version__}
    found = Resource.create(named).merge(Resource.create())
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": "fulfil"}))
    return found


class Export:
    """The way out of one provider; one for each process.

    Args:
        force_flush: Sends what is there within so many milliseconds, or gives up.
    """

    def __init__(self, force_flush: Callable[[int], object]) -> None:
        self._force_flush = force_flush
        self._gave_up = False

    async def flush(self) -> None:
        """Wait for :data:`EXPORT_SECONDS` at most; not again where that was not enough."""
        if self._gave_up:
            return
        done = threading.Event()

        def export() -> None:
            with suppress(Exception):  # of a thread, it would be printed
                self._force_flush(int(EXPORT_SECONDS * 1000))
            done.set()

        # Not a thread of the loop's pool: its end would wait for it.
        threading.Thread(target=export, daemon=True).start()
        if not await asyncio.to_thread(done.wait, EXPORT_SECONDS):
            self._gave_up = True  # a sweep of many directories waits for it only once


def error_type(error: BaseException) -> str:
    """Of an error only its code is told: a message may name a key."""
    return error.code if isinstance(error, FulfilError) else type(error).__name__


def current_task() -> int:
    """Which of several tasks asks a model; its answer comes to the same one."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:
        return 0
