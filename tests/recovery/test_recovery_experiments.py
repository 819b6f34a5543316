"""Experiments 21-26, with the scripted model in place of the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fulfillment_cli.experiments.provider import shared_model
from fulfillment_cli.experiments.recovery_scenarios import RECOVERY_SCENARIOS
from fulfillment_cli.experiments.runner import run_one
from fulfillment_cli.experiments.scenario import Scenario
from fulfillment_cli.runtime import silent
from fulfillment_cli.settings import load_settings
from tests.scripted_model import ScriptedModel


@pytest.mark.parametrize("scenario", RECOVERY_SCENARIOS, ids=lambda scenario: scenario.name)
async def test_experiment(scenario: Scenario, scripted: ScriptedModel, tmp_path: Path) -> None:
    config = tmp_path / "scripted.yaml"
    config.write_text(scripted.config())
    async with shared_model(load_settings(config), None, tmp_path, silent) as model:
        outcome = await run_one(scenario, tmp_path / "lab", model, seed=1)
    assert outcome.problems == []
    assert outcome.passed
