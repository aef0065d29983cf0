"""Who did what: JSON in every line of the log, refused log-ins, and the audit log."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from auth.token_server import TokenServer
from support.json_values import Json, JsonObject
from support.web import WebServer, modern

FAULTY = """
import sys, threading, warnings
from workflowlookup.cli.main import main
from workflowlookup.transport.http.endpoint import Endpoint

async def fail(*_):
    warnings.warn("a warning of a library")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    raise RuntimeError("a fault\\nof the endpoint")

Endpoint._delete = fail
sys.exit(main(["serve", *sys.argv[1:]]))
"""


def started(run: str, workflow: str = "docs-guide") -> Json:
    return modern("tools/call", {"name": "workflow_start", "arguments": {"workflowId": workflow, "runId": run}})[
        "params"
    ]


@pytest.fixture
def token_server(tmp_path: Path) -> Iterator[TokenServer]:
    token_server = TokenServer(tmp_path, "--audit-log", str(tmp_path / "audit.jsonl"))
    yield token_server
    token_server.close()


def audited(directory: Path) -> list[JsonObject]:
    lines = [json.loads(line) for line in (directory / "audit.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in ("time", "level", "logger")} for line in lines]


def test_with_json_every_line_of_the_log_is_one_object(tmp_path: Path) -> None:
    server = WebServer(tmp_path, "--log-format", "json", program=("-c", FAULTY))
    try:
        assert httpx2.delete(server.base.partition('"')[0].removesuffix("/mcp") + "/mcp").status_code == 500
    finally:
        server.stop()

    lines = [json.loads(line) for line in server.logged]
    messages = " ".join(line["message"] for line in lines)
    traces = " ".join(line.get("exception", "") for line in lines)
    assert lines[0]["message"].startswith("workflowlookup serves MCP at http://127.0.0.1:")
    assert "a warning of a library" in messages
    assert "ZeroDivisionError" in traces
    assert "RuntimeError: a fault\nof the endpoint" in traces


@pytest.mark.parametrize("flags", [("--require-tokens", "true"), ("--http", "192.0.2.1:1")])
def test_the_reason_why_a_server_does_not_start_is_one_json_object(tmp_path: Path, flags: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "workflowlookup", "serve", "--http", "127.0.0.1:0", "--log-format", "json", *flags]
    done = subprocess.run(
        command, cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode != 0
    assert [json.loads(line)["message"][:16] for line in done.stderr.splitlines()] == ["workflowlookup: "]


def test_a_refused_log_in_is_logged_once_without_its_secret(token_server: TokenServer, tmp_path: Path) -> None:
    for _ in range(3):
        assert token_server.client("gone").post({}).status_code == 401
    assert token_server.client(authorization="Bearer a.b.c").post({}).status_code == 401
    token_server.client().post({})  # without a token it is no log-in

    log = token_server.server.log()
    assert log.count("a log-in from 127.0.0.1 was refused: its token is not known, has expired or was revoked") == 1
    assert log.count("a log-in from 127.0.0.1 was refused: its JWT") == 1
    assert audited(tmp_path) == [
        {"message": "log-in refused", "address": "127.0.0.1", "kind": "token"},
        {"message": "log-in refused", "address": "127.0.0.1", "kind": "JWT"},
    ]


def test_every_action_has_one_audit_line_with_its_caller(token_server: TokenServer, tmp_path: Path) -> None:
    bot, base = token_server.client("ci-bot"), token_server.server.base
    bot.request("tools/call", started("one"))
    step = token_server.deployment.runs.get("one").current
    about = {"run": "one", "workflow": "docs-guide"}
    cancel = modern("tools/call", {"name": "workflow_cancel", "arguments": {"runId": "one"}})["params"]
    submit = {"runId": "one", "stepId": step, "output": "It is done, and the guide is written."}
    bot.request("tools/call", modern("tools/call", {"name": "workflow_submit", "arguments": submit})["params"])
    bot.request("tools/call", cancel)
    with httpx2.Client(headers={"accept": "text/html", "origin": base}) as browser:
        browser.post(f"{base}/login", data={"token": token_server.secrets["root"]})
        browser.get(f"{base}/runs/one/journal.jsonl")
        browser.post(f"{base}/logout")

    bot_acts = [line for line in audited(tmp_path) if line.get("by") == "token ci-bot via tests"]
    assert bot_acts[0] == {"message": "start", "by": "token ci-bot via tests", **about}
    assert [line["message"].partition(",")[0] for line in bot_acts] == ["start", "submit", "cancel"]
    root = {"by": "token root via console"}
    assert [line for line in audited(tmp_path) if line not in bot_acts] == [
        {"message": "log-in", **root, "address": "127.0.0.1"},
        {"message": "export", **root, **about},
        {"message": "log-out", **root, "address": "127.0.0.1"},
    ]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_commands_are_recorded_too(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    environment = {"HOME": str(tmp_path), "WORKFLOWLOOKUP_AUDIT_LOG": str(tmp_path / "audit.jsonl"), "USER": "ada"}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "workflowlookup", *words]
        return subprocess.run(
            command, check=False, env={**environment, **more}, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    secret = run("token", "create", "bot", "--scope", "run").stdout.strip()
    run("token", "revoke", "bot")
    broken = run("token", "list", WORKFLOWLOOKUP_AUDIT_LOG=str(tmp_path / "no" / "such.jsonl"))
    inline = run("token", "create", "other", WORKFLOWLOOKUP_AUDIT_LOG="log")

    lines = audited(tmp_path)
    assert [line["message"] for line in lines] == ["token create", "token revoke"]
    assert lines[0].items() >= {"token": "bot", "kind": "agent", "scopes": ["run"], "workflows": ["*"]}.items()
    assert secret not in str(lines)
    assert (broken.returncode, "cannot be written" in broken.stderr) == (2, True)
    assert "workflowlookup audit: token create by=" in inline.stderr


def test_the_name_of_a_client_cannot_forge_audit_fields(tmp_path: Path) -> None:
    def start(name: str) -> str:
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
        call = {"name": "workflow_start", "arguments": {"workflowId": "code-review"}}
        messages = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        ]
        done = subprocess.run(
            [sys.executable, "-m", "workflowlookup", "serve", "--audit-log", "log"],
            input="".join(f"{json.dumps(message)}\n" for message in messages),
            cwd=tmp_path,
            env={"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stderr.partition(" run=")[0].removeprefix("workflowlookup audit: start ")

    assert start("curl") == "by=curl"
    assert start("curl by=root").partition("run=")[0] == 'by="curl by=root"'
    assert start(" \ttoken  root") == 'by="client token root"'
    assert start("\u200btoken root") == 'by="\ufffdtoken root"'
