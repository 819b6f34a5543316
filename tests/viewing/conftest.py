"""Task directories to look at: made once, by real flows, with real kills."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli import open_runtime
from fulfillment_cli.settings import Settings
from tests.scripted_model import ScriptedModel
from tests.support import ROOT, STOCK, TEXT, Child, change_document, run_flow, tamper

HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)> "
    "{{ 7 * 7 }} \u202egnorw\u202c & \"q' " + "A" * 106
)
"""An address of 200 characters that would like to be more than text."""


@dataclass(frozen=True)
class Made:
    """What there is to look at.

    Attributes:
        root: Where they all are, each under its name.
        config: The configuration that they were made with.
    """

    root: Path
    config: dict[str, Any]

    def __getitem__(self, name: str) -> Path:
        return self.root / name


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """``killed`` twice and completed, ``compensated``, ``lost`` (a response), ``paused``, ..."""
    # A model of its own: others script the shared one while this is made.
    root = tmp_path_factory.mktemp("made")
    with ScriptedModel() as model:
        config: dict[str, Any] = json.loads(model.config()) | {"env": {}}
        _kill_twice(root / "killed", config)
        asyncio.run(_flows(root, config))
    return Made(root, config)


def _kill_twice(directory: Path, config: dict[str, Any]) -> None:
    first = {"request": TEXT, "stop_after": "reserved"}
    for arguments, target in (
        (first, "fulfillment_cli.flows.task_run:TaskRun.advance"),
        ({}, "fulfillment_cli.adapters.ledger:Ledger.submit"),
    ):
        child = Child(
            run_flow,
            *("run_checkpoint", directory, config, arguments, {"stock": STOCK}),
            (target, "after" if target.endswith("submit") else "before", "kill"),
        )
        assert child.wait() == -9
        child.close()


async def _flows(root: Path, config: dict[str, Any]) -> None:
    import fulfillment_cli as api

    settings = Settings.model_validate(config)
    async with open_runtime(root / "killed", settings=settings) as runtime:
        await api.run_checkpoint(runtime)
    for name, flow, faults in (
        ("compensated", api.run_compensation, {"rejectShipping": True}),
        ("lost", api.run_side_effect, {"dropReservationResponse": True}),
        ("paused", api.run_pause, {}),
        ("timed-out", api.run_timeout, {"catalogDelayMs": 500}),
    ):
        async with open_runtime(
            root / name, settings=settings, stock=STOCK, faults=faults
        ) as runtime:
            await flow(runtime, request=TEXT)  # type: ignore[operator]
    async with open_runtime(root / "hostile", settings=settings, stock=STOCK) as runtime:
        await api.run_checkpoint(runtime, request=TEXT)
    _make_hostile(root / "hostile")


def _make_hostile(directory: Path) -> None:
    """What no command would save; whoever can write the file can."""
    assert len(HOSTILE) == 200
    change_document(directory, lambda saved: saved["order"].update(address=HOSTILE))
    facts = json.dumps({"decision": "approve", "actor": HOSTILE})
    tamper(
        directory,
        "INSERT INTO events (task_id, revision, kind, at, data) SELECT task_id, revision,"
        " 'decided', at, ? FROM events WHERE kind = 'left'",
        facts,
    )


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str


@pytest.fixture
def fulfil(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Run a command inside this process, in a directory of its own."""
    from fulfillment_cli.cli.app import run

    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", *(n for n in os.environ if n.startswith("FULFIL_"))):
        monkeypatch.delenv(name, raising=False)

    def call(*words: str | Path) -> Done:
        capfd.readouterr()
        status = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return Done(status, out, err)

    return call


@pytest.fixture
def process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command as a process of its own; it ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(
        *words: str | Path, cwd: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("FULFIL_", "OTEL_"))}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "fulfillment_cli", *map(str, words)],
                cwd=cwd,
                env=kept | {"PYTHONPATH": str(ROOT)} | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=30)
