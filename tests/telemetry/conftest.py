"""Commands as processes, and a collector for what they tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.scripted_model import ScriptedModel
from tests.support import ROOT
from tests.telemetry.receiver import Receiver

ADDRESS = "Secret-Lane-99"
REQUEST = f"SKU: SKU-1; quantity: 2; delivery address: {ADDRESS}."
NEW = ("--request", "order.txt", "--inventory", "stock.csv")


class Fulfil(Protocol):
    """Runs a command as a process, with an environment of its own; its JSON document."""

    def __call__(
        self, *words: str, status: int = 0, env: dict[str, str] | None = None
    ) -> dict[str, Any]: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def fulfil(tmp_path: Path, scripted: ScriptedModel) -> Fulfil:
    (tmp_path / "ditto.yaml").write_text(scripted.config())
    (tmp_path / "order.txt").write_text(REQUEST)
    (tmp_path / "stock.csv").write_text("sku,quantity\nSKU-1,9\n")
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("OTEL_", "FULFIL_"))}

    def run(*words: str, status: int = 0, env: dict[str, str] | None = None) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "fulfillment_cli", *words, "--output", "json"],
            cwd=tmp_path,
            env=kept | {"PYTHONPATH": str(ROOT)} | (env or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == status, done
        document: dict[str, Any] = json.loads(done.stdout)
        return document | {"stderr": done.stderr}

    return run
