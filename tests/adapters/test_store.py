"""``tasks.sqlite``: made whole, refused where it is not ours, changed whole or not at all."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters import database
from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import (
    FulfilError,
    LeaseLost,
    PlanMismatch,
    RevisionConflict,
    StoreError,
    TaskBusy,
    TaskNotFound,
    UsageError,
)
from fulfillment_cli.domain.order import DeadLetter, Order
from fulfillment_cli.domain.stages import RECOVERABLE, Stage
from tests.support import (
    ORDER,
    TEXT,
    Child,
    FakeClock,
    advance_and_die,
    as_nobody,
    change_document,
    create_at_once,
    create_task,
    event_kinds,
    first_checkpoint,
    plan_facts,
    rows,
    saved_document,
    tamper,
    with_file_size_limit,
)

StartChild = Callable[..., Child]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """For each connection that is made: the statements on it, in order."""
    statements: list[list[str]] = []
    connect = sqlite3.connect

    class Recording(sqlite3.Connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            statements.append([])
            self.set_trace_callback(statements[-1].append)

    monkeypatch.setattr(
        database.sqlite3, "connect", lambda *a, **o: connect(*a, **o, factory=Recording)
    )
    return statements


# -- making it ---------------------------------------------------------------------------------


def test_the_database_is_in_wal_mode_and_its_owners_alone(
    store: RecoveryStore, tmp_path: Path
) -> None:
    assert rows(tmp_path / "tasks.sqlite", "PRAGMA journal_mode") == [("wal",)]
    files = [path for path in tmp_path.iterdir() if path.name.startswith("tasks.sqlite")]
    assert {path.name for path in files} >= {"tasks.sqlite", "tasks.sqlite-wal"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_every_connection_waits_for_locks_before_anything_else_and_syncs_in_full(
    recorded: list[list[str]], tmp_path: Path
) -> None:
    with RecoveryStore.create_in(tmp_path) as store:
        assert store.task_ids() == []
    assert len(recorded) >= 2
    for statements in recorded:
        assert statements[0] == "PRAGMA busy_timeout = 5000"
        assert statements[1] == "PRAGMA synchronous = FULL"
    assert not any("synchronous = " in s for each in recorded for s in each[2:])


def test_making_it_leaves_no_draft(store: RecoveryStore, tmp_path: Path) -> None:
    assert not list(tmp_path.glob("*.draft*"))


def test_an_existing_database_is_opened_not_replaced(store: RecoveryStore, tmp_path: Path) -> None:
    with RecoveryStore.create_in(tmp_path) as again:
        assert again.load("task") == store.load("task")


def test_of_processes_that_make_it_at_once_all_go_on_with_one(
    child: StartChild, tmp_path: Path
) -> None:
    children = [child(create_at_once, tmp_path, f"task-{number}") for number in range(4)]
    assert [each.hear() for each in children] == ["ready"] * 4
    for each in children:
        each.say("go")
    assert [each.hear() for each in children] == ["created"] * 4
    with RecoveryStore(tmp_path) as store:
        assert store.task_ids() == ["task-0", "task-1", "task-2", "task-3"]
    assert not list(tmp_path.glob("*.draft*"))


# -- what is not ours --------------------------------------------------------------------------


def refused(directory: Path, code: str) -> FulfilError:
    """Opening must fail with this code and leave every byte and every file as it was."""
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    with pytest.raises(FulfilError) as error:
        RecoveryStore(directory)
    assert error.value.code == code
    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    assert after == before
    return error.value


@pytest.mark.parametrize("pragma", ["user_version = 2", "user_version = 0", "application_id = 1"])
def test_another_version_is_refused_and_left_untouched(tmp_path: Path, pragma: str) -> None:
    create_database_with_a_task(tmp_path)
    with closing(sqlite3.connect(tmp_path / "tasks.sqlite")) as connection:
        connection.execute(f"PRAGMA {pragma}")
    refused(tmp_path, "DATABASE_INVALID")


def test_another_version_that_stands_only_in_the_log_is_refused_too(tmp_path: Path) -> None:
    create_database_with_a_task(tmp_path)
    with closing(sqlite3.connect(tmp_path / "tasks.sqlite")) as newer:
        newer.execute("PRAGMA user_version = 2")
        newer.commit()
        assert (tmp_path / "tasks.sqlite").read_bytes()[63] == 1
        with pytest.raises(UsageError) as error:
            RecoveryStore(tmp_path)
        assert error.value.code == "DATABASE_INVALID"
        assert (tmp_path / "tasks.sqlite").read_bytes()[63] == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"not a database", b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 4096],
    ids=["empty", "text", "header only", "damaged"],
)
def test_what_is_no_database_is_refused_and_left_untouched(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tasks.sqlite").write_bytes(content)
    refused(tmp_path, "DATABASE_INVALID")


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "tasks.sqlite")) as connection:
        connection.execute("CREATE TABLE tasks (id TEXT)")
    refused(tmp_path, "DATABASE_INVALID")


def test_creating_does_not_replace_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "tasks.sqlite").write_bytes(b"mine")
    with pytest.raises(UsageError):
        RecoveryStore.create_in(tmp_path)
    assert (tmp_path / "tasks.sqlite").read_bytes() == b"mine"


def test_a_directory_without_a_database_holds_no_tasks(tmp_path: Path) -> None:
    with pytest.raises(TaskNotFound):
        RecoveryStore(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_the_databases_place_is_a_coded_error(tmp_path: Path) -> None:
    (tmp_path / "tasks.sqlite").mkdir()
    with pytest.raises(UsageError) as caught:
        RecoveryStore(tmp_path)
    assert caught.value.code == "DATABASE_INVALID"


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(schemaVersion=2),
        lambda document: document.pop("taskUid"),
        lambda document: document.update(stage="shipping"),
        lambda document: document.update(surprise=1),
        lambda document: document.update(revision="1"),
    ],
    ids=["version", "missing", "stage", "unknown", "type"],
)
def test_a_document_that_is_no_checkpoint_is_refused_and_left_untouched(
    store: RecoveryStore, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    change_document(tmp_path, change)
    before = saved_document(tmp_path)
    lease = "SELECT fencing_token, lease_holder FROM tasks"
    with Holder(tmp_path) as holder:
        for act in (lambda: store.load("task"), lambda: store.acquire("task", holder)):
            with pytest.raises(UsageError) as error:
                act()
            assert error.value.code == "DATABASE_INVALID"
    assert saved_document(tmp_path) == before
    assert rows(tmp_path / "tasks.sqlite", lease) == [(0, None)]


# -- changing it -------------------------------------------------------------------------------


def test_a_task_that_exists_is_not_created_again(store: RecoveryStore, tmp_path: Path) -> None:
    before, events = saved_document(tmp_path), event_kinds(tmp_path)
    with pytest.raises(UsageError) as error:
        store.create(first_checkpoint())
    assert error.value.code == "TASK_EXISTS"
    assert saved_document(tmp_path) == before
    assert event_kinds(tmp_path) == events


def test_a_task_that_is_not_there_is_not_found(store: RecoveryStore, tmp_path: Path) -> None:
    with pytest.raises(TaskNotFound):
        store.load("other")
    with Holder(tmp_path) as holder, pytest.raises(TaskNotFound):
        store.acquire("other", holder)


def test_each_change_adds_one_to_the_revision_and_one_event(
    store: RecoveryStore, tmp_path: Path
) -> None:
    with Holder(tmp_path) as holder:
        lease, checkpoint = store.acquire("task", holder)
        before = len(event_kinds(tmp_path))
        for revision in range(2, 6):
            checkpoint = store.advance(checkpoint, lease, Stage.QUEUED, "noted", {"n": revision})
            assert checkpoint.revision == revision == store.load("task").revision
    events = store.events(task_id="task")[before:]
    assert [(event.revision, event.data["n"]) for event in events] == [
        (revision, revision) for revision in range(2, 6)
    ]


def test_columns_for_outside_tools_follow_the_document(
    store: RecoveryStore, tmp_path: Path
) -> None:
    advance_to_prepared(store, tmp_path)
    assert rows(tmp_path / "tasks.sqlite", "SELECT id, revision, stage FROM tasks") == [
        ("task", 2, "prepared")
    ]
    ((data,),) = rows(tmp_path / "tasks.sqlite", "SELECT data FROM events WHERE kind = 'prepared'")
    assert json.loads(data) == {"from": "queued", "to": "prepared"}


def test_events_are_permanent(store: RecoveryStore, tmp_path: Path) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="permanent"):
        tamper(tmp_path, "UPDATE events SET kind = 'other'")


def test_a_stale_checkpoint_is_never_saved_over_a_newer_one(
    store: RecoveryStore, tmp_path: Path
) -> None:
    with Holder(tmp_path) as holder:
        lease, stale = store.acquire("task", holder)
        newer = store.advance(stale, lease, Stage.QUEUED, "noted")
        events = event_kinds(tmp_path)
        with pytest.raises(RevisionConflict):
            store.advance(stale, lease, Stage.FAILED, "failed")
        assert store.load("task") == newer
        assert event_kinds(tmp_path) == events


def test_write_once_facts_are_refused_by_the_store_too(
    store: RecoveryStore, tmp_path: Path
) -> None:
    other = Order(sku="SKU-1", quantity=3, address="Dock-North")
    with Holder(tmp_path) as holder:
        lease, checkpoint = store.acquire("task", holder)
        saved = store.advance(
            checkpoint, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint)
        )
        with pytest.raises(PlanMismatch):
            store.advance(saved, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint, other))
    assert store.load("task").order == ORDER


@pytest.mark.parametrize("table", ["events", "tasks"])
def test_a_change_and_its_event_are_saved_together_or_not_at_all(
    store: RecoveryStore, tmp_path: Path, table: str
) -> None:
    with Holder(tmp_path) as holder:
        lease, checkpoint = store.acquire("task", holder)
        before, events = saved_document(tmp_path), event_kinds(tmp_path)
        when = "BEFORE INSERT ON events" if table == "events" else "AFTER UPDATE ON tasks"
        tamper_schema(tmp_path, f"CREATE TRIGGER fault {when} BEGIN SELECT RAISE(ABORT, 'f'); END")
        with pytest.raises(StoreError) as error:
            store.advance(checkpoint, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint))
        assert error.value.code == "DATABASE_FAILED"
        assert saved_document(tmp_path) == before
        assert event_kinds(tmp_path) == events
        tamper_schema(tmp_path, "DROP TRIGGER fault")
        store.advance(checkpoint, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint))
        assert event_kinds(tmp_path) == [*events, "prepared"]


def test_a_task_without_its_first_event_is_not_created(
    store: RecoveryStore, tmp_path: Path
) -> None:
    fault = "CREATE TRIGGER fault BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'f'); END"
    tamper_schema(tmp_path, fault)
    with pytest.raises(StoreError):
        store.create(first_checkpoint("other"))
    assert store.task_ids() == ["task"]


@pytest.mark.parametrize("point", ["RecoveryStore._append", "canonical_json"])
def test_a_process_killed_within_a_change_saved_nothing_of_it(
    store: RecoveryStore, child: StartChild, tmp_path: Path, point: str
) -> None:
    target = f"fulfillment_cli.adapters.checkpoints:{point}"
    assert child(advance_and_die, tmp_path, target).wait() == -9
    assert store.load("task").stage is Stage.QUEUED
    assert "prepared" not in event_kinds(tmp_path)
    advance_to_prepared(store, tmp_path)  # the dead one keeps nobody off


def test_an_interruption_within_a_change_undoes_it(
    store: RecoveryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with Holder(tmp_path) as holder:
        lease, checkpoint = store.acquire("task", holder)
        with monkeypatch.context() as patched:
            patched.setattr(store, "_append", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.advance(checkpoint, lease, Stage.FAILED, "failed")
        assert store.load("task") == checkpoint
        store.advance(checkpoint, lease, Stage.FAILED, "failed")  # and no transaction is open


def test_an_event_that_changes_nothing_needs_the_lease_too(
    store: RecoveryStore, tmp_path: Path, clock: FakeClock
) -> None:
    with Holder(tmp_path) as first, Holder(tmp_path) as second:
        lease, checkpoint = store.acquire("task", first)
        store.record(checkpoint, lease, "noted", {"n": 1})
        assert store.load("task") == checkpoint
        clock.advance(31)
        store.acquire("task", second)
        with pytest.raises(LeaseLost):
            store.record(checkpoint, lease, "noted", {"n": 2})
    assert [e.data["n"] for e in store.events() if e.kind == "noted"] == [1]


def test_a_database_that_another_process_locks_is_busy(
    store: RecoveryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 50)
    with closing(sqlite3.connect(tmp_path / "tasks.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with RecoveryStore(tmp_path) as impatient, Holder(tmp_path) as holder:
            assert impatient.load("task").revision == 1  # reading waits for nobody
            with pytest.raises(TaskBusy):
                impatient.acquire("task", holder)


# -- what a disk can do ------------------------------------------------------------------------


def test_a_full_database_saves_nothing_by_halves(store: RecoveryStore, tmp_path: Path) -> None:
    with Holder(tmp_path) as holder:
        lease, checkpoint = store.acquire("task", holder)
        ((pages,),) = rows(tmp_path / "tasks.sqlite", "PRAGMA page_count")
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        saved, events = saved_document(tmp_path), event_kinds(tmp_path)
        with pytest.raises(StoreError) as error:
            store.advance(checkpoint, lease, Stage.QUEUED, "noted", {"text": "x" * 100_000})
        assert error.value.code == "DATABASE_FAILED"
        assert "the disk is full" in error.value.message
        assert saved_document(tmp_path) == saved
        assert event_kinds(tmp_path) == events
        assert rows(tmp_path / "tasks.sqlite", "PRAGMA integrity_check") == [("ok",)]
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store.advance(checkpoint, lease, Stage.QUEUED, "noted")


@pytest.mark.parametrize("limit", [0, 4096, 32_768])
def test_a_disk_that_is_full_at_creation_leaves_no_half_database(
    child: StartChild, tmp_path: Path, limit: int
) -> None:
    answer = child(with_file_size_limit, limit, create_task, tmp_path).hear()
    assert answer["code"] == "DATABASE_FAILED"
    with RecoveryStore.create_in(tmp_path) as store:
        assert store.task_ids() == []
        store.create(first_checkpoint())
    assert not list(tmp_path.glob("*.draft*"))


def test_a_directory_that_may_not_be_written_is_a_coded_error(
    child: StartChild, open_directory: Path
) -> None:
    open_directory.chmod(0o555)
    answer = child(as_nobody, create_task, open_directory).hear()
    assert answer["code"] == "DIRECTORY_NOT_WRITABLE"
    assert list(open_directory.iterdir()) == []


def test_a_database_that_may_not_be_written_is_a_coded_error(
    child: StartChild, open_directory: Path
) -> None:
    create_database_with_a_task(open_directory)
    for path in open_directory.iterdir():
        path.chmod(0o444)
    open_directory.chmod(0o555)
    answer = child(as_nobody, create_task, open_directory).hear()
    assert answer["code"] == "DIRECTORY_NOT_WRITABLE"


# -- lists -------------------------------------------------------------------------------------


def test_a_sweep_is_told_what_may_go_on_now_oldest_first(tmp_path: Path, clock: FakeClock) -> None:
    soon = FakeClock(clock.now() + 60).timestamp()
    dead = DeadLetter(code="X", message="x", at=soon)
    with RecoveryStore.create_in(tmp_path, clock) as store:
        for age, stage in enumerate(Stage):
            at = FakeClock(clock.now() - age).timestamp()
            store.create(first_checkpoint(f"at-{stage}", stage=stage, at=at))
        store.create(first_checkpoint("later", next_attempt_at=soon))
        store.create(first_checkpoint("dead", dead_letter=dead))
        expected = [f"at-{stage}" for stage in reversed(Stage) if stage in RECOVERABLE]
        assert [task_id for _, task_id in store.recoverable_ids(100)] == expected
        assert [task_id for _, task_id in store.recoverable_ids(2)] == expected[:2]
        clock.advance(61)
        assert "later" in [task_id for _, task_id in store.recoverable_ids(100)]
        assert "dead" not in [task_id for _, task_id in store.recoverable_ids(100)]


def test_checkpoints_come_in_pages_each_task_once(tmp_path: Path, clock: FakeClock) -> None:
    at = [FakeClock(clock.now() + n // 3).timestamp() for n in range(1203)]
    with RecoveryStore.create_in(tmp_path, clock) as store:
        store._connection.execute("PRAGMA synchronous = OFF")
        for number, each in enumerate(at):
            store.create(first_checkpoint(f"t-{number:04}", at=each))
        found = [checkpoint.id for checkpoint in store.checkpoints()]
        assert found == [f"t-{number:04}" for number in range(1203)]
        newest_first = [checkpoint.id for checkpoint in store.checkpoints(newest_first=True)]
        assert newest_first == found[::-1]


def test_the_log_is_read_on_from_where_one_was(store: RecoveryStore, tmp_path: Path) -> None:
    advance_to_prepared(store, tmp_path)
    store.create(first_checkpoint("other"))
    everything = store.events()
    assert [event.kind for event in everything] == [
        "created",
        "entered",
        "prepared",
        "left",
        "created",
    ]
    assert store.events(after=everything[1].seq) == everything[2:]
    assert store.events(limit=2) == everything[:2]
    assert store.events(task_id="other") == everything[-1:]
    assert [event.seq for event in everything] == sorted({event.seq for event in everything})


# -- helpers -----------------------------------------------------------------------------------


def create_database_with_a_task(directory: Path) -> None:
    with RecoveryStore.create_in(directory) as store:
        store.create(first_checkpoint())


def advance_to_prepared(store: RecoveryStore, directory: Path) -> Checkpoint:
    with Holder(directory) as holder:
        lease, checkpoint = store.acquire("task", holder)
        saved = store.advance(
            checkpoint, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint)
        )
        store.release(lease, saved)
    assert saved.context[0].content == TEXT
    return saved


def tamper_schema(directory: Path, sql: str) -> None:
    with closing(sqlite3.connect(directory / "tasks.sqlite", isolation_level=None)) as connection:
        connection.execute(sql)
