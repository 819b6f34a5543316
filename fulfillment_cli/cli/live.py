"""A table that grows on a terminal's stderr while work goes on."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from fulfillment_cli.cli.running import Invocation
from fulfillment_cli.domain.order import printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table


class LiveTable:
    """Rows by name, in the order they were started.

    On a terminal the table is redrawn in place and removed at the end, when the result is
    printed as plain lines. Elsewhere, and with ``--quiet``, nothing is shown before that.
    """

    def __init__(self, invocation: Invocation, headings: tuple[str, ...]) -> None:
        self._headings = headings
        self._rows: dict[str, tuple[str, ...]] = {}
        self._live: Live | None = None
        self._draws = invocation.watched

    def start(self, name: str) -> None:
        """Show that a row's work has begun."""
        self._rows[name] = ("...",)
        self._draw()

    def end(self, name: str, *cells: str) -> None:
        """Show what a row's work came to."""
        self._rows[name] = cells
        self._draw()

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(*self._headings, box=None, pad_edge=False)
        for name, cells in list(self._rows.items())[-30:]:
            table.add_row(*(Text(printable(cell)) for cell in (name, *cells)))
        return table

    def __enter__(self) -> Self:
        if self._draws:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(self._table(), console=console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
