"""Draws the pictures of the README: ``screenshots.py GALLERY [OUT]``.

GALLERY is what ``fulfil experiments --html GALLERY`` has written, OUT is ``docs/images`` by
default. Each page is taken at the width of a desk, from its top to the end of its lanes. Needs
Chromium.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.viewing.chromium import Chromium  # noqa: E402

WIDTH = 960
PICTURES = {
    "crash": "checkpoint-process-crash-and-resume",
    "side-effect": "unknown-effect-crash-and-reconcile",
    "compensation": "compensation-restores-inventory",
    "pause": "pause-process-crash-and-approve",
}
"""The experiment that each picture shows."""


def main() -> int:
    gallery = Path(sys.argv[1])
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "images"
    out.mkdir(parents=True, exist_ok=True)
    with Chromium() as browser:
        for name, page in PICTURES.items():
            browser.open(gallery / f"{page}.html", WIDTH)
            bottom = "document.querySelector('#story').getBoundingClientRect().top + scrollY"
            height = round(browser.evaluate(bottom)) - 8
            (out / f"{name}.png").write_bytes(browser.screenshot(height))
    return 0


if __name__ == "__main__":
    sys.exit(main())
