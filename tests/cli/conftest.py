"""Runs the command line: as a real child process, or inside this one where that is enough."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 30.0


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)

    @property
    def code(self) -> str:
        """The code of an error, from whichever form it was told in."""
        if self.stdout.startswith("{"):
            return str(self.json["error"]["code"])
        (line,) = [line for line in self.stderr.splitlines() if line.startswith("error ")]
        return line.split()[1].rstrip(":")


class Cli:
    """A working directory with a configuration, and commands that run in it."""

    def __init__(self, directory: Path, config: dict[str, Any] | None) -> None:
        self.directory = directory
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FULFIL_", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM"))
        }
        self.started: list[subprocess.Popen[str]] = []
        if config is not None:
            (directory / "ditto.yaml").write_text(json.dumps(config))

    def start(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start a command as a child process."""
        process = subprocess.Popen(
            [sys.executable, "-m", "fulfillment_cli", *map(str, arguments)],
            **{
                "cwd": self.directory,
                "env": self.environment | {"PYTHONPATH": str(ROOT)} | dict(env or {}),
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
            }
            | options,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str | Path, **options: Any) -> Done:
        """Run a command as a child process, to its end."""
        return self.end(self.start(*arguments, **options))

    def end(self, process: subprocess.Popen[str]) -> Done:
        stdout, stderr = process.communicate(timeout=DEADLINE)
        return Done(process.returncode, stdout or "", stderr or "")

    def json(self, *arguments: str | Path, status: int = 0, **options: Any) -> Any:
        """The document of a command that must end with ``status``."""
        done = self.run(*arguments, "--output", "json", **options)
        assert done.status == status, done
        return done.json

    def follow(self, command: str, *more: str, **options: Any) -> Done:
        """Run a command as it was printed."""
        words = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert words[0] == "fulfil"
        return self.run(*words[1:], *more, **options)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE)


def scripted_config(model: ScriptedModel, *origins: str) -> dict[str, Any]:
    """A configuration whose default provider is the scripted one."""
    provider = {"kind": "openai-compatible", "base_url": model.base_url, "model": "scripted"}
    with_key = provider | {"api_key_env": "SCRIPTED_KEY"}
    return {
        "provider": "scripted",
        "providers": {"scripted": provider, "keyed": with_key, "local": {"kind": "local"}},
        "sandbox": {"network": [model.base_url.removesuffix("/v1"), *origins]},
    }


@pytest.fixture(autouse=True)
def default_interrupt() -> Iterator[None]:
    """Children must not inherit an ignored SIGINT from a test run in the background."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    if before[0][1] == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def shared_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def cli(tmp_path: Path, shared_model: ScriptedModel) -> Iterator[Cli]:
    """A working directory whose model always answers rightly."""
    cli = Cli(tmp_path, scripted_config(shared_model))
    yield cli
    cli.close()


@pytest.fixture
def inside(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run a command in this process: fast, for what ends before anything is started."""
    from fulfillment_cli.cli.app import run

    monkeypatch.chdir(cli.directory)
    for name in ("NO_COLOR", "FORCE_COLOR", *(n for n in os.environ if n.startswith("FULFIL_"))):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Done:
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Done(status, out, err)

    return call


class Ledger:
    """What a task directory's service has in its database."""

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory) / "service.sqlite"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        # Read only: looking must not make a file where the service is about to make its own.
        uri = f"{self.path.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            return connection.execute(sql).fetchall()

    def posts(self) -> list[str]:
        """The paths of the POSTs, in order."""
        sql = "SELECT path FROM requests WHERE method = 'POST' ORDER BY seq"
        return [path for (path,) in self.rows(sql)]

    def requests(self) -> int:
        ((count,),) = self.rows("SELECT count(*) FROM requests")
        return int(count)

    def state(self, key: str) -> str | None:
        """The state of an operation; none where it never arrived."""
        try:
            found = self.rows(f"SELECT state FROM operations WHERE key = '{key}'")
        except sqlite3.OperationalError:
            return None  # there are no tables yet
        return str(found[0][0]) if found else None


def until(condition: Callable[[], object], what: str) -> None:
    """Poll until ``condition`` holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


def the_directory(cli: Cli) -> Path:
    """The one task directory that was made."""
    (directory,) = (cli.directory / ".fulfil-tasks").iterdir()
    return directory
