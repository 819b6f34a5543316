"""The exact command that continues a task; made from what is saved, and nothing else."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fulfillment_cli.domain.stages import FINAL, Flow, Goal, Stage

if TYPE_CHECKING:
    from fulfillment_cli.domain.checkpoint import Checkpoint

DEFAULT_TASK = "task"


@dataclass(frozen=True, slots=True)
class Place:
    """What a later command must be told to find the task and its ledger and model again.

    Attributes:
        directory: Absolute path of the task directory.
        task: The task's id.
        service_url, provider: As they were given to this command, or none.
        config, env_file: The same, as absolute paths.
    """

    directory: str
    task: str = DEFAULT_TASK
    service_url: str | None = None
    provider: str | None = None
    config: str | None = None
    env_file: str | None = None


def command_line(command: str, place: Place, *options: str) -> str:
    """``fulfil COMMAND`` for a task, quoted for a shell."""
    words = ["fulfil", command, "--directory", place.directory]
    if place.task != DEFAULT_TASK:
        words += ["--task", place.task]
    for name in ("service_url", "provider", "config", "env_file"):
        value = getattr(place, name)
        if value is not None:
            words += [f"--{name.replace('_', '-')}", value]
    return shlex.join([*words, *options])


def next_command(checkpoint: Checkpoint, place: Place) -> str | None:
    """The command that takes a task on from its checkpoint; none where nothing is left.

    For a task that needs review: the one that shows a person what can be done about it.
    """
    stage = checkpoint.stage
    if stage is Stage.NEEDS_REVIEW and not checkpoint.closed:
        return command_line("review", place)
    if stage in FINAL:
        return None
    if stage is Stage.PAUSED:
        return command_line(
            Flow.PAUSE,
            place,
            *("--decision", "approve", "--actor", "NAME"),
            *("--revision", str(checkpoint.revision)),
        )
    if _needs_checkpoint(checkpoint):
        return command_line(Flow.CHECKPOINT, place)
    return command_line(checkpoint.flow, place)


def _needs_checkpoint(checkpoint: Checkpoint) -> bool:
    """Whether the task's own command would leave it where it stands."""
    if checkpoint.stage is Stage.TIMED_OUT:
        return True
    if checkpoint.flow is Flow.SESSION and checkpoint.stage is not Stage.QUEUED:
        return True  # `session` only answers
    at_goal = (checkpoint.stage, checkpoint.goal) in (
        (Stage.PREPARED, Goal.PREPARED),
        (Stage.RESERVED, Goal.PREPARED),
        (Stage.RESERVED, Goal.RESERVED),
    )
    return at_goal and checkpoint.error is None
