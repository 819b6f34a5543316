"""``fulfil show``: what happened to a task, told from its events."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.adapters.looking import _copy, open_to_look
from fulfillment_cli.domain.checkpoint import Event
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.viewing.story import Teller, read_story, whole_story
from fulfillment_cli.viewing.telling import tell
from tests.support import (
    Child,
    Pipe,
    as_nobody,
    first_checkpoint,
    hold_ledger,
    plan_facts,
    run_flow,
    until,
)
from tests.viewing.conftest import HOSTILE, Made


def kinds(directory: Path) -> list[str]:
    return [moment.kind for moment in whole_story(directory).moments]


def test_two_crashes_are_told_with_how_long_nobody_was_there(made: Made) -> None:
    story = whole_story(made["killed"])
    gone = [number for number, one in enumerate(story.moments) if one.kind == "gone"]

    assert len(gone) == 2
    for number in gone:
        crash, back = story.moments[number], story.moments[number + 1]
        assert crash.told.mark == "crash"
        assert crash.told.text.startswith("process gone for ")
        assert (back.kind, back.told.mark) == ("entered", "resume")
        assert back.gap == pytest.approx(crash.data["seconds"], abs=0.001)
    assert story.known_outside == "task-reserve shipped, task-ship shipped"
    assert story.running is False


def test_a_write_that_was_sent_before_the_crash_is_found(made: Made) -> None:
    texts = [moment.told.text for moment in whole_story(made["killed"]).moments]

    assert "task-reserve committed, found by look-up" in texts
    assert "looked up task-ship: absent; about to send it (attempt 1)" in texts


@pytest.mark.parametrize(
    ("name", "text", "tone"),
    [
        ("compensated", "task-ship rejected, answered: ADDRESS_REJECTED", "bad"),
        ("compensated", "task-release committed, answered", "good"),
        ("lost", "task-reserve committed, found by look-up", "good"),
        ("paused", "paused; waits for a decision", "warn"),
        ("timed-out", "the catalog read passed its 75 ms deadline; nothing was written", "warn"),
    ],
)
def test_what_each_flow_is_for_is_told(made: Made, name: str, text: str, tone: str) -> None:
    told = [moment.told for moment in whole_story(made[name]).moments]

    assert (text, tone) in [(one.text, one.tone) for one in told]


def test_an_unknown_outcome_is_marked(made: Made) -> None:
    marks = [moment.told.mark for moment in whole_story(made["lost"]).moments]

    assert marks.count("unknown") == 1


def test_every_kind_of_event_can_be_told() -> None:
    """Also one without any of its data, and one that is not known yet."""
    for kind in ("created", "entered", "model-answer", "intent", "decided", "review-close", "odd"):
        assert tell(kind, {}).text
    assert tell("odd", {"a": 1, "b": None}).text == "odd: a 1"
    assert tell("review-close", {"actor": "anna", "reason": "done"}).mark == "decision"
    assert tell("ship-conflict", {"key": "k", "code": "IDEMPOTENCY_CONFLICT"}).tone == "bad"


def test_a_story_goes_on_where_it_was_left(made: Made) -> None:
    with RecoveryStore(made["killed"]) as store:
        events = store.events(0, "task")
    teller = Teller()
    pieces = [moment for event in events for moment in teller.tell([event])]

    assert pieces == Teller().tell(events)


def test_a_process_that_is_gone_is_told_before_anybody_returns(tmp_path: Path) -> None:
    def event(seq: int, kind: str, second: int, **data: Any) -> Event:
        at = f"2026-01-01T00:00:{second:02}.000000+00:00"
        return Event(seq=seq, task_id="task", revision=1, kind=kind, at=at, data=data)

    teller = Teller()
    teller.tell([event(1, "entered", 1, pid=7), event(2, "prepared", 3)])
    ending = teller.ending(first_checkpoint(), 1767225600 + 255)
    assert ending is not None
    assert ending.told.text == "process gone, last seen 4m12s ago (pid 7)"

    teller.tell([event(3, "left", 4)])
    assert teller.ending(first_checkpoint(), 1767225600 + 255) is None


def test_another_process_at_work_is_seen_and_not_disturbed(
    tmp_path: Path, made: Made, child: Callable[..., Child]
) -> None:
    directory = tmp_path / "shop"
    arguments = {"request": "SKU: SKU-1; quantity: 2; delivery address: Dock-East."}
    at = ("fulfillment_cli.flows.task_run:TaskRun.record", "before", "meet")
    from tests.scripted_model import ScriptedModel

    with ScriptedModel() as model:
        config = json.loads(model.config()) | {"env": {}}
        other = child(
            run_flow, "run_checkpoint", directory, config, arguments, {"stock": {"SKU-1": 9}}, at
        )
        assert other.hear() == "met"
        during = whole_story(directory)
        other.say("go on")
        assert other.hear()["stage"] == "reserved"
    after = whole_story(directory)

    assert during.running is True
    assert [moment.kind for moment in during.moments] == ["created", "entered"]
    assert after.running is False
    assert after.moments[-1].kind == "left"


def _look(pipe: Pipe, directory: Path) -> dict[str, Any]:
    assert not os.access(directory, os.W_OK)
    story = whole_story(directory)
    return {"stage": str(story.checkpoint.stage), "last": story.last_seq}


def test_a_directory_that_cannot_be_written_shows_its_newest_rows(
    open_directory: Path, child: Callable[..., Child]
) -> None:
    """They are in the log of another process that still has the database open."""
    directory = open_directory / "shop"
    directory.mkdir()
    with RecoveryStore.create_in(directory) as store, Holder(directory) as holder:
        store.create(first_checkpoint())
        lease, checkpoint = store.acquire("task", holder)
        store.advance(checkpoint, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint))
        assert (directory / "tasks.sqlite-wal").stat().st_size > 0
        for path in directory.iterdir():
            path.chmod(0o755 if path.is_dir() else 0o644)
        directory.chmod(0o555)
        before = sorted(path.name for path in directory.iterdir())

        seen = child(as_nobody, _look, directory).hear()

        assert seen == {"stage": "prepared", "last": 3}
        assert sorted(path.name for path in directory.iterdir()) == before
        directory.chmod(0o755)


def test_a_copy_is_whole_while_the_original_is_written(tmp_path: Path) -> None:
    source = tmp_path / "source.sqlite"
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE pairs (one INTEGER, other INTEGER, filling TEXT)")
        connection.commit()
    ending = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(source)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 3")
            number = 0
            while not ending.wait(0.002):
                number += 1
                connection.execute(
                    "INSERT INTO pairs VALUES (?, ?, ?)", (number, number, "x" * 900)
                )
                connection.execute("UPDATE pairs SET one = ?, other = ?", (number, number))
                connection.commit()
                if number > 40:
                    connection.execute("DELETE FROM pairs WHERE rowid % 2")
                    connection.commit()
                    number = 0

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(40):
            copy = tmp_path / f"copy{number}.sqlite"
            _copy(source, copy)
            with closing(sqlite3.connect(copy)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                torn = connection.execute("SELECT * FROM pairs WHERE one <> other").fetchall()
                assert torn == []
    finally:
        ending.set()
        writer.join()


def test_looking_leaves_nothing_behind(made: Made, tmp_path: Path) -> None:
    directory = tmp_path / "shop"
    shutil.copytree(made["killed"], directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}

    whole_story(directory)
    with open_to_look(directory) as store:
        store.newest()

    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    assert after == before


def test_which_task_is_meant(tmp_path: Path) -> None:
    with RecoveryStore.create_in(tmp_path) as store:
        store.create(first_checkpoint("one"))
        assert read_story(tmp_path).checkpoint.id == "one"
        store.create(first_checkpoint("two"))
        with pytest.raises(UsageError, match="holds 2 tasks"):
            read_story(tmp_path)
        store.create(first_checkpoint("task"))
        assert read_story(tmp_path).checkpoint.id == "task"
        assert read_story(tmp_path, "two").checkpoint.id == "two"


def test_show_says_what_is_known_and_what_is_next(made: Made, fulfil: Callable[..., Any]) -> None:
    done = fulfil("show", made["paused"])
    document = json.loads(fulfil("show", made["paused"], "--output", "json").out)

    assert done.status == 0
    assert "known outside: nothing was written" in done.out
    assert f"next: fulfil pause --directory {made['paused']} --decision approve" in done.out
    assert document["next"] in done.out
    assert document["remote"] is None
    assert [one["kind"] for one in document["story"]] == kinds(made["paused"])


def test_what_may_have_been_sent_is_said(tmp_path: Path, fulfil: Callable[..., Any]) -> None:
    with RecoveryStore.create_in(tmp_path) as store, Holder(tmp_path) as holder:
        store.create(first_checkpoint())
        lease, checkpoint = store.acquire("task", holder)
        checkpoint = store.advance(
            checkpoint, lease, Stage.PREPARED, "prepared", **plan_facts(checkpoint)
        )
        intent = {"operation": "reserve", "key": "task-reserve", "attempt": 1}
        store.advance(checkpoint, lease, Stage.PREPARED, "intent", intent=intent)

    out = fulfil("show", tmp_path).out

    assert "known outside: task-reserve may have been sent (attempt 1); not known" in out
    assert "safe to do: What may have been sent is looked up first." in out


def test_hostile_text_cannot_forge_a_line(made: Made, fulfil: Callable[..., Any]) -> None:
    for words in (("show", made["hostile"]), ("show", made["hostile"], "--output", "json")):
        out = fulfil(*words).out
        assert "\u202e" not in out
        assert "\\u202e" in out
    assert json.loads(out)["checkpoint"]["order"]["address"] == HOSTILE


def test_the_ledger_is_asked_and_not_written(
    made: Made, tmp_path: Path, fulfil: Callable[..., Any]
) -> None:
    directory = tmp_path / "shop"
    shutil.copytree(made["compensated"], directory)
    (tmp_path / "ditto.yaml").write_text(json.dumps(_without_env(made.config)))

    document = json.loads(fulfil("show", directory, "--remote", "--output", "json").out)

    assert [(one["operation"], one["state"]) for one in document["remote"]["operations"]] == [
        ("reserve", "committed"),
        ("ship", "rejected"),
        ("release", "committed"),
    ]
    with closing(sqlite3.connect(directory / "service.sqlite")) as connection:
        posts = "SELECT count(*) FROM requests WHERE method = 'POST'"
        assert connection.execute(posts).fetchone() == (3,)


def test_a_ledger_that_cannot_be_asked_is_said(
    made: Made, tmp_path: Path, fulfil: Callable[..., Any]
) -> None:
    directory = tmp_path / "shop"
    shutil.copytree(made["lost"], directory)
    (directory / "service.sqlite").unlink()
    (tmp_path / "ditto.yaml").write_text(json.dumps(_without_env(made.config)))

    done = fulfil("show", directory, "--remote")

    assert done.status == 2
    assert "the ledger says: LEDGER_MISMATCH" in done.out
    assert "task-ship committed, answered" in done.out


def _without_env(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "env"}


def test_follow_goes_on_until_the_task_is_final(
    made: Made, tmp_path: Path, process: Callable[..., Any]
) -> None:
    directory = tmp_path / "shop"
    shutil.copytree(made["paused"], directory)
    following = process("show", directory, "--follow", cwd=tmp_path)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(following.stdout))
    reader.start()
    until(lambda: any("left; the task" in line for line in lines), "the story so far")
    assert following.poll() is None

    with RecoveryStore(directory) as store, Holder(directory) as holder:
        lease, checkpoint = store.acquire("task", holder, {"command": "pause", "pid": 1})
        facts = {"decision": "reject", "actor": "anna"}
        checkpoint = store.advance(checkpoint, lease, Stage.REJECTED, "decided", facts)
        store.release(lease, checkpoint)
    assert following.wait(30) == 0
    reader.join()

    text = "".join(lines)
    assert "rejected by anna" in text
    assert "stage: rejected" in text
    assert text.count("paused; waits for a decision") == 1


def test_follow_ends_with_the_status_of_the_run(tmp_path: Path, fulfil: Callable[..., Any]) -> None:
    with RecoveryStore.create_in(tmp_path / ".", None) as store, Holder(tmp_path) as holder:
        store.create(first_checkpoint())
        lease, checkpoint = store.acquire("task", holder)
        checkpoint = store.advance(
            checkpoint, lease, Stage.FAILED, "failed", {"code": "SOURCE_EMPTY"},
            error={"code": "SOURCE_EMPTY", "message": "It is empty."},
        )  # fmt: skip
        store.release(lease, checkpoint)

    done = fulfil("show", tmp_path, "--follow")

    assert done.status == 1
    assert "failed for good: SOURCE_EMPTY" in done.out


def test_a_busy_ledger_does_not_hide_the_story(
    made: Made, tmp_path: Path, fulfil: Callable[..., Any], child: Callable[..., Child]
) -> None:
    directory = tmp_path / "shop"
    shutil.copytree(made["paused"], directory)
    (tmp_path / "ditto.yaml").write_text(json.dumps(_without_env(made.config)))
    other = child(hold_ledger, directory)
    other.hear()

    done = fulfil("show", directory, "--remote")
    other.say("done")

    assert done.status == 5
    assert "the ledger says: TASK_BUSY" in done.out
    assert "paused; waits for a decision" in done.out
