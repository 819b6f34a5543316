"""What is recorded of the requests to a model: counts, codes, seconds and token usage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Observe = Callable[[str, dict[str, Any]], None]
"""Told of every HTTP request, ``model-request`` before and ``model-answer`` after it.

The data holds counts, codes, seconds and token usage; never order text, keys or answers.
"""


@dataclass(slots=True)
class Record:
    """Counts the requests of one question and tells of them.

    Attributes:
        attempt: Which answer is being asked for, from 1.
        request: How many HTTP requests were made.
    """

    question: str
    observe: Observe
    attempt: int = 1
    request: int = 0

    def asked(self, **facts: Any) -> None:
        """A request is about to be sent."""
        self.request += 1
        self.observe("model-request", self._which() | facts)

    def answered(self, **facts: Any) -> None:
        """Its answer is here, or will not come."""
        self.observe("model-answer", self._which() | facts)

    def refused(self, code: str) -> None:
        """An answer came and is not accepted."""
        self.observe(
            "answer-refused", {"question": self.question, "attempt": self.attempt, "code": code}
        )

    def _which(self) -> dict[str, Any]:
        return {"question": self.question, "request": self.request, "attempt": self.attempt}
