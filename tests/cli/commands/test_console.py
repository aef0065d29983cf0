"""`workflowlookup console`: prints a URL with a key that works once, serves on loopback, and ends on a signal."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.command_line import Cli
from support.json_values import JsonObject
from support.make import document, step, write
from support.narrowing import not_none
from workflowlookup.cli.commands.console import _reserve_name
from workflowlookup.cli.input import AGENT_VARIABLES


@pytest.fixture
def start(cli: Cli) -> Iterator[Callable[..., tuple[subprocess.Popen[str], int, str]]]:
    """Starts the command; its port and the way in that it printed."""
    running: list[subprocess.Popen[str]] = []

    def start_console(*words: str, **more: str) -> tuple[subprocess.Popen[str], int, str]:
        command = [sys.executable, "-m", "workflowlookup", "console", "--no-open", *words]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WORKFLOW", "XDG_")) and not AGENT_VARIABLES.fullmatch(name)
        }
        process = subprocess.Popen(
            command,
            cwd=cli.directory,
            env=environment | {"HOME": str(cli.home)} | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        line = not_none(process.stdout).readline()
        match = re.fullmatch(r"http://localhost:(\d+)(/enter\?key=[\w-]+)\n", line)
        assert match is not None, line + not_none(process.stderr).read()
        return process, int(match[1]), match[2]

    yield start_console
    for process in running:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def request_page(port: int, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as answer:
            yield answer


def ask(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    """The status, the cookie that was set, and the page."""
    with request_page(port, path, **headers) as answer:
        return answer.status, answer.headers.get("set-cookie", "").partition(";")[0], answer.read().decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "termination"])
def test_it_serves_the_runs_of_this_machine_until_it_is_stopped(
    cli: Cli, start: Callable[..., tuple[subprocess.Popen[str], int, str]], number: signal.Signals
) -> None:
    started = cli("run", "bug-investigation", "--json")
    run_id = json.loads(started.stdout)["runId"]
    process, port, way_in = start("--port", "0")
    assert ask(port, "/runs")[0] == 401
    _, cookie, _ = ask(port, way_in)
    assert run_id in ask(port, "/runs", cookie=cookie)[2]
    assert ask(port, way_in)[1] == ""
    assert ask(port, "/runs", cookie=cookie, host="evil.example")[0] == 403
    with request_page(port, "/events", cookie=cookie) as stream:
        assert stream.readline() == b"retry: 2000\n"
        process.send_signal(number)
        _, complaints = process.communicate(timeout=20)
        assert stream.read() in (b"\n", b"")

    assert process.returncode == (0 if number == signal.SIGINT else -signal.SIGTERM)
    assert "Traceback" not in complaints


def test_the_name_in_the_url_leads_nowhere_else(start: Callable[..., tuple[subprocess.Popen[str], int, str]]) -> None:
    """A browser may take it for ::1, and the key in the URL must not reach another program there."""
    _, port, _ = start("--port", "0")

    with pytest.raises(OSError, match=r"Address already in use|Cannot assign|not supported"):
        socket.create_server(("::1", port), family=socket.AF_INET6)


def test_where_another_program_has_that_address_the_url_is_in_numbers(cli: Cli) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        host, reserved = _reserve_name(taken.getsockname()[1])

    assert (host, reserved) == ("127.0.0.1", None)


def test_it_reads_requests_as_the_server_does(start: Callable[..., tuple[subprocess.Popen[str], int, str]]) -> None:
    """What uvicorn's own parsers take, the server refuses: a body that a proxy might read differently."""
    _, port, _ = start("--port", "0")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rb") as answer:
        connection.sendall(b"POST /runs HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")

        assert answer.readline() == b"HTTP/1.1 400 Bad Request\r\n"


def test_a_port_in_use_is_reported(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = cli("console", "--no-open", "--port", port)

    assert done.returncode == 1
    assert f"port {port} cannot be used" in done.stderr


def test_another_port_is_used_when_the_default_is_taken(
    start: Callable[..., tuple[subprocess.Popen[str], int, str]],
) -> None:
    ports = {start()[1] for _ in range(2)}

    assert len(ports) == 2


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
def test_an_invalid_port_is_wrong_usage(cli: Cli, port: str) -> None:
    assert cli("console", "--port", port).returncode == 2


@pytest.mark.parametrize(("agent", "may_answer"), [({}, True), ({"CLAUDECODE": "1"}, False)])
def test_a_console_that_an_agent_started_cannot_confirm(
    start: Callable[..., tuple[subprocess.Popen[str], int, str]],
    cli: Cli,
    project: Path,
    agent: JsonObject,
    may_answer: bool,
) -> None:
    write(project, document(step("sign", requireConfirmation=True), identifier="held-flow"))
    run_id = json.loads(cli("run", "held-flow", "--json", stdin=b"Signed.").stdout)["runId"]
    _, port, way_in = start("--port", "0", **agent)
    _, cookie, _ = ask(port, way_in)

    _, _, page = ask(port, f"/runs/{run_id}", cookie=cookie)

    assert (f"/runs/{run_id}/confirm" in page, "You can see this question, but not answer it" in page) == (
        may_answer,
        not may_answer,
    )
