"""The disk of the journal is full, really: the server is not ready, reads go on, and it recovers by itself."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.json_values import Json
from support.make import document, step, write
from support.mounts import NAMESPACE, may_mount
from support.postgres import Postgres
from support.waiting import wait_until
from support.web import WebClient, WebServer

ON_A_SMALL_DISK = f"""
import os, sys
disk, *words = sys.argv[1:]
mount = 'mount -t tmpfs -o size=24m tmpfs "$0" && exec "$@"'
os.execvp("unshare", [*{NAMESPACE!r}, "sh", "-c", mount, disk, sys.executable, "-m", "workflowlookup", *words])
"""


class Disk:
    """A server, and the disk of its journal."""

    def __init__(self, server: WebServer, path: Path) -> None:
        self.server = server
        self._filler = path / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), open(self._filler, "wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass

    def empty(self) -> None:
        self._filler.unlink()

    def readiness(self) -> int:
        return httpx2.get(self.server.base + "/readyz").status_code


def call(name: str, **arguments: Json) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def fill_until_refused(client: WebClient) -> httpx2.Response:
    """Start runs until one does not fit into the space that the journal has reserved."""
    for _ in range(2_000):
        answer = client.post(call("workflow_start", workflowId="docs", context={"text": os.urandom(4_000).hex()}))
        if answer.status_code != 200:
            return answer
    raise AssertionError("the disk is not full")


@pytest.fixture
def file_disk(tmp_path: Path) -> Iterator[Disk]:
    """A server in a namespace of its own, with its journal in a file."""
    write(tmp_path / "library", document(step(), identifier="docs"))
    path = tmp_path / "disk"
    path.mkdir()
    program = ("-c", ON_A_SMALL_DISK, str(path), "serve")
    journal = ("--journal", str(path / "runs.sqlite"))
    server = WebServer(tmp_path, *journal, directory=tmp_path / "library", program=program)
    yield Disk(server, Path(f"/proc/{server.process.pid}/root{path}"))
    server.stop()


@pytest.fixture
def database_disk(tmp_path: Path) -> Iterator[Disk]:
    """A server, and a PostgreSQL on a disk of its own."""
    write(tmp_path / "library", document(step(), identifier="docs"))
    path = tempfile.mkdtemp()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", path], check=True)
    try:
        postgres = Postgres(path)
        environment = {"WORKFLOWLOOKUP_JOURNAL": postgres.create_database()}
        server = WebServer(tmp_path, directory=tmp_path / "library", environment=environment)
        yield Disk(server, Path(path))
        server.stop()
        postgres.remove()
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)
        os.rmdir(path)


on_either = pytest.mark.parametrize(
    "kind",
    [
        pytest.param("file_disk", marks=may_mount),
        pytest.param(
            "database_disk",
            marks=pytest.mark.skipif(
                os.geteuid() != 0 or sys.platform != "linux", reason="only root can mount a disk for PostgreSQL"
            ),
        ),
    ],
)


@on_either
def test_a_server_whose_disk_is_full_is_not_ready_and_serves_reads(kind: str, request: pytest.FixtureRequest) -> None:
    disk: Disk = request.getfixturevalue(kind)
    assert disk.readiness() == 200
    client = WebClient(disk.server.url)
    client.initialize()
    for run, options in (("before", {}), ("late", {"timeoutSeconds": 0.01})):
        assert client.post(call("workflow_start", workflowId="docs", runId=run, **options)).status_code == 200

    disk.fill()
    wait_until(lambda: disk.readiness() == 503)
    refused = fill_until_refused(client)

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert "Make room on" in refused.text
    for run in ("before", "late"):
        read = client.request("tools/call", {"name": "workflow_status", "arguments": {"runId": run}})
        assert read["result"]["structuredContent"]["runId"] == run
    assert "workflowlookup_journal_up 1" in httpx2.get(disk.server.base + "/metrics").text
    assert httpx2.get(disk.server.base + "/healthz").status_code == 200
    assert disk.readiness() == 503

    disk.empty()
    wait_until(lambda: disk.readiness() == 200)
    submit = {"name": "workflow_submit", "arguments": {"runId": "before", "stepId": "first-step", "output": "x"}}
    assert client.request("tools/call", submit)["result"]["structuredContent"]["state"] == "completed"
    client.close()
