"""The one source of time: nothing else in the program reads a clock for what it saves."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class Clock:
    """Wall-clock time, as it is written into checkpoints and leases."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def timestamp(self) -> str:
        """The same instant in UTC, ISO 8601 with microseconds."""
        return to_timestamp(self.now())


def to_timestamp(seconds: float) -> str:
    """Seconds since the epoch as UTC, ISO 8601 with microseconds; sorts as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def from_timestamp(text: str) -> float:
    """The inverse of :func:`to_timestamp`."""
    return datetime.fromisoformat(text).timestamp()
