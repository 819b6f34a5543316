"""Order, policy and the other facts that a plan is made of; canonical JSON and fingerprints."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.stages import Flow

JsonObject = dict[str, Any]

MAX_SOURCE_BYTES = 65536
"""The longest request text that is ever read, in bytes (contract, section 2)."""

# Cc controls, and the characters that reorder text on a terminal (Unicode bidi embeddings,
# overrides and isolates): a name that is shown to a person must not be able to forge the line.
# Lone surrogates are what bytes that are not UTF-8 become on a command line; no file takes them.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]"
)


class Frozen(BaseModel):
    """Base of every saved value: immutable, strict, camelCase in JSON, nothing unknown."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        ser_json_inf_nan="strings",
    )

    def to_json(self) -> JsonObject:
        """The value as JSON types, under its camelCase names."""
        return self.model_dump(mode="json", by_alias=True)


class Order(Frozen):
    """What is to be shipped (contract, section 6: the strict order)."""

    sku: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
    quantity: Annotated[int, Field(ge=1, le=100)]
    address: Annotated[str, Field(min_length=1, max_length=200)]

    @field_validator("address")
    @classmethod
    def _printable(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("must be text")
        return value


class SessionAnswer(Frozen):
    """The facts of a session answer; each must equal the checkpoint (contract, section 3)."""

    sku: str
    quantity: int
    stage: str


SourceName = Literal["primary", "backup"]


class Policy(Frozen):
    """What a task may do, fixed at its creation and part of its plan.

    Attributes:
        max_attempts: Reads of the request text, 1 to 5.
        initial_max_bytes: Limit of the first read in bytes, 1 to 65536.
        allowed_sources: Catalog sources in the order they are asked; empty: no catalog is read.
        timeout_ms: Deadline over a whole catalog read in milliseconds, 1 to 60000, or none.
        requires_approval: Whether nothing is reserved without a person's approval.
        compensates: Whether a rejected shipment is followed by a release.
    """

    max_attempts: Annotated[int, Field(ge=1, le=5)] = 1
    initial_max_bytes: Annotated[int, Field(ge=1, le=MAX_SOURCE_BYTES)] = MAX_SOURCE_BYTES
    allowed_sources: tuple[SourceName, ...] = ()
    timeout_ms: Annotated[int, Field(ge=1, le=60_000)] | None = None
    requires_approval: bool = False
    compensates: bool = False

    @field_validator("allowed_sources", mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("allowed_sources")
    @classmethod
    def _unique(cls, value: tuple[SourceName, ...]) -> tuple[SourceName, ...]:
        if len(set(value)) != len(value):
            raise ValueError("sources must be unique")
        return value


class ContextEntry(Frozen):
    """One turn of the public context that a session restores.

    ``kind`` is ``request`` (the order text), ``order`` (what was extracted), ``question`` or
    ``answer``; ``content`` is text for the first and third, a JSON object for the others.
    """

    kind: Literal["request", "order", "question", "answer"]
    content: str | JsonObject


class Issue(Frozen):
    """Why something did not go on: a stable code and one line for a person."""

    code: str
    message: str


class Uncertainty(Frozen):
    """Which operation's outcome is not known, and why."""

    code: Literal["OPERATION_PENDING", "OUTCOME_UNKNOWN"]
    operation: str
    key: str
    message: str


class Approval(Frozen):
    """One decision, bound to the plan it was made for."""

    decision: Literal["approve", "reject"]
    actor: str
    plan_fingerprint: str
    at: str


class Reservation(Frozen):
    """A reservation that the ledger confirmed."""

    key: str
    sku: str
    quantity: int
    status: Literal["active", "shipped", "released"]


class Shipment(Frozen):
    """A shipment that the ledger confirmed."""

    key: str
    reservation_key: str
    address: str


class Intent(Frozen):
    """An operation that was about to be sent: from here on only its verdict can end the task."""

    operation: Literal["reserve", "ship", "release"]
    key: str
    attempt: Annotated[int, Field(ge=1)]


class DeadLetter(Frozen):
    """Why a sweep gave the task up; its stage stays what it was."""

    code: str
    message: str
    at: str


def canonical_json(value: Any) -> str:
    """The one text of a JSON value: sorted keys, no spaces, UTF-8 characters as themselves."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def plan_fingerprint(
    *,
    task_id: str,
    task_uid: str,
    ledger_id: str,
    source_hash: str,
    flow: Flow,
    policy: Policy,
    order: Order,
) -> str:
    """Bind everything that the effects of a task follow from (contract, section 4)."""
    return fingerprint(
        {
            "taskId": task_id,
            "taskUid": task_uid,
            "ledgerId": ledger_id,
            "sourceHash": source_hash,
            "flow": str(flow),
            "policy": policy.to_json(),
            "order": order.to_json(),
            "operationKeys": [f"{task_id}-{kind}" for kind in ("reserve", "ship", "release")],
        }
    )


def check_task_id(task_id: str) -> str:
    """Return ``task_id``; raises :class:`UsageError` (``TASK_ID_INVALID``) if it is not one."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", task_id):
        raise UsageError(code="TASK_ID_INVALID")
    return task_id


def check_actor(actor: str) -> str:
    """Return ``actor``; raises :class:`UsageError` (``ACTOR_INVALID``) if it may forge a line."""
    if not 1 <= len(actor) <= 100 or not actor.strip() or _UNPRINTABLE.search(actor):
        raise UsageError(code="ACTOR_INVALID")
    return actor


def printable(text: str) -> str:
    """``text`` with control and bidi-override characters escaped, safe to show on a terminal."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
