"""One real model for a whole run: the local one is started once, for all experiments.

Children get it as an OpenAI-compatible provider in a configuration of their own, so that they
ask the same server, under the same recipe, over HTTP.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fulfillment_cli.domain.order import JsonObject
from fulfillment_cli.domain.origin import origin_of
from fulfillment_cli.settings import (
    LocalProvider,
    RemoteProvider,
    Settings,
    load_settings,
)

KEY_VARIABLE = "FULFIL_EXPERIMENT_MODEL_KEY"


@dataclass(frozen=True, slots=True)
class SharedModel:
    """The provider of a run.

    Attributes:
        name, kind, model: Of the provider as it is configured.
        base_url: Where it answers.
        sha256: Of a local model's weights; none for a remote one.
        config: A configuration file that names only this provider.
        settings: The same, loaded.
    """

    name: str
    kind: str
    model: str
    base_url: str
    sha256: str | None
    config: Path
    settings: Settings
    values: JsonObject

    @property
    def variables(self) -> dict[str, str]:
        """What children need in their environment: the key stands in no file."""
        return {KEY_VARIABLE: os.environ[KEY_VARIABLE]}

    def describe(self) -> JsonObject:
        """What the report says of it."""
        return {
            "provider": self.name,
            "kind": self.kind,
            "model": self.model,
            "endpoint": None if self.kind == "local" else origin_of(self.base_url),
            "weightsSha256": self.sha256,
        }

    def config_for(self, directory: Path, service_origin: str | None) -> Path:
        """Write a configuration that also allows a ledger at ``service_origin``."""
        values: dict[str, Any] = {**self.values}
        if service_origin is not None:
            network = [*self.values["sandbox"]["network"], service_origin]
            values["sandbox"] = {"network": network}
        path = directory / "ditto.yaml"
        path.write_text(yaml.safe_dump(values))
        return path


@asynccontextmanager
async def shared_model(
    settings: Settings, name: str | None, directory: Path, progress: Callable[[str], None]
) -> AsyncIterator[SharedModel]:
    """Have a provider ready for the whole run.

    Raises:
        UsageError: The provider is not usable as it is configured; a scripted answer is never
            taken instead.
        ModelUnavailable: The local model does not start.
    """
    name = name or settings.provider
    chosen = settings.select(name)
    if isinstance(chosen, LocalProvider):
        from fulfillment_cli.adapters.local_model import running_model

        async with running_model(chosen, progress) as running:
            base_url = f"{running.origin}/v1"
            yield _shared(settings, name, chosen, directory, base_url, running.key, running.sha256)
    else:
        key = settings.api_key(chosen) or "none"
        yield _shared(settings, name, chosen, directory, chosen.base_url, key, None)


def _shared(
    settings: Settings,
    name: str,
    chosen: LocalProvider | RemoteProvider,
    directory: Path,
    base_url: str,
    key: str,
    sha256: str | None,
) -> SharedModel:
    os.environ[KEY_VARIABLE] = key
    values: JsonObject = {
        "provider": name,
        "providers": {
            name: {
                "kind": "openai-compatible",
                "base_url": base_url,
                "model": chosen.model,
                "api_key_env": KEY_VARIABLE,
            }
        },
        "model": settings.model.model_dump(),
        "sandbox": {"network": [origin_of(base_url)]},
    }
    config = directory / "ditto.yaml"
    config.write_text(yaml.safe_dump(values))
    return SharedModel(
        name, chosen.kind, chosen.model, base_url, sha256, config, load_settings(config), values
    )
