"""Another system for the demo: an MCP server with one workflow, which takes some seconds and tells how far it is.

Its runs are in a file, so every process that asks sees them.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from mcp.server import MCPServer

STAGES: Final = ("building", "signing", "uploading", "announcing")
SECONDS: Final = 2.0
WORKFLOW: Final = {
    "id": "publish-release",
    "name": "Publish a release",
    "description": "Builds, signs, uploads and announces a release.",
    "category": "releases",
    "inputSchema": {
        "type": "object",
        "properties": {"version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}},
        "required": ["version"],
        "additionalProperties": False,
    },
}

server = MCPServer("releases")
runs = Path(sys.argv[1])


def _runs() -> dict[str, Any]:
    runs_by_id: dict[str, Any] = json.loads(runs.read_text()) if runs.exists() else {}
    return runs_by_id


def _keep(run_id: str, run: dict[str, Any]) -> None:
    runs.write_text(json.dumps({**_runs(), run_id: run}))


@server.tool(name="workflows-list-tool")
def list_workflows() -> dict[str, Any]:
    """What there is."""
    return {"workflows": [WORKFLOW]}


@server.tool(name="workflows-start-tool")
def start(workflowId: str, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002, N803 - the names of the wire
    """Begin a run."""
    run_id = f"release-{len(_runs()) + 1}"
    _keep(run_id, {"workflow": workflowId, "version": input["version"], "began": time.time()})
    return {"runId": run_id}


@server.tool(name="workflows-status-tool")
def status(runId: str, workflowId: str = "") -> dict[str, Any]:  # noqa: ARG001, N803
    """How far a run is."""
    run = _runs()[runId]
    share = (time.time() - run["began"]) / SECONDS
    if "cancelled" in run:
        return {"status": "cancelled"}
    if share >= 1:
        return {"status": "completed", "output": {"published": run["version"], "stages": STAGES}}
    stage = STAGES[int(share * len(STAGES))]
    progress = {"done": int(share * len(STAGES)), "total": len(STAGES), "message": f"{stage} {run['version']}"}
    return {"status": "running", "progress": progress}


@server.tool(name="workflows-cancel-tool")
def cancel(runId: str, workflowId: str = "") -> dict[str, Any]:  # noqa: ARG001, N803
    """End a run."""
    _keep(runId, {**_runs()[runId], "cancelled": time.time()})
    return {"cancelled": True}


if __name__ == "__main__":
    server.run()
