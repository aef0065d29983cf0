"""Where a server may listen, and where only with access control."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from support.web import WebServer
from workflowlookup.auth.authentication import is_loopback, why_not_listen, why_tokens_are_required
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens


@pytest.mark.parametrize(
    ("address", "is_ours"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("192.168.1.2", False),
        ("fe80::1%eth0", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_loopback_addresses(address: str, is_ours: bool) -> None:
    assert is_loopback(address) == is_ours


@pytest.mark.parametrize(
    ("address", "hosts", "is_required", "reason"),
    [
        ("127.0.0.1", (), False, ""),
        ("127.0.0.1", ("localhost:8787", "127.0.0.1", "[::1]:80", "flows.localhost"), False, ""),
        ("0.0.0.0", (), False, "other machines reach 0.0.0.0"),
        ("127.0.0.1", (), True, "the setting require_tokens is on"),
        ("127.0.0.1", ("localhost", "flows.example:443"), False, "allowed_hosts names 'flows.example:443'"),
        ("127.0.0.1", ("*",), False, "allowed_hosts names '*'"),
        ("127.0.0.1", ("10.0.0.7",), False, "allowed_hosts names '10.0.0.7'"),
    ],
)
def test_where_tokens_are_required_from_the_start(
    address: str, hosts: tuple[str, ...], is_required: bool, reason: str
) -> None:
    requirement = why_tokens_are_required(address, hosts, is_required=is_required)

    assert reason in requirement
    assert bool(requirement) == bool(reason)
    assert why_not_listen(requirement, has_tokens=lambda: True, has_issuer=False) == ""
    assert why_not_listen(requirement, has_tokens=lambda: False, has_issuer=True) == ""
    assert (
        "workflowlookup token create" in why_not_listen(requirement, has_tokens=lambda: False, has_issuer=False)
    ) == bool(reason)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of ours to its end, away from the user's own home."""
    environment = {**os.environ, "HOME": str(tmp_path), "WORKFLOWLOOKUP_JOURNAL": str(tmp_path / "runs.sqlite")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "workflowlookup", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    return run


@pytest.mark.parametrize("state", ["none", "expired", "revoked"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_public_server_without_tokens_does_not_start(
    run: Callable[..., subprocess.CompletedProcess[str]], address: str, state: str
) -> None:
    if state != "none":
        run("token", "create", "a", "--expires", "0m" if state == "expired" else "1d")
    if state == "revoked":
        run("token", "revoke", "a")

    done = run("serve", "--http", address)

    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no valid token. Make one" in done.stderr


@pytest.mark.parametrize("flags", [("--allowed-hosts", "flows.example"), ("--require-tokens", "true")])
def test_on_loopback_tokens_can_be_required_from_the_start(
    run: Callable[..., subprocess.CompletedProcess[str]], flags: tuple[str, str]
) -> None:
    done = run("serve", "--http", "127.0.0.1:0", *flags)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"the setting {flags[0][2:].replace('-', '_')} " in done.stderr
    assert "workflowlookup token create --name NAME --scope run" in done.stderr


@pytest.mark.parametrize("flags", [("--allowed-hosts", "flows.example"), ("--require-tokens", "true")])
def test_with_required_tokens_nobody_is_the_local_person(tmp_path: Path, flags: tuple[str, str]) -> None:
    tokens = Tokens(SqliteJournal(str(tmp_path / "runs.sqlite")))
    secret = tokens.create("ada", ["read"], ["*"], seconds=60)[0]
    tokens.close()
    server = WebServer(tmp_path, "--journal", str(tmp_path / "runs.sqlite"), *flags)
    try:
        hosts = ["flows.example", "127.0.0.1"] if "flows.example" in flags else ["127.0.0.1"]
        for host in hosts:
            headers = {"host": host}
            assert httpx2.post(server.url, content=b"{}", headers=headers).status_code == 401
            headers["authorization"] = f"Bearer {secret}"
            assert httpx2.post(server.url, content=b"{}", headers=headers).status_code == 400
    finally:
        server.stop()
