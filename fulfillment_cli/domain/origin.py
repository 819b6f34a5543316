"""URLs and their origins: scheme, host and port."""

from __future__ import annotations

from urllib.parse import urlsplit


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, with the scheme's default port made explicit.

    Raises:
        ValueError: It is not an absolute http or https URL, or it carries credentials.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an absolute http:// or https:// URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not carry credentials; they belong into the environment")
    if parts.port == 0:
        raise ValueError("must not have port 0")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host.lower()}:{port}"


def is_bare(url: str) -> bool:
    """Whether a URL has nothing after its origin but a slash."""
    parts = urlsplit(url)
    return parts.path in ("", "/") and not parts.query and not parts.fragment
