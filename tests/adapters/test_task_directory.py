"""The plain files of a task directory: the owner's alone, whole or not there, never half."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters import task_directory
from fulfillment_cli.adapters.task_directory import Fixture, TaskDirectory, write_durably
from fulfillment_cli.domain.errors import TaskBusy, UsageError
from fulfillment_cli.domain.order import Policy
from fulfillment_cli.domain.stages import Flow, Goal
from tests.support import (
    Child,
    as_nobody,
    first_checkpoint,
    hold_creation,
    make_directory,
    with_file_size_limit,
    write_source,
)

StartChild = Callable[..., Child]


@pytest.fixture
def files(tmp_path: Path) -> TaskDirectory:
    return TaskDirectory.make(tmp_path / "tasks" / "cli-1")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fixture(**changes: Any) -> Fixture:
    values: dict[str, Any] = {
        "task_id": "task",
        "flow": Flow.FALLBACK,
        "policy": Policy(allowed_sources=("backup",)),
        "goal": Goal.COMPLETED,
        "order": None,
        "service_url": None,
        "stock": {"SKU-1": 10},
        "faults": {"primaryUnavailable": True},
    }
    return Fixture(**values | changes)


def test_all_of_it_is_its_owners_alone(files: TaskDirectory) -> None:
    old = os.umask(0)
    try:
        files.write_source("task", b"order")
        files.write_fixture(fixture())
        files.write_result(first_checkpoint())
        deep = TaskDirectory.make(files.path.parent.parent / "more" / "cli-2")
    finally:
        os.umask(old)
    assert {mode(path) for path in (files.path, deep.path, files.path / "results")} == {0o700}
    written = [path for path in files.path.rglob("*") if path.is_file()]
    assert len(written) == 3
    assert {mode(path) for path in written} == {0o600}


def test_a_fixture_is_read_as_it_was_written(files: TaskDirectory) -> None:
    files.write_fixture(fixture())
    assert files.read_fixture() == fixture()
    assert json.loads(files.fixture_path.read_text())["order"] is None


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"flow": "unknown"}', b"\xff"])
def test_what_is_no_fixture_is_refused(files: TaskDirectory, content: bytes) -> None:
    files.fixture_path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        files.read_fixture()
    assert error.value.code == "CONFIG_INVALID"


def test_a_directory_without_a_fixture_is_none_of_ours(files: TaskDirectory) -> None:
    with pytest.raises(UsageError) as error:
        files.read_fixture()
    assert error.value.code == "TASK_NOT_FOUND"


def test_the_result_is_the_checkpoint(files: TaskDirectory) -> None:
    checkpoint = first_checkpoint()
    assert not files.result_is_current(checkpoint)
    files.write_result(checkpoint)
    assert files.result_is_current(checkpoint)
    assert json.loads(files.result_path("task").read_text()) == checkpoint.to_json()
    newer = checkpoint.model_copy(update={"revision": 2})
    assert not files.result_is_current(newer)
    files.write_result(newer)
    assert files.result_is_current(newer)


def test_a_result_that_is_right_is_not_written_again(files: TaskDirectory) -> None:
    files.write_result(first_checkpoint(task_uid="0" * 32))
    before = files.result_path("task").stat()
    files.write_result(first_checkpoint(task_uid="0" * 32))
    assert files.result_path("task").stat().st_ino == before.st_ino


def test_something_else_in_the_results_place_is_a_coded_error(files: TaskDirectory) -> None:
    (files.path / "results").write_text("mine")
    with pytest.raises(UsageError) as error:
        files.write_result(first_checkpoint())
    assert error.value.code == "DIRECTORY_NOT_WRITABLE"


def test_a_file_is_replaced_whole_and_synced_before_it_has_its_name(
    files: TaskDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files.path / "file"
    path.write_bytes(b"old")
    steps: list[str] = []
    sync, replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        assert (self.read_bytes(), path.read_bytes()) == (b"new", b"old")
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    write_durably(path, b"new")
    assert steps == ["file", "rename", "directory"]
    assert path.read_bytes() == b"new"


def test_a_full_disk_leaves_the_old_file_and_no_draft(
    files: TaskDirectory, child: StartChild
) -> None:
    files.write_source("task", b"old")
    answer = child(with_file_size_limit, 8, write_source, files.path, b"x" * 100).hear()
    assert answer["code"] == "DIRECTORY_NOT_WRITABLE"
    assert files.source("task").read_bytes() == b"old"
    assert [path.name for path in files.path.iterdir()] == ["task.txt"]


def test_a_directory_that_cannot_be_made_is_a_coded_error(
    child: StartChild, open_directory: Path
) -> None:
    open_directory.chmod(0o555)
    answer = child(as_nobody, make_directory, open_directory / "cli-1").hear()
    assert answer["code"] == "DIRECTORY_NOT_WRITABLE"
    with pytest.raises(UsageError) as error:
        TaskDirectory.make(Path("/dev/null/cli-1"))
    assert error.value.code == "DIRECTORY_NOT_WRITABLE"


def test_a_directory_that_cannot_be_written_takes_no_task(
    child: StartChild, open_directory: Path
) -> None:
    open_directory.chmod(0o555)
    for action in (write_source, hold_creation):
        arguments = (open_directory, b"x") if action is write_source else (open_directory,)
        answer = child(as_nobody, action, *arguments).hear()
        assert answer["code"] == "DIRECTORY_NOT_WRITABLE", action


async def test_one_process_at_a_time_adds_a_task(
    files: TaskDirectory, child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_directory, "CREATING_TIMEOUT_SECONDS", 0.1)
    other = child(hold_creation, files.path)
    assert other.hear() == "held"
    with pytest.raises(TaskBusy):
        async with files.creating():
            pass
    other.kill()  # a dead one keeps nobody off
    async with files.creating():
        pass


async def test_tasks_of_one_process_are_added_one_after_the_other(files: TaskDirectory) -> None:
    inside: list[int] = []

    async def add(number: int) -> None:
        async with files.creating():
            inside.append(number)
            assert inside == [number]
            await asyncio.sleep(0.01)
            inside.remove(number)

    await asyncio.gather(*(add(number) for number in range(5)))
    assert inside == []
