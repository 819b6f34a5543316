"""How long a task waits before it is tried again."""

from __future__ import annotations

import random


def delay(attempts: int, *, base: float, cap: float, source: random.Random) -> float:
    """Seconds until the next attempt: ``base * 2^n`` with full jitter, capped.

    Full jitter (uniform from zero to the limit) spreads tasks that failed together, so that
    they do not come back together.

    Args:
        attempts: Attempts that failed so far, 1 or more; the first one waits up to ``base``.
        base: Limit of the first delay in seconds, over 0.
        cap: Limit of every delay in seconds, over 0.
        source: Of randomness.
    """
    # 2**64 times any base is over any cap; a greater power would not fit a float for ever.
    limit = min(cap, base * 2.0 ** min(attempts - 1, 64))
    return source.uniform(0, limit)
