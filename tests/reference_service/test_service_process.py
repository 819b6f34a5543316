"""Dying and starting again: real processes and real signals."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]

# Stands in for `python -m reference_service` and kills it at one boundary of one kind of
# operation. The product knows nothing of this.
KILLED_AT = """
import os, signal, sys
from reference_service import command, handler, ledger

boundary, kind = sys.argv.pop(1), sys.argv.pop(1)

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def wrap(owner, name, before=None, after=None):
    inner = getattr(owner, name)
    def outer(*args, **named):
        mine = before is None or before(*args)
        if before and mine:
            die()
        result = inner(*args, **named)
        if after and after(*args):
            die()
        return result
    setattr(owner, name, outer)

def of_kind(self, key, *_):
    return self.operation(key).intent.kind == kind

if boundary == "before the claim":
    wrap(ledger.Ledger, "claim", before=lambda self, intent: intent.kind == kind)
if boundary == "claimed":
    wrap(ledger.Ledger, "claim", after=lambda self, intent: intent.kind == kind)
if boundary == "before the commit":
    effect = ledger._EFFECTS[kind]
    ledger._EFFECTS[kind] = lambda *args: (effect(*args), die())
if boundary == "after the commit":
    wrap(ledger.Ledger, "settle", after=of_kind)
if boundary == "before the answer":
    wrap(handler.Handler, "_send", before=lambda self, answer: answer.body.get("kind") == kind)
if boundary == "after the answer":
    wrap(handler.Handler, "_send", after=lambda self, answer: answer.body.get("kind") == kind)
sys.exit(command.main(sys.argv[1:]))
"""
COMMITTED = ("after the commit", "before the answer", "after the answer")
CLAIMED = ("claimed", "before the commit", *COMMITTED)


@pytest.mark.parametrize("kind", ["reserve", "ship", "release"])
@pytest.mark.parametrize("boundary", ["before the claim", *CLAIMED])
def test_a_service_killed_at_any_boundary_has_done_it_once_or_not_at_all(
    start: Start, boundary: str, kind: str
) -> None:
    killed = start(command=("-c", KILLED_AT, boundary, kind))
    if kind != "reserve":
        assert killed.post("reserve", "t-reserve")[0] == 200
    if boundary == "after the answer":
        assert killed.post(kind, f"t-{kind}")[0] == 200
    else:
        with pytest.raises(ConnectionError):
            killed.post(kind, f"t-{kind}")
    assert killed.wait() == -signal.SIGKILL
    states = killed.rows(f"SELECT state FROM operations WHERE key = 't-{kind}'")
    expected = "committed" if boundary in COMMITTED else "pending"
    assert states == ([(expected,)] if boundary in CLAIMED else [])
    logged = killed.rows("SELECT key, status FROM requests ORDER BY seq DESC LIMIT 1")
    answered = boundary in ("before the answer", "after the answer")
    assert logged == [(f"t-{kind}", 200 if answered else None)]

    again = start(options=["--existing"])
    state = again.get(f"/operations/t-{kind}")[1]["state"]
    assert state == ("committed" if boundary in CLAIMED else "absent")
    status, answer = again.post(kind, f"t-{kind}")
    assert (status, answer["state"]) == (200, "committed")
    quantity, statuses, shipments = {
        "reserve": (8, "active", 0),
        "ship": (8, "shipped", 1),
        "release": (10, "released", 0),
    }[kind]
    assert again.rows("SELECT quantity FROM inventory") == [(quantity,)]
    assert again.rows("SELECT status FROM reservations") == [(statuses,)]
    assert again.rows("SELECT count(*) FROM shipments") == [(shipments,)]
    assert again.ready["ledgerId"] == killed.ready["ledgerId"]


@contextmanager
def reserve_in_hand(service: Any) -> Iterator[list[Any]]:
    """A delayed reserve is claimed; the list gets its answer, or what became of it."""
    outcome: list[Any] = []

    def post() -> None:
        try:
            outcome.append(service.post("reserve", "t-reserve"))
        except ConnectionError as error:
            outcome.append(type(error))

    thread = threading.Thread(target=post)
    thread.start()
    service.until(lambda: service.rows("SELECT 1 FROM operations") != [], "the claim")
    yield outcome
    thread.join()


def test_what_was_claimed_is_settled_without_its_delay_before_the_service_is_ready(
    start: Start,
) -> None:
    faults = {"reservationDelayMs": 600_000, "dropReservationResponse": True}
    first = start(faults=faults)
    with reserve_in_hand(first):
        first.kill()
    assert first.rows("SELECT state FROM operations") == [("pending",)]
    again = start(faults=faults)
    assert again.rows("SELECT state FROM operations") == [("committed",)]
    assert again.post("reserve", "t-reserve")[0] == 200  # neither delayed nor dropped
    assert again.rows("SELECT quantity FROM inventory") == [(8,)]


def test_of_two_services_one_has_the_database(start: Start) -> None:
    first = start()
    second = start(options=["--lock-timeout", "0.05"])
    assert second.ready["error"]["code"] == "DATABASE_BUSY"
    assert second.wait() == 5
    assert first.get("/healthz")[0] == 200
    first.kill()
    assert start(options=["--lock-timeout", "0.05"]).get("/healthz")[0] == 200


def test_a_service_waits_for_one_that_is_about_to_go(start: Start) -> None:
    first = start()
    timer = threading.Timer(0.3, first.kill)
    timer.start()
    second = start()
    timer.join()
    assert second.get("/healthz")[0] == 200


def test_another_name_of_the_file_is_the_same_database(start: Start, tmp_path: Path) -> None:
    start()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "service.sqlite").symlink_to(tmp_path / "service.sqlite")
    second = start(tmp_path / "other", options=["--lock-timeout", "0"])
    assert second.ready["error"]["code"] == "DATABASE_BUSY"


def test_files_are_private(start: Start, tmp_path: Path) -> None:
    start().post("reserve", "t-reserve")
    files = list(tmp_path.glob("service.sqlite*"))
    assert len(files) == 4  # database, -wal, -shm, .lock
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


INTERMEDIATE = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-m", "reference_service", "--die-with-parent",
                  str(os.getpid()), *sys.argv[1:]])
time.sleep(60)
"""
WITHOUT_PRCTL = INTERMEDIATE.replace(
    '"-m", "reference_service"',
    '"-c", "import sys; from reference_service import command, parent;'
    ' parent._ask_kernel = lambda: False; sys.exit(command.main())"',
)


