"""``fulfil list``: all tasks below a root, streamed, the last changed first."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import sqlite3
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.clock import from_timestamp, to_timestamp
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.adapters.task_lists import FIRST, newest
from fulfillment_cli.domain.stages import Goal, Stage
from fulfillment_cli.viewing.listing import Row, Wanted, list_tasks
from fulfillment_cli.viewing.spans import brief, exact
from tests.support import ROOT, FakeClock, change_document, first_checkpoint, tamper
from tests.viewing.conftest import Made

STANDS = {
    "killed": "completed",
    "compensated": "compensated",
    "lost": "completed",
    "paused": "paused",
    "timed-out": "timed-out",
    "hostile": "reserved",
}


def rows_of(root: Path, wanted: Wanted | None = None, **options: Any) -> list[Row]:
    def fail(directory: Path, error: Exception) -> None:
        raise AssertionError(directory, error)

    return list(list_tasks(root, wanted or Wanted(), fail, **options))


def many(directory: Path, count: int, stages: tuple[str, ...] = ("queued",)) -> None:
    """Rows as a long history leaves them, without taking the time of one."""
    RecoveryStore.create_in(directory).close()
    with closing(sqlite3.connect(directory / "tasks.sqlite")) as connection, connection:
        for number in range(count):
            document = first_checkpoint(f"t{number}").to_json() | {
                "updatedAt": to_timestamp(1_800_000_000 + number // 3),
                "stage": stages[number % len(stages)],
            }
            connection.execute(
                "INSERT INTO tasks (id, document) VALUES (?, ?)",
                (f"t{number}", json.dumps(document)),
            )


def test_one_row_a_task_the_last_changed_first(made: Made) -> None:
    rows = rows_of(made.root)

    assert {row.directory.name: row.task.stage.value for row in rows} == STANDS
    changed = [row.task.updated_at for row in rows]
    assert changed == sorted(changed, reverse=True)
    assert [row.task.sku for row in rows] == ["SKU-1"] * 6


def test_what_each_waits_for(made: Made) -> None:
    waits = {row.directory.name: row.waits_for for row in rows_of(made.root)}

    assert waits == {
        "killed": None,
        "compensated": None,
        "lost": None,
        "paused": "a decision",
        "timed-out": "an explicit checkpoint",
        "hostile": "an explicit checkpoint",
    }


@pytest.mark.parametrize(
    ("facts", "waits"),
    [
        ({}, "a run"),
        ({"goal": "prepared", "stage": "prepared"}, "an explicit checkpoint"),
        ({"stage": "uncertain"}, "a look-up"),
        ({"nextAttemptAt": to_timestamp(1_800_000_090.0)}, "its next attempt, in 1m"),
        ({"nextAttemptAt": to_timestamp(1_800_000_000.0)}, "a run"),
        (
            {"deadLetter": {"code": "MODEL_UNAVAILABLE", "message": "m", "at": "t"}},
            "a person: MODEL_UNAVAILABLE",
        ),
        (
            {"stage": "needs-review", "error": {"code": "ADDRESS_REJECTED", "message": "m"}},
            "a person: ADDRESS_REJECTED",
        ),
        ({"stage": "needs-review", "closed": True}, None),
        ({"stage": "failed"}, None),
    ],
)
def test_waiting_is_read_off_the_saved_facts(
    tmp_path: Path, facts: dict[str, Any], waits: str | None
) -> None:
    clock = FakeClock()
    with RecoveryStore.create_in(tmp_path, clock) as store:
        first = first_checkpoint(at=clock.timestamp(), goal=Goal.COMPLETED)
        store.create(first)
    change_document(tmp_path, lambda document: document.update(facts))

    (row,) = rows_of(tmp_path, clock=clock)

    assert row.waits_for == waits


def test_a_task_at_work_is_seen(tmp_path: Path) -> None:
    with RecoveryStore.create_in(tmp_path) as store, Holder(tmp_path) as holder:
        store.create(first_checkpoint())
        lease, checkpoint = store.acquire("task", holder)
        (at_work,) = rows_of(tmp_path)
        store.release(lease, checkpoint)
    (left,) = rows_of(tmp_path)

    assert (at_work.running, at_work.waits_for) == (True, "the process that runs it")
    assert left.running is False


def test_stage_since_and_limit(made: Made) -> None:
    newest_update = from_timestamp(rows_of(made.root)[0].task.updated_at)
    later = FakeClock(newest_update + 3600)

    some = rows_of(made.root, Wanted(stages=(Stage.PAUSED, Stage.COMPLETED)))
    assert {row.directory.name for row in some} == {"killed", "lost", "paused"}
    assert [row.task.updated_at for row in some] == sorted(
        (row.task.updated_at for row in some), reverse=True
    )
    assert len(rows_of(made.root, Wanted(limit=2))) == 2
    assert rows_of(made.root, Wanted(since=3599), clock=later) == []
    assert len(rows_of(made.root, Wanted(since=3601), clock=later)) >= 1


@pytest.mark.parametrize("stages", [(), (Stage.QUEUED, Stage.PAUSED)])
def test_every_page_is_listed_once(tmp_path: Path, stages: tuple[Stage, ...]) -> None:
    """More than two pages, many with the same instant."""
    many(tmp_path, 1203, ("queued", "paused", "completed"))

    rows = rows_of(tmp_path, Wanted(stages=stages))

    wanted = [n for n in range(1203) if not stages or n % 3 != 2]
    assert {row.task.id for row in rows} == {f"t{number}" for number in wanted}
    keys = [(row.task.updated_at, row.task.id) for row in rows]
    assert keys == sorted(set(keys), reverse=True)


@pytest.mark.parametrize("stages", [(), (Stage.QUEUED,)])
def test_a_page_is_read_off_an_index(tmp_path: Path, stages: tuple[Stage, ...]) -> None:
    many(tmp_path, 10)
    statements: list[str] = []
    with closing(sqlite3.connect(tmp_path / "tasks.sqlite")) as connection:
        connection.set_trace_callback(statements.append)
        newest(connection, tmp_path, stages, "", FIRST, 5)
        connection.set_trace_callback(None)
        (statement,) = statements
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]

    assert any("USING INDEX tasks_by" in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan


def test_a_damaged_directory_is_told_and_passed_over(
    made: Made, tmp_path: Path, fulfil: Callable[..., Any]
) -> None:
    root = tmp_path / "root"
    shutil.copytree(made["lost"], root / "good")
    (root / "bad").mkdir()
    (root / "bad" / "tasks.sqlite").write_bytes(b"not a database")
    shutil.copytree(made["paused"], root / "odd")
    tamper(root / "odd", "UPDATE tasks SET document = json_set(document, '$.stage', 'gone')")

    done = fulfil("list", root)
    document = json.loads(fulfil("list", root, "--output", "json").out)

    assert done.status == 0
    assert "good" in done.out
    assert done.err.count("warning DATABASE_INVALID") == 2
    assert [task["stage"] for task in document["tasks"]] == ["completed"]
    assert {Path(one["directory"]).name for one in document["warnings"]} == {"bad", "odd"}


def test_the_columns_stand_in_line(made: Made, fulfil: Callable[..., Any]) -> None:
    heading, *lines = fulfil("list", made.root).out.splitlines()

    for name in ("STAGE", "ORDER", "TASK", "DIRECTORY", "WAITS FOR"):
        column = heading.index(name)
        assert all(line[column - 1] == " " and line[column] != " " for line in lines)


def test_lines_of_json(made: Made, fulfil: Callable[..., Any]) -> None:
    done = fulfil("list", made.root, "--output", "jsonl")
    rows = [json.loads(line) for line in done.out.splitlines()]

    assert {Path(row["directory"]).name for row in rows} == set(STANDS)
    assert all(row["id"] == "task" and row["quantity"] in (1, 2, 3) for row in rows)


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    """``fulfil list --output jsonl | head -1``"""
    many(tmp_path, 2000)
    for output in ("jsonl", "text"):
        listing = subprocess.Popen(
            [sys.executable, "-m", "fulfillment_cli", "list", str(tmp_path), "--output", output],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert listing.stdout is not None
        assert listing.stdout.readline()
        listing.stdout.close()
        assert listing.stderr is not None
        assert listing.stderr.read() == b""
        listing.stderr.close()
        assert listing.wait(30) == 0


def test_nothing_to_list_is_said(fulfil: Callable[..., Any], tmp_path: Path) -> None:
    none = fulfil("list")
    nowhere = fulfil("list", tmp_path / "nowhere")
    wrong = fulfil("list", "--since", "soon")

    assert (none.status, none.out, none.err) == (0, "", "no tasks\n")
    assert (nowhere.status, wrong.status) == (2, 2)
    assert "DIRECTORY_NOT_FOUND" in nowhere.err
    assert "--since 2h" in wrong.err


def test_spans_in_words() -> None:
    assert [brief(s) for s in (-1, 0.9, 59, 60, 3600, 90_000)] == [
        *("0s", "0s", "59s", "1m", "1h", "1d")
    ]
    assert [exact(s) for s in (0.0354, 1.84, 252, 3720, 100_000)] == [
        *("35ms", "1.8s", "4m12s", "1h2m", "1d3h")
    ]


@pytest.mark.parametrize("columns", [70, 200])
def test_no_line_is_broken_by_the_terminal(made: Made, columns: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {n: v for n, v in os.environ.items() if n not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    listing = subprocess.Popen(
        [sys.executable, "-m", "fulfillment_cli", "list", str(made.root)],
        cwd=made.root,
        env=kept | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "TERM": "xterm"},
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # Linux's way to say that the other end is closed
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)

    lines = shown.decode().splitlines()
    assert listing.wait(30) == 0
    assert max(map(len, lines)) <= columns
    assert ("WAITS FOR" in lines[0]) is (columns == 200)
    assert any("a decision" in line for line in lines)
