"""Where a server may listen, and where only with access control."""

import os
import subprocess
import sys

import pytest

from workflowlookup.transport.guard import is_loopback, why_not_listen


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
def test_which_addresses_only_this_machine_reaches(address, is_ours):
    assert is_loopback(address) == is_ours


def test_beyond_loopback_it_takes_tokens_or_an_issuer():
    def why(address, tokens=False, issuer=False):
        return why_not_listen(address, has_tokens=lambda: tokens, has_issuer=issuer)

    assert why("127.0.0.1") == ""
    assert why("0.0.0.0", tokens=True) == ""
    assert why("0.0.0.0", issuer=True) == ""
    assert "workflowlookup token create" in why("0.0.0.0")


@pytest.mark.parametrize("state", ["none", "expired", "revoked"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_server_that_would_ask_nobody_does_not_start(tmp_path, address, state):
    environment = {**os.environ, "HOME": str(tmp_path), "WORKFLOWLOOKUP_JOURNAL": str(tmp_path / "runs.sqlite")}

    def run(*words):
        command = [sys.executable, "-m", "workflowlookup", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    if state != "none":
        run("token", "create", "a", "--expires", "0m" if state == "expired" else "1d")
    if state == "revoked":
        run("token", "revoke", "a")

    done = run("serve", "--http", address)

    assert (done.returncode, done.stdout) == (2, "")
    assert "nobody would be asked who they are. Make a token first" in done.stderr
