"""``fulfil init`` and ``fulfil doctor``."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fulfillment_cli.adapters.machine import file_system, is_network
from fulfillment_cli.settings import load_settings
from fulfillment_cli.viewing import doctor
from tests.scripted_model import Reply, ScriptedModel, completion
from tests.support import ROOT, change_document
from tests.viewing.conftest import Made


def test_init_writes_what_is_missing(tmp_path: Path, fulfil: Callable[..., Any]) -> None:
    first = json.loads(fulfil("init", "--output", "json").out)

    assert first == {"written": ["ditto.yaml", ".env.example"], "kept": []}
    assert load_settings(tmp_path / "ditto.yaml").provider == "local"
    assert (tmp_path / "ditto.yaml").read_bytes() == (ROOT / "ditto.yaml").read_bytes()
    assert (tmp_path / ".env.example").read_bytes() == (ROOT / ".env.example").read_bytes()


def test_init_never_overwrites(tmp_path: Path, fulfil: Callable[..., Any]) -> None:
    (tmp_path / "ditto.yaml").write_text("mine")
    (tmp_path / ".env.example").symlink_to(tmp_path / "elsewhere")

    done = fulfil("init")

    assert done.status == 0
    assert done.out.count("left as it is") == 2
    assert (tmp_path / "ditto.yaml").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def checks(done: Any) -> dict[str, dict[str, Any]]:
    document = json.loads(done.out)
    assert document["ok"] == (done.status == 0)
    return {check["name"]: check for check in document["checks"]}


@pytest.fixture
def configured(tmp_path: Path, scripted: ScriptedModel) -> ScriptedModel:
    (tmp_path / "ditto.yaml").write_text(scripted.config())
    return scripted


def test_all_is_well(configured: ScriptedModel, fulfil: Callable[..., Any]) -> None:
    done = fulfil("doctor", "--output", "json")

    assert done.status == 0
    assert {"configuration", "provider", "sqlite", "file system", "database", "clock"} <= set(
        checks(done)
    )
    assert configured.requests == []


def test_one_request_on_demand(configured: ScriptedModel, fulfil: Callable[..., Any]) -> None:
    done = fulfil("doctor", "--request", "--output", "json")

    assert done.status == 0
    assert checks(done)["model request"]["ok"] is True
    assert len(configured.requests) == 1


def test_a_model_that_cannot_be_asked(
    configured: ScriptedModel, fulfil: Callable[..., Any]
) -> None:
    configured.script(then=lambda request: Reply({"error": "no"}, status=401))
    refused = fulfil("doctor", "--request", "--output", "json")
    configured.script(then=lambda request: Reply(completion("I would rather talk.")))
    prose = fulfil("doctor", "--request")

    assert refused.status == prose.status == 1
    assert "MODEL_UNAUTHORIZED" in checks(refused)["model request"]["detail"]
    assert "WRONG model request" in prose.out
    assert "      do: " in prose.out


@pytest.mark.parametrize(
    ("text", "name", "code"),
    [
        ("provider: [", "configuration", "CONFIG_INVALID"),
        (
            '{"provider": "p", "providers": {"p": {"kind": "openai-compatible", "model": "m",'
            ' "base_url": "http://127.0.0.1:9/v1", "api_key_env": "NO_SUCH_KEY"}},'
            ' "sandbox": {"network": ["http://127.0.0.1:9"]}}',
            "provider",
            "PROVIDER_KEY_MISSING",
        ),
        (
            '{"provider": "p", "providers": {"p": {"kind": "openai-compatible", "model": "m",'
            ' "base_url": "http://127.0.0.1:9/v1"}}}',
            "provider",
            "NETWORK_NOT_ALLOWED",
        ),
    ],
)
def test_a_wrong_configuration_says_what_to_do(
    tmp_path: Path, fulfil: Callable[..., Any], text: str, name: str, code: str
) -> None:
    (tmp_path / "ditto.yaml").write_text(text)

    check = checks(fulfil("doctor", "--output", "json"))[name]

    assert check["ok"] is False
    assert check["detail"].startswith(code)
    assert check["hint"]


def test_modes_that_are_too_open(
    configured: ScriptedModel, tmp_path: Path, fulfil: Callable[..., Any]
) -> None:
    (tmp_path / ".env").write_text("KEY=1")
    (tmp_path / ".env").chmod(0o644)
    done = fulfil("doctor")
    (tmp_path / ".env").chmod(0o600)

    assert done.status == 1
    assert "do: chmod 600 .env" in done.out
    assert fulfil("doctor").status == 0


def test_a_clock_that_went_back(
    made: Made, configured: ScriptedModel, tmp_path: Path, fulfil: Callable[..., Any]
) -> None:
    shutil.copytree(made["lost"], tmp_path / ".fulfil-tasks" / "one")
    (tmp_path / ".fulfil-tasks").chmod(0o700)
    assert fulfil("doctor").status == 0
    later = "2999-01-01T00:00:00.000000+00:00"
    change_document(tmp_path / ".fulfil-tasks/one", lambda saved: saved.update(updatedAt=later))

    check = checks(fulfil("doctor", "--output", "json"))["clock"]

    assert check["ok"] is False
    assert later in check["detail"]


MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:30 / /mnt/share rw - nfs4 server:/export rw,vers=4.2
41 40 0:31 / /mnt/share/local rw shared:3 - xfs /dev/vdb rw
42 27 0:32 / /mnt/with\\040space rw - cifs //server/share rw
43 27 0:33 / /home/me/remote rw - fuse.sshfs me@host: rw
44 27 0:34 / /mnt/over rw - ext4 /dev/vdc rw
45 27 0:35 / /mnt/over rw - nfs server:/over rw
short line
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/work", "ext4", False),
        ("/mnt/share/orders", "nfs4", True),
        ("/mnt/share/local/orders", "xfs", False),
        ("/mnt/shares", "ext4", False),
        ("/mnt/with space/x", "cifs", True),
        ("/home/me/remote", "fuse.sshfs", True),
        ("/mnt/over/x", "nfs", True),
    ],
)
def test_the_file_system_below_a_path(path: str, kind: str, network: bool) -> None:
    assert file_system(Path(path), MOUNTS) == kind
    assert is_network(kind) is network


def test_a_network_mount_is_refused(
    configured: ScriptedModel, fulfil: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "file_system", lambda place: "nfs4")

    done = fulfil("doctor")

    assert done.status == 1
    assert "keep tasks on a local disk" in done.out


def test_this_machine_is_told_from_its_own_mounts(tmp_path: Path) -> None:
    kind = file_system(tmp_path)
    (told,) = {line.split()[-2] for line in _df(tmp_path)}

    assert kind == told


def _df(path: Path) -> list[str]:
    command = ["df", "--output=fstype,target", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[
        1:
    ]
