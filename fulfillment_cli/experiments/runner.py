"""Runs experiments, one after another or side by side, and keeps what they found."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fulfillment_cli.adapters.task_directory import write_durably
from fulfillment_cli.domain.errors import FulfilError, UsageError
from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.experiments.evidence import Evidence
from fulfillment_cli.experiments.lab import Lab
from fulfillment_cli.experiments.provider import SharedModel
from fulfillment_cli.experiments.recovery_scenarios import RECOVERY_SCENARIOS
from fulfillment_cli.experiments.scenario import Scenario
from fulfillment_cli.experiments.scenarios import SCENARIOS
from fulfillment_cli.version import __version__

EXPERIMENTS: tuple[Scenario, ...] = SCENARIOS + RECOVERY_SCENARIOS
"""The twenty of the contract, and those of the recovery."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one experiment came to.

    Attributes:
        name: Its name.
        stage: The stage it ended in, or none where it broke before there was one.
        seconds: How long it took.
        requests: HTTP requests to the ledger and to the model.
        problems: What differed from what must be; empty: passed.
        report: Its part of the JSON report.
    """

    name: str
    stage: str | None
    seconds: float
    requests: int
    problems: list[str]
    report: JsonObject

    @property
    def passed(self) -> bool:
        """Whether nothing differed."""
        return not self.problems


def select(patterns: list[str]) -> list[Scenario]:
    """The experiments that any of the shell patterns name, in the table's order; all for none.

    Raises:
        UsageError: A pattern names none.
    """
    from fnmatch import fnmatchcase

    for pattern in patterns:
        if not any(fnmatchcase(scenario.name, pattern) for scenario in EXPERIMENTS):
            raise UsageError(
                f"There is no experiment {pattern!r}.",
                hint="`fulfil experiments --list` names them.",
            )
    return [
        scenario
        for scenario in EXPERIMENTS
        if not patterns or any(fnmatchcase(scenario.name, pattern) for pattern in patterns)
    ]


def new_run_directory(root: Path) -> Path:
    """Make ``root/run-<time>`` (mode 0700).

    Raises:
        UsageError: ``DIRECTORY_NOT_WRITABLE``.
    """
    path = root.absolute() / f"run-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be made ({error.strerror}).", code="DIRECTORY_NOT_WRITABLE"
        ) from None
    return path


async def run_experiments(
    scenarios: list[Scenario],
    directory: Path,
    model: SharedModel,
    *,
    seed: int,
    jobs: int,
    started: Callable[[str], None],
    ended: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run them, at most ``jobs`` at a time; each in a directory of its own, which is kept."""
    places = asyncio.Semaphore(jobs)

    async def one(scenario: Scenario) -> Outcome:
        async with places:
            started(scenario.name)
            outcome = await run_one(scenario, directory / scenario.name, model, seed)
            ended(outcome)
            return outcome

    return list(await asyncio.gather(*(one(scenario) for scenario in scenarios)))


async def run_one(scenario: Scenario, directory: Path, model: SharedModel, seed: int) -> Outcome:
    """Run one experiment, close everything, open it again, and compare."""
    directory.mkdir(mode=0o700)
    lab = Lab(scenario.name, directory, model.settings, model.config, model.variables, seed)
    begun = time.monotonic()
    try:
        await scenario.run(lab)
    except Exception as error:  # noqa: BLE001 - a broken one is a finding, not the run's end
        code = error.code if isinstance(error, FulfilError) else type(error).__name__
        lab.problems.append(f"broke: {code}: {error}")
    seconds = time.monotonic() - begun
    evidence = None
    try:
        evidence = lab.evidence()
        _compare(scenario, lab, evidence)
    except Exception as error:  # noqa: BLE001 - as above
        lab.problems.append(f"nothing to compare: {error}")
    return Outcome(
        name=scenario.name,
        stage=str(evidence.checkpoint.stage) if evidence else None,
        seconds=seconds,
        requests=len(evidence.requests) + len(evidence.model_answers) if evidence else 0,
        problems=lab.problems,
        report=_report(scenario, lab, evidence, seconds),
    )


def _compare(scenario: Scenario, lab: Lab, evidence: Evidence) -> None:
    checkpoint = evidence.checkpoint
    lab.expect("stage", checkpoint.stage, scenario.ends)
    lab.expect("error", checkpoint.error and checkpoint.error.code, scenario.error)
    lab.expect("questions", lab.questions, scenario.questions)
    lab.expect("questions in the history", lab.asked(), scenario.questions)
    lab.expect("requests", evidence.requests, scenario.requests)
    lab.check_effects(evidence)
    if scenario.check is not None:
        scenario.check(lab, evidence)


def _report(scenario: Scenario, lab: Lab, evidence: Evidence | None, seconds: float) -> JsonObject:
    return {
        "name": scenario.name,
        "passed": not lab.problems,
        "problems": lab.problems,
        "seconds": round(seconds, 3),
        "questions": lab.questions,
        "directory": str(lab.directory),
        "order": lab.order.to_json(),
        "spans": [span.to_json() for span in lab.spans],
        "modelRequests": evidence.model_answers if evidence else [],
        "children": [
            {"pid": child.pid, "status": child.status, "signal": child.signal_name}
            for child in lab.children
        ],
        "checkpoint": evidence.checkpoint.to_json() if evidence else None,
        "ledger": evidence.ledger if evidence else None,
    }


def full_report(
    outcomes: list[Outcome], model: SharedModel, *, seed: int, directory: Path
) -> JsonObject:
    """The whole run as JSON: who answered, with which weights, at what cost, and what was found."""
    usage: dict[str, int] = {}
    for outcome in outcomes:
        for answer in outcome.report["modelRequests"]:
            for name, count in (answer.get("usage") or {}).items():
                usage[name] = usage.get(name, 0) + count
    return {
        "version": __version__,
        "python": sys.version.split()[0],
        "seed": seed,
        "directory": str(directory),
        "model": model.describe() | {"usage": usage},
        "passed": sum(outcome.passed for outcome in outcomes),
        "failed": sum(not outcome.passed for outcome in outcomes),
        "experiments": [outcome.report for outcome in outcomes],
    }


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write a report; raises :class:`UsageError` (``DIRECTORY_NOT_WRITABLE``)."""
    write_durably(
        path.absolute(), (json.dumps(report, indent=2, ensure_ascii=False) + "\n").encode()
    )
