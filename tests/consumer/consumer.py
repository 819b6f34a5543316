"""A small program that uses the public API; checked with ``mypy --strict`` against the wheel."""

import asyncio
from pathlib import Path

from fulfillment_cli import (
    Checkpoint,
    FlowResult,
    FulfilError,
    RecoveryStore,
    open_runtime,
    resume_paused,
    run_checkpoint,
    run_compensation,
    run_fallback,
    run_pause,
    run_retry,
    run_session,
    run_side_effect,
    run_timeout,
)

TEXT = "Fulfillment request. SKU: SKU-731; quantity: 2; delivery address: Dock-North."


async def every_flow(directory: Path) -> list[FlowResult]:
    async with open_runtime(directory, stock={"SKU-731": 100}) as runtime:
        return [
            await run_retry(runtime, "a", request=TEXT, max_attempts=2, initial_max_bytes=16),
            await run_fallback(runtime, "b", request=TEXT, allowed_sources=["primary", "backup"]),
            await run_timeout(runtime, "c", request=TEXT, timeout_ms=500),
            await run_checkpoint(runtime, "d", request=TEXT, stop_after="reserved"),
            await run_pause(runtime, "e", request=TEXT),
            await resume_paused(runtime, "approve", "somebody", "e", revision=None),
            await run_session(runtime, "f", request=TEXT, question="Which stage?"),
            await run_compensation(runtime, "g", request=TEXT),
            await run_side_effect(runtime, "h", request=TEXT),
        ]


def newest(directory: Path, task_id: str) -> Checkpoint:
    with RecoveryStore(directory) as store:
        return store.load(task_id)


def main() -> int:
    try:
        results = asyncio.run(every_flow(Path("orders")))
    except FulfilError as error:
        code: str = error.code
        print(code, error.hint)
        return error.exit_status
    print(*(result.stage for result in results), newest(Path("orders"), "d").revision)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
