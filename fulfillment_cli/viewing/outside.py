"""What the ledger itself says of a task's operations; only asked, never written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fulfillment_cli.domain.checkpoint import Checkpoint
from fulfillment_cli.domain.errors import FulfilError
from fulfillment_cli.domain.operations import Kind, Operation
from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Outside:
    """The ledger's word.

    Attributes:
        operations: Key, state and code of each operation that the task may have sent.
        error: Why it could not be asked, or none.
    """

    operations: list[JsonObject] = field(default_factory=list)
    error: FulfilError | None = None

    def to_json(self) -> JsonObject:
        """The answer for machines."""
        error = self.error
        told = None if error is None else {"code": error.code, "message": error.message}
        return {"operations": self.operations, "error": told}

    @property
    def text(self) -> str:
        """The answer in a line."""
        if self.error is not None:
            return f"{self.error.code}: {self.error.message}"
        said = [
            f"{found['key']} {found['state']}" + (f" ({found['code']})" if found["code"] else "")
            for found in self.operations
        ]
        return ", ".join(said) or "there is no order yet, so there is nothing to ask for"


async def ask_outside(runtime: Runtime, checkpoint: Checkpoint) -> Outside:
    """Look up every operation that the task can have; an error is part of the answer."""
    found: list[JsonObject] = []
    try:
        if checkpoint.order is not None:
            ledger = await runtime.ledger(checkpoint.ledger_id)
            for operation in _operations(checkpoint):
                verdict = await ledger.look_up(operation)
                found.append(
                    {
                        "operation": operation.kind.value,
                        "key": operation.key,
                        "state": verdict.state,
                        "code": verdict.code,
                    }
                )
    except FulfilError as error:
        return Outside(found, error)
    return Outside(found)


def _operations(checkpoint: Checkpoint) -> Iterator[Operation]:
    yield from (checkpoint.operation(kind) for kind in Kind)
