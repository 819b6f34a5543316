"""What is only watched: nothing is lost where its reader has seen enough."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from fulfillment_cli.cli.running import Invocation
from fulfillment_cli.report import Report


@contextmanager
def watching(invocation: Invocation) -> Iterator[None]:
    """End without a word at a stop signal, with the status of the signal."""
    try:
        yield
    except asyncio.CancelledError:
        if invocation.signals.received is not None:
            invocation.outcome = Report({}, (), 128 + invocation.signals.received)
        raise
