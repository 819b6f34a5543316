"""Counting answers: right, refused, wrong but accepted; each share with its interval."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Literal

Outcome = Literal["right", "refused", "wrong"]
OUTCOMES: tuple[Outcome, ...] = ("right", "refused", "wrong")

_Z = 1.959963984540054
"""Standard normal quantile of a two-sided 95% interval."""


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95% Wilson score interval of a share; (0, 1) where nothing was counted."""
    if total == 0:
        return 0.0, 1.0
    share, z2 = hits / total, _Z * _Z
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z * sqrt(share * (1 - share) / total + z2 / (4 * total * total)) / (1 + z2 / total)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(slots=True)
class Score:
    """The outcomes of one set.

    Attributes:
        notes: For every answer that is not right: its name, its outcome and why.
    """

    name: str
    counts: Counter[Outcome] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, outcome: Outcome, note: str = "") -> None:
        """Count one."""
        self.counts[outcome] += 1
        if outcome != "right":
            self.notes.append(f"{name}: {outcome}: {note}")

    @property
    def total(self) -> int:
        """How many were asked."""
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        """Counts and intervals as JSON types."""
        shares: dict[str, Any] = {
            outcome: {
                "count": self.counts[outcome],
                "interval": [round(bound, 4) for bound in wilson(self.counts[outcome], self.total)],
            }
            for outcome in OUTCOMES
        }
        return {"set": self.name, "total": self.total, **shares, "notes": self.notes}

    def line(self) -> str:
        """One line for a person."""
        parts = []
        for outcome in OUTCOMES:
            low, high = wilson(self.counts[outcome], self.total)
            label = "wrong but accepted" if outcome == "wrong" else outcome
            parts.append(f"{label} {self.counts[outcome]} [{low:.1%}, {high:.1%}]")
        return f"{self.name} ({self.total}): " + ", ".join(parts)
