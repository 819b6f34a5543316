"""Leases: who may write a task, decided between real processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fulfillment_cli.adapters.checkpoints import RecoveryStore
from fulfillment_cli.adapters.holder import Holder
from fulfillment_cli.adapters.leases import LEASE_SECONDS, RENEW_SECONDS
from fulfillment_cli.domain.errors import Contention, LeaseLost, TaskBusy, UsageError
from fulfillment_cli.domain.stages import Stage
from tests.support import (
    Child,
    ShiftedClock,
    as_nobody,
    event_kinds,
    first_checkpoint,
    hold_lease,
    rows,
    take_at_once,
    tamper,
)

StartChild = Callable[..., Child]
HOUR = 3600.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with RecoveryStore.create_in(tmp_path) as store:
        store.create(first_checkpoint())
        store.create(first_checkpoint("other"))
    return tmp_path


def busy(directory: Path, offset: float = 0.0, task_id: str = "task") -> bool:
    """Whether a process whose clock is so many seconds off would have to wait.

    Where it would not, it takes the task and keeps it until its lease expires.
    """
    with RecoveryStore(directory, ShiftedClock(offset)) as store:
        holder = Holder(directory)
        with holder:
            try:
                lease, _ = store.acquire(task_id, holder)
            except TaskBusy:
                return True
            store.release(lease, store.load(task_id))
            return False


def locks(directory: Path) -> set[str]:
    return {path.name for path in (directory / ".holders").iterdir()}


def test_the_contracts_durations() -> None:
    assert (LEASE_SECONDS, RENEW_SECONDS) == (30, 10)


def test_a_killed_holder_is_taken_over_at_once(directory: Path, child: StartChild) -> None:
    holder = child(hold_lease, directory)
    held = holder.hear()
    assert busy(directory)
    holder.kill()
    with RecoveryStore(directory) as store, Holder(directory) as mine:
        lease, _ = store.acquire("task", mine)
        assert lease.token > held["token"]
        assert store.events()[-1].data["takenOver"] is True


def test_a_killed_holders_lock_file_is_removed(directory: Path, child: StartChild) -> None:
    holder = child(hold_lease, directory)
    lock = Path(holder.hear()["lock"])
    holder.kill()
    assert locks(directory) == {lock.name}
    assert not busy(directory)
    assert locks(directory) == set()


def test_a_lock_file_stays_while_another_lease_names_it(directory: Path, child: StartChild) -> None:
    holder = child(hold_lease, directory)
    lock = Path(holder.hear()["lock"])
    tamper(
        directory,
        "UPDATE tasks SET (lease_holder, lease_path, lease_inode, lease_expires_at) ="
        " (SELECT lease_holder, lease_path, lease_inode, lease_expires_at FROM tasks"
        "  WHERE id = 'task') WHERE id = 'other'",
    )
    holder.kill()
    assert not busy(directory)
    assert lock.exists()
    assert not busy(directory, task_id="other")  # at once, by that very file
    assert not lock.exists()


def test_a_stopped_holder_keeps_its_lease_until_it_expires(
    directory: Path, child: StartChild
) -> None:
    holder = child(hold_lease, directory)
    holder.hear()
    holder.stop()
    assert busy(directory)
    assert busy(directory, LEASE_SECONDS - 10)
    assert not busy(directory, LEASE_SECONDS + 1)


def test_what_a_holder_writes_after_its_lease_was_taken_is_refused(
    directory: Path, child: StartChild
) -> None:
    holder = child(hold_lease, directory)
    holder.hear()
    assert holder.ask("write") == "done"
    holder.stop()
    later = ShiftedClock(LEASE_SECONDS + 1)
    with RecoveryStore(directory, later) as store, Holder(directory) as mine:
        lease, checkpoint = store.acquire("task", mine)
        holder.say("write")
        holder.wake()
        assert holder.hear() == "LEASE_LOST"
        assert holder.ask("renew") == "LEASE_LOST"
        assert store.load("task") == checkpoint
        assert store.advance(checkpoint, lease, Stage.QUEUED, "noted").revision == 3


def test_only_its_holder_releases_a_lease(directory: Path, child: StartChild) -> None:
    holder = child(hold_lease, directory)
    holder.hear()
    later = ShiftedClock(LEASE_SECONDS + 1)
    with RecoveryStore(directory, later) as store, Holder(directory) as mine:
        lease, checkpoint = store.acquire("task", mine)
        assert holder.ask("release") == "done"  # of nothing: it is somebody else's by now
        assert event_kinds(directory).count("left") == 0
        assert busy(directory)
        store.release(lease, checkpoint)
        store.release(lease, checkpoint)
        assert event_kinds(directory).count("left") == 1
    assert not busy(directory)


def test_a_released_lease_writes_nothing_more(directory: Path) -> None:
    with RecoveryStore(directory) as store, Holder(directory) as holder:
        lease, checkpoint = store.acquire("task", holder)
        store.release(lease, checkpoint)
        with pytest.raises(LeaseLost):
            store.advance(checkpoint, lease, Stage.QUEUED, "noted")
        with pytest.raises(LeaseLost):
            store.renew(lease)
        assert store.load("task") == checkpoint


def test_a_lease_of_another_task_writes_nothing(directory: Path) -> None:
    with RecoveryStore(directory) as store, Holder(directory) as holder:
        lease, _ = store.acquire("task", holder)
        with pytest.raises(Contention):
            store.advance(store.load("other"), lease, Stage.QUEUED, "noted")
        assert store.load("other").revision == 1


def test_renewing_holds_a_lease_for_another_30_seconds(directory: Path, child: StartChild) -> None:
    with RecoveryStore(directory, ShiftedClock(20)) as store, Holder(directory) as holder:
        with RecoveryStore(directory) as earlier:
            lease, _ = earlier.acquire("task", holder)
        store.renew(lease)
        assert busy(directory, LEASE_SECONDS + 1)
        assert not busy(directory, 20 + LEASE_SECONDS + 1)


def test_a_token_is_never_used_twice(directory: Path, child: StartChild) -> None:
    tokens = []
    for _ in range(3):
        with RecoveryStore(directory) as store, Holder(directory) as holder:
            lease, checkpoint = store.acquire("task", holder)
            tokens.append(lease.token)
            store.release(lease, checkpoint)
    dying = child(hold_lease, directory)
    tokens.append(dying.hear()["token"])
    dying.kill()
    tokens.append(child(hold_lease, directory).hear()["token"])
    assert tokens == sorted(set(tokens))


def test_a_missing_lock_file_proves_nothing(directory: Path, child: StartChild) -> None:
    holder = child(hold_lease, directory)
    Path(holder.hear()["lock"]).unlink()
    assert busy(directory)
    assert holder.ask("write") == "done"
    holder.kill()  # and now nothing tells that it is dead, but the time
    assert busy(directory)
    assert not busy(directory, LEASE_SECONDS + 1)


def test_another_file_in_its_place_proves_nothing(directory: Path, child: StartChild) -> None:
    holder = child(hold_lease, directory)
    held = holder.hear()
    lock = Path(held["lock"])
    replacement = lock.with_name("replacement")
    replacement.touch(0o600)
    assert replacement.stat().st_ino != held["inode"]
    replacement.replace(lock)
    assert busy(directory)
    assert holder.ask("write") == "done"


def test_a_file_that_is_replaced_while_one_looks_proves_nothing(
    directory: Path, child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = child(hold_lease, directory)
    lock = Path(holder.hear()["lock"])
    replacement = lock.with_name("replacement")
    replacement.touch(0o600)
    stat = Path.stat

    def replaced_after(self: Path, **options: bool) -> os.stat_result:
        result = stat(self, **options)
        if self == lock and replacement.exists():
            replacement.replace(lock)
        return result

    monkeypatch.setattr(Path, "stat", replaced_after)
    assert busy(directory)
    assert not replacement.exists()
    assert holder.ask("write") == "done"


def test_clocks_an_hour_apart_never_let_an_old_holder_write(
    directory: Path, child: StartChild
) -> None:
    present = child(hold_lease, directory)
    present.hear()
    future = child(hold_lease, directory, "task", HOUR)  # sees an expired lease: takes it
    assert future.hear()["token"] == 2
    assert present.ask("write") == "LEASE_LOST"
    assert future.ask("write") == "done"
    assert busy(directory)  # for an hour to come; the clock delays, it does not endanger
    future.kill()
    third = child(hold_lease, directory)  # death is no matter of clocks
    assert third.hear()["token"] == 3
    assert present.ask("write") == "LEASE_LOST"
    assert third.ask("write") == "done"


def test_a_clock_that_is_behind_takes_nothing_from_the_living(
    directory: Path, child: StartChild
) -> None:
    holder = child(hold_lease, directory)
    holder.hear()
    assert busy(directory, -HOUR)
    assert holder.ask("write") == "done"


def test_of_processes_that_take_a_task_at_once_exactly_one_gets_it(
    directory: Path, child: StartChild
) -> None:
    children = [child(take_at_once, directory) for _ in range(4)]
    assert [each.hear() for each in children] == ["ready"] * 4
    for each in children:
        each.say("go")
    answers = [each.hear() for each in children]
    assert answers.count("taken") == 1
    assert [each["code"] for each in answers if each != "taken"] == ["TASK_BUSY"] * 3
    assert event_kinds(directory).count("entered") == 1


def test_of_processes_that_take_over_at_once_exactly_one_gets_it(
    directory: Path, child: StartChild
) -> None:
    children = [child(take_at_once, directory) for _ in range(3)]
    assert [each.hear() for each in children] == ["ready"] * 3
    dead = child(hold_lease, directory)
    dead.hear()
    dead.kill()
    for each in children:
        each.say("go")
    answers = [each.hear() for each in children]
    assert answers.count("taken") == 1
    ((token,),) = rows(
        directory / "tasks.sqlite", "SELECT fencing_token FROM tasks WHERE id = 'task'"
    )
    assert token == 2


def test_a_holder_that_leaves_takes_its_file_with_it(directory: Path) -> None:
    with Holder(directory) as holder:
        assert locks(directory) == {holder.path.name}
        assert holder.path.stat().st_ino == holder.inode
        assert holder.path.stat().st_mode & 0o777 == 0o600
    assert locks(directory) == set()


def test_two_holders_of_one_process_are_two(directory: Path) -> None:
    with RecoveryStore(directory) as store, Holder(directory) as first:
        store.acquire("task", first)
        with Holder(directory) as second, pytest.raises(TaskBusy):
            store.acquire("task", second)


def test_a_directory_that_may_not_be_written_has_no_holder(
    child: StartChild, open_directory: Path
) -> None:
    with RecoveryStore.create_in(open_directory) as store:
        store.create(first_checkpoint())
    open_directory.chmod(0o555)
    if os.getuid() == 0:
        for path in open_directory.iterdir():
            os.chown(path, 65534, 65534)
    answer = child(as_nobody, hold_lease, open_directory).hear()
    assert answer["code"] == "DIRECTORY_NOT_WRITABLE"
    with pytest.raises(UsageError) as error, Holder(open_directory / "missing"):
        pass
    assert error.value.code == "DIRECTORY_NOT_WRITABLE"
