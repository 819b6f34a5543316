"""The certificates that an HTTP client trusts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable

import httpx


def trusted_by(origins: Iterable[str]) -> ssl.SSLContext:
    """The TLS context of a client that talks to these origins.

    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` count; proxy variables do not. Where no origin is https
    the context trusts nobody: loading the certificates takes longer than a request on loopback.

    Args:
        origins: Scheme, host and port of each.
    """
    if not any(origin.lower().startswith("https:") for origin in origins):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or directory:
        return ssl.create_default_context(cafile=file or None, capath=directory or None)
    return httpx.create_ssl_context(trust_env=False)
