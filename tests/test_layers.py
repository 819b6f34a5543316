"""The arrows of the design, read from the imports.

``cli -> viewing, flows, recovery, experiments -> runtime -> adapters -> domain``: a module
imports only rightwards, inside functions and for type checks too. The experiments and their
children stand outside of some rules: they wrap the store and the transport from outside, and look
into both databases as an outside tool does.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "fulfillment_cli"

RIGHTWARDS = (
    *("cli", "experiments", "viewing", "recovery", "flows", "runtime"),
    *("adapters", "settings", "domain", "version"),
)
"""A part may import itself and what stands after it."""

ALSO = {
    "cli": {"report", "logs"},
    "report": {"domain"},
    "logs": {"domain"},
    "evaluation": {"adapters", "settings", "domain"},
}

EXCEPT = {
    # A child of the crash matrix is the command line itself, with the store wrapped.
    "experiments.children": {"__main__"},
}

ONLY_IN: dict[str, tuple[str, ...]] = {
    "typer": ("cli",),
    "rich": ("cli", "report"),
    "sqlite3": ("adapters.checkpoint_reader", "adapters.checkpoints", "adapters.database",
                "adapters.leases", "adapters.task_lists", "adapters.task_queue", "adapters.machine",
                "experiments"),
    "openai": ("adapters.model_client",),
    "httpx": ("adapters.certificates", "adapters.ledger", "adapters.model_transport",
              "experiments"),
    "httpcore": ("adapters.ledger",),
    "anyio": ("adapters.ledger",),
    "xllamacpp": ("adapters.local_model_server",),
    "yaml": ("settings", "experiments"),
    "dotenv": ("settings",),
    "jinja2": ("viewing.page",),
    "opentelemetry": ("adapters.otel", "adapters.otel_export", "adapters.otel_metrics"),
    "reference_service": ("experiments.service_child",),
}  # fmt: skip


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it, by its full name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None or node.level
            prefix = "." * node.level + (node.module or "")
            yield prefix
            # `from package import module` imports the module.
            yield from (f"{prefix}.{alias.name}" for alias in node.names if prefix == PACKAGE)


def modules() -> list[tuple[str, Path]]:
    """The package's modules by their name in it, without the public face and the entry point."""
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / PACKAGE).with_suffix("").parts)
        if name not in ("__init__", "__main__"):
            found.append((name.removesuffix(".__init__"), path))
    return found


MODULES = modules()


def allowed(part: str) -> set[str]:
    """The parts that a part may import."""
    if part in RIGHTWARDS:
        return set(RIGHTWARDS[RIGHTWARDS.index(part) :]) | ALSO.get(part, set())
    return {part} | ALSO[part]


def test_there_are_modules_of_every_part() -> None:
    parts = {name.split(".")[0] for name, _ in MODULES}

    assert parts == {*RIGHTWARDS, *ALSO}


@pytest.mark.parametrize(("name", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_a_module_imports_only_rightwards(name: str, path: Path) -> None:
    part = name.partition(".")[0]

    for imported in imports(path):
        top, _, rest = imported.partition(".")
        if top == PACKAGE and rest:
            right = allowed(part) | EXCEPT.get(name, set())
            assert rest.partition(".")[0] in right, f"{name} imports {imported}"


@pytest.mark.parametrize(("name", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_each_library_has_its_place(name: str, path: Path) -> None:
    for imported in imports(path):
        places = ONLY_IN.get(imported.split(".")[0])
        if places is not None:
            at_home = any(name == place or name.startswith(f"{place}.") for place in places)
            assert at_home, f"{name} imports {imported}"


def test_the_domain_does_no_input_or_output() -> None:
    for name, path in MODULES:
        if name.startswith("domain"):
            forbidden = {"os", "io", "pathlib", "socket", "subprocess", "asyncio", "time", "random"}
            assert not forbidden & {imported.split(".")[0] for imported in imports(path)}, name


def test_the_service_stands_alone() -> None:
    known = set(sys.stdlib_module_names) | {"reference_service"}
    paths = sorted((ROOT / "reference_service").glob("*.py"))

    assert len(paths) > 5
    for path in paths:
        for imported in imports(path):
            assert imported.startswith(".") or imported.split(".")[0] in known, path


def test_the_rules_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(
        f"def f():\n    from {PACKAGE} import cli\n    from {PACKAGE}.flows.steps import drive\n"
    )

    found = set(imports(path))

    assert {f"{PACKAGE}.cli", f"{PACKAGE}.flows.steps"} <= found
    assert "cli" not in allowed("adapters")
    assert "flows" not in allowed("adapters")


def test_modules_stay_readable() -> None:
    """The longest allowed; a table of codes is longer and reads no worse for it."""
    for name, path in MODULES:
        if name not in ("domain.codes",):
            assert len(path.read_text().splitlines()) < 400, name
