"""Draws pages of ``fulfil show --html`` for the documentation: ``screenshots.py OUT PAGE...``.

Each page is taken at the width of a desk, from its top to the end of its lanes. Needs Chromium.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.viewing.chromium import Chromium

WIDTH = 960


def main() -> int:
    out, *pages = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    with Chromium() as browser:
        for page in pages:
            browser.open(page, WIDTH)
            bottom = "document.querySelector('#story').getBoundingClientRect().top + scrollY"
            height = round(browser.evaluate(bottom)) - 8
            (out / page.with_suffix(".png").name).write_bytes(browser.screenshot(height))
    return 0


if __name__ == "__main__":
    sys.exit(main())
