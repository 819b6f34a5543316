"""The recovery commands as people and schedulers run them: real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.domain.stages import Flow, Goal
from fulfillment_cli.experiments.boundaries import Plan
from fulfillment_cli.experiments.children import Child, Exit
from fulfillment_cli.flows.checkpoint import run_checkpoint
from fulfillment_cli.flows.creation import NewTask, ensure_task, make_policy
from fulfillment_cli.runtime import open_runtime
from fulfillment_cli.settings import Settings
from tests.support import ROOT, TEXT, TOKEN, Service, event_kinds, rows, saved_document, until

Run = Callable[..., Child]


@pytest.fixture
def place(tmp_path: Path, config: Callable[..., dict[str, Any]]) -> Path:
    """A working directory; its configuration asks the scripted model."""
    write_config(tmp_path, config())
    return tmp_path


def write_config(place: Path, values: dict[str, Any], **sections: Any) -> None:
    kept = {name: value for name, value in values.items() if name != "env"}
    (place / "ditto.yaml").write_text(json.dumps(kept | sections))


@pytest.fixture
def run(place: Path) -> Iterator[Run]:
    """Start ``fulfil`` in the working directory."""
    started: list[Child] = []

    def start(*arguments: str | Path, plan: Plan | None = None, **variables: str) -> Child:
        name = f"child-{len(started)}"
        started.append(Child([str(a) for a in arguments], place, name, plan, variables))
        return started[-1]

    yield start
    for child in started:
        if child._process.is_alive():
            child.kill()
            child._process.join()


async def make(
    directory: Path, config: dict[str, Any], *tasks: str, service: Service | None = None
) -> None:
    """Queued tasks in one directory."""
    stock = None if service else {"SKU-1": 100}
    url = service.origin if service else None
    async with open_runtime(
        directory, stock=stock, settings=Settings.model_validate(config), service_url=url
    ) as runtime:
        for task in tasks:
            new = NewTask(TEXT.encode(), Flow.CHECKPOINT, make_policy({}), Goal.COMPLETED)
            await ensure_task(runtime, task, new)


def document(done: Exit, status: int) -> dict[str, Any]:
    assert done.status == status, done
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


async def test_two_sweeps_at_once_divide_a_shared_ledgers_directory(
    place: Path, run: Run, config: Any, service: Any
) -> None:
    given: Service = service(stock={"SKU-1": 100})
    write_config(place, config(given.origin))
    tasks = [f"task-{number:02}" for number in range(12)]
    await make(place / "tasks", config(given.origin), *tasks, service=given)
    command = ("recover", "tasks", "--service-url", given.origin, "--output", "json")
    first = run(*command, plan=Plan(kill_at=60), FULFIL_SERVICE_TOKEN=TOKEN)
    assert (await first.wait()).signal_name == "SIGKILL"
    sweeps = [run(*command, FULFIL_SERVICE_TOKEN=TOKEN) for _ in range(2)]
    done = [await sweep.wait() for sweep in sweeps]
    results = [json.loads(one.stdout)["tasks"] for one in done]
    finished = [t["task"] for tasks in results for t in tasks if t["result"] == "finished"]
    stages = {task: saved_document(place / "tasks", task)["stage"] for task in tasks}
    assert stages == dict.fromkeys(tasks, "completed")
    assert len(finished) == len(set(finished))  # no task was done twice
    posts = given.posts()
    keys = rows(given.database, "SELECT key FROM requests WHERE method = 'POST' ORDER BY seq")
    assert len(posts) == len(set(keys)) == 24  # each effect was sent once
    assert given.stock() == 100 - 2 * 12
    assert document(await run(*command, FULFIL_SERVICE_TOKEN=TOKEN).wait(), 0)["found"] == {}


async def test_watch_ends_with_its_step_and_holds_nothing_between_passes(
    place: Path, run: Run, config: Any
) -> None:
    await make(place / "tasks", config(), "first")
    watching = run(
        "recover", "tasks", "--watch", "--interval", "0.2", "--output", "json", STARTUP_DELAY="0"
    )

    def completed(task: str) -> Callable[[], bool]:
        return lambda: saved_document(place / "tasks", task)["stage"] == "completed"

    await asyncio.to_thread(until, completed("first"), "the first pass")
    # Between passes people can work here: the ledger is free.
    again = await run("checkpoint", "--directory", "tasks", "--task", "first").wait()
    assert again.status == 0
    await make(place / "tasks", config(), "second")
    await asyncio.to_thread(until, completed("second"), "a later pass")
    os.kill(watching.pid, signal.SIGTERM)
    ended = document(await watching.wait(), 0)
    assert ended["passes"] >= 2
    held = rows(place / "tasks" / "tasks.sqlite", "SELECT lease_holder FROM tasks")
    assert held == [(None,), (None,)]


async def test_a_signal_in_a_plain_sweep_gives_the_lease_back(
    place: Path, run: Run, config: Any, scripted: Any
) -> None:
    from tests.scripted_model import Reply, completion

    await make(place / "tasks", config(), "task")
    scripted.script(Reply(completion("{}"), delay=30))
    sweeping = run("recover", "tasks")
    await asyncio.to_thread(until, lambda: len(scripted.requests) == 1, "the question")
    os.kill(sweeping.pid, signal.SIGTERM)
    assert (await sweeping.wait()).status == 143
    saved = saved_document(place / "tasks")
    assert (saved["stage"], saved["attempts"]) == ("queued", 0)
    assert event_kinds(place / "tasks")[-1] == "left"


async def test_options_then_variables_then_configuration(
    place: Path, run: Run, config: Any, scripted: Any
) -> None:
    from tests.scripted_model import Reply

    recovery = {"disabled": True, "max_attempts": 5, "log_level": "error"}
    write_config(place, config(), recovery=recovery)
    await make(place / "tasks", config(), "task")
    command = ("recover", "tasks", "--output", "json")
    assert document(await run(*command).wait(), 0) == {"disabled": True}
    enabled = await run(*command, "--dry-run", DISABLE_PROCESS_RESTORE="false").wait()
    assert len(document(enabled, 4)["planned"]) == 1
    assert enabled.stderr == ""
    disabled = await run(*command, DISABLE_PROCESS_RESTORE="true").wait()
    assert document(disabled, 0) == {"disabled": True}
    scripted.script(Reply({}, 503))
    variables = {"MAX_RETRY_ATTEMPTS": "1", "LOG_LEVEL": "info"}
    dead = await run(*command, "--enable", **variables).wait()
    assert [task["result"] for task in document(dead, 3)["tasks"]] == ["dead-letter"]
    assert "queued: 1 interrupted" in dead.stderr
    assert "task: dead letter at queued: MODEL_UNAVAILABLE after 1 attempt\n" in dead.stderr
    wrong = await run(*command, MAX_RETRY_ATTEMPTS="none").wait()
    assert wrong.status == 2


async def test_events_are_resumed_where_they_were_left(place: Path, run: Run, config: Any) -> None:
    await make(place / "tasks", config(), "task")
    await run("recover", "tasks").wait()
    whole = (await run("events", "tasks", "--output", "jsonl").wait()).stdout.splitlines()
    events = [json.loads(line) for line in whole]
    assert [event["kind"] for event in events] == event_kinds(place / "tasks")
    assert {"seq", "taskId", "revision", "kind", "at", "data"} <= events[0].keys()
    assert [event["revision"] for event in events] == sorted(e["revision"] for e in events)
    last = str(events[2]["seq"])
    rest = await run("events", "tasks", "--after", last, "--output", "jsonl").wait()
    assert rest.stdout.splitlines() == whole[3:]
    await make(place / "more", config(), "task")
    several = await run("events", ".", "--after", last).wait()
    assert (several.status, several.stdout) == (2, "")


async def test_events_are_followed_and_end_with_their_reader(place: Path, config: Any) -> None:
    await make(place / "tasks", config(), "task")
    following = subprocess.Popen(
        [sys.executable, "-m", "fulfillment_cli", "events", "tasks", "--follow"],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None and following.stderr is not None
    with following:
        assert " created " in following.stdout.readline()
        settings = Settings.model_validate(config())
        async with open_runtime(place / "tasks", settings=settings) as runtime:
            await run_checkpoint(runtime, stop_after="prepared")
        assert " entered " in await asyncio.to_thread(following.stdout.readline)
        following.stdout.close()
        assert following.wait(30) == 0
        assert following.stderr.read() == ""


async def test_reconcile_and_review_speak_json(place: Path, run: Run) -> None:
    faults = ("--fault", "rejectShipping", "--fault", "rejectRelease")
    await run("compensation", *faults).wait()
    told = document(await run("reconcile", "--output", "json").wait(), 1)
    (difference,) = told["differences"]
    assert difference["kind"] == "RESERVATION_LEFT"
    assert "--action release" in difference["command"]
    (waiting,) = document(await run("review", "--output", "json").wait(), 0)["waiting"]
    assert difference["command"] == waiting["commands"][0]
    directory = waiting["directory"]
    repair = ("review", "--directory", directory, "--action", "close", "--output", "json")
    unnamed = document(await run(*repair).wait(), 2)
    assert unnamed["error"]["code"] == "USAGE"
    revision = str(waiting["revision"])
    words = ("--actor", "anna", "--reason", "sold", "--revision", revision)
    assert document(await run(*repair, *words).wait(), 0)["checkpoint"]["closed"] is True
    assert document(await run(*repair, *words).wait(), 5)["error"]["code"] == "REVISION_CONFLICT"
    assert document(await run("reconcile", "--output", "json").wait(), 0)["differences"] == []


async def test_trial_tasks_are_made_swept_and_removed(place: Path, run: Run) -> None:
    (place / "mine").mkdir()
    made = document(await run("recover", ".", "--create", "2", "--output", "json").wait(), 0)
    assert [one["stage"] for one in made["created"]] == ["queued", "prepared"]
    done = document(await run("recover", ".", "--output", "json").wait(), 0)
    assert [task["result"] for task in done["tasks"]] == ["finished", "finished"]
    gone = document(await run("recover", ".", "--cleanup", "--output", "json").wait(), 0)
    assert sorted(gone["removed"]) == sorted(one["directory"] for one in made["created"])
    assert (place / "mine").is_dir()
    assert not list(place.glob("try-*"))
