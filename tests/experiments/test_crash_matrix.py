"""A seeded sample of the crash matrix, against the scripted model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.experiments.matrix import (
    Finding,
    enumerate_cases,
    matrix_report,
    run_cases,
    sample,
    table,
)
from fulfillment_cli.experiments.matrix_case import Case
from fulfillment_cli.experiments.provider import SharedModel, shared_model
from fulfillment_cli.settings import load_settings


@pytest.fixture
async def model(tmp_path: Path, scripted_config: Path):
    async with shared_model(load_settings(scripted_config), None, tmp_path, print) as shared:
        yield shared


@pytest.mark.parametrize("flow", list(Flow))
async def test_a_task_killed_at_a_boundary_ends_where_it_would_have_ended(
    flow: Flow, model: SharedModel, tmp_path: Path
) -> None:
    cases, uninterrupted = await enumerate_cases([flow], tmp_path, model, seed=7)
    chosen = sample(cases, 12, seed=7)
    findings = uninterrupted + await run_cases(
        chosen, tmp_path, model, seed=7, jobs=1, ended=lambda finding: None
    )
    assert [(f.case, f.violations) for f in findings if f.violations] == []
    assert len(findings) == 14


async def test_boundaries_are_named_in_their_order_of_a_run(
    model: SharedModel, tmp_path: Path
) -> None:
    cases, _ = await enumerate_cases([Flow.SIDE_EFFECT], tmp_path, model, seed=7)
    names = [case.name for case in cases if not case.shared and case.victim == "runner"]
    reserve = names.index("before POST reserve")
    assert names[reserve - 1 : reserve + 2] == [
        "after commit intent",
        "before POST reserve",
        "sent POST reserve",
    ]
    assert {case.name for case in cases if case.victim == "service"} == {
        "before commit claim",
        "after commit claim",
        "before commit effect",
        "after commit effect",
        "before answer",
    }


async def test_a_lost_effect_is_a_violation(model: SharedModel, tmp_path: Path) -> None:
    """The matrix can fail: without its reservation the same run does not hold."""
    from fulfillment_cli.experiments.evidence import blind_posts, effects

    ledger = {
        "inventory": [{"sku": "A", "quantity": 5, "initial_quantity": 9}],
        "reservations": [{"key": "task-reserve", "sku": "A", "quantity": 2, "status": "active"}],
        "shipments": [],
        "operations": [{"key": "task-reserve", "settled_at": "2026-01-01T00:00:00.000Z"}],
        "requests": [
            {"method": "POST", "key": "task-reserve", "at": "2026-01-01T00:00:01.000Z"},
        ],
    }
    assert effects(ledger, "task") == ["A: 9 at first, 5 now, 2 reserved or shipped"]
    assert blind_posts(ledger) == ["task-reserve"]


def test_the_table_counts_what_held_and_what_did_not() -> None:
    held = Finding(Case(Flow.RETRY, False, boundary=0, name="before commit entered"), [], Path())
    broken = Finding(
        Case(Flow.RETRY, False, boundary=1, name="after commit entered"), ["lost"], Path()
    )
    headings, rows = table([held, broken])
    assert headings == ["flow and ledger", "after commit", "before commit", "all"]
    assert rows == [["retry spawned", "0/1", "1", "1/2"]]
    report = matrix_report([held, broken], seed=1)
    assert (report["boundaries"], report["violations"]) == (2, 1)
    json.dumps(report)


def test_a_sample_is_the_same_for_a_seed_and_covers_every_kind_first() -> None:
    cases = [
        Case(Flow.RETRY, False, boundary=number, name=f"{when} commit entered")
        for number in range(20)
        for when in ("before", "after")
    ]
    chosen = sample(cases, 2, seed=3)
    assert chosen == sample(cases, 2, seed=3)
    assert {case.column for case in chosen} == {"before commit", "after commit"}
