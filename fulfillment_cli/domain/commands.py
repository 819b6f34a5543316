"""The exact command that continues a task."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.stages import Flow, Goal, Stage


def continue_command(
    command: str, directory: Path, task_id: str, options: Sequence[str] = ()
) -> str:
    """``fulfil COMMAND --directory DIR ...``, quoted for a shell.

    Args:
        options: Further arguments that the run was given and needs again.
    """
    task = [] if task_id == "task" else ["--task", task_id]
    return shlex.join(["fulfil", command, "--directory", str(directory), *task, *options])


def next_command(
    checkpoint: Checkpoint, directory: Path, options: Sequence[str] = ()
) -> str | None:
    """What a person types to take the task on from where it is saved; none where it ended."""
    stage, flow = checkpoint.stage, checkpoint.flow
    if stage is Stage.NEEDS_REVIEW and not checkpoint.closed:
        review = ["--action", "release" if checkpoint.compensation_error else "close"]
        who = ["--actor", "NAME", "--reason", "TEXT", "--revision", str(checkpoint.revision)]
        return continue_command("review", directory, checkpoint.id, [*review, *who, *options])
    if checkpoint.final:
        return None
    if stage is Stage.PAUSED:
        decision = ["--decision", "approve", "--actor", "NAME"]
        revision = ["--revision", str(checkpoint.revision)]
        return continue_command(
            Flow.PAUSE, directory, checkpoint.id, [*decision, *revision, *options]
        )
    at_goal = (stage, checkpoint.goal) in (
        (Stage.PREPARED, Goal.PREPARED),
        (Stage.RESERVED, Goal.RESERVED),
    )
    command = Flow.CHECKPOINT if at_goal or stage is Stage.TIMED_OUT else flow
    return continue_command(command, directory, checkpoint.id, options)
