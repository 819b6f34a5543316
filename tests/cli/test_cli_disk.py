"""Directories that cannot be written and disks that are full, as a user meets them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Done, Ledger

PREAMBLE = """
import os, sys
import fulfillment_cli.adapters.service_process, fulfillment_cli.flows.checkpoint
import fulfillment_cli.cli.decision, fulfillment_cli.cli.flow_command, fulfillment_cli.cli.flows
from fulfillment_cli.cli.app import run
run(["checkpoint", "--directory", "nowhere", "--quiet"])  # loads what is loaded late
sys.stderr.flush()
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(run(sys.argv[1:]))
"""


def as_nobody(cli: Cli, *arguments: str | Path) -> Done:
    """Run a command as an ordinary user: root can write anywhere.

    The program is loaded before, since this Python may be root's own.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE, *map(str, arguments)],
        cwd=cli.directory,
        env=cli.environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cli.started.append(process)
    return cli.end(process)


@pytest.fixture
def open_cli(cli: Cli) -> Iterator[Cli]:
    """A working directory that an ordinary user can reach (pytest's own is closed to others)."""
    directory = Path(tempfile.mkdtemp(prefix="fulfil-"))
    directory.chmod(0o777)
    (directory / "ditto.yaml").write_text((cli.directory / "ditto.yaml").read_text())
    cli.directory = directory
    yield cli
    for path in [directory, *directory.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(directory)


def test_a_working_directory_that_cannot_be_written(open_cli: Cli) -> None:
    open_cli.directory.chmod(0o555)

    done = as_nobody(open_cli, "checkpoint", "--output", "json")

    assert (done.status, done.code) == (2, "DIRECTORY_NOT_WRITABLE"), done
    assert not (open_cli.directory / ".fulfil-tasks").exists()


def test_a_task_directory_that_cannot_be_written(open_cli: Cli) -> None:
    directory = Path(open_cli.json("checkpoint")["directory"])
    for path in [directory, directory.parent, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    done = as_nobody(open_cli, "checkpoint", "--directory", directory, "--output", "json")

    assert (done.status, done.code) == (2, "DIRECTORY_NOT_WRITABLE"), done
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert Ledger(directory).posts() == ["/reserve"]


def limited(cli: Cli, size: int, *arguments: str) -> Done:
    """Run a command that may not make any file longer than this: a disk that is full."""
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "from fulfillment_cli.cli.app import run\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=cli.directory,
        env=cli.environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cli.started.append(process)
    return cli.end(process)


def test_a_disk_that_is_full_while_a_task_goes_on(cli: Cli) -> None:
    first = cli.json("checkpoint")
    directory = first["directory"]
    database = Path(directory) / "tasks.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        before = connection.execute("SELECT document FROM tasks").fetchall()

    done = limited(cli, 4096, "checkpoint", "--directory", directory, "--output", "json")

    assert (done.status, done.code) == (1, "DATABASE_FAILED"), done
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT document FROM tasks").fetchall() == before
    assert Ledger(directory).posts() == ["/reserve"]
    after = cli.json("checkpoint", "--directory", directory)
    assert after["result"]["stage"] == "completed"


def test_a_disk_that_is_full_when_a_task_is_made(cli: Cli) -> None:
    done = limited(cli, 16, "checkpoint", "--output", "json")

    assert done.status != 0
    assert done.code in ("DIRECTORY_NOT_WRITABLE", "DATABASE_FAILED")
    assert "Traceback" not in done.stderr


def test_a_database_that_is_none_stays_as_it_is(cli: Cli) -> None:
    directory = cli.json("checkpoint")["directory"]
    database = Path(directory) / "tasks.sqlite"
    database.write_bytes(b"not a database")

    done = cli.run("checkpoint", "--directory", directory, "--output", "json")

    assert (done.status, done.code) == (2, "DATABASE_INVALID")
    assert database.read_bytes() == b"not a database"


def test_recovery_leaves_a_directory_that_cannot_be_written(open_cli: Cli) -> None:
    """It is neither damaged nor done: nothing is wrong with it that a person would decide."""
    open_cli.json("checkpoint", "--stop-after", "prepared")
    root = open_cli.directory / ".fulfil-tasks"
    (directory,) = root.iterdir()
    open_cli.json("checkpoint", "--directory", directory, "--stop-after", "prepared")
    with closing(sqlite3.connect(directory / "tasks.sqlite")) as database, database:
        database.execute("UPDATE tasks SET document = json_set(document, '$.goal', 'completed')")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)

    swept = as_nobody(open_cli, "recover", "--output", "json")
    review = as_nobody(open_cli, "review", "--output", "json")
    events = as_nobody(open_cli, "events", directory, "--output", "jsonl")

    assert (swept.status, swept.json["left"]["unfinished"]) == (4, 1), swept
    assert [problem["code"] for problem in swept.json["problems"]] == ["DIRECTORY_NOT_WRITABLE"]
    assert (review.status, review.json["waiting"]) == (0, [])
    assert (events.status, '"created"' in events.stdout.splitlines()[0]) == (0, True)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("tasks.sqlite", "DATABASE_INVALID"),
        ("service.sqlite", "LEDGER_INVALID"),
        ("service.sqlite.lock", "LEDGER_INVALID"),
        (".holders", "DIRECTORY_NOT_WRITABLE"),
        ("results", "DIRECTORY_NOT_WRITABLE"),
    ],
)
def test_something_else_in_the_place_of_a_file_of_ours(cli: Cli, name: str, code: str) -> None:
    directory = Path(cli.json("checkpoint")["directory"])
    path = directory / name
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("")
    else:
        path.unlink()
        path.mkdir()

    done = cli.run("checkpoint", "--directory", directory, "--output", "json")

    assert (done.status, done.code) == (2, code), done
    assert name in done.json["error"]["message"]
