"""The table of transitions, through the real store: what it allows is saved, all else refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.exits import EXIT_OF_STAGE
from fulfillment_cli.domain.stages import FINAL, RECOVERABLE, TRANSITIONS, WAITING, Goal, Stage
from tests.support import FakeClock, event_kinds, first_checkpoint, saved_document

# Read off the contract's table of stages, not off the code: a way that is not here is a mistake.
WAYS: dict[str, str] = {
    "queued": "queued prepared failed",
    "prepared": "prepared paused reserved timed-out uncertain failed needs-review",
    "paused": "paused approved rejected",
    "approved": "approved reserved uncertain failed needs-review",
    "rejected": "rejected",
    "reserved": "reserved completed uncertain compensated needs-review",
    "completed": "completed",
    "timed-out": "timed-out prepared",
    "uncertain": "uncertain reserved completed compensated needs-review failed",
    "compensated": "compensated",
    "needs-review": "needs-review compensated uncertain",
    "failed": "failed",
}
PAIRS = list(product(Stage, Stage))


def test_the_table_is_the_contracts() -> None:
    assert {str(stage): set(map(str, ways)) for stage, ways in TRANSITIONS.items()} == {
        stage: set(ways.split()) for stage, ways in WAYS.items()
    }


@pytest.fixture(scope="module")
def every_stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a task for each pair, standing at the pair's first stage."""
    directory = tmp_path_factory.mktemp("pairs")
    with RecoveryStore.create_in(directory, FakeClock()) as store:
        for current, following in PAIRS:
            store.create(first_checkpoint(f"{current}_{following}", stage=current))
    return directory


@pytest.mark.parametrize(("current", "following"), PAIRS)
def test_a_transition_is_saved_exactly_where_the_table_has_it(
    every_stage: Path, current: Stage, following: Stage
) -> None:
    task_id = f"{current}_{following}"
    before = saved_document(every_stage, task_id)
    with RecoveryStore(every_stage, FakeClock()) as store, Holder(every_stage) as holder:
        lease, checkpoint = store.acquire(task_id, holder)
        if following in WAYS[current].split():
            saved = store.advance(checkpoint, lease, following, "moved")
            assert (saved.stage, saved.revision) == (following, 2)
            assert store.load(task_id) == saved
            assert event_kinds(every_stage, task_id)[-1] == "moved"
        else:
            with pytest.raises(UsageError) as refused:
                store.advance(checkpoint, lease, following, "moved")
            assert refused.value.code == "TRANSITION_REFUSED"
            assert saved_document(every_stage, task_id) == before
            assert "moved" not in event_kinds(every_stage, task_id)
        store.release(lease, checkpoint)


def test_every_stage_has_one_kind_of_re_entry() -> None:
    assert frozenset(Stage) == FINAL | WAITING | RECOVERABLE
    assert not FINAL & WAITING and not FINAL & RECOVERABLE and not WAITING & RECOVERABLE


def test_only_a_person_leads_out_of_a_final_stage() -> None:
    for stage in FINAL - {Stage.NEEDS_REVIEW}:
        assert TRANSITIONS[stage] == {stage}


def test_every_stage_has_an_exit_status() -> None:
    assert set(EXIT_OF_STAGE) == set(Stage)


def test_goals_lie_one_behind_the_other() -> None:
    assert sorted(Goal, key=lambda goal: goal.distance) == [
        Goal.PREPARED,
        Goal.RESERVED,
        Goal.COMPLETED,
    ]
