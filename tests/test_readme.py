"""The README says what the code does: its tables, its example, its commands."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.cli.app import COMMANDS
from fulfillment_cli.domain.codes import CODES
from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.stages import Stage
from tests.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("readme_tables", ROOT / "tools/readme_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_code(script: Any) -> None:
    assert script.filled(README) == README, "run `make readme`"


def test_nothing_is_left_out_of_the_tables(script: Any) -> None:
    tables = script.tables()

    assert set(script.STAGES) == set(EXIT_OF_STAGE) == set(Stage)
    assert {info.exit_status for info in CODES.values()} <= set(script.EXITS)
    for code in CODES:
        assert f"| `{code}` |" in tables["codes"]
    for name in COMMANDS:
        assert f"| `{name}` |" in tables["commands"]


def test_a_wrong_table_is_noticed(script: Any) -> None:
    assert script.filled(README.replace("| `queued` |", "| `waiting` |")) == README


def test_the_python_example_runs_as_printed(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    (tmp_path / "example.py").write_text(example)
    with ScriptedModel() as model:
        origin = model.base_url.removesuffix("/v1")
        provider = {"kind": "openai-compatible", "base_url": model.base_url, "model": "m"}
        config = {
            "provider": "scripted",
            "providers": {"scripted": provider},
            "sandbox": {"network": [origin]},
        }
        (tmp_path / "ditto.yaml").write_text(json.dumps(config))

        done = subprocess.run(
            [sys.executable, "example.py"],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.stdout.splitlines() == ["reserved 1", "completed 0"], done.stderr


def test_the_configuration_of_the_readme_is_valid(tmp_path: Path) -> None:
    from fulfillment_cli.settings import load_settings

    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "ditto.yaml"
    path.write_text(text)

    assert load_settings(path).select().kind == "openai-compatible"


def test_every_command_and_option_of_the_readme_is_there() -> None:
    from typer.main import get_command

    from fulfillment_cli.cli.app import _load, app

    known = {"--version", "--help", *COMMANDS}
    for name in COMMANDS:
        known |= {option for parameter in _load(name).params for option in parameter.opts}
    get_command(app)
    shown = [line for line in README.splitlines() if line.startswith("fulfil ")]

    assert len(shown) > 5
    for line in shown:
        command, *words = line.partition("#")[0].split()[1:]
        assert command in COMMANDS, line
        for word in words:
            assert not word.startswith("--") or word in known, line


def test_files_and_links_of_the_readme_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
    assert (ROOT / ".env.example").is_file()


def test_the_packaged_configuration_is_the_one_of_the_repository() -> None:
    packaged = ROOT / "fulfillment_cli" / "ditto.yaml"

    assert packaged.read_bytes() == (ROOT / "ditto.yaml").read_bytes()
