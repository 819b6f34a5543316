"""Experiments 21-26: what a sweep, an audit and a person do after real SIGKILLs.

As with the twenty, ``task`` in the experiment's own directory is compared with its row of the
table; the other directories of an experiment are compared here.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml

from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.domain.stages import Stage
from fulfillment_cli.experiments.children import Child
from fulfillment_cli.experiments.evidence import blind_posts, collect, effects
from fulfillment_cli.experiments.interrupted import STAGES, interrupt
from fulfillment_cli.experiments.lab import TASK, Lab, random_order
from fulfillment_cli.experiments.planted import plant
from fulfillment_cli.experiments.scenario import FULFIL, OPERATOR, Scenario, here
from fulfillment_cli.flows.pause import run_pause
from fulfillment_cli.flows.side_effect import run_side_effect

PAGES = [f"GET /{name}" for name in ("shipments", "reservations", "operations", "inventory")]
_LOOK_UP = "GET /operations/task-reserve"


async def killed_at(lab: Lab, stage: Stage, directory: Path | None = None) -> Path:
    """A directory whose task was killed at ``stage``; the experiment's own by default."""
    place = directory or lab.directory
    order = (lab.order, lab.text) if directory is None else random_order(lab.random)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    options = ["--config", str(lab.config)]
    work = lab.work / f"interrupted-{place.parent.name}-{place.name}"
    work.mkdir()
    async with lab.step(f"kill at {stage}"):
        await interrupt(place, stage, work, lab.settings, options, *order, lab.variables)
    return place


async def sweep(lab: Lab, name: str, *options: str) -> JsonObject:
    """Run ``fulfil recover`` over all directories of the experiment in a child."""
    return await lab.child(name, ["recover", str(lab.work), *options])


def check_other(lab: Lab, directory: Path) -> None:
    """That another directory's task came to its end, and every effect once."""
    name = f"{directory.parent.name}/{directory.name}"
    evidence = collect(directory, TASK)
    lab.expect(f"{name}: stage", evidence.checkpoint.stage, Stage.COMPLETED)
    lab.expect(f"{name}: effects", effects(evidence.ledger, TASK), [])
    lab.expect(f"{name}: posted blindly", blind_posts(evidence.ledger), [])
    asked = [event for event in evidence.events if event.kind == "prepared"]
    lab.expect(f"{name}: plans", len(asked), 1)
    lab.expect(f"{name}: projection", evidence.projection, evidence.checkpoint.to_json())


async def every_stage(lab: Lab) -> None:
    await killed_at(lab, Stage.RESERVED)
    others = [await killed_at(lab, stage, lab.work / "others" / stage) for stage in STAGES]
    planned = await sweep(lab, "dry run", "--dry-run")
    lab.expect("a dry run's work", planned.get("tasks"), [])
    done = await sweep(lab, "sweep")
    found = {str(stage): 2 if stage is Stage.RESERVED else 1 for stage in STAGES}
    lab.expect("found", done.get("found"), found)
    lab.expect("questions of the sweep", done.get("questions"), 1)
    again = await sweep(lab, "sweep again")
    lab.expect("found again", again.get("found"), {})
    for directory in others:
        check_other(lab, directory)
    lab.questions = lab.asked()


async def together(lab: Lab, name: str) -> list[JsonObject]:
    """Two sweeps that start at the same moment; what each did."""
    arguments = ["recover", str(lab.work), "--output", "json", "--config", str(lab.config)]
    async with lab.step(name):
        children = [
            Child(arguments, lab.work, f"{name}-{number}", variables=lab.variables)
            for number in (1, 2)
        ]
        exits = await asyncio.gather(*(child.wait() for child in children))
    lab.children += exits
    return [json.loads(exit_.stdout) for exit_ in exits]


def finished(done: list[JsonObject]) -> list[str]:
    """Directories of the tasks that these sweeps brought to their end, sorted."""
    return sorted(
        task["directory"]
        for document in done
        for task in document["tasks"]
        if task["result"] == "finished"
    )


async def two_sweeps(lab: Lab) -> None:
    names = ("a", "b", "c")
    directories = [await killed_at(lab, Stage.PREPARED)]
    directories += [
        await killed_at(lab, Stage.PREPARED, lab.work / "others" / name) for name in names
    ]
    done = await together(lab, "two sweeps")
    lab.expect("finished once each", finished(done), sorted(map(str, directories)))
    for directory in directories[1:]:
        check_other(lab, directory)
    lab.questions = lab.asked()


