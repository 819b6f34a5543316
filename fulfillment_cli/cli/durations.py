"""How long something lasts, as people write it: ``90s``, ``30m``, ``2h``, ``7d``."""

from __future__ import annotations

import re

from fulfillment_cli.domain.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_SECONDS = 365 * 86_400


def parse_duration(text: str, option: str) -> float:
    """Seconds of a duration, over 0 and at most 365 days.

    Args:
        option: The option it was given with, for the message.

    Raises:
        UsageError: It is not one.
    """
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd])", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= MAX_SECONDS:
        raise UsageError(
            f"{option} is a number above 0 and s, m, h or d, up to 365d, not {text!r}.",
            hint=f"For example {option} 2h.",
        )
    return seconds
