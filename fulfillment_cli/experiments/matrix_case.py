"""One case of the crash matrix: a fresh task, a death at one boundary, and the way to the end."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import secrets
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.domain.stages import Flow, Stage
from fulfillment_cli.experiments.boundaries import Plan
from fulfillment_cli.experiments.children import Child, Exit
from fulfillment_cli.experiments.evidence import blind_posts, collect, effects
from fulfillment_cli.experiments.lab import random_order
from fulfillment_cli.experiments.provider import SharedModel
from fulfillment_cli.experiments.service_child import serve

ENDS: dict[Flow, Stage] = {
    Flow.RETRY: Stage.COMPLETED,
    Flow.FALLBACK: Stage.COMPLETED,
    Flow.TIMEOUT: Stage.TIMED_OUT,
    Flow.CHECKPOINT: Stage.COMPLETED,
    Flow.PAUSE: Stage.COMPLETED,
    Flow.SESSION: Stage.PREPARED,
    Flow.COMPENSATION: Stage.COMPENSATED,
    Flow.SIDE_EFFECT: Stage.COMPLETED,
}
"""Where each flow ends, interrupted or not; no death may lead it anywhere else."""

FAULTS: dict[Flow, JsonObject] = {
    Flow.FALLBACK: {"primaryUnavailable": True},
    Flow.TIMEOUT: {"catalogDelayMs": 500},
    Flow.COMPENSATION: {"rejectShipping": True},
    Flow.SIDE_EFFECT: {"dropReservationResponse": True},
}

LATE_COMMIT_MS = 60
"""A shared ledger commits a reservation this much later, so that its runner is gone by then."""

MAX_COMMANDS = 200
TASK = "task"


@dataclass(frozen=True, slots=True)
class Case:
    """One death.

    Attributes:
        flow: Which command's task.
        shared: Whether the ledger outlives its runner (``--service-url``) or dies with it.
        victim: ``runner`` or ``service``.
        command: Which command of the flow dies, from 0 (the first); runner only.
        boundary: Which boundary of it, from 0; none: nobody dies.
        name: The boundary's name.
    """

    flow: Flow
    shared: bool
    victim: str = "runner"
    command: int = 0
    boundary: int | None = None
    name: str = "uninterrupted"

    @property
    def column(self) -> str:
        """What kind of boundary it is, for the table."""
        if self.victim == "service":
            return f"service {' '.join(self.name.split()[:3])}"
        if self.boundary is None:
            return "no death"
        when, what = self.name.split()[:2]
        if what == "commit":
            return f"{when} commit"
        where = "model" if "chat" in self.name or "/v1" in self.name else "ledger"
        return f"{when} {where} request"


@dataclass
class Trial:
    """A case as it runs.

    Attributes:
        violations: What was found wrong; empty: nothing.
        boundaries: Names of the boundaries that each command passed, in order.
        service_boundaries: The same for the service.
    """

    case: Case
    work: Path
    model: SharedModel
    seed: int
    violations: list[str] = field(default_factory=list)
    boundaries: list[list[str]] = field(default_factory=list)
    service_boundaries: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Run the case to its end and check what is left."""
        self.work.mkdir(parents=True, mode=0o700)
        if not self.case.shared:
            config = self.model.config_for(self.work, None)
            await self._commands([str(self.case.flow), "--config", str(config)])
            found = list((self.work / ".fulfil-tasks").glob("cli-*"))
            self._check(found[0], TASK, found[0] / "service.sqlite")
            return
        source = random.Random(f"{self.seed}/{self.case}")
        order, text = random_order(source)
        (self.work / "request.txt").write_text(text)
        fixture = {
            "stock": {order.sku: order.quantity + 10},
            "faults": FAULTS.get(self.case.flow, {}) | {"reservationDelayMs": LATE_COMMIT_MS},
        }
        (self.work / "fixture.json").write_text(json.dumps(fixture))
        service = SharedService(self.work, self.case)
        async with service.running():
            config = self.model.config_for(self.work, service.origin)
            await self._commands(
                [
                    *(str(self.case.flow), "--config", str(config), "--task", TASK),
                    *("--request", "request.txt", "--service-url", service.origin),
                ],
                service,
            )
        self.service_boundaries = service.boundaries()
        found = list((self.work / ".fulfil-tasks").glob("cli-*"))
        self._check(found[0], TASK, self.work / "service.sqlite")

    async def _commands(self, first: list[str], service: SharedService | None = None) -> None:
        """Run the first command, then whatever command is printed, until the flow's end."""
        arguments = first
        died = self.case.boundary is None
        for number in range(MAX_COMMANDS):
            dies = self.case.victim == "runner" and number == self.case.command and not died
            exit_ = await self._command(arguments, number, dies, service)
            if dies:
                died = True
                if exit_.signal_name != "SIGKILL":
                    self.violations.append(f"was not killed: exit {exit_.status}")
                    return
            if service is not None and not service.alive():
                died = True
                await service.start(None)
            following = self._following(exit_, arguments)
            if following is None:
                return
            arguments = following
            if exit_.status == 4:
                await asyncio.sleep(0.02)
        self.violations.append(f"no end after {MAX_COMMANDS} commands")

    async def _command(
        self, arguments: list[str], number: int, dies: bool, service: SharedService | None
    ) -> Exit:
        log = self.work / f"boundaries-{number}"
        plan = Plan(kill_at=self.case.boundary if dies else None, log=log)
        token = {} if service is None else {"FULFIL_SERVICE_TOKEN": service.token}
        variables = self.model.variables | token
        child = Child(
            [*arguments, "--output", "json"], self.work, f"command-{number}", plan, variables
        )
        exit_ = await child.wait()
        self.boundaries.append(log.read_text().splitlines() if log.exists() else [])
        return exit_

    def _following(self, exit_: Exit, arguments: list[str]) -> list[str] | None:
        """The printed command: in the result, or for one that died on its stderr.

        One that died while it continued a task was itself the printed command, and is run again;
        a decision that was saved before its command died is not made twice.
        """
        document = json.loads(exit_.stdout) if exit_.stdout.strip() else {}
        stage = document.get("result", {}).get("stage")
        if stage == ENDS[self.case.flow]:
            return None
        printed = document.get("next")
        if printed is None:
            lines = exit_.stderr.splitlines()
            marked = [line for line in lines if line.strip().startswith("continue:")]
            printed = marked[-1].split(":", 1)[1] if marked else None
        code = document.get("error", {}).get("code")
        if printed is None and (exit_.signal_name == "SIGKILL" or code == "ALREADY_DECIDED"):
            return _without_decision(arguments) if code == "ALREADY_DECIDED" else arguments
        if printed is None:
            error = document.get("error") or exit_.stderr[-300:]
            self.violations.append(f"nothing to continue with (exit {exit_.status}, {error})")
            return None
        return [part.replace("NAME", "experiment-operator") for part in shlex.split(printed)[1:]]

    def _check(self, directory: Path, task_id: str, database: Path) -> None:
        evidence = collect(directory, task_id, database)
        stage = evidence.checkpoint.stage
        if stage is not ENDS[self.case.flow]:
            self.violations.append(f"ended {stage}, not {ENDS[self.case.flow]}")
        self.violations += effects(evidence.ledger, task_id)
        self.violations += [f"{key} was posted blindly" for key in blind_posts(evidence.ledger)]
        prepared = [event.seq for event in evidence.events if event.kind == "prepared"]
        late = [
            event.seq
            for event in evidence.events
            if event.kind == "model-request"
            and event.data.get("question") == "extraction"
            and prepared
            and event.seq > prepared[0]
        ]
        if late or len(prepared) != 1:
            self.violations.append(f"{len(prepared)} plans, {len(late)} extractions after one")
        if evidence.projection != evidence.checkpoint.to_json():
            self.violations.append("results/task.json is not the checkpoint")


