"""The files in deploy/: the proxy's settings with a real nginx before real servers, the others as far as they can be
read without what they are for.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
import yaml

from replicas.fleet import DEPLOY, nginx, nginx_program, shipped_environment, write_nginx_configuration
from support.json_values import Json
from support.make import document, step, write
from support.web import WebClient, WebServer
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.tokens import Tokens
from workflowlookup.transport.http.server import END_SECONDS


@pytest.fixture
def replicas(database: str, library: Path, tmp_path: Path) -> Iterator[list[WebServer]]:
    write(library, document(step("one"), step("two"), identifier="by-hand"))
    environment = {"WORKFLOWLOOKUP_JOURNAL": database}
    servers = [WebServer(tmp_path, directory=library, environment=environment) for _ in range(3)]
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def proxy(replicas: list[WebServer], tmp_path: Path) -> Iterator[str]:
    with nginx(tmp_path, [int(server.base.rpartition(":")[2]) for server in replicas]) as url:
        yield url


@pytest.fixture
def token(database: str, replicas: list[WebServer], tmp_path: Path) -> str:
    journal = PostgresJournal(database)
    secret, _ = Tokens(journal).create("tests", ["run"], ["*"], seconds=600)
    journal.close()
    return secret


@pytest.fixture
def client(proxy: str, token: str) -> Iterator[WebClient]:
    client = WebClient(proxy, authorization=f"Bearer {token}", connection="close")
    end = time.monotonic() + 30
    while True:
        try:
            client.initialize()
            break
        except (httpx2.HTTPError, AssertionError):
            assert time.monotonic() < end
            time.sleep(0.1)
    yield client
    client.close()


def tool(client: WebClient, name: str, **arguments: Json) -> Json:
    return client.request("tools/call", {"name": name, "arguments": arguments})["result"]["structuredContent"]


def test_a_session_works_through_the_proxy_with_its_stream_and_without_a_replica(
    client: WebClient, replicas: list[WebServer]
) -> None:
    client.hearken()
    run = tool(client, "workflow_start", workflowId="by-hand")["runId"]
    client.request("resources/subscribe", {"uri": f"run://{run}"})
    time.sleep(1)

    tool(client, "workflow_submit", runId=run, stepId="one", output="done")
    assert client.unasked.get(timeout=30)["params"]["uri"] == f"run://{run}"

    for server in replicas[:2]:
        server.process.kill()
        server.wait()
    for _ in range(6):
        assert tool(client, "workflow_status", runId=run)["state"] == "waiting"


def test_nginx_accepts_the_configuration(tmp_path: Path) -> None:
    configuration = write_nginx_configuration(tmp_path, 8080, [8787, 8788, 8789])

    done = subprocess.run(
        [nginx_program(), "-t", "-c", str(configuration)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr


class Stub(ThreadingHTTPServer):
    """In place of a replica: answers every POST with a status, or by closing the connection; counts them."""

    def __init__(self, status: int | str | None) -> None:
        stub = self
        self.posts = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._respond(200)

            def do_POST(self) -> None:
                stub.posts += 1
                self.rfile.read(int(self.headers["content-length"]))
                if not isinstance(status, int):
                    self.close_connection = True
                else:
                    self._respond(status)

            def _respond(self, status: int) -> None:
                self.send_response(status)
                self.send_header("content-length", "0")
                if status == 503:
                    self.send_header("retry-after", "1")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def balance(tmp_path: Path) -> Iterator[Callable[..., tuple[str, list[Stub]]]]:
    """nginx before three stubs that answer with these statuses; one that is `gone` refuses connections."""
    with contextlib.ExitStack() as stack:

        def start(*statuses: int | str | None) -> tuple[str, list[Stub]]:
            stubs = [stack.enter_context(Stub(status)) for status in statuses]
            for stub, status in zip(stubs, statuses, strict=True):
                if status == "gone":
                    stub.server_close()
                else:
                    threading.Thread(target=stub.serve_forever, daemon=True).start()
                    stack.callback(stub.shutdown)
            url = stack.enter_context(nginx(tmp_path, [stub.server_port for stub in stubs]))
            return url, stubs

        yield start


def test_a_post_that_may_have_arrived_is_not_sent_again(balance: Callable[..., tuple[str, list[Stub]]]) -> None:
    url, stubs = balance(None, None, None)

    assert httpx2.post(url, content=b"x").status_code == 502
    assert sum(stub.posts for stub in stubs) == 1


def test_a_post_that_was_answered_503_goes_to_the_next_replica_and_the_sick_one_is_left_out(
    balance: Callable[..., tuple[str, list[Stub]]],
) -> None:
    url, (sick, *others) = balance(503, 200, 200)

    assert [httpx2.post(url, content=b"x").status_code for _ in range(30)] == [200] * 30
    assert sick.posts <= 3
    assert sum(stub.posts for stub in others) == 30


def test_a_replica_that_refuses_connections_is_left_out(balance: Callable[..., tuple[str, list[Stub]]]) -> None:
    url, (gone, *others) = balance("gone", 200, 200)

    assert [httpx2.post(url, content=b"x").status_code for _ in range(30)] == [200] * 30
    assert [gone.posts, sum(stub.posts for stub in others)] == [0, 30]


def test_replicas_that_are_all_sick_are_asked_nevertheless(balance: Callable[..., tuple[str, list[Stub]]]) -> None:
    url, _ = balance(503, 503, 503)

    answers = [httpx2.post(url, content=b"x") for _ in range(10)]

    assert [(answer.status_code, answer.headers.get("retry-after")) for answer in answers] == [(503, "1")] * 10


def test_a_replica_is_stopped_with_the_time_that_it_takes() -> None:
    """nginx keeps no idle connection for as long as a stopping replica serves, and nobody kills it before its end."""
    seconds = [float(shipped_environment()[f"WORKFLOWLOOKUP_{name}_SECONDS"]) for name in ("STOP_DELAY", "DRAIN")]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    unit = (DEPLOY / "workflowlookup@.service").read_text()
    timeouts = re.findall(r"^ *keepalive_timeout (\d+)s;", (DEPLOY / "nginx.conf").read_text(), re.MULTILINE)

    assert [float(each) < seconds[0] for each in timeouts] == [True] * 3
    assert float(services["replica-1"]["stop_grace_period"].removesuffix("s")) > sum(seconds) + END_SECONDS
    assert [
        f"Environment=WORKFLOWLOOKUP_{name}_SECONDS={value:g}" in unit
        for name, value in zip(("STOP_DELAY", "DRAIN"), seconds, strict=True)
    ] == [True, True]
    assert float(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > sum(seconds) + END_SECONDS


def test_compose_has_a_database_three_replicas_and_the_proxy_that_knows_them() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    upstreams = set(re.findall(r"server (\S+):8787", (DEPLOY / "nginx.conf").read_text()))

    assert upstreams == {name for name in services if name.startswith("replica-")}
    assert len(upstreams) == 3
    for name in upstreams:
        assert services[name]["depends_on"]["upgrade"]["condition"] == "service_completed_successfully"
        assert services[name]["environment"]["WORKFLOWLOOKUP_JOURNAL"].endswith("@postgres/workflowlookup")
    assert services["upgrade"]["command"] == ["db", "upgrade"]
    address = services["proxy"]["networks"]["default"]["ipv4_address"]
    assert {services[name]["environment"]["WORKFLOWLOOKUP_TRUSTED_PROXIES"] for name in upstreams} == {address}


def test_any_password_is_the_same_for_the_database_and_for_those_who_use_it() -> None:
    """In a URL it would have to be written otherwise than where the database is made."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    given = services["postgres"]["environment"]["POSTGRES_PASSWORD"]

    for name in ("upgrade", "cli", "replica-1", "replica-2", "replica-3"):
        environment = services[name]["environment"]
        assert environment["PGPASSWORD"] == given
        assert given not in environment["WORKFLOWLOOKUP_JOURNAL"]


