"""Fixtures of the core's tests. The model is scripted; all else is the real thing."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters.checkpoints import RecoveryStore
from tests.scripted_model import ScriptedModel
from tests.support import (
    TOKEN,
    Child,
    FakeClock,
    Service,
    Shop,
    first_checkpoint,
)


@pytest.fixture(scope="session")
def scripted_endpoint() -> Iterator[ScriptedModel]:
    """One scripted chat-completions server for all tests; use ``scripted``."""
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def scripted(scripted_endpoint: ScriptedModel) -> ScriptedModel:
    """The scripted model, answering rightly and with no request yet."""
    scripted_endpoint.script()
    scripted_endpoint.requests.clear()
    scripted_endpoint.authorizations.clear()
    return scripted_endpoint


@pytest.fixture
def config(scripted: ScriptedModel) -> Callable[..., dict[str, Any]]:
    """The values of a configuration that asks the scripted model and allows these origins."""

    def values(*origins: str, token: str | None = TOKEN, **model: Any) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(scripted.config(*origins, **model))
        return parsed | {"env": {"FULFIL_SERVICE_TOKEN": token} if token else {}}

    return values


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[RecoveryStore]:
    """A store with one queued task, ``task``."""
    with RecoveryStore.create_in(tmp_path, clock) as store:
        store.create(first_checkpoint(at=clock.timestamp()))
        yield store


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    """Start child processes; whatever they do ends with the test."""
    started: list[Child] = []

    def start(target: Callable[..., Any], *arguments: Any) -> Child:
        started.append(Child(target, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Start ledgers that stand on their own."""
    started: list[Service] = []

    def start(name: str = "ledger", **options: Any) -> Service:
        started.append(Service(tmp_path / name, **options))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture
def shop(tmp_path: Path, config: Callable[..., dict[str, Any]]) -> Shop:
    return Shop(tmp_path / "shop", config)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user can reach, unlike pytest's own; writable for all."""
    with tempfile.TemporaryDirectory(prefix="fulfil-test-") as name:
        path = Path(name)
        path.chmod(0o777)
        yield path
        if os.getuid() != 0:
            for part in (path, *path.rglob("*")):
                if part.is_dir():
                    part.chmod(0o700)
