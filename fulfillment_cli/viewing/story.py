"""The story of one task: what is known now, and everything that led there, with its gaps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fulfillment_cli.adapters.clock import from_timestamp, to_timestamp
from fulfillment_cli.adapters.looking import open_to_look
from fulfillment_cli.domain.checkpoint import Checkpoint, Event
from fulfillment_cli.domain.errors import TaskNotFound, UsageError
from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.viewing.spans import exact
from fulfillment_cli.viewing.telling import Told, tell

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a story.

    Attributes:
        seq: The event's number; none for what no event tells, such as that a process was gone.
        at: Seconds since the epoch.
        gap: Seconds since the moment before; 0 for the first.
        kind: The event's kind, or ``gone``.
        told: It in words.
        data: The event's data.
    """

    seq: int | None
    at: float
    gap: float
    kind: str
    told: Told
    revision: int
    data: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """The moment for machines."""
        return {
            "seq": self.seq,
            "at": to_timestamp(self.at),
            "gapSeconds": round(self.gap, 6),
            "kind": self.kind,
            "lane": self.told.lane,
            "text": self.told.text,
            "tone": self.told.tone,
            "mark": self.told.mark,
            "revision": self.revision,
            "data": self.data,
        }


class Teller:
    """Turns events into moments, however they come: all at once, or as they are appended.

    A process that ends without having left is only noticed by the next one that enters.
    """

    def __init__(self) -> None:
        self.last_seq = 0
        self._last_at: float | None = None
        self._inside: object = None

    def tell(self, events: Iterable[Event]) -> list[Moment]:
        """The moments of further events, in order."""
        return [moment for event in events for moment in self._moments(event)]

    def ending(self, checkpoint: Checkpoint, now: float) -> Moment | None:
        """That the process at work has gone, where nobody has entered since.

        Call it only of a task that nobody holds.
        """
        if self._inside is None or self._last_at is None:
            return None
        return self._gone(now, checkpoint.revision, "process gone, last seen")

    def _moments(self, event: Event) -> Iterable[Moment]:
        at = from_timestamp(event.at)
        if event.kind == "entered":
            if self._inside is not None and self._last_at is not None:
                yield self._gone(at, event.revision, "process gone for")
            self._inside = event.data.get("pid")
        elif event.kind == "left":
            self._inside = None
        gap = 0.0 if self._last_at is None else max(0.0, at - self._last_at)
        self._last_at, self.last_seq = at, event.seq
        told = tell(event.kind, event.data)
        yield Moment(event.seq, at, gap, event.kind, told, event.revision, event.data)

    def _gone(self, until: float, revision: int, words: str) -> Moment:
        assert self._last_at is not None
        seconds = max(0.0, until - self._last_at)
        span = exact(seconds) if words.endswith("for") else f"{exact(seconds)} ago"
        told = Told("runner", f"{words} {span} (pid {self._inside})", "bad", "crash")
        data: JsonObject = {"pid": self._inside, "seconds": round(seconds, 3)}
        return Moment(None, self._last_at, 0.0, "gone", told, revision, data)


@dataclass(frozen=True, slots=True)
class Story:
    """One task, as it stands and as it came to stand there.

    Attributes:
        running: Whether a process is at work on it.
        now: When this was read, in seconds since the epoch.
        last_seq: Number of the last event that was read.
    """

    directory: Path
    checkpoint: Checkpoint
    moments: tuple[Moment, ...]
    running: bool
    now: float
    last_seq: int

    @property
    def known_outside(self) -> str:
        """What is known of the effects on the ledger, from what is saved here."""
        checkpoint, known = self.checkpoint, []
        if checkpoint.reservation is not None:
            known.append(f"{checkpoint.reservation.key} {checkpoint.reservation.status}")
        if checkpoint.shipment is not None:
            known.append(f"{checkpoint.shipment.key} shipped")
        if checkpoint.intent is not None:
            intent = checkpoint.intent
            known.append(f"{intent.key} may have been sent (attempt {intent.attempt}); not known")
        return ", ".join(known) or "nothing was written"

    def to_json(self) -> JsonObject:
        """The story for machines."""
        return {
            "directory": str(self.directory),
            "running": self.running,
            "knownOutside": self.known_outside,
            "checkpoint": self.checkpoint.to_json(),
            "story": [moment.to_json() for moment in self.moments],
        }


def read_story(directory: Path, task_id: str | None = None, teller: Teller | None = None) -> Story:
    """Read a task's story, or what is new of it.

    Args:
        task_id: The task; none: the only one of the directory, or ``task``.
        teller: Who told the beginning, to go on from there; none: from the beginning.

    Raises:
        TaskNotFound: There is no such directory or task.
        UsageError: ``USAGE``: there are several tasks; ``DATABASE_INVALID``.
    """
    if not directory.is_dir():
        raise TaskNotFound(f"There is no directory {directory}.", code="DIRECTORY_NOT_FOUND")
    teller = teller or Teller()
    with open_to_look(directory) as store:
        chosen = task_id or _only(store.task_ids(), directory)
        # The events first: whatever the checkpoint shows beyond them, the next reading tells.
        moments: list[Moment] = []
        while page := store.events(teller.last_seq, chosen, _PAGE):
            moments += teller.tell(page)
        checkpoint = store.load(chosen)
        running = store.is_held(chosen)
        now = store.clock.now()
    return Story(directory, checkpoint, tuple(moments), running, now, teller.last_seq)


def with_ending(story: Story, teller: Teller) -> Story:
    """The story with the end that no event tells: that its last process has gone."""
    ending = None if story.running else teller.ending(story.checkpoint, story.now)
    if ending is None:
        return story
    return Story(
        story.directory,
        story.checkpoint,
        (*story.moments, ending),
        story.running,
        story.now,
        story.last_seq,
    )


def whole_story(directory: Path, task_id: str | None = None) -> Story:
    """A task's story as it stands; raises what :func:`read_story` does."""
    teller = Teller()
    return with_ending(read_story(directory, task_id, teller), teller)


def _only(ids: list[str], directory: Path) -> str:
    if len(ids) == 1:
        return ids[0]
    if "task" in ids or not ids:
        return "task"
    some = ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
    raise UsageError(f"{directory} holds {len(ids)} tasks.", hint=f"Name one with --task: {some}.")