def _without_decision(arguments: list[str]) -> list[str]:
    """The command that continues a decided task: the same without what decides."""
    kept = list(arguments)
    for option in ("--decision", "--actor", "--revision"):
        if option in kept:
            position = kept.index(option)
            del kept[position : position + 2]
    return kept


class SharedService:
    """A ledger that outlives its runners, in a process that may die at a boundary of its own."""

    def __init__(self, work: Path, case: Case) -> None:
        self.work = work
        self.token = secrets.token_urlsafe(24)
        self.origin = ""
        self._kill_at = case.boundary if case.victim == "service" else None
        self._log = work / "service-boundaries"
        self._process: multiprocessing.process.BaseProcess | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run it; it may be started again meanwhile."""
        await self.start(self._kill_at)
        try:
            yield
        finally:
            if self._process is not None:
                self._process.terminate()
                await asyncio.to_thread(self._process.join)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.is_alive()

    def boundaries(self) -> list[str]:
        """The names of the boundaries that it passed."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    async def start(self, kill_at: int | None) -> None:
        """Start it, on the port that it had where it had one.

        Raises:
            TimeoutError: It did not become ready.
        """
        ready = self.work / "service-ready"
        ready.unlink(missing_ok=True)
        port = self.origin.rsplit(":", 1)[1] if self.origin else "0"
        arguments = [
            *("--database", str(self.work / "service.sqlite")),
            *("--fixture", str(self.work / "fixture.json"), "--port", port),
        ]
        self._process = multiprocessing.get_context("forkserver").Process(
            target=serve, args=(arguments, self.token, str(ready), kill_at, str(self._log))
        )
        self._process.start()
        async with asyncio.timeout(30):
            while True:
                with suppress(OSError, ValueError, KeyError):
                    self.origin = json.loads(ready.read_text())["origin"]
                    return
                await asyncio.sleep(0.005)
