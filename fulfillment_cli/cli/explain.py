"""``fulfil explain``: what a code or a stage means, and what is safe to do now."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from fulfillment_cli.cli.options import OutputOptions
from fulfillment_cli.domain.codes import CODES
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.stage_info import STAGE_INFO
from fulfillment_cli.domain.stages import TRANSITIONS, Stage
from fulfillment_cli.report import Line, Report


def explain(
    options: OutputOptions,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[CODE|STAGE]", help="A code or a stage; all of them without."),
    ] = None,
) -> Report:
    """Say what a code or a stage means, what is safe to do, and which command does it."""
    if name is None:
        documents = [explain_stage(stage) for stage in Stage]
        documents += [explain_code(code) for code in CODES]
        every = tuple(Line(known["name"], known["meaning"]) for known in documents)
        return Report({"explained": documents}, every)
    document = _find(name)
    lines = [
        Line(document["kind"], document["name"], "bold"),
        Line("meaning", document["meaning"]),
        Line("do", document["hint"]),
    ]
    if document["kind"] == "stage":
        lines.append(Line("entered again", document["enteredAgain"]))
        lines.append(Line("goes on to", ", ".join(document["leadsTo"]) or "nothing; it is final"))
    lines.append(Line("exit status", str(document["exitStatus"])))
    return Report(document, tuple(lines))


def _find(name: str) -> dict[str, Any]:
    """The code or the stage of a name, however it is capitalised.

    Raises:
        UsageError: There is none.
    """
    code, stage = (name.strip().replace(*pair) for pair in (("-", "_"), ("_", "-")))
    code, stage = code.upper(), stage.lower()
    if code in CODES:
        return explain_code(code)
    if stage in set(Stage):
        return explain_stage(Stage(stage))
    near = difflib.get_close_matches(code, CODES, 2) + difflib.get_close_matches(stage, Stage, 1)
    raise UsageError(
        f"There is no code or stage {name!r}.",
        hint=f"Did you mean {' or '.join(near)}?" if near else "`fulfil explain` lists them all.",
    )


def explain_code(code: str) -> dict[str, Any]:
    """A code as JSON."""
    info = CODES[code]
    return {
        "kind": "code",
        "name": code,
        "meaning": info.meaning,
        "hint": info.hint,
        "exitStatus": info.exit_status,
    }


def explain_stage(stage: Stage) -> dict[str, Any]:
    """A stage as JSON."""
    info = STAGE_INFO[stage]
    following = [other.value for other in Stage if other in TRANSITIONS[stage] - {stage}]
    return {
        "kind": "stage",
        "name": stage.value,
        "meaning": f"{info.meaning[0].upper()}{info.meaning[1:]}.",
        "hint": info.hint,
        "enteredAgain": info.again,
        "leadsTo": following,
        "exitStatus": EXIT_OF_STAGE[stage],
    }
