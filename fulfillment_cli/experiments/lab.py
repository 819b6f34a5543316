"""What one experiment works with: an order, a directory, runtimes, children, and its findings."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.order import JsonObject, Order
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.experiments.boundaries import Plan
from fulfillment_cli.experiments.children import Child, Exit
from fulfillment_cli.experiments.evidence import Evidence, collect, effects
from fulfillment_cli.flows.task_run import FlowResult
from fulfillment_cli.runtime import Runtime, open_runtime
from fulfillment_cli.settings import Settings

TASK = "task"


@dataclass
class Span:
    """One step of an experiment; times are seconds since the epoch."""

    step: str
    start: float
    end: float
    status: str

    def to_json(self) -> JsonObject:
        """The span as the report shows it."""
        return {"step": self.step, "start": self.start, "end": self.end, "status": self.status}


@dataclass
class Lab:
    """One experiment's world.

    Attributes:
        name: The experiment.
        directory: Its task directory, made by the first runtime.
        work: Where its children run and leave their streams.
        settings, config: The same configuration, for this process and for children.
        variables: What children need in their environment.
        order, text: A random order and the request it was written into.
        stock: Opening stock of the ordered sku.
    """

    name: str
    work: Path
    settings: Settings
    config: Path
    variables: dict[str, str]
    seed: int
    order: Order = field(init=False)
    text: str = field(init=False)
    stock: int = field(init=False)
    spans: list[Span] = field(default_factory=list)
    children: list[Exit] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    questions: int = 0
    before_last_crash: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed}/{self.name}")
        self.order, self.text = random_order(self.random)
        self.stock = self.order.quantity + self.random.randint(1, 50)
        self.directory = self.work / "task"

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Time a step; an error in it is its status and goes on."""
        start, status = time.time(), "ok"
        try:
            yield
        except BaseException as error:
            status = error.code if isinstance(error, FulfilError) else type(error).__name__
            raise
        finally:
            self.spans.append(Span(name, start, time.time(), status))

    def open(
        self, stock: int | None = None, **faults: bool | int
    ) -> AbstractAsyncContextManager[Runtime]:
        """A runtime on the experiment's directory, with these fault switches when it is new."""
        return open_runtime(
            self.directory,
            stock={self.order.sku: self.stock if stock is None else stock},
            faults=faults,
            settings=self.settings,
        )

    async def run(
        self,
        step: str,
        flow: Callable[..., Awaitable[FlowResult]],
        runtime: Runtime,
        **options: Any,
    ) -> FlowResult:
        """Run a flow function as a step; counts the questions that it asked."""
        async with self.step(step):
            result = await flow(runtime, TASK, **options)
        self.questions += result.questions
        return result

    def expect(self, what: str, actual: object, expected: object) -> None:
        """Note a difference; the experiment goes on, so that all of them are told."""
        if actual != expected:
            self.problems.append(f"{what}: expected {expected!r}, got {actual!r}")

    def start_child(self, arguments: list[str], plan: Plan | None = None) -> Child:
        """Start ``fulfil`` with these arguments, our configuration and JSON output."""
        name = f"child-{len(self.children) + 1}"
        options = ["--config", str(self.config), "--output", "json"]
        return Child([*arguments, *options], self.work, name, plan, self.variables)

    async def child(self, step: str, arguments: list[str]) -> JsonObject:
        """Run ``fulfil`` in a process of its own to its end; its JSON document."""
        async with self.step(step):
            exit_ = await self.start_child(arguments).wait()
        self.children.append(exit_)
        try:
            document: JsonObject = json.loads(exit_.stdout)
        except ValueError:
            self.problems.append(f"{step}: no JSON document (exit {exit_.status}): {exit_.stderr}")
            return {}
        self.questions += document.get("result", {}).get("questions", 0)
        return document

    async def crash(self, step: str, arguments: list[str], stage: Stage) -> None:
        """Run ``fulfil`` in a child until it has committed ``stage``, and SIGKILL it there."""
        notify = self.work / f"held-{len(self.children) + 1}"
        async with self.step(step):
            child = self.start_child(arguments, Plan(hold_at_stage=stage, notify=notify))
            held = await child.held(notify)
            if held:
                child.kill()
            exit_ = await child.wait()
        self.children.append(exit_)
        self.expect(f"{step}: exit", exit_.signal_name, "SIGKILL")
        self.questions += self.asked()
        self.before_last_crash = self.questions

    def asked(self) -> int:
        """Questions that the task's history tells of."""
        evidence = collect(self.directory, TASK)
        return sum(
            event.kind == "model-request" and event.data.get("request") == 1
            for event in evidence.events
        )

    async def until(self, what: str, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Poll for a condition; a deadline that passes is a finding."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not happen in {seconds:g} s")
            await asyncio.sleep(0.01)

    def evidence(self) -> Evidence:
        """Both databases, opened again."""
        return collect(self.directory, TASK)

    def check_effects(self, evidence: Evidence) -> None:
        """What every experiment must leave, whatever it was about (contract, section 7)."""
        checkpoint = evidence.checkpoint
        self.problems += effects(evidence.ledger, TASK)
        self.expect("results/task.json", evidence.projection, checkpoint.to_json())
        if checkpoint.order is not None:
            self.expect("order", checkpoint.order, self.order)
        stock = evidence.ledger["inventory"][0]
        down = stock["initial_quantity"] - stock["quantity"]
        if checkpoint.stage is Stage.COMPLETED:
            self.expect("POST /reserve", evidence.posts("reserve"), 1)
            self.expect("POST /ship", evidence.posts("ship"), 1)
            self.expect("stock down by", down, self.order.quantity)
        untouched = (Stage.FAILED, Stage.TIMED_OUT, Stage.REJECTED, Stage.QUEUED)
        if checkpoint.stage in untouched:
            self.expect("POST /reserve", evidence.posts("reserve"), 0)
            self.expect("stock down by", down, 0)


def random_order(source: random.Random) -> tuple[Order, str]:
    """A random order, and the request text it is written into."""
    letters = "".join(source.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(3))
    places = ("Dock", "Gate", "Hall", "Pier", "Yard", "Bay")
    winds = ("North", "South", "East", "West")
    order = Order(
        sku=f"{letters}-{source.randint(100, 9999)}",
        quantity=source.randint(1, 40),
        address=f"{source.choice(places)}-{source.choice(winds)}",
    )
    text = (
        f"Fulfillment request. SKU: {order.sku}; quantity: {order.quantity}; "
        f"delivery address: {order.address}."
    )
    return order, text
