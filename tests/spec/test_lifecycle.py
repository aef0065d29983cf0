"""From the start of the process to its end."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spec.roads import HANDSHAKE_VERSIONS, TOOLS, failure
from support.client import ENVELOPE, Server, Start

# ── start ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("004/lifecycle/startup", "001/compliance/lifecycle")
def test_the_first_message_of_the_server_is_the_answer_to_initialize(start: Start) -> None:
    server = start(version=None)

    server.send(
        {
            "jsonrpc": "2.0",
            "id": "first",
            "method": "initialize",
            "params": {"protocolVersion": "2024-11-05", "capabilities": {}},
        }
    )

    assert server.receive()["id"] == "first"


NOT_INITIALIZED = failure(
    -32000,
    "Server not initialized",
    {"details": "Send initialize first", "supportedVersions": HANDSHAKE_VERSIONS},
)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server without a handshake."""
    server = Server(tmp_path_factory.mktemp("home"))
    yield server
    server.stop()


@pytest.mark.spec("004/lifecycle/no-tools-before-initialize", "001/codes/-32000", "004/errors/-32000")
@pytest.mark.parametrize("tool", TOOLS)
def test_no_tool_is_called_by_its_name_before_initialize(fresh: Server, tool: str) -> None:
    assert fresh.request(tool, {}) == NOT_INITIALIZED


@pytest.mark.spec("004/lifecycle/no-tools-before-initialize")
@pytest.mark.parametrize("tool", TOOLS)
def test_no_tool_is_called_through_tools_call_before_initialize(fresh: Server, tool: str) -> None:
    assert fresh.request("tools/call", {"name": tool, "arguments": {}}) == NOT_INITIALIZED


@pytest.mark.spec("004/lifecycle/no-tools-before-initialize", "004/tools-list/after-initialize")
@pytest.mark.parametrize("method", ["tools/list", "resources/list", "prompts/list"])
def test_nothing_is_listed_before_initialize(fresh: Server, method: str) -> None:
    assert fresh.request(method, {}) == NOT_INITIALIZED


@pytest.mark.spec("004/lifecycle/no-tools-before-initialize")
def test_ping_and_discover_are_answered_before_initialize(fresh: Server) -> None:
    ping, discover = fresh.request("ping"), fresh.request("server/discover", {})

    assert ping == {"result": {}}
    assert discover["result"]["supportedVersions"] == ["2026-07-28"]


@pytest.mark.spec("004/lifecycle/no-tools-before-initialize")
def test_a_request_with_an_envelope_needs_no_handshake_and_begins_none(fresh: Server) -> None:
    in_envelope = fresh.modern("tools/call", {"name": "workflow_list", "arguments": {}})
    without = fresh.request("workflow_list")

    assert in_envelope["result"]["structuredContent"]["workflows"]
    assert without == NOT_INITIALIZED


@pytest.mark.spec("004/lifecycle/startup", "004/handshake/3-tool")
def test_tools_can_be_called_as_soon_as_initialize_is_answered(start: Start) -> None:
    """The spec's handshake has no notification after it."""
    server = start(version=None)
    server.result("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}})

    assert server.result("workflow_list")["workflows"]


# ── end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("004/lifecycle/shutdown", "004/lifecycle/exit", "001/compliance/lifecycle")
@pytest.mark.parametrize("params", [{}, None], ids=["empty", "null"])
@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, None])
def test_shutdown_is_answered_with_null_and_the_process_ends_cleanly(start: Start, version: str, params: Any) -> None:
    server = start(version=version)

    server.send({"jsonrpc": "2.0", "id": 99, "method": "shutdown", "params": params})

    assert server.receive() == {"jsonrpc": "2.0", "id": 99, "result": None}
    assert (server.wait(), server.log()) == (0, "")


