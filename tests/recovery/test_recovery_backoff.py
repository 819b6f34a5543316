"""Delays, and what an error means for a sweep."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fulfillment_cli.domain.errors import (
    AnswerRefused,
    CatalogUnavailable,
    FulfilError,
    LeaseLost,
    LedgerNotReached,
    ModelError,
    ModelUnavailable,
    OutcomeUnknown,
    PlanMismatch,
    RevisionConflict,
    SourceError,
    StoreError,
    TaskBusy,
    TaskNotFound,
    UsageError,
)
from fulfillment_cli.recovery.backoff import delay
from fulfillment_cli.recovery.dispositions import Disposition, disposition

seconds = st.floats(0.01, 3600)


@given(st.integers(1, 10_000), seconds, seconds, st.integers())
def test_a_delay_is_within_its_limits(attempts: int, base: float, cap: float, seed: int) -> None:
    waited = delay(attempts, base=base, cap=cap, source=random.Random(seed))
    assert 0 <= waited <= cap
    assert attempts > 60 or waited <= base * 2 ** (attempts - 1)


@given(st.integers(1, 100), seconds, st.integers())
def test_the_jitter_is_full_and_comes_from_the_source(
    attempts: int, base: float, seed: int
) -> None:
    class Fixed(random.Random):
        def random(self) -> float:
            return share

    for share in (0.0, 0.25, 0.5):
        whole = min(300.0, base * 2.0 ** (attempts - 1))
        waited = delay(attempts, base=base, cap=300.0, source=Fixed(seed))
        assert waited == pytest.approx(share * whole)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModelUnavailable(), "retry"),
        (ModelUnavailable(code="MODEL_RATE_LIMITED"), "retry"),
        (ModelUnavailable(code="LOCAL_MODEL_FAILED"), "retry"),
        (LedgerNotReached(), "retry"),
        (OutcomeUnknown(), "retry"),
        (AnswerRefused(code="ORDER_NOT_GROUNDED"), "give-up"),
        (AnswerRefused(code="MODEL_REFUSED"), "give-up"),
        (PlanMismatch(), "give-up"),
        (UsageError(code="TRANSITION_REFUSED"), "give-up"),
        (ModelError(code="MODEL_UNAUTHORIZED"), "configure"),
        (ModelError(code="MODEL_REDIRECTED"), "configure"),
        (UsageError(code="PROVIDER_KEY_MISSING"), "configure"),
        (UsageError(code="NETWORK_NOT_ALLOWED"), "configure"),
        (UsageError(code="LOCAL_MODEL_MISSING"), "configure"),
        (UsageError(code="LEDGER_UNAUTHORIZED"), "configure"),
        (UsageError(code="LEDGER_MISMATCH"), "skip"),
        (TaskBusy(), "leave"),
        (LeaseLost(), "leave"),
        (RevisionConflict(), "leave"),
        (TaskNotFound(), "leave"),
        (UsageError(code="DATABASE_INVALID"), "broken"),
        (UsageError(code="LEDGER_INVALID"), "broken"),
        (StoreError(), "broken"),
        (SourceError(), "broken"),
    ],
    ids=lambda value: getattr(value, "code", value),
)
def test_dispositions(error: FulfilError, expected: str) -> None:
    assert disposition(error) == Disposition(expected)


def test_no_error_of_a_step_is_without_a_disposition() -> None:
    assert isinstance(disposition(CatalogUnavailable()), Disposition)
