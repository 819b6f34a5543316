"""``fulfil`` and ``python -m fulfillment_cli``."""

from __future__ import annotations

import gc
import os
import sys

GARBAGE_THRESHOLD = 50_000
"""Allocations between two collections of a command; Python's own is 700 to 2000, by its version."""


def main() -> int:
    """Run the command line and return its exit status."""
    # A command is short and what it imports stays: looking for garbage in it, again and again and
    # once more at the exit, is a sixth of its time.
    gc.set_threshold(GARBAGE_THRESHOLD)
    # Other packages' pydantic plugins have no say in what is a valid order; looking for them would
    # read the metadata of all that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from fulfillment_cli.cli.app import run

    status = run(sys.argv[1:])
    gc.freeze()
    return status


if __name__ == "__main__":
    sys.exit(main())
