"""Kills and interruptions: what is printed continues, exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import DEADLINE, Cli, Ledger, the_directory, until

SLOW = ("--fault", "reservationDelayMs=60000")


def printed_directory(process: subprocess.Popen[str]) -> tuple[Path, str]:
    """What a new task tells first: its directory and the command that continues it."""
    assert process.stderr is not None
    lines = [process.stderr.readline().rstrip("\n") for _ in range(2)]
    assert lines[0].startswith("directory: /")
    assert lines[1].startswith("continue: fulfil ")
    return Path(lines[0].removeprefix("directory: ")), lines[1].removeprefix("continue: ")


def reserving(cli: Cli, *arguments: str, **options: Any) -> tuple[subprocess.Popen[str], Path, str]:
    """A checkpoint whose reserve is in flight."""
    process = cli.start("checkpoint", *SLOW, *arguments, **options)
    directory, following = printed_directory(process)
    ledger = Ledger(directory)
    until(lambda: ledger.state("task-reserve") == "pending", "the reserve is claimed")
    return process, directory, following


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_an_interrupted_task_goes_on_with_the_printed_command(
    number: signal.Signals, status: int, cli: Cli
) -> None:
    process, directory, following = reserving(cli)

    process.send_signal(number)
    done = cli.end(process)

    assert (done.status, done.stdout) == (status, "")
    error, again = done.stderr.splitlines()
    assert error.startswith("error INTERRUPTED: ")
    assert again == f"continue: {following}"
    assert Ledger(directory).state("task-reserve") is not None
    finished = cli.follow(following, "--output", "json")
    assert finished.json["result"] == {"stage": "completed", "error": None, "questions": 0}
    assert Ledger(directory).posts() == ["/reserve", "/ship"]
    assert Ledger(directory).rows("SELECT count(*) FROM reservations") == [(1,)]


def test_an_interruption_speaks_json(cli: Cli) -> None:
    process, _, _ = reserving(cli, "--output", "json")

    process.send_signal(signal.SIGINT)
    done = cli.end(process)

    assert (done.status, done.code) == (130, "INTERRUPTED")


def test_a_kill_while_the_reserve_is_in_flight(cli: Cli) -> None:
    process, directory, following = reserving(cli)

    process.kill()
    assert cli.end(process).status == -signal.SIGKILL

    finished = cli.follow(following, "--output", "json")
    assert finished.json["result"] == {"stage": "completed", "error": None, "questions": 0}
    assert Ledger(directory).posts() == ["/reserve", "/ship"]


def test_a_kill_before_anything_is_saved(cli: Cli) -> None:
    """The directory is told first: the printed command does whatever was not done."""
    blocked = cli.directory / "blocked"
    blocked.mkdir()
    code = (
        "import os, signal, sys\n"
        "from fulfillment_cli.adapters.checkpoints import RecoveryStore\n"
        "RecoveryStore.create_in = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from fulfillment_cli.cli.app import run\n"
        "sys.exit(run(['pause']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=cli.directory,
        env=cli.environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cli.started.append(process)
    directory, following = printed_directory(process)
    assert cli.end(process).status == -signal.SIGKILL
    assert not (directory / "tasks.sqlite").exists()

    done = cli.follow(following, "--output", "json")

    assert (done.json["result"]["stage"], done.json["checkpoint"]["flow"]) == ("paused", "pause")


def test_a_second_signal_ends_at_once(cli: Cli) -> None:
    """The first one is not even looked at here: the process stands still when both arrive."""
    code = (
        "import os, signal, sys\n"
        "from fulfillment_cli.cli.running import Signals\n"
        "signals = Signals()\n"
        "signals.cancel = lambda: print('cancelled', flush=True)\n"
        "signals.install()\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print('still here')\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=cli.environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert (process.returncode, process.stdout) == (143, "cancelled\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_result_that_was_there_first_is_what_is_told(cli: Cli, number: signal.Signals) -> None:
    """A signal that comes while things are closed does not take the result back."""
    code = (
        "import os, signal, sys\n"
        "from fulfillment_cli.adapters import service_process\n"
        "stop = service_process._stop\n"
        "async def interrupted(process):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    await stop(process)\n"
        "service_process._stop = interrupted\n"
        "from fulfillment_cli.cli.app import run\n"
        "sys.exit(run(['retry', '--output', 'json']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=cli.directory,
        env=cli.environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cli.started.append(process)

    done = cli.end(process)

    assert (done.status, done.json["result"]["stage"]) == (0, "completed")
    assert (done.json["checkpoint"]["stage"], done.json["next"]) == ("completed", None)


def test_a_signal_before_the_work_begins(cli: Cli) -> None:
    code = (
        "import os, signal, sys\n"
        "import fulfillment_cli.cli.flows as flows\n"
        "from fulfillment_cli.cli.app import run\n"
        "import fulfillment_cli.cli.flow_command as command\n"
        "command.run_flow = lambda *a, **k: os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.exit(run(['retry', '--output', 'json']))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=cli.directory,
        env=cli.environment | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert process.returncode == 143
    assert '"INTERRUPTED"' in process.stdout


def test_two_commands_on_one_task(cli: Cli) -> None:
    """The second one is told, and does not disturb the first."""
    first, directory, following = reserving(cli)

    second = cli.follow(following, "--output", "json")

    assert (second.status, second.code) == (5, "TASK_BUSY")
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert cli.end(first).status == 143
    assert the_directory(cli) == directory


def test_two_decisions_at_once(cli: Cli) -> None:
    directory = cli.json("pause")["directory"]
    decide = ("pause", "--directory", directory, "--output", "json")

    both = [
        cli.start(*decide, "--decision", decision, "--actor", decision)
        for decision in ("approve", "reject")
    ]
    ended = [cli.end(process) for process in both]

    won = [done for done in ended if done.status == 0]
    lost = [done for done in ended if done.status != 0]
    assert len(won) == len(lost) == 1, ended
    assert (lost[0].status, lost[0].code) in ((5, "TASK_BUSY"), (2, "ALREADY_DECIDED"))
    approval = won[0].json["checkpoint"]["approval"]
    assert approval["decision"] == approval["actor"]
    assert won[0].json["result"]["stage"] == (
        "completed" if approval["decision"] == "approve" else "rejected"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("waits_for", ["--inventory", "--config", "--request"])
def test_a_signal_ends_the_wait_for_a_pipe_that_nobody_writes_to(
    cli: Cli, waits_for: str, number: signal.Signals
) -> None:
    os.mkfifo(cli.directory / "pipe")
    (cli.directory / "order.txt").write_text("2 of SKU-1 to Dock-North, please.\n")
    (cli.directory / "stock.csv").write_text("sku,quantity\nSKU-1,10\n")
    reading, writing = os.pipe()
    options = {"--request": "order.txt", "--inventory": "stock.csv"}
    options |= {waits_for: "-" if waits_for == "--request" else "pipe"}
    words = [word for option in options.items() for word in option]
    process = cli.start("checkpoint", *words, "--output", "json", stdin=reading)
    asleep = 0

    def waits() -> bool:
        """It sleeps, as often as it is looked at: it has started, and stands in that call."""
        nonlocal asleep
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        asleep = asleep + 1 if state == "S" else 0
        return asleep >= 40

    until(waits, "it waits")

    process.send_signal(number)
    done = cli.end(process)
    os.close(reading)
    os.close(writing)

    assert (done.status, done.code) == (128 + number, "INTERRUPTED")
    assert not (cli.directory / ".fulfil-tasks").exists()
