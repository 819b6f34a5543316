"""Writes the tables of the README from the code; ``--check`` only says whether they are right."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fulfillment_cli.cli.app import COMMANDS  # noqa: E402
from fulfillment_cli.domain.codes import CODES  # noqa: E402
from fulfillment_cli.domain.exits import EXIT_OF_STAGE  # noqa: E402
from fulfillment_cli.domain.stage_info import STAGE_INFO  # noqa: E402
from fulfillment_cli.domain.stages import Stage  # noqa: E402

README = ROOT / "README.md"

STAGES = {stage: info.meaning for stage, info in STAGE_INFO.items()}

EXITS = {
    0: "done, or stopped where it was asked to",
    1: "failed for good; or the model's answer or credentials were refused",
    2: "wrong usage or configuration; nothing was done",
    3: "needs a person",
    4: "not finished; the printed command continues it",
    5: "another process is at work on this task or directory",
    130: "interrupted by SIGINT; what was saved stays",
    143: "terminated by SIGTERM; what was saved stays",
}


def tables() -> dict[str, str]:
    """Each generated table by the name of its place."""
    return {
        "commands": _table(
            ("Command", "Purpose"),
            ((f"`{name}`", command.purpose) for name, command in COMMANDS.items()),
        ),
        "stages": _table(
            ("Stage", "Meaning", "Entered again", "Exit"),
            (
                (f"`{stage}`", STAGES[stage], STAGE_INFO[stage].again, str(EXIT_OF_STAGE[stage]))
                for stage in Stage
            ),
        ),
        "exits": _table(("Exit", "Meaning"), ((str(code), text) for code, text in EXITS.items())),
        "codes": _table(
            ("Code", "Exit", "Meaning", "What to do"),
            (
                (f"`{code}`", _status(code, info.exit_status), info.meaning, info.hint)
                for code, info in CODES.items()
            ),
        ),
    }


def filled(text: str) -> str:
    """The README with every table as it should be."""
    for name, table in tables().items():
        place = re.compile(rf"(<!-- table:{name} -->\n).*?(<!-- /table -->)", re.DOTALL)
        text, count = place.subn(lambda found, table=table: found[1] + table + found[2], text)
        if count != 1:
            raise SystemExit(f"README.md has {count} places for the table of {name}")
    return text


def _status(code: str, status: int) -> str:
    return "130, 143" if code == "INTERRUPTED" else str(status)


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heading, tuple("---" for _ in heading), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def main() -> int:
    text = README.read_text(encoding="utf-8")
    right = filled(text)
    if "--check" in sys.argv:
        return int(right != text)
    README.write_text(right, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
