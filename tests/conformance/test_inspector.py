"""The official inspector's command line against both transports, in both eras.

It is run where its packages are installed, by `make conformance`, which installs them; they are big.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.json_values import Json
from support.npm import LOOSELY, install, node_for
from support.web import WebServer

FOLDER = Path(__file__).parent / "inspector"
PROGRAM = FOLDER / "node_modules" / ".bin" / "mcp-inspector"
WANTED = "WORKFLOWLOOKUP_TEST_INSPECTOR"
ERAS = {"handshake": (), "envelope": ("--protocol-era", "modern")}


@pytest.fixture(scope="module")
def node() -> str:
    if not PROGRAM.exists() and WANTED not in os.environ:
        pytest.skip("the inspector is not installed: `make conformance` installs and runs it")
    install(FOLDER, "the inspector", how=LOOSELY)
    return node_for(FOLDER, "the inspector")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    web = WebServer(tmp_path_factory.mktemp("web"))
    yield web
    web.stop()


@pytest.fixture(params=["pipes", "http"])
def where(request: pytest.FixtureRequest, server: WebServer) -> list[str]:
    """The server, as the inspector is told of it."""
    return [server.url] if request.param == "http" else [sys.executable, "-m", "workflowlookup", "serve"]


@pytest.fixture(params=list(ERAS))
def inspect(request: pytest.FixtureRequest, node: str, where: list[str], tmp_path: Path) -> Callable[..., Json]:
    def ask(method: str, *options: str) -> Json:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("WORKFLOW", "XDG_"))}
        environment = clean | {"HOME": str(tmp_path), "MCP_INSPECTOR_SECRET_STORE": "memory"}
        environment["PATH"] = os.pathsep.join((str(Path(node).parent), environment.get("PATH", "")))
        command = [node, str(PROGRAM.resolve()), "--cli", *where, *ERAS[request.param], "--method", method, *options]
        done = subprocess.run(
            [*command, "-q", "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=tmp_path,
            env=environment,
        )
        return done.returncode, done.stdout + done.stderr

    return ask


def test_it_lists_the_tools(inspect: Callable[..., Json]) -> None:
    code, text = inspect("tools/list")

    assert code == 0, text
    assert {"workflow_list", "workflow_start"} <= {tool["name"] for tool in json.loads(text)["result"]["tools"]}


def test_it_calls_one(inspect: Callable[..., Json]) -> None:
    code, text = inspect("tools/call", "--tool-name", "workflow_get", "--tool-arg", "id=bug-investigation")

    assert code == 0, text
    assert json.loads(text)["result"]["structuredContent"]["id"] == "bug-investigation"


def test_it_sees_what_a_tool_refuses(inspect: Callable[..., Json]) -> None:
    code, text = inspect("tools/call", "--tool-name", "workflow_get", "--tool-arg", "id=no-such-workflow")

    assert code == 5, text
    assert "No workflow has the id 'no-such-workflow'" in text
