"""The files in deploy/: the proxy's settings with a real nginx before real servers, the others as far as they can be
read without what they are for.
"""

import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import httpx2
import pytest
import yaml

from make import document, step, write
from web import WebClient, WebServer
from workflowlookup.runs.postgres import PostgresJournal
from workflowlookup.runs.tokens import Tokens

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def replicas(database, library, tmp_path):
    write(library, document(step("one"), step("two"), identifier="by-hand"))
    environment = {"WORKFLOWLOOKUP_JOURNAL": database}
    servers = [WebServer(tmp_path, directory=library, environment=environment) for _ in range(3)]
    yield servers
    for server in servers:
        server.stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def proxy(replicas, tmp_path):
    """nginx by deploy/nginx.conf, but for where the servers are and what it may write to."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not here")
    said = (DEPLOY / "nginx.conf").read_text()
    for number, server in enumerate(replicas, 1):
        said = said.replace(f"replica-{number}:8787", server.base.removeprefix("http://"))
    port = free_port()
    said = said.replace("listen 8080", f"listen 127.0.0.1:{port}").replace(
        "worker_processes auto", "worker_processes 1"
    )
    places = "".join(f"{name}_temp_path {tmp_path};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    said = said.replace("access_log off;", "access_log off;\n" + places)
    said = f"daemon off;\nmaster_process off;\npid {tmp_path}/pid;\nerror_log {tmp_path}/nginx.log;\n" + said
    config = tmp_path / "nginx.conf"
    config.write_text(said)
    running = subprocess.Popen([nginx, "-c", str(config)], stderr=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{port}/mcp"
    running.terminate()
    running.wait(30)


@pytest.fixture
def token(database, replicas, tmp_path):
    journal = PostgresJournal(database)
    secret, _ = Tokens(journal).create("tests", ["run"], ["*"], seconds=600)
    journal.close()
    return secret


@pytest.fixture
def client(proxy, token):
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


def tool(client, name, **arguments):
    return client.request("tools/call", {"name": name, "arguments": arguments})["result"]["structuredContent"]


def test_a_session_works_through_the_proxy_with_its_stream_and_without_a_replica(client, replicas):
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


def test_compose_has_a_database_three_replicas_and_the_proxy_that_knows_them():
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


def test_any_password_is_the_same_for_the_database_and_for_those_who_use_it():
    """In a URL it would have to be written otherwise than where the database is made."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    given = services["postgres"]["environment"]["POSTGRES_PASSWORD"]

    for name in ("upgrade", "cli", "replica-1", "replica-2", "replica-3"):
        environment = services[name]["environment"]
        assert environment["PGPASSWORD"] == given
        assert given not in environment["WORKFLOWLOOKUP_JOURNAL"]


def test_the_container_file_copies_what_is_there_and_is_not_root():
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]

    assert all((DEPLOY.parent / name).exists() for names in copied for name in names)
    assert any(re.fullmatch(r"USER \d+:\d+", line) for line in lines)
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert any("'.[otel]'" in line for line in lines)  # else traces could not be had without another image


def test_the_unit_is_one(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not here")
    said = (DEPLOY / "workflowlookup@.service").read_text()
    unit = tmp_path / "workflowlookup@8787.service"
    unit.write_text(said.replace("/opt/workflowlookup/bin/workflowlookup", "/bin/true"))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
