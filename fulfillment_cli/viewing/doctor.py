"""Whether this machine and its configuration can run orders: one finding for each thing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.adapters.clock import Clock, from_timestamp
from fulfillment_cli.adapters.machine import (
    SQLITE_NEEDED,
    file_system,
    is_network,
    sqlite_version,
    wal_problem,
)
from fulfillment_cli.adapters.telemetry import METRICS, TRACES, is_asked_for, is_installed
from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.settings import LocalProvider, Settings, load_settings
from fulfillment_cli.viewing.listing import Wanted, list_tasks

BUILT = 1_764_547_200.0  # 2025-12-01: no clock that is right shows less
_SAMPLE = "Please send this order. SKU: SKU-731; quantity: 2; delivery address: Dock-East."


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What.
        detail: What was found.
        hint: What to do about it; none where it is right.
    """

    name: str
    detail: str
    hint: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it is right."""
        return self.hint is None

    def to_json(self) -> JsonObject:
        """The finding for machines."""
        return {"name": self.name, "ok": self.ok, "detail": self.detail, "hint": self.hint}


def examine(
    root: Path, config: Path | None, env_file: Path | None, provider: str | None
) -> tuple[list[Finding], Settings | None]:
    """Look at everything that needs no request.

    Args:
        root: Where the task directories are, or will be.

    Returns:
        The findings, and the settings where they are valid.
    """
    found: list[Finding] = []
    settings = None
    try:
        settings = load_settings(config, env_file)
        found.append(Finding("configuration", f"{settings.source} is valid"))
    except FulfilError as error:
        found.append(_wrong("configuration", error))
    if settings is not None:
        found.append(_provider(settings, provider))
    place = root if root.is_dir() else root.absolute().parent
    found += [_sqlite(), _file_system(place)]
    found += [_wal(place), _clock(root), *_permissions(root, env_file), *_telemetry()]
    return found, settings


async def examine_model(
    settings: Settings, provider: str | None, progress: Callable[[str], None]
) -> Finding:
    """Ask the model for the order in a sample text; one question."""
    from fulfillment_cli.adapters.model import open_model

    try:
        async with open_model(settings, provider, progress) as model:
            order = await model.extract(_SAMPLE, lambda kind, data: None)
            said = f"{model.provider}:{model.model} at {model.origin} answered"
    except FulfilError as error:
        return _wrong("model request", error)
    if (order.sku, order.quantity) != ("SKU-731", 2):
        hint = "It reads orders wrongly; choose another model (--provider NAME)."
        return Finding("model request", f"{said} {order.quantity} x {order.sku}", hint)
    return Finding("model request", f"{said} rightly")


def _wrong(name: str, error: FulfilError) -> Finding:
    return Finding(name, f"{error.code}: {error.message}", error.hint)


def _provider(settings: Settings, name: str | None) -> Finding:
    try:
        chosen = settings.select(name)
        if isinstance(chosen, LocalProvider):
            from fulfillment_cli.adapters.local_model import find_weights, require_installed

            require_installed(chosen)
            path, sha256 = find_weights(chosen, lambda message: None)
            return Finding("local model", f"{path}, SHA-256 {sha256[:12]}...")
        settings.api_key(chosen)
    except FulfilError as error:
        return _wrong("provider", error)
    key = f"key in {chosen.api_key_env}" if chosen.api_key_env else "no key needed"
    return Finding("provider", f"{name or settings.provider}: {chosen.base_url}, {key}")


def _sqlite() -> Finding:
    version = sqlite_version()
    text = ".".join(map(str, version))
    if version >= SQLITE_NEEDED:
        return Finding("sqlite", text)
    needed = ".".join(map(str, SQLITE_NEEDED))
    return Finding("sqlite", text, f"Use a Python with SQLite {needed} or newer.")


def _file_system(place: Path) -> Finding:
    kind = file_system(place)
    if kind is None:
        return Finding("file system", "its type cannot be told here; a local disk is needed")
    if is_network(kind):
        hint = "A database in WAL mode loses data over a network: keep tasks on a local disk."
        return Finding("file system", f"{place} is on a network mount ({kind})", hint)
    return Finding("file system", f"{place} is on {kind}")


def _wal(place: Path) -> Finding:
    problem = wal_problem(place)
    if problem is None:
        return Finding("database", f"write-ahead log and locks work in {place}")
    hint = f"Make {place} writable, or work in another directory."
    return Finding("database", f"{place}: {problem}", hint)


def _clock(root: Path) -> Finding:
    clock = Clock()
    now = clock.now()
    hint = "Set the clock; with a wrong one leases end early or late (nothing is overwritten)."
    if now < BUILT:
        return Finding("clock", f"it shows {clock.timestamp()}", hint)
    newest = None
    if root.is_dir():
        newest = next(list_tasks(root, Wanted(limit=1), lambda where, error: None), None)
    ahead = 0.0 if newest is None else from_timestamp(newest.task.updated_at) - now
    if newest is not None and ahead > 5:
        saved = f"task {newest.task.id} was saved at {newest.task.updated_at}"
        return Finding("clock", f"it shows {clock.timestamp()}, but {saved}", hint)
    return Finding("clock", clock.timestamp())


def _telemetry() -> Iterator[Finding]:
    asked = [signal.lower() for signal in (TRACES, METRICS) if is_asked_for(os.environ, signal)]
    if asked:
        hint = None if is_installed() else "Install the extra: pip install 'fulfil[otel]'."
        yield Finding(" and ".join(asked), "asked for by OTEL_* variables", hint)


def _permissions(root: Path, env_file: Path | None) -> Iterator[Finding]:
    for path, mode in ((root, "700"), (env_file or Path(".env"), "600")):
        if not path.exists():
            continue
        found = stat.S_IMODE(path.stat().st_mode)
        detail = f"{path} has mode {found:o}"
        # Of the root, only that nobody else writes there: what is private lies deeper.
        others = found & (0o022 if path == root else 0o077)
        yield Finding("permissions", detail, f"chmod {mode} {path}" if others else None)
