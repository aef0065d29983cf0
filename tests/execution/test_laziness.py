"""A server that has nothing to call pays nothing for being able to."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, sys, threading
from workflowlookup.app import make_connection
from workflowlookup.settings import read_settings
connection = make_connection(read_settings({}, {}, directory="."))
def ask(method, **params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply = json.loads(connection.handle(json.dumps(message).encode()))
    assert "error" not in reply, reply
    return reply["result"]
ask("initialize", protocolVersion="2025-11-25", capabilities={})
connection.start_background()
ask("tools/list")
run = ask("workflow_start", workflowId="incident-review")
ask("workflow_cancel", runId=run["runId"])
print(*sys.modules)
print(threading.active_count())
connection.close()
"""


def test_without_calls_and_providers_there_is_no_thread_no_loop_and_no_engine(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    loaded, threads = done.stdout.splitlines()

    assert not {"asyncio", "mcp", "dbos", "httpx2", "sqlalchemy", "concurrent.futures"} & set(loaded.split())
    assert threads == "1"
