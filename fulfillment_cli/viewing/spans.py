"""How long something took, and how long ago it was, in as few words as a person needs."""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


def brief(seconds: float) -> str:
    """A span in one unit: ``3d``, ``2h``, ``4m``, ``12s``."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(max(0.0, seconds))}s"


def exact(seconds: float) -> str:
    """A span as it is read in a story: ``4m12s``, ``1.8s``, ``35ms``."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for (size, unit), (below, small) in zip(_UNITS, (*_UNITS[1:], (1, "s")), strict=True):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below}{small}"
    return f"{whole}s"
