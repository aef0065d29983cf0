"""The wire: what the real process does with the bytes, pipes, files and terminals that it is given."""

import ctypes
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.client import Start
from support.json_values import Json, JsonObject
from support.make import document, write
from support.narrowing import not_none

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}
COMMAND = [sys.executable, "-m", "workflowlookup", "serve"]


@pytest.fixture
def quiet(tmp_path: Path) -> JsonObject:
    """The arguments of a process away from the user's own files."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WORKFLOW")}
    return {"cwd": tmp_path, "env": {**environment, "HOME": str(tmp_path)}, "timeout": 20}


def run(data: bytes, quiet: JsonObject, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(COMMAND, input=data, capture_output=True, check=False, **quiet, **options)


def read_from(source: Any, quiet: JsonObject) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        COMMAND,
        stdin=source,
        capture_output=True,
        check=False,
        cwd=quiet["cwd"],
        env=quiet["env"],
        timeout=quiet["timeout"],
    )


def begin(quiet: JsonObject, stdin: Any, stdout: Any = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        COMMAND, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, cwd=quiet["cwd"], env=quiet["env"]
    )


def replies(output: bytes) -> list[Json]:
    return [json.loads(line) for line in output.splitlines()]


def test_replies_come_in_the_order_of_the_requests(quiet: JsonObject) -> None:
    names = ["ping", "nope", "tools/list", "ping", "server/discover", "ping"]
    data = b"".join(
        json.dumps({"jsonrpc": "2.0", "id": n, "method": name}).encode() + b"\n" for n, name in enumerate(names)
    )

    done = run(data, quiet)

    assert [reply["id"] for reply in replies(done.stdout)] == list(range(6))
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_end_of_input_is_a_normal_end_and_the_last_line_needs_no_newline(quiet: JsonObject) -> None:
    done = run(PING.rstrip(), quiet)

    assert (replies(done.stdout), done.returncode) == ([PONG], 0)


@pytest.mark.parametrize("noise", [b"\n", b"\r\n", b"   \n"], ids=["empty", "return", "blanks"])
def test_blank_lines_are_ignored(noise: bytes, quiet: JsonObject) -> None:
    assert replies(run(noise + PING.replace(b"\n", b"\r\n") + noise, quiet).stdout) == [PONG]


def test_a_message_may_arrive_in_pieces(start: Start) -> None:
    server = start(version=None)
    for byte in PING:
        server.write(bytes([byte]))

    assert server.receive() == PONG


def test_a_message_over_the_limit_is_answered_and_the_next_one_too(start: Start) -> None:
    server = start(version=None, WORKFLOWLOOKUP_MAX_MESSAGE_BYTES="2000")
    server.write(b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"' + b"a" * 300_000 + b'"}}\n' + PING)

    reply = server.receive()

    assert (reply["id"], reply["error"]["code"]) == (7, -32700)
    assert reply["error"]["data"] == {"details": "the message is longer than 2,000 bytes", "position": 2000}
    assert server.receive() == PONG


UNREADABLE = {
    "more than 8 MiB": b'{"x":"' + b"a" * (8 << 20) + b'"}',
    "nested too deeply": b"[" * 200_000 + b"]" * 200_000,
    "a number of 4,301 digits": b"[" + b"9" * 4_301 + b"]",
    "a number out of range": b'{"x":1e400}',
}


@pytest.mark.parametrize("params", UNREADABLE.values(), ids=UNREADABLE)
def test_a_request_that_cannot_be_read_is_answered_by_its_id(start: Start, params: Json) -> None:
    server = start(version=None)
    server.write(b'{"jsonrpc":"2.0","id":"a-7","method":"ping","params":' + params + b"}\n" + PING)

    reply = server.receive()

    assert (reply["id"], reply["error"]["code"]) == ("a-7", -32700)
    assert server.receive() == PONG


@pytest.mark.parametrize("params", list(UNREADABLE.values())[1:], ids=list(UNREADABLE)[1:])
def test_a_request_that_cannot_be_read_is_answered_by_an_id_at_its_end(start: Start, params: Json) -> None:
    server = start(version=None)
    server.write(b'{"jsonrpc":"2.0","method":"ping","params":' + params + b',"id":"a-7"}\n')

    reply = server.receive()

    assert (reply["id"], reply["error"]["code"]) == ("a-7", -32700)


@pytest.mark.parametrize("number", ["1e400", "9" * 4_301])
def test_an_id_out_of_range_is_repeated_in_the_error(start: Start, number: str) -> None:
    server = start(version=None)
    server.write(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % number.encode())

    line = not_none(server.process.stdout).readline()

    assert line.startswith(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32600,' % number.encode())


def test_each_message_of_a_batch_with_a_number_out_of_range_is_answered(start: Start) -> None:
    server = start(version="2025-03-26")
    server.write(b'[{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e400}},' + PING.strip() + b"]\n")

    first, second = server.receive()

    assert (first["id"], first["error"]["code"]) == (1, -32700)
    assert second == PONG


RESPONSES = {
    "a result": b'{"jsonrpc":"2.0","id":7,"result":{}}',
    "an error": b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}',
    "an error without an id": b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}',
    "a result without a version": b'{"id":7,"result":{}}',
    "a result with an id that is none": b'{"jsonrpc":"2.0","id":[7],"result":{}}',
    "an id out of range": b'{"jsonrpc":"2.0","id":1e400,"result":{}}',
    "a number out of range": b'{"jsonrpc":"2.0","id":7,"result":{"x":1e400},"params":1e400}',
    "nested too deeply": b'{"jsonrpc":"2.0","id":7,"result":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "more than 8 MiB": b'{"jsonrpc":"2.0","id":7,"result":"' + b"a" * (9 << 20) + b'"}',
}


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_an_unexpected_response_is_not_answered(start: Start, response: Json) -> None:
    server = start()

    server.write(response + b"\n")

    assert server.is_silent()


def test_a_lone_surrogate_becomes_the_replacement_character(start: Start) -> None:
    server = start()
    server.write(rb'{"jsonrpc":"2.0","id":7,"method":"cut \ud83d"}' + b"\n")

    reply = server.receive()

    assert (reply["id"], reply["error"]["data"]) == (7, {"method": "cut \ufffd"})


def test_a_file_as_input_is_read_to_its_end(tmp_path: Path, quiet: JsonObject) -> None:
    (tmp_path / "requests").write_bytes(PING * 3)

    with (tmp_path / "requests").open("rb") as requests:
        done = read_from(requests, quiet)

    assert (replies(done.stdout), done.returncode) == ([PONG] * 3, 0)


def test_a_socket_as_input_and_output_works(quiet: JsonObject) -> None:
    ours, theirs = socket.socketpair()
    timeout = quiet["timeout"]
    with begin(quiet, theirs, theirs) as process:
        theirs.close()
        ours.settimeout(timeout)
        answers: list[Json] = []
        for _ in range(2):  # the second finds the server waiting for input
            ours.sendall(PING)
            answers += replies(ours.recv(4096))
        ours.shutdown(socket.SHUT_WR)
        code = process.wait(timeout)
    ours.close()

    assert (answers, code) == ([PONG, PONG], 0)


def test_on_a_terminal_it_says_what_it_is_and_how_to_use_it(quiet: JsonObject) -> None:
    controller, terminal = pty.openpty()
    timeout = quiet["timeout"]
    with begin(quiet, terminal) as process:
        os.close(terminal)
        os.write(controller, PING)
        answer = not_none(process.stdout).readline()
        os.write(controller, b"\x04")
        code = process.wait(timeout)
        greeting = not_none(process.stderr).read().decode()
    os.close(controller)

    assert (json.loads(answer), code) == (PONG, 0)
    assert greeting.startswith("workflowlookup serves MCP on this terminal")
    assert "workflowlookup install CLIENT" in greeting


def test_input_that_cannot_be_read_is_a_fatal_error_with_a_reply_and_an_exit_code(
    tmp_path: Path, quiet: JsonObject
) -> None:
    write_only = os.open(tmp_path / "write-only", os.O_WRONLY | os.O_CREAT)
    done = read_from(write_only, quiet)
    os.close(write_only)

    assert replies(done.stdout) == [
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "Internal error"}}
    ]
    assert done.returncode == 1
    assert b"fatal" in done.stderr


def test_a_stray_print_cannot_reach_the_wire(tmp_path: Path, quiet: JsonObject) -> None:
    script = (
        "import os, sys, subprocess\n"
        "from workflowlookup.protocol.connection import Connection\n"
        "from workflowlookup.app import serve_stdio\n"
        "from workflowlookup.settings import read_settings\n"
        "ping = Connection._ping\n"
        "def noisy(self, call):\n"
        "    print('stray print', flush=True); os.write(1, b'stray write\\n'); subprocess.run(['echo', 'stray child'])\n"
        "    assert sys.stdin.read() == ''\n"
        "    return ping(self, call)\n"
        "Connection._HANDSHAKE = {**Connection._HANDSHAKE, 'ping': noisy}\n"
        "sys.exit(serve_stdio(read_settings({}, {}, directory='.')))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=PING * 2, capture_output=True, check=False, **quiet)

    assert replies(done.stdout) == [PONG, PONG]
    assert done.stderr.decode().split("\n")[:3] == ["stray print", "stray write", "stray child"]


def test_a_client_that_writes_without_reading_is_not_a_deadlock(start: Start) -> None:
    server = start()
    request = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}).encode() + b"\n"

    server.write(request * 2_000)  # replies of some 20 MB, far over what pipes hold, before the first is read

    assert all(server.receive()["id"] == 5 for _ in range(2_000))


def test_a_client_that_stops_reading_and_disconnects_ends_the_server_quietly(quiet: JsonObject) -> None:
    timeout = quiet["timeout"]
    with begin(quiet, subprocess.PIPE) as process:
        not_none(process.stdin).write(PING)
        not_none(process.stdin).flush()
        not_none(process.stdout).readline()
        not_none(process.stdout).close()
        try:
            not_none(process.stdin).write(PING * 100)
            not_none(process.stdin).flush()
        except BrokenPipeError:
            pass
        code = process.wait(timeout)
        log = not_none(process.stderr).read()

    assert (code, log) == (0, b"")


def test_a_client_that_closes_standard_error_breaks_nothing(library: Path, start: Start) -> None:
    (library / "broken.json").write_text("{")
    server = start(directory=library)
    not_none(server.process.stderr).close()

    assert server.result("workflow_list") == {"workflows": []}
    assert server.is_silent()


@pytest.mark.parametrize("closed", ["2>&-", "1>&-", "0<&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_with_standard_descriptors_closed_it_still_ends_and_nothing_strays(
    closed: str, quiet: JsonObject, library: Path
) -> None:
    (library / "broken.json").write_text("{")
    messages = (
        PING
        + b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}\n'
    )
    messages += b'{"jsonrpc":"2.0","id":1,"method":"workflow_list"}\n' + PING
    quiet["env"] |= {"WORKFLOW_STORAGE_PATH": str(library)}
    command = ["sh", "-c", f"exec {sys.executable} -m workflowlookup serve {closed}"]
    done = subprocess.run(command, input=messages, capture_output=True, check=False, **quiet)

    assert b"Traceback" not in done.stderr
    expected = 4 if closed == "2>&-" else 0
    assert len(replies(done.stdout)) == expected


def test_the_buffer_for_a_client_that_does_not_read_is_bounded(library: Path, start: Start) -> None:
    for number in range(300):
        write(library, document(identifier=f"flow-{number:04}"))
    server = start(directory=library)
    request = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "workflow_list"}).encode() + b"\n"
    one = len(json.dumps(server.result("workflow_list")))
    count = 100_000_000 // one  # replies of 100 MB

    def resident() -> int:
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    before = resident()
    writer = threading.Thread(target=server.write, args=(request * count,))
    writer.start()
    time.sleep(1)
    grown = resident() - before
    received = sum(server.receive()["id"] == 5 for _ in range(count))
    writer.join()

    assert grown < 50_000
    assert received == count


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_without_a_traceback(which: signal.Signals, start: Start) -> None:
    server = start()

    server.process.send_signal(which)

    assert (server.wait(), server.log()) == (-which, "")


def test_sigterm_ends_it_whichever_thread_receives_it(start: Start) -> None:
    tgkill = getattr(ctypes.CDLL(None), "tgkill", None)
    if tgkill is None:
        pytest.skip("this C library cannot address a thread of another process")
    server = start()
    process = server.process.pid
    others = [int(name) for name in os.listdir(f"/proc/{process}/task") if int(name) != process]

    tgkill(process, others[-1], signal.SIGTERM)

    assert (server.wait(), server.log()) == (-signal.SIGTERM, "")


def test_an_idle_server_uses_no_processor_time(start: Start) -> None:
    server = start()
    assert server.is_silent()

    def ticks() -> int:
        with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
            return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13]))

    before = ticks()
    time.sleep(0.5)

    assert ticks() - before <= 1
    assert server.is_silent()


def test_a_skipped_document_is_one_log_line_once(library: Path, start: Start) -> None:
    (library / "broken.json").write_text('{"id": "broken"')
    write(library, document())
    server = start(directory=library)
    for _ in range(3):
        assert len(server.result("workflow_list")["workflows"]) == 1
    server.close_input()
    server.wait()

    log = server.log().splitlines()
    assert len(log) == 1
    assert log[0].startswith("workflowlookup warning: skipped ")
    assert "broken.json: JSON syntax error: Unexpected end of JSON input" in log[0]


def test_log_lines_can_be_json_and_levels_are_a_setting(library: Path, start: Start) -> None:
    (library / "broken.json").write_text("{")
    server = start(directory=library, WORKFLOWLOOKUP_LOG_FORMAT="json")
    silent = start(directory=library, WORKFLOWLOOKUP_LOG_LEVEL="error")
    for one in (server, silent):
        one.result("workflow_list")
        one.close_input()
        one.wait()

    (line,) = map(json.loads, server.log().splitlines())
    assert (line["level"], line["logger"]) == ("warning", "workflowlookup.library.catalog")
    assert silent.log() == ""
