"""All errors of the program.

::

    FulfilError                  has a code; the code's row in CODES has the exit status
    ├── UsageError               the command line, a file it names, or the configuration
    │   └── TaskNotFound         no such task (or directory of tasks)
    ├── SourceError              the request text; ends the task in `failed`
    │   └── SourceTooLarge       the only one with a way out: `required_bytes`
    ├── CatalogError             a catalog read was refused; ends the task in `failed`
    │   └── CatalogUnavailable   the only one that goes on to the next allowed source
    ├── ModelError               the model; the task stays `queued`
    │   ├── ModelUnavailable     no answer: try later
    │   └── AnswerRefused        an answer came and was not accepted: may be asked once more
    ├── LedgerError              by what is known about the effect:
    │   ├── LedgerNotReached     never sent: the connection was not made
    │   └── OutcomeUnknown       sent, and the answer is missing or unreadable
    ├── StoreError               tasks.sqlite cannot be used
    ├── PlanMismatch             what is saved is not what was planned; nothing is sent
    └── Contention               another process is at work, or was
        ├── TaskBusy
        ├── LeaseLost
        └── RevisionConflict

A verdict of the ledger (``committed``, ``rejected``) is not an error: it is a value, see
:mod:`fulfillment_cli.domain.operations`.
"""

from __future__ import annotations

from typing import ClassVar

from fulfillment_cli.domain.codes import CODES


class FulfilError(Exception):
    """The base of all errors that a user may see.

    Args:
        message: One line for a person; the code's meaning where none is given.
        code: A key of :data:`~fulfillment_cli.domain.codes.CODES`; the class's own by default.
        hint: What to do next; the code's own by default.
    """

    default_code: ClassVar[str] = "INTERNAL"

    def __init__(
        self, message: str | None = None, *, code: str | None = None, hint: str | None = None
    ) -> None:
        self.code = code or self.default_code
        info = CODES[self.code]
        self.message = message or info.meaning
        self.hint = hint or info.hint
        super().__init__(self.message)

    @property
    def exit_status(self) -> int:
        """The process exit status that this error ends a command with."""
        return CODES[self.code].exit_status


class UsageError(FulfilError):
    """The command line, a file that it names, or the configuration is wrong; nothing was done."""

    default_code = "USAGE"


class TaskNotFound(UsageError):
    """There is no task of this id in the directory."""

    default_code = "TASK_NOT_FOUND"


class SourceError(FulfilError):
    """The request text cannot be read, and reading it again would not help."""

    default_code = "SOURCE_INVALID"


class SourceTooLarge(SourceError):
    """The request text is over the read limit.

    Attributes:
        required_bytes: Its size in bytes, where the source says it.
        retryable: Whether a read with a limit of ``required_bytes`` can succeed.
    """

    default_code = "SOURCE_TOO_LARGE"

    def __init__(self, *, limit: int, required_bytes: int, retryable: bool) -> None:
        super().__init__(f"The request text has {required_bytes} bytes; the limit is {limit}.")
        self.required_bytes = required_bytes
        self.retryable = retryable


class CatalogError(FulfilError):
    """A catalog source answered with a refusal, which no other source may hide."""

    default_code = "INVALID_RESPONSE"


class CatalogUnavailable(CatalogError):
    """A catalog source did not answer (503, no connection, or the 10 s transport cap)."""

    default_code = "UNAVAILABLE"


class ModelError(FulfilError):
    """The model's endpoint refused, or its answers stayed unacceptable. The task is unchanged."""

    default_code = "MODEL_REQUEST_REJECTED"


class ModelUnavailable(ModelError):
    """No answer from the model: connection, timeout, 429 or 5xx."""

    default_code = "MODEL_UNAVAILABLE"


class AnswerRefused(ModelError):
    """The model answered, and the answer is not accepted; the code says why.

    Attributes:
        address: The answer's address, where nothing is wrong with it but what else was said.
    """

    default_code = "MODEL_NOT_JSON"
    address: str | None = None


class LedgerError(FulfilError):
    """The ledger cannot be used as it is (identity, credentials, database)."""

    default_code = "LEDGER_UNAVAILABLE"


class LedgerNotReached(LedgerError):
    """The connection was never made, so the request did not reach the service."""

    default_code = "LEDGER_UNAVAILABLE"


class OutcomeUnknown(LedgerError):
    """The request may have reached the service; no readable answer came back."""

    default_code = "OUTCOME_UNKNOWN"


class StoreError(FulfilError):
    """The task database cannot be read or written; the transaction was rolled back."""

    default_code = "DATABASE_FAILED"


class PlanMismatch(FulfilError):
    """The saved order, plan or policy does not match its fingerprint. Nothing was sent."""

    default_code = "PLAN_MISMATCH"


class Contention(FulfilError):
    """Another process is, or was, at work on the same task or directory."""

    default_code = "TASK_BUSY"


class TaskBusy(Contention):
    """Another process holds the task's lease or the directory's ledger."""


class LeaseLost(Contention):
    """The fencing token is old: another process took the task over."""

    default_code = "LEASE_LOST"


class RevisionConflict(Contention):
    """The task's revision is not the one that was read."""

    default_code = "REVISION_CONFLICT"
