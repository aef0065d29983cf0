"""The disk of the journal is full, really: the server is not ready, reads go on, and it recovers by itself."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from support.make import document, step, write
from support.mounts import NAMESPACE, may_mount
from support.waiting import wait_until
from support.web import WebClient, WebServer

ON_A_SMALL_DISK = f"""
import os, sys
disk, *words = sys.argv[1:]
mount = 'mount -t tmpfs -o size=24m tmpfs "$0" && exec "$@"'
os.execvp("unshare", [*{NAMESPACE!r}, "sh", "-c", mount, disk, sys.executable, "-m", "workflowlookup", *words])
"""


class Disk:
    """The disk of a server in a namespace of its own."""

    def __init__(self, server: WebServer, path: Path) -> None:
        self.server = server
        self._filler = Path(f"/proc/{server.process.pid}/root{path}/filler")

    def fill(self) -> None:
        with contextlib.suppress(OSError), open(self._filler, "wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass

    def empty(self) -> None:
        self._filler.unlink()

    def readiness(self) -> int:
        return httpx2.get(self.server.base + "/readyz").status_code


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    write(tmp_path / "library", document(step(), identifier="docs"))
    path = tmp_path / "disk"
    path.mkdir()
    program = ("-c", ON_A_SMALL_DISK, str(path), "serve")
    journal = ("--journal", str(path / "runs.sqlite"))
    server = WebServer(tmp_path, *journal, directory=tmp_path / "library", program=program)
    yield Disk(server, path)
    server.stop()


@may_mount
def test_a_server_whose_disk_is_full_is_not_ready_and_serves_reads(disk: Disk) -> None:
    assert disk.readiness() == 200
    client = WebClient(disk.server.url)
    client.initialize()
    start = {"name": "workflow_start", "arguments": {"workflowId": "docs", "runId": "before"}}
    assert "isError" not in client.request("tools/call", start)["result"]

    disk.fill()
    wait_until(lambda: disk.readiness() == 503)

    status = {"name": "workflow_status", "arguments": {"runId": "before"}}
    assert client.request("tools/call", status)["result"]["structuredContent"]["runId"] == "before"
    assert "workflowlookup_journal_up 1" in httpx2.get(disk.server.base + "/metrics").text
    assert httpx2.get(disk.server.base + "/healthz").status_code == 200
    assert "No space left on device" in disk.server.log()

    disk.empty()
    wait_until(lambda: disk.readiness() == 200)
    submit = {"name": "workflow_submit", "arguments": {"runId": "before", "stepId": "first-step", "output": "x"}}
    assert "isError" not in client.request("tools/call", submit)["result"]
