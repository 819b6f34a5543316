"""The Python API and the composition root: what is imported, opened, and ended, and when."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fulfillment_cli
from fulfillment_cli import (
    FulfilError,
    RecoveryStore,
    open_runtime,
    run_checkpoint,
    run_pause,
    run_retry,
    run_session,
)
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.settings import Settings
from tests.scripted_model import ScriptedModel
from tests.support import ROOT, STOCK, TEXT, Child, Service, Shop, as_nobody, run_flow

HEAVY = ("openai", "typer", "rich", "httpx", "pydantic", "yaml", "sqlite3", "filelock", "asyncio")


def modules_after(code: str, cwd: Path) -> set[str]:
    """The modules that are loaded once a fresh interpreter has run ``code``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


# -- the package -------------------------------------------------------------------------------


def test_importing_does_no_work_and_loads_no_other_package(tmp_path: Path) -> None:
    loaded = modules_after("import fulfillment_cli", tmp_path)
    assert not loaded & set(HEAVY)
    assert list(tmp_path.iterdir()) == []


def test_the_api_loads_neither_the_model_client_nor_the_command_line(tmp_path: Path) -> None:
    names = ", ".join(fulfillment_cli.__all__)
    loaded = modules_after(f"from fulfillment_cli import {names}", tmp_path)
    assert not loaded & {"openai", "typer", "rich"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", fulfillment_cli.__all__)
def test_every_public_name_is_there_and_explained(name: str) -> None:
    value = getattr(fulfillment_cli, name)
    assert name in dir(fulfillment_cli)
    if name != "__version__":
        assert value.__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = fulfillment_cli.nothing


def test_the_package_is_typed() -> None:
    assert (Path(fulfillment_cli.__file__).parent / "py.typed").exists()


# -- opening -----------------------------------------------------------------------------------


async def test_a_new_directory_is_its_owners_alone_and_opening_starts_nothing(shop: Shop) -> None:
    async with shop.open() as runtime:
        assert stat.S_IMODE(shop.directory.stat().st_mode) == 0o700
        assert list(shop.directory.iterdir()) == []
        assert not runtime.has_tasks
    assert list(shop.directory.iterdir()) == []


async def test_a_directory_that_is_missing_is_made_only_for_a_new_ledger(
    shop: Shop, config: Callable[..., dict[str, Any]]
) -> None:
    with pytest.raises(UsageError) as error:
        async with open_runtime(shop.directory, settings=Settings.model_validate(config())):
            pass
    assert error.value.code == "DIRECTORY_NOT_FOUND"
    assert not shop.directory.exists()


async def test_a_file_in_the_directorys_place_is_a_coded_error(shop: Shop) -> None:
    shop.directory.write_text("mine")
    with pytest.raises(UsageError) as error:
        async with shop.open():
            pass
    assert error.value.code == "DIRECTORY_NOT_WRITABLE"


@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
async def test_a_directory_that_may_not_be_written_is_a_coded_error(
    open_directory: Path,
    child: Callable[..., Child],
    config: Callable[..., dict[str, Any]],
    begun: bool,
) -> None:
    if begun:
        shop = Shop(open_directory, config)
        async with shop.open() as runtime:
            await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
        for path in open_directory.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.read_bytes() for path in open_directory.rglob("*") if path.is_file()}
    open_directory.chmod(0o555)
    arguments = {} if begun else {"request": TEXT}
    options = {"stock": STOCK}
    answer = child(
        as_nobody, run_flow, "run_checkpoint", open_directory, config(), arguments, options
    )
    assert (await answer.hear_async())["code"] == "DIRECTORY_NOT_WRITABLE"
    after = {path: path.read_bytes() for path in open_directory.rglob("*") if path.is_file()}
    assert after == before


async def test_a_full_disk_ends_a_flow_with_a_coded_error_and_nothing_by_halves(
    shop: Shop,
) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
        document, events = shop.document(), shop.events()
        (pages,) = runtime.store._connection.execute("PRAGMA page_count").fetchone()
        runtime.store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(FulfilError) as error:
            for _ in range(200):
                await run_session(runtime, question="x" * 1000)
        assert error.value.code == "DATABASE_FAILED"
    kept = shop.document()
    assert kept["stage"] == document["stage"]
    assert len(shop.events()) >= len(events)
    assert shop.events().count("answered") == kept["revision"] - document["revision"]
    assert len(kept["context"]) == 2 + 2 * (kept["revision"] - document["revision"])
    async with shop.open() as runtime:
        assert (await run_checkpoint(runtime)).stage == "completed"


