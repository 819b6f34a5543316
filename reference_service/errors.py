"""The two ways to say no: before the service is up, and to a request.

Exception
 +-- StartError    the service cannot start; one JSON line and an exit status
 +-- Refusal       a request is answered with an error
"""

from __future__ import annotations

from collections.abc import Mapping


class StartError(Exception):
    """The service cannot start.

    ``code`` is stable and for programs, the message is for people. ``exit_status`` is 5 where
    another service is in the way and trying again can help, otherwise 2.
    """

    def __init__(self, code: str, message: str, *, exit_status: int = 2) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.exit_status = exit_status


class Refusal(Exception):
    """A request that is answered with HTTP ``status`` and ``{"error": {"code", "message"}}``."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