@pytest.mark.parametrize("script", [INTERMEDIATE, WITHOUT_PRCTL], ids=["prctl", "watching"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_service_dies_with_its_parent(start: Start, script: str, number: int) -> None:
    parent = start(command=("-c", script))
    assert parent.get("/healthz")[0] == 200
    os.kill(parent.process.pid, number)
    parent.process.wait(timeout=10)
    assert parent.process.stdout.read() == ""  # the service had the other end of this pipe
    with pytest.raises(ConnectionRefusedError):
        parent.get("/healthz")
    assert start().get("/healthz")[0] == 200


def test_a_service_whose_parent_is_gone_does_not_start(start: Start, tmp_path: Path) -> None:
    service = start(options=["--die-with-parent", "1"])
    assert service.ready["error"]["code"] == "PARENT_GONE"
    assert service.wait() == 2
    assert not service.database.exists()


def test_control_c_is_for_the_parent(start: Start) -> None:
    service = start(options=["--die-with-parent", str(os.getpid())])
    for _ in range(3):
        os.kill(service.process.pid, signal.SIGINT)
        assert service.get("/healthz")[0] == 200
    service.stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_on_its_own_is_stopped_by_a_signal(start: Start, number: int) -> None:
    service = start()
    service.post("reserve", "t-reserve")
    os.kill(service.process.pid, number)
    assert service.wait() == 0
    assert not service.database.with_name("service.sqlite-wal").exists()  # closed properly


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_service_that_waits_for_the_lock_can_be_stopped(start: Start, number: int) -> None:
    first = start()
    command = [sys.executable, "-m", "reference_service", "--database", str(first.database)]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"FULFIL_SERVICE_TOKEN": "t"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as waiting:
        lock = f"{first.database}.lock"
        first.until(lambda: has_open(waiting.pid, lock), "waiting for the lock")
        waiting.send_signal(number)
        assert waiting.communicate(timeout=10) == (b"", b"")
    assert waiting.returncode == 0


def has_open(pid: int, path: str) -> bool:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it opens and closes files while we look
            if str(link.readlink()) == path:
                return True
    return False


def test_stopping_waits_for_requests_in_hand(start: Start) -> None:
    service = start(faults={"reservationDelayMs": 400})
    idle = socket.create_connection(("127.0.0.1", service.port))  # keeps nobody waiting
    with idle, reserve_in_hand(service) as outcome:
        service.stop()
    assert outcome[0][0] == 200
    assert service.rows("SELECT state, status FROM operations, requests") == [("committed", 200)]


def test_stopping_does_not_wait_for_ever(start: Start) -> None:
    service = start(faults={"reservationDelayMs": 600_000})
    with reserve_in_hand(service) as outcome:
        service.stop()
    assert issubclass(outcome[0], ConnectionError)
    assert start().get("/operations/t-reserve")[1]["state"] == "committed"
