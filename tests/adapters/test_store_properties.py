"""The store under any order of what processes can do to it: create, take, change, die, wait.

A model remembers for each task which token is the newest and what was saved last; every rule
checks what the store says against it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.adapters.leases import LEASE_SECONDS, Lease
from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import (
    Contention,
    LeaseLost,
    PlanMismatch,
    RevisionConflict,
    TaskBusy,
    UsageError,
)
from fulfillment_cli.domain.order import Approval, Order
from fulfillment_cli.domain.stages import TRANSITIONS, Stage
from tests.support import FakeClock, first_checkpoint, plan_facts


@dataclass
class Process:
    """One process: its own connection, its own lock. ``alive`` until it dies."""

    store: RecoveryStore
    holder: Holder
    clock: FakeClock
    alive: bool = True

    def die(self) -> None:
        """What the kernel does for a killed process: nothing is released but the lock."""
        self.alive = False
        self.holder._lock.release()
        self.store.close()


@dataclass
class Hold:
    """What a process believes that it holds; it may be wrong by now."""

    process: Process
    lease: Lease
    checkpoint: Checkpoint


@dataclass
class Known:
    """What must be true of a task."""

    saved: Checkpoint
    token: int = 0
    holder: Process | None = None
    expires: float = 0.0
    events: list[tuple[int, str]] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    processes: Bundle[Process] = Bundle("processes")
    holds: Bundle[Hold] = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory(prefix="fulfil-store-")
        self.path = Path(self._directory.name)
        self.clock = FakeClock()
        self.outside = RecoveryStore.create_in(self.path, self.clock)
        self.outside._connection.execute("PRAGMA synchronous = OFF")
        self.known: dict[str, Known] = {}
        self.everybody: list[Process] = []

    def teardown(self) -> None:
        for process in self.everybody:
            if process.alive:
                process.die()
        self.outside.close()
        self._directory.cleanup()

    @rule(target=processes, skew=st.sampled_from([0.0, -3600.0, 3600.0]))
    def start(self, skew: float) -> Process:
        clock = FakeClock(self.clock.now() + skew)
        store = RecoveryStore(self.path, clock)
        store._connection.execute("PRAGMA synchronous = OFF")
        process = Process(store, Holder(self.path).__enter__(), clock)
        self.everybody.append(process)
        return process

    @rule(task_id=st.sampled_from(["a", "b"]))
    def create(self, task_id: str) -> None:
        first = first_checkpoint(task_id)
        if task_id in self.known:
            try:
                self.outside.create(first)
            except UsageError as error:
                assert error.code == "TASK_EXISTS"
                return
            raise AssertionError("a task was created twice")
        self.known[task_id] = Known(self.outside.create(first), events=[(1, "created")])

    @rule(target=holds, process=processes, task_id=st.sampled_from(["a", "b"]))
    def take(self, process: Process, task_id: str) -> Any:
        known = self.known.get(task_id)
        if known is None or not process.alive:
            return multiple()
        held = known.holder is not None
        dead = held and known.holder is not None and not known.holder.alive
        may = not held or dead or known.expires <= process.clock.now()
        try:
            lease, checkpoint = process.store.acquire(task_id, process.holder)
        except TaskBusy:
            assert not may
            return multiple()
        assert may
        assert lease.token == known.token + 1
        assert checkpoint == known.saved
        known.token, known.holder = lease.token, process
        known.expires = process.clock.now() + LEASE_SECONDS
        known.events.append((checkpoint.revision, "entered"))
        return Hold(process, lease, checkpoint)

    @rule(hold=holds, stage=st.sampled_from(Stage), facts=st.sampled_from(["", "plan", "other"]))
    def change(self, hold: Hold, stage: Stage, facts: str) -> None:
        """Prepare, approve, reject, fail, complete ...: whatever the stage is called."""
        if not hold.process.alive:
            return
        before = hold.checkpoint
        values: dict[str, Any] = {}
        if facts:
            order = Order(sku="SKU-1", quantity=2 if facts == "plan" else 3, address="Dock")
            values = plan_facts(before, order)
        if stage in (Stage.APPROVED, Stage.REJECTED) and before.stage is Stage.PAUSED:
            values["approval"] = Approval(
                decision="approve" if stage is Stage.APPROVED else "reject",
                actor="ann",
                plan_fingerprint=before.plan_fingerprint or "",
                at=self.clock.timestamp(),
            )
        self._advance(hold, stage, values)

    @rule(hold=holds, data=st.data())
    def walk(self, hold: Hold, data: st.DataObject) -> None:
        """A step that the table has, so that tasks come far."""
        if hold.process.alive:
            stages = sorted(TRANSITIONS[hold.checkpoint.stage])
            self._advance(hold, data.draw(st.sampled_from(stages)), {})

    def _advance(self, hold: Hold, stage: Stage, values: dict[str, Any]) -> None:
        before = hold.checkpoint
        known = self.known[before.id]
        owns = hold.lease.token == known.token and known.holder is hold.process
        new_order = values.get("order")
        try:
            saved = hold.process.store.advance(before, hold.lease, stage, "moved", **values)
        except LeaseLost:
            assert not owns
        except RevisionConflict:
            assert owns
            assert before.revision < known.saved.revision
        except PlanMismatch:
            assert before.order is not None
            assert new_order != before.order
        except UsageError as error:
            assert error.code == "TRANSITION_REFUSED"
            assert stage not in TRANSITIONS[before.stage]
        else:
            assert owns
            assert before.revision == known.saved.revision
            assert stage in TRANSITIONS[before.stage]
            assert saved.revision == before.revision + 1
            assert before.order in (None, saved.order)
            assert before.approval in (None, saved.approval)
            known.saved = hold.checkpoint = saved
            known.events.append((saved.revision, "moved"))

    @rule(hold=holds)
    def reload(self, hold: Hold) -> None:
        if hold.process.alive:
            hold.checkpoint = hold.process.store.load(hold.lease.task_id)
            assert hold.checkpoint == self.known[hold.lease.task_id].saved

    @rule(hold=holds)
    def renew(self, hold: Hold) -> None:
        if not hold.process.alive:
            return
        known = self.known[hold.lease.task_id]
        owns = hold.lease.token == known.token and known.holder is hold.process
        try:
            hold.process.store.renew(hold.lease)
        except Contention:
            assert not owns
        else:
            assert owns
            known.expires = hold.process.clock.now() + LEASE_SECONDS

    @rule(hold=consumes(holds))
    def release(self, hold: Hold) -> None:
        if not hold.process.alive:
            return
        known = self.known[hold.lease.task_id]
        hold.process.store.release(hold.lease, hold.checkpoint)
        if hold.lease.token == known.token and known.holder is hold.process:
            known.holder = None
            known.events.append((hold.checkpoint.revision, "left"))

    @rule(process=processes)
    def crash(self, process: Process) -> None:
        if process.alive:
            process.die()

    @rule(seconds=st.sampled_from([1.0, LEASE_SECONDS / 2, LEASE_SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for process in self.everybody:
            process.clock.advance(seconds)

    @rule()
    def reopen(self) -> None:
        self.outside.close()
        self.outside = RecoveryStore(self.path, self.clock)
        self.outside._connection.execute("PRAGMA synchronous = OFF")

    @invariant()
    def what_is_saved_is_what_the_owners_saved(self) -> None:
        for task_id, known in self.known.items():
            assert self.outside.load(task_id) == known.saved
            events = self.outside.events(task_id=task_id)
            assert [(event.revision, event.kind) for event in events] == known.events
            moves = [event.data for event in events if event.kind == "moved"]
            assert all(Stage(move["to"]) in TRANSITIONS[Stage(move["from"])] for move in moves)
            revisions = [event.revision for event in events if event.kind == "moved"]
            assert revisions == list(range(2, known.saved.revision + 1))


def test_no_order_of_events_breaks_the_store() -> None:
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(max_examples=60, stateful_step_count=40, deadline=None),
    )