async def test_what_is_not_needed_is_not_opened(shop: Shop, scripted: ScriptedModel) -> None:
    async with shop.open() as runtime:
        await run_retry(runtime, request=TEXT)
    asked, requests = len(scripted.requests), shop.ledger.requests(health=True)
    async with shop.open(provider="not configured") as runtime:
        await run_retry(runtime)
        assert runtime._ledger is runtime._model is runtime._holder is None
    assert (len(scripted.requests), shop.ledger.requests(health=True)) == (asked, requests)


async def test_a_ledger_and_a_model_are_opened_once(shop: Shop) -> None:
    async with shop.open() as runtime:
        await run_checkpoint(runtime, request=TEXT, stop_after="prepared")
        ledgers = await asyncio.gather(*(runtime.ledger(None) for _ in range(5)))
        models = await asyncio.gather(*(runtime.model() for _ in range(5)))
        assert len({id(each) for each in ledgers}) == len({id(each) for each in models}) == 1
    assert shop.ledger.requests(health=True).count("GET /healthz") == 1


async def test_everything_that_was_started_ends_with_the_runtime(shop: Shop) -> None:
    def children() -> list[str]:
        return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()

    before = children()
    with pytest.raises(ZeroDivisionError):
        async with shop.open() as runtime:
            await run_checkpoint(runtime, request=TEXT)
            assert len(children()) == len(before) + 1
            assert list((shop.directory / ".holders").iterdir())
            raise ZeroDivisionError
    assert children() == before
    assert list((shop.directory / ".holders").iterdir()) == []
    with RecoveryStore(shop.directory) as store:
        assert store.load("task").stage == "reserved"


async def test_progress_tells_each_saved_stage(shop: Shop) -> None:
    lines: list[str] = []
    async with shop.open(progress=lines.append) as runtime:
        await run_pause(runtime, request=TEXT)
    told = "\n".join(lines)
    for word in ("ledger", "scripted", "prepared", "paused"):
        assert word in told


async def test_a_service_url_outside_the_allowlist_gets_nothing(
    shop: Shop, service: Callable[..., Service]
) -> None:
    running = service()
    settings = Settings.model_validate(shop.config())
    async with shop.open(service=running, settings=settings) as runtime:
        with pytest.raises(UsageError) as error:
            await run_checkpoint(runtime, request=TEXT)
    assert error.value.code == "NETWORK_NOT_ALLOWED"
    assert running.requests(health=True) == []


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://127.0.0.1:0", "http://"])
async def test_a_service_url_that_is_none_is_wrong_usage(shop: Shop, url: str) -> None:
    shop.directory.mkdir()
    settings = Settings.model_validate(shop.config())
    async with open_runtime(shop.directory, settings=settings, service_url=url) as runtime:
        with pytest.raises(UsageError) as error:
            await run_checkpoint(runtime, request=TEXT)
    assert error.value.exit_status == 2


async def test_no_key_and_no_token_is_saved_anywhere(
    shop: Shop, service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = service()
    values = shop.config(running.origin)
    values["env"]["MODEL_KEY"] = "sk-secret-of-the-model"
    values["providers"]["scripted"]["api_key_env"] = "MODEL_KEY"
    lines: list[str] = []
    settings = Settings.model_validate(values)
    async with shop.open(service=running, settings=settings, progress=lines.append) as runtime:
        await run_retry(runtime, request=TEXT)
        await run_session(runtime)
    content = b"".join(path.read_bytes() for path in shop.directory.rglob("*") if path.is_file())
    for secret in (b"sk-secret-of-the-model", values["env"]["FULFIL_SERVICE_TOKEN"].encode()):
        assert secret not in content
        assert secret.decode() not in "\n".join(lines)
    assert b"SKU-1" in content
