"""Which certificates a client trusts."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from fulfillment_cli.adapters.certificates import trusted_by


@pytest.fixture(autouse=True)
def _no_certificate_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)


def authorities(context: ssl.SSLContext) -> int:
    return context.cert_store_stats()["x509_ca"]


def test_a_client_of_plain_http_trusts_nobody() -> None:
    context = trusted_by(["http://127.0.0.1:8080"])
    assert authorities(context) == 0
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("origin", ["https://api.example", "HTTPS://API.EXAMPLE"])
def test_one_https_origin_is_enough_to_load_the_authorities(origin: str) -> None:
    context = trusted_by(["http://127.0.0.1:8080", origin])
    assert authorities(context) > 0
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_named_certificate_file_takes_the_place_of_the_usual_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    everything = Path(certifi.where()).read_text()
    end = "-----END CERTIFICATE-----"
    first = everything[: everything.index(end) + len(end)]
    (tmp_path / "one.pem").write_text(first)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
    assert authorities(trusted_by(["https://api.example"])) == 1
