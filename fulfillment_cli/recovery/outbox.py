"""The event log for a consumer: the very table that every stage change writes with itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fulfillment_cli.adapters.checkpoint_reader import FILE_NAME
from fulfillment_cli.adapters.looking import open_to_look

PAGE = 1000


class Outbox:
    """Reads task directories from one sequence number on, each event once.

    A consumer that keeps the last sequence number it has dealt with and starts again after it
    gets every event at least once, and those of one task in their order: events are numbered
    inside the transaction that writes them, one writer at a time.

    Args:
        after: Only events with a greater sequence number.
        task: Only this task's; none: all.
    """

    def __init__(self, after: int = 0, task: str | None = None) -> None:
        self._first = after
        self._task = task
        self._last: dict[Path, int] = {}

    def read(self, directory: Path) -> Iterator[dict[str, object]]:
        """What was appended since the last call.

        Raises:
            UsageError: ``DATABASE_INVALID``.
        """
        if not (directory / FILE_NAME).exists():
            return
        with open_to_look(directory) as store:
            while True:
                last = self._last.get(directory, self._first)
                page = store.events(last, self._task, PAGE)
                for event in page:
                    self._last[directory] = event.seq
                    yield event.to_json()
                if len(page) < PAGE:
                    return
