"""What is being done, on stderr: a spinner on a terminal, timed lines with ``--verbose``."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from fulfillment_cli.cli.running import Invocation, say
from fulfillment_cli.domain.order import printable

if TYPE_CHECKING:
    from rich.status import Status


class Progress:
    """Told in short lines what is being done; silent where nobody watches."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._spins = invocation.watched and not invocation.verbose
        self._status: Status | None = None

    def __call__(self, message: str) -> None:
        if self._invocation.verbose:
            elapsed = time.monotonic() - self._invocation.started
            say(f"[{elapsed:7.3f} s] {printable(message)}")
        elif self._spins:
            self._spin(printable(message))

    def _spin(self, message: str) -> None:
        with suppress(OSError):
            if self._status is None:
                from rich.console import Console

                console = Console(stderr=True, markup=False)
                # Not every encoding has the dots that turn by default.
                dots = console.encoding.startswith("utf")
                self._status = console.status(message, spinner="dots" if dots else "line")
                self._status.start()
            else:
                self._status.update(message)

    def __enter__(self) -> Self:
        if self._invocation.verbose:
            # Names, methods and statuses only: what these libraries log at INFO has no headers.
            logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
            self("settings are read")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            with suppress(OSError):
                self._status.stop()
        if self._invocation.verbose:
            self("closed")
