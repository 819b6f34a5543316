"""``session``: prepares a task, then answers a question about it from the restored context."""

from __future__ import annotations

from fulfillment_cli.adapters.prompts import SessionState
from fulfillment_cli.domain.errors import AnswerRefused, UsageError
from fulfillment_cli.domain.order import ContextEntry, Order, SessionAnswer
from fulfillment_cli.domain.stages import Flow, Goal, Stage
from fulfillment_cli.flows.entry import Entry, find_or_make
from fulfillment_cli.flows.steps import drive
from fulfillment_cli.flows.task_run import FlowResult, TaskRun, entered
from fulfillment_cli.runtime import Runtime

DEFAULT_QUESTION = "Which sku and quantity are ordered, and what stage has the order reached?"


async def run_session(
    runtime: Runtime,
    task_id: str = "task",
    *,
    request: str | bytes | None = None,
    expected: Order | None = None,
    question: str | None = None,
) -> FlowResult:
    """Ask the model about a task; saved only where the answer agrees with the checkpoint.

    Changes the context and the revision of the task and nothing else; a ``queued`` task is
    prepared first.

    Args:
        request: Order text of a new task, up to 65536 bytes; none continues an existing one.
        expected: The order that a generated text was made from, for its fixture.
        question: 1 to 1000 characters; about order and stage by default.

    Raises:
        UsageError: ``NO_ORDER``: the task ended before it had one.
        AnswerRefused: ``ANSWER_UNVERIFIED`` among others; nothing was saved of it.
        TaskBusy: Another process runs the task.
    """
    question = DEFAULT_QUESTION if question is None else question
    if not 1 <= len(question) <= 1000 or not question.strip():
        raise UsageError("A question has 1 to 1000 characters.")
    if any("\ud800" <= character <= "\udfff" for character in question):
        # What bytes that are not UTF-8 become on a command line: it can be neither sent nor saved.
        raise UsageError("A question must be UTF-8 text.")
    entry = Entry(Flow.SESSION, task_id, request, expected, goal=Goal.PREPARED)
    await find_or_make(runtime, entry)
    async with entered(runtime, task_id, Flow.SESSION) as run:
        if run.checkpoint.stage is Stage.QUEUED:
            await drive(run, Goal.PREPARED)
        if run.checkpoint.order is None:
            raise UsageError(
                f"Task {task_id} is {run.checkpoint.stage} and has no order.", code="NO_ORDER"
            )
        return run.result(await _ask(run, question))


async def _ask(run: TaskRun, question: str) -> SessionAnswer:
    order = run.checkpoint.planned_order
    state = SessionState(
        sku=order.sku,
        quantity=order.quantity,
        stage=run.checkpoint.stage,
    )
    model = await run.runtime.model()
    run.runtime.progress(f"asking {model.provider}:{model.model} the question")
    run.questions += 1
    answer = await model.answer(state, question, run.record)
    if (answer.sku, answer.quantity, answer.stage) != (order.sku, order.quantity, state.stage):
        raise AnswerRefused(code="ANSWER_UNVERIFIED")
    run.advance(
        run.checkpoint.stage,
        "answered",
        context=(
            *run.checkpoint.context,
            ContextEntry(kind="question", content=question),
            ContextEntry(kind="answer", content=answer.to_json()),
        ),
    )
    return answer
