"""``ditto.yaml`` and ``.env``: what they mean, and what is said of a mistake in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fulfillment_cli.domain.errors import UsageError
from fulfillment_cli.domain.origin import origin_of
from fulfillment_cli.settings import LocalProvider, RemoteProvider, load_settings

GOOD: dict[str, Any] = {
    "provider": "own",
    "providers": {
        "own": {
            "kind": "openai-compatible",
            "base_url": "http://127.0.0.1:9000/v1",
            "model": "m",
            "api_key_env": "OWN_KEY",
        },
        "local": {"kind": "local"},
    },
    "model": {"max_attempts": 2, "timeout_seconds": 60, "max_tokens": 256},
    "sandbox": {"network": ["http://127.0.0.1:9000"]},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without any configuration, and none in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OWN_KEY", raising=False)
    return tmp_path


def write(content: Any, name: str = "ditto.yaml") -> Path:
    path = Path(name)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def changed(keys: str, value: Any) -> dict[str, Any]:
    """The good configuration with one value, at ``a.b.c``, changed."""
    values: dict[str, Any] = yaml.safe_load(yaml.safe_dump(GOOD))
    *parents, last = keys.split(".")
    target = values
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    return values


def refused(content: Any) -> str:
    with pytest.raises(UsageError) as error:
        load_settings(write(content))
    assert error.value.code == "CONFIG_INVALID"
    assert error.value.message.startswith("ditto.yaml: ")
    assert "\n" not in error.value.message
    return error.value.message


# -- reading -----------------------------------------------------------------------------------


def test_without_a_file_the_packaged_default_applies_and_says_so() -> None:
    settings = load_settings()
    assert settings.source == "the packaged default"
    assert isinstance(settings.select(), LocalProvider)
    assert settings.sandbox.network == ()


def test_the_packaged_default_is_the_repositorys_file() -> None:
    import fulfillment_cli

    root = Path(__file__).resolve().parents[1]
    packaged = Path(fulfillment_cli.__file__).with_name("ditto.yaml")
    assert packaged.read_text() == (root / "ditto.yaml").read_text()


def test_a_file_in_the_working_directory_is_found() -> None:
    write(GOOD)
    settings = load_settings()
    assert settings.source == "ditto.yaml"
    chosen = settings.select()
    assert isinstance(chosen, RemoteProvider)
    assert chosen.base_url == "http://127.0.0.1:9000/v1"


@pytest.mark.parametrize("named", ["config", "env_file"])
def test_a_named_file_must_be_there(named: str) -> None:
    with pytest.raises(UsageError) as error:
        load_settings(**{named: Path("missing")})  # type: ignore[arg-type]
    assert error.value.code == "CONFIG_NOT_FOUND"
    assert "missing" in error.value.message


def test_a_models_path_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    values = changed("providers.local.model_path", "models/x.gguf")
    settings = load_settings(write(values, "deep/ditto.yaml"))
    chosen = settings.select("local")
    assert isinstance(chosen, LocalProvider)
    assert chosen.model_path == Path("deep/models/x.gguf")


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ("modle", {}),
        ("model.max_attemps", 2),
        ("providers.own.base-url", "http://127.0.0.1:9000"),
        ("providers.own.api_key", "sk-secret"),
        ("sandbox.networks", []),
        ("recovery.disable", True),
        ("source", "x"),
        ("env", {}),
    ],
)
def test_an_unknown_key_is_named(keys: str, value: Any) -> None:
    message = refused(changed(keys, value))
    assert keys.rsplit(".", maxsplit=1)[-1] in message
    assert "unknown key" in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ("model.max_attempts", 0),
        ("model.max_attempts", 6),
        ("model.max_attempts", "two"),
        ("model.timeout_seconds", 0),
        ("model.timeout_seconds", 601),
        ("model.timeout_seconds", float("nan")),
        ("model.timeout_seconds", float("inf")),
        ("model.max_tokens", 15),
        ("model.max_tokens", 8193),
        ("providers.own.kind", "remote"),
        ("providers.own.model", ""),
        ("providers.own.base_url", "127.0.0.1:9000"),
        ("providers.own.base_url", "ftp://127.0.0.1"),
        ("providers.own.base_url", "http://"),
        ("providers.own.base_url", "http://user:secret@127.0.0.1:9000"),
        ("providers.own.base_url", "http://127.0.0.1:0"),
        ("providers.own.base_url", "http://127.0.0.1:65536"),
        ("providers.own.base_url", "http://127.0.0.1:port"),
        ("providers.own.base_url", "http://[::1"),
        ("sandbox.network", ["http://127.0.0.1:9000/v1"]),
        ("sandbox.network", ["http://127.0.0.1:9000?x"]),
        ("sandbox.network", ["*"]),
        ("sandbox.network", "http://127.0.0.1:9000"),
        ("provider", "missing"),
        ("providers", []),
        ("recovery.max_attempts", 0),
        ("recovery.max_attempts", 101),
        ("recovery.startup_delay", -1),
        ("recovery.backoff_base", 0),
        ("recovery.backoff_cap", 86_401),
    ],
)
def test_a_value_out_of_range_is_named_with_its_key(keys: str, value: Any) -> None:
    message = refused(changed(keys, value))
    assert keys.rsplit(".", maxsplit=1)[-1] in message or keys.split(".", maxsplit=1)[0] in message
    assert "secret" not in message


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "just text",
        "provider: [",
        "provider: local\n  providers: x",
        "provider: !!python/object/apply:os.system ['true']",
        "\tprovider: local",
        "provider: 2024-13-45",
        "1: x",
        "a: &a [*a]",
        "provider: \x07",
        "[" * 5000,
    ],
    ids=[
        "empty",
        "list",
        "text",
        "open",
        "indented",
        "code",
        "tab",
        "date",
        "number",
        "cycle",
        "control",
        "deep",
    ],
)
def test_what_is_no_configuration_says_so_in_one_line(content: str) -> None:
    refused(content)


def test_a_file_that_cannot_be_read_is_a_coded_error(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"provider: caf\xe9")
    (tmp_path / "directory.yaml").mkdir()
    for name in ("latin.yaml", "directory.yaml"):
        with pytest.raises(UsageError) as error:
            load_settings(tmp_path / name)
        assert error.value.code == "CONFIG_INVALID"
    Path(".env").write_bytes(b"KEY=caf\xe9")
    with pytest.raises(UsageError) as error:
        load_settings()
    assert error.value.code == "CONFIG_INVALID"


def test_yaml_positions_are_told() -> None:
    assert "line 2" in refused("provider: local\nproviders: {a: [}")


# -- providers and the network -----------------------------------------------------------------


def test_an_unknown_provider_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as error:
        load_settings(write(GOOD)).select("other")
    assert error.value.code == "PROVIDER_UNKNOWN"
    assert "local, own" in error.value.hint


@pytest.mark.parametrize(
    "network",
    [
        [],
        ["http://127.0.0.1:9001"],
        ["https://127.0.0.1:9000"],
        ["http://localhost:9000"],
        ["http://127.0.0.1"],
    ],
    ids=str,
)
def test_a_provider_whose_origin_is_not_allowed_is_refused(network: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        load_settings(write(changed("sandbox.network", network))).select()
    assert error.value.code == "NETWORK_NOT_ALLOWED"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://Example.ORG/v1", "http://example.org:80"),
        ("https://example.org", "https://example.org:443"),
        ("https://example.org:8443/a?b#c", "https://example.org:8443"),
        ("http://[::1]:9000/", "http://[::1]:9000"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(url) == origin


def test_a_service_url_is_checked_against_the_allowlist() -> None:
    settings = load_settings(write(GOOD))
    assert settings.check_origin("http://127.0.0.1:9000/") == "http://127.0.0.1:9000"
    for url, code in (
        ("http://127.0.0.1:9001", "NETWORK_NOT_ALLOWED"),
        ("nonsense", "USAGE"),
        ("http://127.0.0.1:0", "USAGE"),
        ("http://127.0.0.1:99999", "USAGE"),
    ):
        with pytest.raises(UsageError) as error:
            settings.check_origin(url)
        assert error.value.code == code, url


# -- secrets -----------------------------------------------------------------------------------


def key() -> str | None:
    settings = load_settings(write(GOOD))
    chosen = settings.select()
    assert isinstance(chosen, RemoteProvider)
    return settings.api_key(chosen)


def test_a_provider_without_its_key_is_refused_by_name() -> None:
    for content in ("", "OWN_KEY=\n", "OWN_KEY\n"):
        Path(".env").write_text(content)
        with pytest.raises(UsageError) as error:
            key()
        assert error.value.code == "PROVIDER_KEY_MISSING"
        assert "OWN_KEY" in error.value.message


def test_the_real_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("OWN_KEY=from-file\n")
    assert key() == "from-file"
    monkeypatch.setenv("OWN_KEY", "from-environment")
    assert key() == "from-environment"


def test_the_file_is_not_written_into_the_environment_and_is_taken_literally() -> None:
    import os

    Path(".env").write_text("OWN_KEY='a$HOME'\n")
    assert key() == "a$HOME"
    assert "OWN_KEY" not in os.environ


def test_a_provider_that_needs_no_key_has_none() -> None:
    settings = load_settings(write(changed("providers.own.api_key_env", None)))
    chosen = settings.select()
    assert isinstance(chosen, RemoteProvider)
    assert settings.api_key(chosen) is None


def test_secrets_are_in_no_text_of_the_settings() -> None:
    Path(".env").write_text("OWN_KEY=sk-secret\n")
    settings = load_settings(write(GOOD))
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert "sk-secret" not in text
