"""The crash matrix: every boundary of every flow, in both arrangements, and of the service."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.domain.stages import Flow
from fulfillment_cli.experiments.matrix_case import Case, Trial
from fulfillment_cli.experiments.provider import SharedModel


@dataclass(frozen=True, slots=True)
class Finding:
    """A case and what was wrong with it; nothing where it held."""

    case: Case
    violations: list[str]
    directory: Path


async def enumerate_cases(
    flows: Iterable[Flow], directory: Path, model: SharedModel, seed: int
) -> tuple[list[Case], list[Finding]]:
    """Run each flow once without a death, and name every boundary that it passed.

    Returns:
        The cases, and the findings of the uninterrupted runs themselves.
    """
    cases: list[Case] = []
    findings: list[Finding] = []
    for flow in flows:
        for shared in (False, True):
            case = Case(flow, shared)
            trial = await _trial(case, directory / "uninterrupted", model, seed)
            findings.append(Finding(case, trial.violations, trial.work))
            for command, names in enumerate(trial.boundaries):
                cases += [
                    Case(flow, shared, "runner", command, number, name)
                    for number, name in enumerate(names)
                ]
            cases += [
                Case(flow, shared, "service", 0, number, name)
                for number, name in enumerate(trial.service_boundaries)
            ]
    return cases, findings


async def run_cases(
    cases: list[Case],
    directory: Path,
    model: SharedModel,
    *,
    seed: int,
    jobs: int,
    ended: Callable[[Finding], None],
) -> list[Finding]:
    """Run the cases, at most ``jobs`` at a time. Directories of cases that held are removed."""
    places = asyncio.Semaphore(jobs)

    async def one(case: Case) -> Finding:
        async with places:
            trial = await _trial(case, directory / "cases", model, seed)
            finding = Finding(case, trial.violations, trial.work)
            if not trial.violations:
                shutil.rmtree(trial.work, ignore_errors=True)
            ended(finding)
            return finding

    return list(await asyncio.gather(*(one(case) for case in cases)))


async def _trial(case: Case, directory: Path, model: SharedModel, seed: int) -> Trial:
    arrangement = "shared" if case.shared else "spawned"
    number = "all" if case.boundary is None else f"{case.victim}-{case.command}-{case.boundary}"
    trial = Trial(case, directory / f"{case.flow}-{arrangement}-{number}", model, seed)
    try:
        await trial.run()
    except (FulfilError, OSError, TimeoutError, ValueError, IndexError) as error:
        trial.violations.append(f"broke: {type(error).__name__}: {error}")
    return trial


def sample(cases: list[Case], count: int, seed: int) -> list[Case]:
    """``count`` cases, the same for the same seed, from as many kinds of boundary as it allows."""
    source = random.Random(seed)
    shuffled = source.sample(cases, len(cases))
    seen: Counter[tuple[str, bool]] = Counter()
    ranked = []
    for case in shuffled:
        kind = (case.column, case.shared)
        ranked.append((seen[kind], case))
        seen[kind] += 1
    ranked.sort(key=lambda pair: pair[0])
    return [case for _, case in ranked[:count]]


def table(findings: list[Finding]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: flow and arrangement x kind of boundary, ``held/all`` where some broke."""
    columns = sorted({finding.case.column for finding in findings})
    rows = []
    for flow in Flow:
        for shared in (False, True):
            mine = [f for f in findings if (f.case.flow, f.case.shared) == (flow, shared)]
            if not mine:
                continue
            cells = [_cell([f for f in mine if f.case.column == column]) for column in columns]
            rows.append([f"{flow} {'shared' if shared else 'spawned'}", *cells, _cell(mine)])
    return ["flow and ledger", *columns, "all"], rows


def _cell(findings: list[Finding]) -> str:
    broken = sum(bool(finding.violations) for finding in findings)
    return f"{len(findings) - broken}/{len(findings)}" if broken else str(len(findings))


def matrix_report(findings: list[Finding], seed: int) -> JsonObject:
    """The matrix as JSON."""
    return {
        "seed": seed,
        "boundaries": len(findings),
        "violations": sum(bool(finding.violations) for finding in findings),
        "cases": [
            {
                "flow": finding.case.flow,
                "ledger": "shared" if finding.case.shared else "spawned",
                "victim": finding.case.victim,
                "command": finding.case.command,
                "boundary": finding.case.boundary,
                "name": finding.case.name,
                "violations": finding.violations,
            }
            for finding in findings
        ],
    }
