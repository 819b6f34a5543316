"""Fixtures of the experiments' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted_model import ScriptedModel


@pytest.fixture
def scripted_config(scripted: ScriptedModel, tmp_path: Path) -> Path:
    """A configuration file whose only provider is the scripted endpoint."""
    path = tmp_path / "scripted.yaml"
    path.write_text(scripted.config())
    return path
