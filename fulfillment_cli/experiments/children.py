"""Child processes that run the program's own ``main``, and can be killed where we want.

They are forked from a server process that has imported the program already: a real process with
a pid of its own, without half a second of imports each time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from fulfillment_cli.experiments.boundaries import Plan, install

_PRELOAD = [
    "fulfillment_cli.experiments.children",
    "fulfillment_cli.cli.flows",
    "fulfillment_cli.runtime",
    "fulfillment_cli.adapters.model",
    "fulfillment_cli.adapters.ledger",
    "fulfillment_cli.adapters.service_process",
    "fulfillment_cli.report",
    "openai",
    "reference_service.server",
    "reference_service.command",
]

_context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child ended.

    Attributes:
        pid: Its process id.
        status: Exit status, or minus the signal that killed it.
        stdout, stderr: What it wrote.
    """

    pid: int
    status: int
    stdout: str
    stderr: str

    @property
    def signal_name(self) -> str | None:
        """The signal that killed it, or none."""
        return signal.Signals(-self.status).name if self.status < 0 else None


class Child:
    """One run of ``fulfil`` with these arguments, in this working directory."""

    def __init__(
        self,
        arguments: list[str],
        directory: Path,
        name: str,
        plan: Plan | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        _context.set_forkserver_preload(_PRELOAD)
        self._stdout = directory / f"{name}.stdout"
        self._stderr = directory / f"{name}.stderr"
        self._process = _context.Process(
            target=_run,
            args=(
                arguments,
                str(directory),
                str(self._stdout),
                str(self._stderr),
                plan or Plan(),
                variables or {},
            ),
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)

    async def held(self, notify: Path, seconds: float = 120.0) -> bool:
        """Wait until the child stands still at its stage; False where it ended before."""
        async with asyncio.timeout(seconds):
            while not notify.exists():
                if not self._process.is_alive():
                    return notify.exists()
                await asyncio.sleep(0.005)
        return True

    async def wait(self, seconds: float = 180.0) -> Exit:
        """Wait for its end.

        Raises:
            TimeoutError: It did not end; it was killed.
        """
        await asyncio.to_thread(self._process.join, seconds)
        if self._process.exitcode is None:
            self.kill()
            raise TimeoutError(f"child {self.pid} did not end in {seconds:g} s")
        return Exit(
            self.pid,
            self._process.exitcode,
            self._stdout.read_text() if self._stdout.exists() else "",
            self._stderr.read_text() if self._stderr.exists() else "",
        )


def _run(
    arguments: list[str],
    directory: str,
    stdout: str,
    stderr: str,
    plan: Plan,
    variables: dict[str, str],
) -> None:
    """The child's life; the streams are files, as they would be under a scheduler."""
    os.chdir(directory)
    os.environ.update(variables)
    for path, descriptor in ((stdout, 1), (stderr, 2)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    install(plan)
    from fulfillment_cli.__main__ import main

    sys.argv = ["fulfil", *arguments]
    sys.exit(main())
