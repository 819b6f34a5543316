"""The HTTP client under the ``openai`` one: what leaves, where to, and how much may come back.

The default client of openai 3.57 follows redirects and trusts proxy variables, and the SDK adds
headers from ``OPENAI_*`` variables. Here every request passes one transport that has the last
word: allowed origins only, known headers only, bodies bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from fulfillment_cli.adapters.certificates import trusted_by
from fulfillment_cli.domain.errors import ModelError, UsageError
from fulfillment_cli.domain.origin import origin_of
from fulfillment_cli.version import __version__

MAX_BODY_BYTES = 1_048_576
"""Longest response body that is read, 1 MiB; an answer is a few hundred bytes."""


def http_client(origins: frozenset[str], key: str | None, timeout: float) -> httpx.AsyncClient:
    """A client that talks to these origins only.

    Args:
        origins: As :func:`~fulfillment_cli.domain.origin.origin_of` writes them.
        key: The bearer token, or none.
        timeout: Seconds for each operation; the deadline over all of them is the caller's.
    """
    inner = httpx.AsyncHTTPTransport(verify=trusted_by(origins), trust_env=False, retries=0)
    return httpx.AsyncClient(
        transport=GuardedTransport(inner, origins, key),
        trust_env=False,
        follow_redirects=False,
        timeout=timeout,
    )


class GuardedTransport(httpx.AsyncBaseTransport):
    """Refuses foreign origins, sends no header but its own, and cuts off endless bodies.

    Raises:
        UsageError: ``NETWORK_NOT_ALLOWED``, before anything is sent.
        ModelError: ``MODEL_RESPONSE_TOO_LARGE``; ``MODEL_INVALID_RESPONSE`` for a compressed body,
            whose size is not known before it is unpacked and which was not asked for.
    """

    def __init__(
        self, inner: httpx.AsyncBaseTransport, origins: frozenset[str], key: str | None
    ) -> None:
        self._inner = inner
        self._origins = origins
        self._key = key

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        origin = origin_of(str(request.url.copy_with(username=None, password=None)))
        if origin not in self._origins:
            raise UsageError(
                f"{origin} is not in sandbox.network; nothing was sent.", code="NETWORK_NOT_ALLOWED"
            )
        # A request of our own: the SDK still reads the headers that it put into the given one.
        sent = httpx.Request(
            request.method,
            request.url,
            headers=self._headers(request.headers),
            stream=request.stream,
            extensions=request.extensions,
        )
        response = await self._inner.handle_async_request(sent)
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            await response.aclose()
            raise ModelError(code="MODEL_INVALID_RESPONSE")
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _headers(self, given: httpx.Headers) -> httpx.Headers:
        kept = ("Host", "Content-Type", "Content-Length")
        headers = httpx.Headers({name: given[name] for name in kept if name in given})
        headers["Accept"] = "application/json"
        headers["Accept-Encoding"] = "identity"
        headers["User-Agent"] = f"fulfil/{__version__}"
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise ModelError(code="MODEL_RESPONSE_TOO_LARGE")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
