"""``python -m reference_service``."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the service and return its exit status."""
    # A runner waits for the start of its service; a sixth of that went into looking for garbage
    # among what is imported.
    gc.disable()
    from .command import main as run

    gc.freeze()
    gc.enable()
    return run()


if __name__ == "__main__":
    sys.exit(main())