def test_the_container_file_copies_what_is_there_and_is_not_root() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]

    assert all((DEPLOY.parent / name).exists() for names in copied for name in names)
    assert any(re.fullmatch(r"USER \d+:\d+", line) for line in lines)
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert any("'.[all]'" in line for line in lines)  # else traces could not be had without another image


def test_the_unit_is_one(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not here")
    template = (DEPLOY / "workflowlookup@.service").read_text()
    unit = tmp_path / "workflowlookup@8787.service"
    unit.write_text(template.replace("/opt/workflowlookup/bin/workflowlookup", "/bin/true"))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_does_not_work_in_its_configuration(tmp_path: Path) -> None:
    """What is below the working directory belongs to a project, so nobody there could sign answers."""
    unit = (DEPLOY / "workflowlookup@.service").read_text().replace("%S", str(tmp_path))
    home, directory = (re.findall(rf"{name}=(\S+)", unit)[0] for name in ("HOME", "WorkingDirectory"))
    names = re.findall(r"^StateDirectory=(.*)", unit, re.MULTILINE)[0].split()
    for name in names:
        (tmp_path / name).mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "workflowlookup", "person", "list", "--json"],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": home},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, json.loads(done.stdout)["problem"]) == (0, "")


def test_all_replicas_of_compose_have_the_same_files_of_their_account() -> None:
    whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    home = re.findall(r"--home-dir (\S+)", (DEPLOY / "Containerfile").read_text())[0]

    assert "account" in whole["volumes"]
    for name in ("cli", "replica-1", "replica-2", "replica-3"):
        assert f"account:{home}" in whole["services"][name]["volumes"]
        assert home not in whole["services"][name]["tmpfs"]
