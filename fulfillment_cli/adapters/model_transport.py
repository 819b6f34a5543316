"""The HTTP client that model requests go through: allowed origins only, bounded, no redirects."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Collection

import httpx

from fulfillment_cli.domain.errors import ModelError
from fulfillment_cli.settings import origin_of

MAX_RESPONSE_BYTES = 1024 * 1024
"""No answer of use is longer; a body without end stops here."""


def guarded_client(allowed: Collection[str], timeout_seconds: float) -> httpx.AsyncClient:
    """A client for the given origins.

    Proxy variables are not trusted and redirects are not followed: a key goes where the
    configuration says and nowhere else.

    Args:
        allowed: Origins as :func:`~fulfillment_cli.settings.origin_of` writes them.
        timeout_seconds: For each network operation; the whole has a deadline of its own.
    """
    return httpx.AsyncClient(
        transport=_Guarded(allowed),
        timeout=timeout_seconds,
        follow_redirects=False,
        trust_env=False,
    )


class _Guarded(httpx.AsyncHTTPTransport):
    def __init__(self, allowed: Collection[str]) -> None:
        super().__init__(verify=_certificates(), trust_env=False)
        self._allowed = allowed

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if origin_of(str(request.url)) not in self._allowed:
            raise ModelError(
                f"{origin_of(str(request.url))} is not in sandbox.network; nothing was sent.",
                code="NETWORK_NOT_ALLOWED",
            )
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response


class _Bounded(httpx.AsyncByteStream):
    """A response body that ends in an error past :data:`MAX_RESPONSE_BYTES`."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MAX_RESPONSE_BYTES:
                raise ModelError(code="MODEL_RESPONSE_TOO_LARGE")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


def _certificates() -> ssl.SSLContext:
    """Certificates as the machine has them; SSL_CERT_FILE and SSL_CERT_DIR are honoured."""
    file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or directory:
        return ssl.create_default_context(cafile=file or None, capath=directory or None)
    import certifi

    return ssl.create_default_context(cafile=certifi.where())
