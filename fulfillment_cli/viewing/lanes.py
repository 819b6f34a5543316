"""A story drawn as swim lanes: where on a line of time everything stands, in per cent.

Waits of hours and requests of milliseconds stand in one story. So the line is not to scale: the
width of what lies between two events grows with the logarithm of its length.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fulfillment_cli.adapters.clock import from_timestamp
from fulfillment_cli.viewing.spans import exact
from fulfillment_cli.viewing.story import Moment, Story
from fulfillment_cli.viewing.telling import Lane

_SHORTEST = 0.01  # seconds that are drawn as wide as nothing at all
_TICK_APART = 17.0  # per cent; what a label needs on a phone
_MINUTE = 60.0  # seconds; of longer spans a label does not tell parts of a second

NAMES: dict[Lane, str] = {
    "runner": "Runner",
    "model": "Model",
    "ledger": "Ledger",
    "person": "Person",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that lasted.

    Attributes:
        kind: ``work``, ``read``, ``ask``, ``send``, ``gone``, ``wait`` or ``deadline``.
        label: What, for whoever points at it.
        left, width: Per cent of the line.
    """

    lane: Lane
    kind: str
    label: str
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Dot:
    """One moment, as a link to its row.

    Attributes:
        number: Of its row, from 1.
        left: Per cent of the line.
    """

    number: int
    moment: Moment
    left: float


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane."""

    name: str
    bars: list[Bar]
    dots: list[Dot]


@dataclass(frozen=True, slots=True)
class Chart:
    """The whole drawing.

    Attributes:
        ticks: Place in per cent and label, seconds since the first event.
        count: How many moments want to be told apart.
    """

    lanes: list[LaneView]
    ticks: list[tuple[float, str]]
    count: int


@dataclass
class _Raw:
    """Bars in seconds, while the story is walked through."""

    bars: list[tuple[Lane, str, str, float, float]] = field(default_factory=list)

    def add(self, lane: Lane, kind: str, label: str, start: float, end: float) -> None:
        self.bars.append((lane, kind, label, start, max(start, end)))


class Axis:
    """A line of time.

    Args:
        instants: Everything that has a place of its own; at least one.
    """

    def __init__(self, instants: Iterable[float]) -> None:
        self.instants = sorted(set(instants))
        places = [0.0]
        for before, after in zip(self.instants, self.instants[1:], strict=False):
            places.append(places[-1] + 1 + math.log10(1 + (after - before) / _SHORTEST))
        whole = places[-1] or 1.0
        # A little space at both ends, so that the first and the last dot are whole.
        self._places = [2 + 96 * place / whole for place in places]

    def place(self, instant: float) -> float:
        """Where an instant stands, in per cent."""
        after = bisect.bisect_left(self.instants, instant)
        if after == 0:
            return self._places[0]
        if after == len(self.instants):
            return self._places[-1]
        start, end = self.instants[after - 1 : after + 1]
        left, right = self._places[after - 1 : after + 1]
        return left + (right - left) * (instant - start) / (end - start)

    def ticks(self) -> list[tuple[float, str]]:
        """Places far enough apart for a label, and labels that can be told apart."""
        first, chosen = self.instants[0], [self.instants[0]]
        for instant in self.instants:
            far = self.place(instant) - self.place(chosen[-1]) >= _TICK_APART
            said = exact(instant - first) == exact(chosen[-1] - first)
            if far and not (said and instant - first >= _MINUTE):
                chosen.append(instant)
        labels = ["0", *(exact(instant - first) for instant in chosen[1:])]
        # All of one label get more digits: 2.391s behind 2.4s would run backwards.
        return [
            (self.place(at), f"{at - first:.3f}s" if labels.count(label) > 1 else label)
            for at, label in zip(chosen, labels, strict=True)
        ]


def draw(story: Story) -> Chart:
    """The lanes of a story."""
    moments = story.moments
    raw = _Raw()
    _processes(raw, story)
    _requests(raw, moments, story.checkpoint.policy.timeout_ms)
    _decision(raw, story)
    instants = {moment.at for moment in moments}
    for *_, start, end in raw.bars:
        instants |= {start, end}
    axis = Axis(instants or {story.now})
    dots = [Dot(number, one, axis.place(one.at)) for number, one in enumerate(moments, 1)]
    bars = [
        Bar(lane, kind, label, axis.place(start), axis.place(end) - axis.place(start))
        for lane, kind, label, start, end in raw.bars
    ]
    lanes = []
    for lane, name in NAMES.items():
        view = LaneView(
            name,
            # What is drawn later lies above: a process below what it does.
            sorted((bar for bar in bars if bar.lane == lane), key=lambda bar: bar.kind != "work"),
            [dot for dot in dots if dot.moment.told.lane == lane],
        )
        if lane != "person" or view.dots or view.bars:
            lanes.append(view)
    return Chart(lanes, axis.ticks(), len(moments))


def _processes(raw: _Raw, story: Story) -> None:
    """From entering to leaving, or to the last that was heard; and how long nobody was there."""
    start: Moment | None = None
    last = 0.0
    for moment, after in zip(story.moments, (*story.moments[1:], None), strict=True):
        if moment.kind == "entered":
            start = moment
        elif moment.kind == "gone":
            end = story.now if after is None else after.at
            raw.add("runner", "gone", moment.told.text, moment.at, end)
        if start is not None and moment.kind in ("left", "gone"):
            raw.add("runner", "work", _process(start), start.at, moment.at)
            start = None
        if moment.kind == "source-read":
            raw.add("runner", "read", moment.told.text, last, moment.at)
        last = moment.at
    if start is not None:
        raw.add("runner", "work", _process(start), start.at, story.now if story.running else last)


def _process(entered: Moment) -> str:
    return f"`{entered.data.get('command')}`, process {entered.data.get('pid')}"


def _requests(raw: _Raw, moments: tuple[Moment, ...], timeout_ms: int | None) -> None:
    """Requests to the model and to the ledger, from being sent to being answered."""
    asked: tuple[Moment, Lane, str] | None = None
    for before, moment in zip((None, *moments), moments, strict=False):
        if asked is not None and _ends(asked[0], moment):
            raw.add(asked[1], asked[2], asked[0].told.text, asked[0].at, moment.at)
            asked = None
        if moment.kind == "model-request":
            asked = moment, "model", "ask"
        elif moment.kind in ("intent", "unclear"):
            asked = moment, "ledger", "send"
        elif moment.kind in ("catalog-read", "source-selected", "catalog-timeout") and before:
            if timeout_ms is not None:
                end = before.at + timeout_ms / 1000
                raw.add("ledger", "deadline", f"deadline, {timeout_ms} ms", before.at, end)
            raw.add("ledger", "send", moment.told.text, before.at, moment.at)


def _ends(asked: Moment, moment: Moment) -> bool:
    """Whether a moment is the end of what was asked: its answer, or the end of the asker."""
    if moment.kind in ("gone", "left"):
        return True
    if asked.kind == "model-request":
        return moment.kind == "model-answer"
    return moment.data.get("key") == asked.data.get("key")


def _decision(raw: _Raw, story: Story) -> None:
    """How long a decision was waited for, and until when it could be made."""
    paused = next((moment for moment in story.moments if moment.kind == "paused"), None)
    if paused is None:
        return
    decided = next((moment for moment in story.moments if moment.kind == "decided"), None)
    end = story.moments[-1].at if decided is None else decided.at
    raw.add("person", "wait", "waits for a decision", paused.at, end)
    expires = story.checkpoint.approval_expires_at
    if expires is not None:
        label = f"to be decided by {expires}"
        raw.add("person", "deadline", label, paused.at, from_timestamp(expires))
