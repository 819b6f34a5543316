"""The public Python API: what ``import fulfillment_cli`` gives, and what it does not do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fulfillment_cli

ROOT = Path(__file__).resolve().parents[1]


def test_every_name_is_there_and_listed() -> None:
    for name in fulfillment_cli.__all__:
        assert getattr(fulfillment_cli, name) is not None
    assert set(fulfillment_cli.__all__) == set(fulfillment_cli._HOMES)
    assert set(fulfillment_cli.__all__) <= set(dir(fulfillment_cli))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="run_everything"):
        _ = fulfillment_cli.run_everything


def test_importing_does_no_work() -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import fulfillment_cli\n"
        "print(sorted(name for name in set(sys.modules) - before if name.startswith('ful')))\n"
        "heavy = {'openai', 'typer', 'pydantic', 'httpx', 'yaml', 'sqlite3', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "fulfillment_cli.open_runtime, fulfillment_cli.run_checkpoint\n"
        "print(sorted({'openai', 'typer', 'rich'} & set(sys.modules)))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )

    assert done.stdout.splitlines() == ["['fulfillment_cli']", "[]", "[]"]


def test_the_package_is_typed() -> None:
    assert (Path(fulfillment_cli.__file__).parent / "py.typed").is_file()
