"""HTTP client of the ledger service: catalog, look up, submit, and pages for an audit.

Errors are told apart by what is known of the effect. A connection that was never made is "not
sent"; once bytes may have left, everything but a readable verdict is "unknown".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import httpx

from fulfillment_cli.adapters.certificates import trusted_by
from fulfillment_cli.adapters.telemetry import Telemetry
from fulfillment_cli.domain.errors import (
    CatalogError,
    CatalogUnavailable,
    LedgerError,
    LedgerNotReached,
    OutcomeUnknown,
    UsageError,
)
from fulfillment_cli.domain.operations import Operation, Verdict
from fulfillment_cli.domain.order import JsonObject

TRANSPORT_CAP_SECONDS = 10.0
"""Longest any one request may take, from connecting to the last byte (contract, section 3)."""

MAX_BODY_BYTES = 65536
"""A longer answer is unreadable (contract, section 5)."""

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


_STATE_OF_STATUS: dict[int, str] = {
    HTTPStatus.OK: "committed",
    HTTPStatus.ACCEPTED: "pending",
    HTTPStatus.UNPROCESSABLE_ENTITY: "rejected",
}


def preload() -> None:
    """Load what httpx puts off to its first client and first request; needs an event loop.

    Both packages are requirements of httpx.
    """
    import anyio
    import httpcore  # noqa: F401

    anyio.current_time()


class Ledger:
    """One ledger service, identified.

    Attributes:
        origin: Scheme, host and port.
        ledger_id: Made once with its database; set by :meth:`identify`.
    """

    def __init__(self, origin: str, token: str, telemetry: Telemetry | None = None) -> None:
        self.origin = origin
        self.ledger_id = ""
        self._telemetry = telemetry or Telemetry()
        # Proxy variables and redirects are not for this traffic: the token goes to this origin
        # and nowhere else.
        self._client = httpx.AsyncClient(
            base_url=origin,
            headers={"Authorization": f"Bearer {token}"},
            timeout=TRANSPORT_CAP_SECONDS,
            follow_redirects=False,
            trust_env=False,
            verify=trusted_by([origin]),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def identify(self) -> str:
        """Ask the ledger for its id.

        Raises:
            UsageError: ``LEDGER_UNAUTHORIZED``.
            LedgerError: ``LEDGER_UNAVAILABLE``.
        """
        try:
            status, body = await self._request("GET", "/healthz")
        except LedgerError:
            raise LedgerNotReached(f"{self.origin} does not answer.") from None
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise UsageError(code="LEDGER_UNAUTHORIZED")
        ledger_id = body.get("ledgerId") if status == HTTPStatus.OK and body else None
        if not isinstance(ledger_id, str) or not ledger_id:
            raise LedgerNotReached(f"{self.origin} is not a ledger service (status {status}).")
        self.ledger_id = ledger_id
        return ledger_id

    async def available(self, source: str, sku: str) -> int:
        """How many of ``sku`` a catalog source has, 0 or more.

        Raises:
            CatalogUnavailable: 503, no connection, or the transport cap.
            CatalogError: ``FORBIDDEN``, ``SKU_NOT_FOUND``, ``INVALID_RESPONSE``.
        """
        try:
            status, body = await self._request("GET", f"/catalog/{source}", params={"sku": sku})
        except LedgerError:
            raise CatalogUnavailable(f"The {source} catalog does not answer.") from None
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise CatalogUnavailable(f"The {source} catalog is not available (503).")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise CatalogError(f"The {source} catalog refused the token.", code="FORBIDDEN")
        if status == HTTPStatus.NOT_FOUND and _error_code(body) == "SKU_NOT_FOUND":
            raise CatalogError(f"The {source} catalog does not know {sku}.", code="SKU_NOT_FOUND")
        count = (body or {}).get("available")
        answered = (body or {}).get("sku") == sku and (body or {}).get("source") == source
        if status != HTTPStatus.OK or not answered or type(count) is not int or count < 0:
            raise CatalogError(f"The {source} catalog's answer is not an entry ({status}).")
        return count

    async def look_up(self, operation: Operation) -> Verdict:
        """What the ledger knows of an operation. Only a 200 with a known state is an answer.

        Raises:
            OutcomeUnknown: There was no such answer; ``absent`` is never concluded from it.
        """
        try:
            status, body = await self._request("GET", f"/operations/{operation.key}")
        except LedgerNotReached as error:
            raise OutcomeUnknown(f"{operation.key} cannot be looked up: {error.message}") from None
        if status != HTTPStatus.OK or body is None:
            raise OutcomeUnknown(f"{operation.key} cannot be looked up (status {status}).")
        if body.get("state") == "absent":
            return Verdict("absent")
        return _verdict(operation, body)

    async def submit(self, operation: Operation) -> Verdict:
        """Send an operation under its key.

        Raises:
            LedgerNotReached: It was not sent.
            OutcomeUnknown: It was, and the answer is missing or unreadable.
        """
        status, body = await self._request("POST", f"/{operation.kind}", json_body=operation.body())
        if status == HTTPStatus.CONFLICT and _error_code(body) == "IDEMPOTENCY_CONFLICT":
            return Verdict("conflict", code="IDEMPOTENCY_CONFLICT")
        expected = _STATE_OF_STATUS.get(status)
        if expected is None or body is None or body.get("state") != expected:
            raise OutcomeUnknown(f"{operation.key} was answered unreadably (status {status}).")
        return _verdict(operation, body)

    async def pages(self, collection: str) -> AsyncIterator[JsonObject]:
        """Every row of ``operations``, ``reservations``, ``shipments`` or ``inventory``.

        Raises:
            LedgerError: ``LEDGER_UNAVAILABLE``: a page was not answered.
        """
        after = ""
        while True:
            status, body = await self._request(
                "GET", f"/{collection}", params={"after": after, "limit": "500"}, cap=8_000_000
            )
            if status != HTTPStatus.OK or body is None or collection not in body:
                raise LedgerError(f"{self.origin}/{collection} was not answered ({status}).")
            for row in body[collection]:
                yield row
            if body.get("next") is None:
                return
            after = body["next"]

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        json_body: JsonObject | None = None,
        cap: int = MAX_BODY_BYTES,
    ) -> tuple[int, JsonObject | None]:
        """One request under the transport cap -> status, and the JSON object where it is one."""
        content = None if json_body is None else json.dumps(json_body, ensure_ascii=False).encode()
        headers = {} if content is None else {"Content-Type": "application/json"}
        with self._telemetry.ledger_request(method, path, self.origin) as traced:
            status, answer = await self._exchange(
                method, path, params, content, headers | traced.headers, cap
            )
            traced.ended("http.response.status_code", status)
            return status, answer

    async def _exchange(
        self,
        method: str,
        path: str,
        params: dict[str, str] | None,
        content: bytes | None,
        headers: dict[str, str],
        cap: int,
    ) -> tuple[int, JsonObject | None]:
        try:
            async with (
                asyncio.timeout(TRANSPORT_CAP_SECONDS),
                self._client.stream(
                    method, path, params=params, content=content, headers=headers
                ) as response,
            ):
                return response.status_code, _object(await _bounded(response, cap))
        except _NOT_SENT as error:
            raise LedgerNotReached(f"{self.origin} does not answer.") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, TimeoutError) as error:
            raise OutcomeUnknown(f"{method} {path} was not answered.") from error


async def _bounded(response: httpx.Response, cap: int) -> bytes | None:
    """The body, or none where it is over ``cap`` bytes."""
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > cap:
            return None
        parts.append(part)
    return b"".join(parts)


def _object(content: bytes | None) -> JsonObject | None:
    try:
        value: Any = json.loads(content or b"")
    except (ValueError, RecursionError):  # 64 KiB of brackets are too deep for the parser
        return None
    return value if isinstance(value, dict) else None


def _error_code(body: JsonObject | None) -> Any:
    error = (body or {}).get("error")
    return error.get("code") if isinstance(error, dict) else None


def _verdict(operation: Operation, body: JsonObject) -> Verdict:
    """Read an operation's state; a foreign fingerprint is a conflict whatever the state."""
    state, code, result = body.get("state"), body.get("code"), body.get("result")
    if state not in ("pending", "committed", "rejected"):
        raise OutcomeUnknown(f"{operation.key} has a state that is not known: {state!r}.")
    if body.get("fingerprint") != operation.fingerprint:
        return Verdict("conflict", code="IDEMPOTENCY_CONFLICT")
    if state == "rejected" and not isinstance(code, str):
        raise OutcomeUnknown(f"{operation.key} was rejected without a code.")
    return Verdict(
        state,
        code=code if state == "rejected" else None,
        result=result if isinstance(result, dict) else None,
    )
