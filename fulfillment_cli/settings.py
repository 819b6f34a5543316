"""``ditto.yaml`` and ``.env`` -> one frozen :class:`Settings`, validated once.

The real environment always wins over ``.env``; ``.env`` is never written into it, so a key does
not travel on to child processes that have no use for it.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from dotenv import dotenv_values
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.origin import is_bare, origin_of

SERVICE_TOKEN_VARIABLE = "FULFIL_SERVICE_TOKEN"

PACKAGED = "the packaged default"
"""Where the configuration comes from where there is no ``ditto.yaml``."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LocalProvider(_Section):
    """A small model on this machine's CPU, served over HTTP by a child process.

    Attributes:
        model_path: A GGUF file to use instead of the packaged weights, or none. Relative paths
            are relative to the configuration file.
    """

    kind: Literal["local"]
    model: str = "gemma3-270m"
    model_path: Path | None = None


class RemoteProvider(_Section):
    """Any server that speaks the OpenAI chat-completions protocol.

    Attributes:
        base_url: Root of its API, usually ending in ``/v1``; its origin must be allowed.
        api_key_env: Name of the variable that holds its key; none where it needs no key.
    """

    kind: Literal["openai-compatible"]
    base_url: str
    model: Annotated[str, Field(min_length=1)]
    api_key_env: str | None = None

    @field_validator("base_url")
    @classmethod
    def _absolute(cls, value: str) -> str:
        origin_of(value)
        return value


Provider = Annotated[LocalProvider | RemoteProvider, Field(discriminator="kind")]


class ModelSettings(_Section):
    """Limits of one question to the model.

    Attributes:
        max_attempts: Answers one question may take, 1 to 5 (contract, section 6).
        timeout_seconds: Deadline over one whole request, 1 to 600 s.
        max_tokens: Longest answer, 16 to 8192 tokens.
    """

    max_attempts: Annotated[int, Field(ge=1, le=5)] = 2
    timeout_seconds: Annotated[float, Field(ge=1, le=600)] = 60
    max_tokens: Annotated[int, Field(ge=16, le=8192)] = 256


class SandboxSettings(_Section):
    """Where requests may go: origins, nothing else."""

    network: tuple[str, ...] = ()

    @field_validator("network")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if not is_bare(entry):
                raise ValueError(f"{entry!r} must be an origin (scheme://host:port) with no path")
        return tuple(origin_of(entry) for entry in value)


class RecoverySettings(_Section):
    """What a sweep after a restart does.

    Attributes:
        disabled: Whether sweeps do nothing.
        max_attempts: Attempts before a task becomes a dead letter, 1 to 100.
        startup_delay: Seconds before the first pass, 0 to 3600; none: 3 with ``--watch``, else 0.
        backoff_base: First delay before another attempt, 0.01 to 3600 s.
        backoff_cap: Longest delay, 0.01 to 86400 s.
        log_level: The least that a sweep logs.
    """

    disabled: bool = False
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    startup_delay: Annotated[float, Field(ge=0, le=3600)] | None = None
    backoff_base: Annotated[float, Field(ge=0.01, le=3600)] = 1.0
    backoff_cap: Annotated[float, Field(ge=0.01, le=86_400)] = 300.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(_Section):
    """The whole configuration.

    Attributes:
        source: Where it was read from, for messages: a file's name or :data:`PACKAGED`.
        env: What ``.env`` and the environment hold; secret, never printed.
    """

    provider: str
    providers: dict[str, Provider]
    model: ModelSettings = ModelSettings()
    sandbox: SandboxSettings = SandboxSettings()
    recovery: RecoverySettings = RecoverySettings()
    source: str = PACKAGED
    env: dict[str, SecretStr] = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _known_provider(self) -> Settings:
        if self.provider not in self.providers:
            raise ValueError(f"provider: {self.provider!r} is not one of the providers")
        return self

    def select(self, name: str | None = None) -> LocalProvider | RemoteProvider:
        """The named provider, or the configured one.

        Raises:
            UsageError: ``PROVIDER_UNKNOWN``; or ``NETWORK_NOT_ALLOWED`` where its origin is not
                in ``sandbox.network``.
        """
        chosen = self.providers.get(name or self.provider)
        if chosen is None:
            known = ", ".join(sorted(self.providers))
            raise UsageError(
                f"No provider {name!r} is configured in {self.source}.",
                code="PROVIDER_UNKNOWN",
                hint=f"Name one of: {known}.",
            )
        if isinstance(chosen, RemoteProvider):
            self.check_origin(chosen.base_url)
        return chosen

    def check_origin(self, url: str, *, bare: bool = False) -> str:
        """Return the URL's origin.

        Args:
            bare: The URL may be nothing more than an origin.

        Raises:
            UsageError: ``NETWORK_NOT_ALLOWED`` if it is not in ``sandbox.network``; ``USAGE`` if
                it is not a URL, or has a path that it may not have.
        """
        try:
            origin = origin_of(url)
        except ValueError as error:
            raise UsageError(f"{url!r} {error}.") from None
        if bare and not is_bare(url):
            raise UsageError(f"{url!r} must be an origin without a path, as {origin}.")
        if origin not in self.sandbox.network:
            raise UsageError(
                f"{origin} is not in sandbox.network of {self.source}; nothing was sent.",
                code="NETWORK_NOT_ALLOWED",
            )
        return origin

    def secret(self, variable: str) -> str | None:
        """A variable of the environment or ``.env``; none where it is unset or empty."""
        value = self.env.get(variable)
        return value.get_secret_value() or None if value else None

    def api_key(self, provider: RemoteProvider) -> str | None:
        """The provider's key, or none where it needs no key.

        Raises:
            UsageError: ``PROVIDER_KEY_MISSING``.
        """
        if provider.api_key_env is None:
            return None
        key = self.secret(provider.api_key_env)
        if key is None:
            raise UsageError(
                f"{provider.api_key_env} is not set.",
                code="PROVIDER_KEY_MISSING",
                hint=f"Set {provider.api_key_env} in the environment or in .env.",
            )
        return key


