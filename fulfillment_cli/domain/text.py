"""Words for a terminal: how many of something, and how many columns a text takes."""

from __future__ import annotations

import unicodedata


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """``1 task``, ``2 tasks``; ``plural`` where it is not made by an s."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )


def padded(text: str, width: int) -> str:
    """The text with spaces behind it, up to ``width`` columns."""
    return text + " " * max(0, width - columns_of(text))


def wrapped(text: str, width: int) -> list[str]:
    """The text as lines of at most ``width`` columns, broken at spaces where there are any."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if columns_of(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        line = ""
        for one in word:
            if columns_of(line + one) > width:
                lines.append(line)
                line = ""
            line += one
    return [*lines, line]