@pytest.mark.spec("004/lifecycle/exit", "004/communication/order")
def test_requests_before_shutdown_are_answered_and_later_ones_are_not(start: Start) -> None:
    server = start()
    messages = [{"jsonrpc": "2.0", "id": method, "method": method} for method in ("workflow_list", "shutdown", "ping")]

    output, _ = server.process.communicate(b"".join(json.dumps(message).encode() + b"\n" for message in messages), 20)

    assert [json.loads(line)["id"] for line in output.splitlines()] == ["workflow_list", "shutdown"]
    assert server.wait() == 0


@pytest.mark.spec("004/lifecycle/exit")
@pytest.mark.parametrize("version", ["2024-11-05", None])
def test_the_process_ends_cleanly_at_the_end_of_input(start: Start, version: str | None) -> None:
    server = start(version=version)

    output, log = server.process.communicate(timeout=20)

    assert (server.wait(), output, log) == (0, b"", b"")


@pytest.mark.spec("004/lifecycle/exit")
def test_the_process_ends_cleanly_when_the_client_is_gone(start: Start) -> None:
    server = start()
    assert server.process.stdout is not None
    server.process.stdout.close()

    server.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert (server.wait(), server.log()) == (0, "")


@pytest.mark.spec("004/lifecycle/exit")
def test_an_open_subscription_is_ended_with_its_result_before_shutdown_is_answered(start: Start) -> None:
    server = start()
    listen = {"notifications": {}, "_meta": ENVELOPE}
    server.send({"jsonrpc": "2.0", "id": "listen:0", "method": "subscriptions/listen", "params": listen})
    acknowledged = server.receive()

    server.send({"jsonrpc": "2.0", "id": 99, "method": "shutdown"})

    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert [server.receive()["id"], server.receive()] == ["listen:0", {"jsonrpc": "2.0", "id": 99, "result": None}]
    assert server.wait() == 0


# ── in between ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("004/lifecycle/inactivity")
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much the process has done")
def test_an_idle_server_does_nothing_and_still_answers(start: Start) -> None:
    server = start()
    server.result("workflow_list")
    status = Path(f"/proc/{server.process.pid}")

    before = done_so_far(status)
    time.sleep(0.3)
    after = done_so_far(status)

    assert after == before
    assert server.result("ping") == {}


def done_so_far(status: Path) -> tuple[int, int]:
    """Ticks of processor time, and how often the process has been woken: a loop that polls would show in the latter."""
    while (fields := (status / "stat").read_text().rpartition(")")[2].split())[0] != "S":
        time.sleep(0.01)  # the reply was written a moment before the process goes to sleep
    switches = [line for line in (status / "status").read_text().splitlines() if line.startswith("voluntary_ctxt")]
    return int(fields[11]) + int(fields[12]), int(switches[0].split()[1])


@pytest.mark.spec("004/lifecycle/recoverable-error", "001/compliance/lifecycle")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", -32700),
        (b"\xff\xfe\x00", -32700),
        (b"{}", -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "no_such_method"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "workflow_get", "params": {}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "workflow_get", "params": {"id": "no-such-workflow"}}', -32001),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}', -32602),
    ],
)
def test_after_a_recoverable_error_the_server_continues(server: Server, line: bytes, code: int) -> None:
    server.write(line + b"\n")

    reply = server.receive()

    assert reply["error"]["code"] == code
    assert server.result("workflow_list") == {"workflows": []}


@pytest.mark.spec("004/lifecycle/fatal-error", "001/compliance/lifecycle")
def test_a_fatal_error_is_printed_and_the_exit_status_is_not_zero(tmp_path: Path) -> None:
    """Standard input is open for writing only, so that reading it fails."""
    write_only = os.open(tmp_path / "write-only", os.O_WRONLY | os.O_CREAT)
    try:
        process = subprocess.run(
            [sys.executable, "-m", "workflowlookup", "serve"],
            stdin=write_only,
            capture_output=True,
            check=False,
            cwd=tmp_path,
            timeout=20,
        )
    finally:
        os.close(write_only)

    assert json.loads(process.stdout) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32603, "message": "Internal error"},
    }
    assert process.returncode not in (0, None)
    assert b"Bad file descriptor" in process.stderr
