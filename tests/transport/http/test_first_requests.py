"""A server over HTTP is ready when it says so: no request waits for an import, nor for a long garbage collection."""

import json
import signal
from pathlib import Path

import httpx2

from support.make import document, step, write
from support.waiting import wait_until
from support.web import WebClient, WebServer

PROGRAM = """
import gc, json, signal, sys

def report(*_):
    print("REPORT", json.dumps([sorted(sys.modules), len(gc.get_objects())]), file=sys.stderr, flush=True)

signal.signal(signal.SIGUSR1, report)
from workflowlookup.__main__ import main
raise SystemExit(main())
"""
MAX_COLLECTED = 20_000
"""Objects that a full collection looks at. Without `preload` there were 56,000 at the start, which took 20 ms."""


def report_of(server: WebServer) -> tuple[set[str], int]:
    """The modules that the server has imported, and how many objects a full collection looks at."""
    server.logged.clear()
    server.process.send_signal(signal.SIGUSR1)
    line = wait_until(lambda: next((line for line in server.logged if line.startswith("REPORT")), ""))
    modules, objects = json.loads(line.partition(" ")[2])
    return set(modules), objects


def test_the_first_requests_import_nothing_and_collections_are_small(tmp_path: Path) -> None:
    write(tmp_path / "library", document(step(), identifier="docs"))
    flags = ("--journal", str(tmp_path / "runs.sqlite"))
    server = WebServer(tmp_path, *flags, directory=tmp_path / "library", program=("-c", PROGRAM, "serve"))
    try:
        assert httpx2.get(server.base + "/readyz").status_code == 200
        before, objects = report_of(server)
        client = WebClient(server.url)
        client.initialize()
        client.request("tools/list")
        client.request("resources/list")
        for name, arguments in (
            ("workflow_list", {}),
            ("workflow_get", {"id": "docs"}),
            ("workflow_next", {"workflowId": "docs", "completedSteps": []}),
            ("workflow_validate", {"workflowId": "docs", "stepId": "first-step", "output": "x"}),
            ("workflow_start", {"workflowId": "docs", "runId": "one"}),
            ("workflow_submit", {"runId": "one", "stepId": "first-step", "output": "x"}),
            ("workflow_status", {"runId": "one"}),
        ):
            assert "isError" not in client.request("tools/call", {"name": name, "arguments": arguments})["result"]
        for page in ("/metrics", "/library", "/runs", "/runs/one", "/statistics"):
            assert httpx2.get(server.base + page).status_code == 200, page
        after, objects_after = report_of(server)
    finally:
        server.stop()

    assert after - before == set()
    assert max(objects, objects_after) < MAX_COLLECTED
