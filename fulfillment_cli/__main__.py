"""``fulfil`` and ``python -m fulfillment_cli``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit status."""
    from fulfillment_cli.cli.app import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
