"""What each path answers. No HTTP here: framing, token and limits are the server's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import Refusal
from .faults import Faults
from .ledger import KeyConflict, Ledger, Operation
from .protocol import (
    KINDS,
    Intent,
    invalid,
    is_key,
    is_sku,
    read_intent,
    read_page,
    read_query,
)

_LOOKUP = "/operations/"
_STATUS = {"pending": 202, "committed": 200, "rejected": 422}


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a JSON body, or no answer at all (status 0): the connection is closed."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


DROPPED = Answer(0, {})


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was found acceptable, and the operation key it is about."""

    key: str | None
    run: Callable[[], Answer]


class Routes:
    """The paths, bound to one ledger and the faults of one service process."""

    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._ledger = ledger
        self._faults = faults
        self._written = False
        self._failed: set[str] = set()  # claimed, and settling them raised
        self._reads: dict[str, Callable[[str], Call]] = {
            "/healthz": self._health,
            "/catalog/primary": lambda query: self._catalog("primary", query),
            "/catalog/backup": lambda query: self._catalog("backup", query),
            "/operations": self._operations,
            "/reservations": lambda query: self._page("reservations", ledger.reservations, query),
            "/shipments": lambda query: self._page("shipments", ledger.shipments, query),
            "/inventory": lambda query: self._page("inventory", ledger.inventory, query),
        }

    def method(self, path: str) -> str | None:
        """The one method that ``path`` knows; None for an unknown path."""
        if path in self._reads or path.startswith(_LOOKUP):
            return "GET"
        return "POST" if path[1:] in KINDS else None

    def call(self, path: str, query: str, body: bytes) -> Call:
        """Check a request for a known path; Refusal where it says something it may not."""
        if path in self._reads:
            return self._reads[path](query)
        if path.startswith(_LOOKUP):
            read_query(query)
            return self._lookup(path.removeprefix(_LOOKUP))
        self._written = True
        read_query(query)
        intent = read_intent(path[1:], body)
        return Call(intent.key, lambda: self._write(intent))

    def _health(self, query: str) -> Call:
        read_query(query)
        body = {"ledgerId": self._ledger.ledger_id, "status": "ok"}
        return Call(None, lambda: Answer(200, body))

    def _catalog(self, source: str, query: str) -> Call:
        sku = read_query(query, "sku").get("sku")
        if not is_sku(sku):
            raise invalid("the query must have a sku: 1-80 of letters, digits, _ and -")
        assert sku is not None  # is_sku has seen to it

        def run() -> Answer:
            time.sleep(self._faults.catalog_delay_ms / 1000)
            if source == "primary" and self._faults.primary_unavailable:
                raise Refusal(503, "UNAVAILABLE", "the primary catalog is down")
            available = self._ledger.available(sku)
            if available is None:
                raise Refusal(404, "SKU_NOT_FOUND", f"no article {sku}")
            return Answer(200, {"sku": sku, "available": available, "source": source})

        return Call(None, run)

    def _lookup(self, key: str) -> Call:
        if not is_key(key):
            raise invalid("a key is 1-100 of letters, digits, _ and -")

        def run() -> Answer:
            down_since_write = self._faults.lookup_unavailable_after_write and self._written
            if self._faults.lookup_unavailable or down_since_write:
                raise Refusal(503, "LOOKUP_UNAVAILABLE", "the look-up of operations is down")
            operation = self._ledger.operation(key)
            if operation is None:
                return Answer(200, {"key": key, "state": "absent"})
            return Answer(200, _shown(self._taken_up(operation)))

        return Call(key, run)

    def _operations(self, query: str) -> Call:
        def listed(after: str, limit: int) -> list[Mapping[str, Any]]:
            return [_audited(operation) for operation in self._ledger.operations(after, limit)]

        return self._page("operations", listed, query)

    def _page(
        self, name: str, source: Callable[[str, int], Sequence[Mapping[str, Any]]], query: str
    ) -> Call:
        after, limit = read_page(query)

        def run() -> Answer:
            rows = source(after, limit + 1)  # one more, to know whether there is a next page
            page = rows[:limit]
            last = page[-1].get("key", page[-1].get("sku")) if len(rows) > limit else None
            return Answer(200, {name: page, "next": last})

        return Call(None, run)

    def _write(self, intent: Intent) -> Answer:
        try:
            operation, claimed = self._ledger.claim(intent)
        except KeyConflict:
            message = f"the key {intent.key} was used before for something else"
            raise Refusal(409, "IDEMPOTENCY_CONFLICT", message) from None
        if not claimed:
            operation = self._taken_up(operation)
            return Answer(_STATUS[operation.state], _shown(operation))
        if intent.kind == "reserve":
            time.sleep(self._faults.reservation_delay_ms / 1000)
        operation = self._settle(intent.key)
        if intent.kind in self._faults.dropped_kinds:
            return DROPPED
        return Answer(_STATUS[operation.state], _shown(operation))

    def _settle(self, key: str) -> Operation:
        try:
            operation = self._ledger.settle(key, self._faults.refused_kinds)
        except BaseException:
            self._failed.add(key)
            raise
        self._failed.discard(key)
        return operation

    def _taken_up(self, operation: Operation) -> Operation:
        """The operation, settled first if that failed before (a full disk, say).

        Nobody else would do it until the next start, and a client that sees ``pending`` does not
        post again, so it would ask for ever.
        """
        key = operation.intent.key
        return self._settle(key) if key in self._failed else operation


def _shown(operation: Operation) -> dict[str, Any]:
    """An operation for a client; ``result`` and ``code`` only where there is one."""
    shown = {
        "key": operation.intent.key,
        "kind": operation.intent.kind,
        "state": operation.state,
        "fingerprint": operation.fingerprint,
    }
    optional = {"result": operation.result, "code": operation.code}
    return shown | {name: value for name, value in optional.items() if value is not None}


def _audited(operation: Operation) -> dict[str, Any]:
    """An operation for an auditor: all that is known, null where there is nothing."""
    intent = operation.intent
    return {
        "key": intent.key,
        "kind": intent.kind,
        "state": operation.state,
        "fingerprint": operation.fingerprint,
        "code": operation.code,
        "result": operation.result,
        "taskUid": intent.task_uid,
        "reservationKey": intent.reservation_key,
        "sku": intent.sku,
        "quantity": intent.quantity,
        "address": intent.address,
        "claimedAt": operation.claimed_at,
        "settledAt": operation.settled_at,
    }