async def killed_sweep(lab: Lab) -> None:
    await killed_at(lab, Stage.PREPARED)
    others = [await killed_at(lab, Stage.PREPARED, lab.work / "others" / name) for name in "ab"]
    arguments = ["recover", str(lab.work), "--jobs", "1"]
    await lab.crash("kill a sweep at reserved", arguments, Stage.RESERVED)
    await together(lab, "two sweeps")
    for directory in others:
        check_other(lab, directory)
    lab.questions = lab.asked()


def fast_retries(lab: Lab) -> None:
    """Give the children a configuration whose delays are over at once."""
    values: dict[str, Any] = yaml.safe_load(lab.config.read_text())
    values["recovery"] = {"backoff_base": 0.01, "backoff_cap": 0.01}
    lab.config = lab.work / "fast-retries.yaml"
    lab.config.write_text(yaml.safe_dump(values))


async def dead_letter(lab: Lab) -> None:
    async with lab.open(lookupUnavailable=True) as runtime:
        await lab.run("run", run_side_effect, runtime, request=lab.text)
    fast_retries(lab)
    results = []
    for attempt in (1, 2):
        done = await sweep(lab, f"attempt {attempt}", "--max-attempts", "2")
        results += [task["result"] for task in done.get("tasks", [])]
        await asyncio.sleep(0.02)
    lab.expect("attempts", results, ["later", "dead-letter"])
    lab.expect("stage is kept", lab.evidence().checkpoint.stage, Stage.UNCERTAIN)
    skipped = await sweep(lab, "a sweep skips it")
    lab.expect("tasks of a sweep", skipped.get("tasks"), [])
    lab.expect("dead letters", skipped.get("left", {}).get("deadLetters"), 1)
    fixture = lab.directory / "fixture.json"
    fixture.write_text(json.dumps(json.loads(fixture.read_text()) | {"faults": {}}))
    action = ("--action", "requeue", "--actor", OPERATOR, "--reason", "the look-up is back")
    await lab.child("requeue", here(lab, "review", *action))
    await sweep(lab, "sweep")


async def six_differences(lab: Lab) -> None:
    await killed_at(lab, Stage.RESERVED)
    await sweep(lab, "sweep")
    expected = await plant(lab)
    found = await lab.child("reconcile", ["reconcile", str(lab.work)])
    told = {(item["kind"], item["directory"]) for item in found.get("differences", [])}
    lab.expect("differences", sorted(told), sorted(expected))
    lab.expect("how many", len(found.get("differences", [])), len(expected))
    lab.questions = lab.asked()


async def expired_approval(lab: Lab) -> None:
    async with lab.open() as runtime:
        await lab.run("pause", run_pause, runtime, request=lab.text, expires_in=0.001)
    decide = here(lab, "pause", "--decision", "approve", "--actor", OPERATOR)
    late = await lab.child("decide too late", decide)
    lab.expect("refused", late.get("error", {}).get("code"), "APPROVAL_EXPIRED")
    lab.expect("still paused", lab.evidence().checkpoint.stage, Stage.PAUSED)
    swept = await sweep(lab, "a sweep leaves it")
    lab.expect("tasks of a sweep", swept.get("tasks"), [])
    listed = await lab.child("review", here(lab, "review"))
    lab.expect("listed", [item["expired"] for item in listed.get("waiting", [])], [True])
    await lab.child("open it again", here(lab, "pause", "--expires-in", "2h"))
    await lab.child("decide", decide)


S = Stage

RECOVERY_SCENARIOS: tuple[Scenario, ...] = (
    Scenario("recover-every-stage", every_stage, S.COMPLETED, 1, FULFIL),
    Scenario("recover-two-sweeps", two_sweeps, S.COMPLETED, 1, FULFIL),
    Scenario("recover-killed-sweep", killed_sweep, S.COMPLETED, 1, FULFIL),
    Scenario("recover-dead-letter", dead_letter, S.COMPLETED, 1, [*[_LOOK_UP] * 3, *FULFIL]),
    Scenario("recover-reconcile-finds-six", six_differences, S.COMPLETED, 1, FULFIL + PAGES),
    Scenario("recover-expired-approval", expired_approval, S.COMPLETED, 1, FULFIL),
)
