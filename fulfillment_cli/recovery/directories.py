"""Which task directories there are below a root."""

from __future__ import annotations

import os
from pathlib import Path

from fulfillment_cli.adapters.checkpoint_reader import FILE_NAME
from fulfillment_cli.adapters.task_directory import Fixture, TaskDirectory
from fulfillment_cli.domain.errors import TaskNotFound, UsageError

MAX_DEPTH = 4
"""How many levels below its root a search goes."""

_OURS = frozenset({"results", ".holders"})  # of a task directory; no other one stands in them


DEFAULT_ROOT = Path(".fulfil-tasks")
"""Where commands make their task directories; where there is none yet, there are no tasks."""


def find_directories(root: Path = DEFAULT_ROOT) -> list[Path]:
    """Every directory with tasks, or with a task that was begun, at ``root`` or below.

    Symbolic links are not followed. A directory that cannot be read is passed over.

    Raises:
        TaskNotFound: ``DIRECTORY_NOT_FOUND``; not for :data:`DEFAULT_ROOT`.
    """
    if root == DEFAULT_ROOT and not root.exists():
        return []
    root = root.absolute()
    if not root.is_dir():
        raise TaskNotFound(f"There is no directory {root}.", code="DIRECTORY_NOT_FOUND")
    found = []
    for name, below, files in os.walk(root):
        path = Path(name)
        if FILE_NAME in files or ("fixture.json" in files and begun(path) is not None):
            found.append(path)
        deep = len(path.relative_to(root).parts) >= MAX_DEPTH
        below[:] = [] if deep else sorted(set(below) - _OURS)
    return found


def begun(path: Path) -> Fixture | None:
    """What the directory's first task is made from; none where that is not told."""
    try:
        return TaskDirectory(path).read_fixture()
    except UsageError:
        return None  # another program's file of that name
