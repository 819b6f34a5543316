"""One event of the log -> who did it, and what, in plain words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fulfillment_cli.domain.text import counted

Lane = Literal["runner", "model", "ledger", "person"]
Tone = Literal["plain", "good", "warn", "bad"]
Mark = Literal["crash", "resume", "decision", "unknown"]

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """An event in words.

    Attributes:
        lane: Who acted, or who was asked.
        text: What happened; may hold what a stranger wrote, so escape it where it is shown.
        tone: How it went.
        mark: What a person looks for first, or none.
    """

    lane: Lane
    text: str
    tone: Tone = "plain"
    mark: Mark | None = None


def tell(kind: str, data: Data) -> Told:
    """Any event in words; of one that is not known, its data as they are."""
    known = _TELLERS.get(kind)
    if known is not None:
        return known(data)
    if kind.startswith("review-"):
        return _reviewed(kind, data)
    operation, _, state = kind.partition("-")
    if operation in ("reserve", "ship", "release"):
        return _verdict(operation, state, data)
    facts = ", ".join(f"{name} {value}" for name, value in data.items() if value is not None)
    return Told("runner", f"{kind}: {facts}" if facts else kind)


def _created(data: Data) -> Told:
    return Told("runner", f"created for {data.get('flow')}, to go to {data.get('goal')}")


def _entered(data: Data) -> Told:
    who = f"entered by `{data.get('command')}`, process {data.get('pid')}"
    if data.get("takenOver"):
        return Told("runner", f"{who}; taken over", "warn", "resume")
    mark: Mark | None = "resume" if data.get("token", 1) > 1 else None
    return Told("runner", who, mark=mark)


def _left(data: Data) -> Told:
    return Told("runner", "left; the task is free")


def _source_read(data: Data) -> Told:
    what = f"read the request, attempt {data.get('attempt')}, limit {data.get('limit')} bytes"
    code = data.get("code")
    return Told("runner", what) if code is None else Told("runner", f"{what}: {code}", "warn")


def _model_request(data: Data) -> Told:
    for_what = "the order" if data.get("question") == "extraction" else "an answer"
    return Told(
        "model",
        f"asked {data.get('model')} for {for_what} "
        f"(request {data.get('request')}, {data.get('format')})",
    )


def _model_answer(data: Data) -> Told:
    seconds = f"after {data.get('seconds')} s"
    code = data.get("code")
    if code is not None:
        return Told("model", f"no answer {seconds}: {code}", "bad")
    usage = data.get("usage") or {}
    tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    counted = f", {tokens[0]} + {tokens[1]} tokens" if None not in tokens else ""
    return Told("model", f"answered {seconds}{counted}", "good")


def _answer_refused(data: Data) -> Told:
    return Told("model", f"answer {data.get('attempt')} refused: {data.get('code')}", "warn")


def _catalog_read(data: Data) -> Told:
    return Told("ledger", f"{data.get('source')} catalog: {data.get('code')}", "warn")


def _catalog_timeout(data: Data) -> Told:
    what = f"the catalog read passed its {data.get('timeoutMs')} ms deadline"
    return Told("ledger", f"{what}; nothing was written", "warn")


def _intent(data: Data) -> Told:
    return Told(
        "ledger",
        f"looked up {data.get('key')}: {data.get('lookUp')}; about to send it "
        f"(attempt {data.get('attempt')})",
    )


def _unclear(data: Data) -> Told:
    what = f"{data.get('key')}, attempt {data.get('attempt')}"
    return Told("ledger", f"no clear answer to {what}: {data.get('why')}", "warn", "unknown")


def _uncertain(data: Data) -> Told:
    what = f"the outcome of {data.get('key')} is not known: {data.get('code')}"
    return Told("ledger", what, "bad", "unknown")


def _verdict(operation: str, state: str, data: Data) -> Told:
    via = "found by look-up" if data.get("via") == "look-up" else "answered"
    text = f"{data.get('key')} {state}, {via}"
    if state == "committed":
        return Told("ledger", text, "good")
    return Told("ledger", f"{text}: {data.get('code')}", "bad")


def _decided(data: Data) -> Told:
    approved = data.get("decision") == "approve"
    text = f"{'approved' if approved else 'rejected'} by {data.get('actor')}"
    return Told("person", text, "good" if approved else "warn", "decision")


def _reviewed(kind: str, data: Data) -> Told:
    text = f"{kind.removeprefix('review-')} by {data.get('actor')}: {data.get('reason')}"
    if data.get("as") is not None:
        text += f" (as {data['as']})"
    return Told("person", text, mark="decision")


def _attempt_failed(data: Data) -> Told:
    text = f"attempt {data.get('attempts')} failed: {data.get('code')}"
    following = data.get("nextAttemptAt")
    return Told("runner", f"{text}; next at {following}" if following else text, "warn")


def _dead_letter(data: Data) -> Told:
    text = f"given up after {counted(data.get('attempts', 0), 'attempt')}: {data.get('code')}"
    return Told("runner", text, "bad")


_TELLERS: dict[str, Callable[[Data], Told]] = {
    "created": _created,
    "entered": _entered,
    "left": _left,
    "source-read": _source_read,
    "model-request": _model_request,
    "model-answer": _model_answer,
    "answer-refused": _answer_refused,
    "prepared": lambda data: Told("runner", "the order and its plan are saved", "good"),
    "catalog-read": _catalog_read,
    "source-selected": lambda data: Told("ledger", f"{data.get('source')} catalog has it", "good"),
    "catalog-timeout": _catalog_timeout,
    "catalog-waived": lambda data: Told("person", "goes on without the catalog", mark="decision"),
    "paused": lambda data: Told("runner", "paused; waits for a decision", "warn"),
    "deadline-set": lambda data: Told(
        "person", f"to be decided by {data.get('approvalExpiresAt') or 'any time'}"
    ),
    "decided": _decided,
    "intent": _intent,
    "unclear": _unclear,
    "uncertain": _uncertain,
    "goal-raised": lambda data: Told(
        "person", f"is to go on to {data.get('goal')}, not only to {data.get('goalFrom')}"
    ),
    "answered": lambda data: Told("runner", "the answer is verified and saved", "good"),
    "failed": lambda data: Told("runner", f"failed for good: {data.get('code')}", "bad"),
    "attempt-failed": _attempt_failed,
    "dead-letter": _dead_letter,
}