def load_settings(config: Path | None = None, env_file: Path | None = None) -> Settings:
    """Read the configuration.

    Args:
        config: The YAML file. None: ``ditto.yaml`` where it is there, else the packaged default.
        env_file: The dotenv file. None: ``.env`` where it is there.

    Raises:
        UsageError: ``CONFIG_NOT_FOUND`` for a named file that is missing; ``CONFIG_INVALID``
            with file, key and reason.
    """
    text, source, base = _read_config(config)
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The last two: a date like 2024-13-45, and brackets that are too deep.
        raise _invalid(source, _yaml_reason(error)) from None
    if not isinstance(values, dict):
        raise _invalid(source, "must be a mapping of keys")
    for reserved in ("source", "env"):
        if reserved in values:
            raise _invalid(source, f"{reserved}: unknown key")
    try:
        settings = Settings.model_validate(
            values | {"source": source, "env": _environment(env_file)}
        )
    except ValidationError as error:
        raise _invalid(source, _validation_reason(error)) from None
    return _resolve_paths(settings, base)


def _read_config(config: Path | None) -> tuple[str, str, Path]:
    path = config or Path("ditto.yaml")
    try:
        return path.read_text(encoding="utf-8"), str(path), path.parent
    except FileNotFoundError:
        if config is not None:
            raise UsageError(f"There is no file {config}.", code="CONFIG_NOT_FOUND") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(str(path), f"cannot be read ({_brief(error)})") from None
    packaged = files("fulfillment_cli").joinpath("ditto.yaml")
    return packaged.read_text(encoding="utf-8"), PACKAGED, Path()


def _environment(env_file: Path | None) -> dict[str, str]:
    path = env_file or Path(".env")
    if env_file is not None and not path.is_file():
        raise UsageError(f"There is no file {env_file}.", code="CONFIG_NOT_FOUND")
    try:
        dotenv = dotenv_values(path, interpolate=False) if path.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(str(path), f"cannot be read ({_brief(error)})") from None
    return {name: value for name, value in dotenv.items() if value is not None} | dict(os.environ)


def _resolve_paths(settings: Settings, base: Path) -> Settings:
    providers = {
        name: provider.model_copy(update={"model_path": base / provider.model_path})
        if isinstance(provider, LocalProvider) and provider.model_path is not None
        else provider
        for name, provider in settings.providers.items()
    }
    return settings.model_copy(update={"providers": providers})


def _invalid(source: str, reason: str) -> UsageError:
    return UsageError(f"{source}: {reason}.", code="CONFIG_INVALID")


def _brief(error: Exception) -> str:
    return error.strerror or "unreadable" if isinstance(error, OSError) else "not UTF-8 text"


def _yaml_reason(error: Exception) -> str:
    mark: Any = getattr(error, "problem_mark", None)
    problem: Any = getattr(error, "problem", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}not YAML ({problem or 'unreadable'})"


def _validation_reason(error: ValidationError) -> str:
    """The first thing that is wrong, as ``key: reason``; never a value, which may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    parts = [str(part) for part in first["loc"] if part not in ("local", "openai-compatible")]
    reason = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
    reason = reason.removeprefix("Value error, ")
    return f"{'.'.join(parts)}: {reason}" if parts else reason
