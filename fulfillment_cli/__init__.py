"""Run an order from free text to shipment, and recover from every failure on the way.

The public Python API. Everything is imported when it is first used: ``import fulfillment_cli``
does no work and loads no other package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fulfillment_cli.adapters.checkpoints import RecoveryStore
    from fulfillment_cli.domain.checkpoint import Checkpoint
    from fulfillment_cli.domain.errors import FulfilError
    from fulfillment_cli.domain.order import Order, Policy
    from fulfillment_cli.domain.stages import Flow, Goal, Stage
    from fulfillment_cli.flows.checkpoint import run_checkpoint
    from fulfillment_cli.flows.compensation import run_compensation
    from fulfillment_cli.flows.fallback import run_fallback
    from fulfillment_cli.flows.pause import resume_paused, run_pause
    from fulfillment_cli.flows.retry import run_retry
    from fulfillment_cli.flows.session import run_session
    from fulfillment_cli.flows.side_effect import run_side_effect
    from fulfillment_cli.flows.task_run import FlowResult
    from fulfillment_cli.flows.timeout import run_timeout
    from fulfillment_cli.runtime import Runtime, open_runtime
    from fulfillment_cli.settings import Settings, load_settings
    from fulfillment_cli.version import __version__

_HOMES = {
    "Checkpoint": "domain.checkpoint",
    "Flow": "domain.stages",
    "FlowResult": "flows.task_run",
    "FulfilError": "domain.errors",
    "Goal": "domain.stages",
    "Order": "domain.order",
    "Policy": "domain.order",
    "RecoveryStore": "adapters.checkpoints",
    "Runtime": "runtime",
    "Settings": "settings",
    "Stage": "domain.stages",
    "__version__": "version",
    "load_settings": "settings",
    "open_runtime": "runtime",
    "resume_paused": "flows.pause",
    "run_checkpoint": "flows.checkpoint",
    "run_compensation": "flows.compensation",
    "run_fallback": "flows.fallback",
    "run_pause": "flows.pause",
    "run_retry": "flows.retry",
    "run_session": "flows.session",
    "run_side_effect": "flows.side_effect",
    "run_timeout": "flows.timeout",
}

__all__ = [
    "Checkpoint",
    "Flow",
    "FlowResult",
    "FulfilError",
    "Goal",
    "Order",
    "Policy",
    "RecoveryStore",
    "Runtime",
    "Settings",
    "Stage",
    "__version__",
    "load_settings",
    "open_runtime",
    "resume_paused",
    "run_checkpoint",
    "run_compensation",
    "run_fallback",
    "run_pause",
    "run_retry",
    "run_session",
    "run_side_effect",
    "run_timeout",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
