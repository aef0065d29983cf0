"""The official TypeScript clients over the pipes of the real process: the v1 line, and the v2 line in both eras.

They need Node.js and npm; without them, or without a way to the packages, the tests are skipped. The packages are
pinned in `typescript/package-lock.json` and installed beside it once, and again when the lock file changes.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.json_values import JsonObject
from support.npm import install

pytest.register_assert_rewrite("clients.promises", "clients.confirming")  # so that their asserts explain themselves

from clients.confirming import NEVER, SAID, WORKFLOW, RunPromises, places_after_a_kill, settle  # noqa: E402 - see above
from clients.promises import CONVERSATION, LATEST_HANDSHAKE, MODERN, Promises  # noqa: E402 - see above

FOLDER = Path(__file__).parent / "typescript"
OLDEST_NODE = {"v1": 18, "v2-legacy": 20, "v2-auto": 20, "v2-pinned": 20}
"""The clients, and the Node.js that each asks for."""
VERSIONS = {"v1": LATEST_HANDSHAKE, "v2-legacy": LATEST_HANDSHAKE, "v2-auto": MODERN, "v2-pinned": MODERN}


@pytest.fixture(scope="session")
def node() -> tuple[str, int]:
    """Node.js and its major version."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("Node.js is not installed (no `node` on the PATH): the TypeScript clients were not run")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    return program, int(version.strip().removeprefix("v").partition(".")[0])


@pytest.fixture(scope="session")
def packages(node: tuple[str, int]) -> None:
    """What the lock file names, in `node_modules`."""
    install(FOLDER, "the TypeScript clients")


@pytest.fixture(scope="module", params=list(OLDEST_NODE))
def client(request: pytest.FixtureRequest, node: tuple[str, int]) -> str:
    """The client library and its mode, as `scenario.mjs` names them."""
    if node[1] < OLDEST_NODE[request.param]:
        pytest.skip(f"{request.param} needs Node.js {OLDEST_NODE[request.param]} or newer; found {node[1]}")
    result: str = request.param
    return result


@pytest.fixture(scope="module")
def version(client: str) -> str:
    return VERSIONS[client]


@pytest.fixture(scope="module")
def missing_resource(client: str) -> int:
    """On the wire it is -32002 in the handshake era; the v2 line makes -32602 of it, v1 leaves it alone."""
    return -32002 if client == "v1" else -32602


@pytest.fixture(scope="module")
def seen(client: str, node: tuple[str, int], packages: None, tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    home = tmp_path_factory.mktemp(client)
    return hold(node, client, home, {"HOME": str(home)}, {"conversation": CONVERSATION})


def script_input(home: Path, environment: dict[str, str], request: JsonObject) -> str:
    """What `scenario.mjs` reads; the environment is added to the few variables that the libraries hand on."""
    command = {"command": sys.executable, "args": ["-m", "workflowlookup", "serve"]}
    return json.dumps({"server": {**command, "cwd": str(home), "env": environment}, **request})


def hold(
    node: tuple[str, int], client: str, home: Path, environment: dict[str, str], request: JsonObject
) -> JsonObject:
    """What the client saw in one scenario."""
    done = subprocess.run(
        [node[0], "scenario.mjs", client],
        input=script_input(home, environment, request),
        cwd=FOLDER,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    result: JsonObject = json.loads(done.stdout)
    return result


class TestTypescriptSdk(Promises):
    """Every promise, to these clients."""


@pytest.fixture(scope="module", params=list(SAID))
def outcome(request: pytest.FixtureRequest) -> str:
    result: str = request.param
    return result


@pytest.fixture(scope="module")
def acted(
    client: str, outcome: str, node: tuple[str, int], packages: None, tmp_path_factory: pytest.TempPathFactory
) -> JsonObject:
    home = tmp_path_factory.mktemp(client)
    return hold(node, client, home, settle(home), {"runs": {"workflow": WORKFLOW, "said": SAID[outcome]}})


class TestTypescriptSdkRuns(RunPromises):
    """Every promise about runs, to these clients."""


def test_a_client_that_is_killed_with_questions_open_leaves_the_runs_waiting(
    client: str, node: tuple[str, int], packages: None, tmp_path: Path
) -> None:
    request = script_input(tmp_path, settle(tmp_path), {"runs": {"workflow": WORKFLOW, "said": NEVER}})

    places = places_after_a_kill(tmp_path, [node[0], "scenario.mjs", client], request, FOLDER)

    assert places == [("waiting", "confirmation")] * 2


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((FOLDER / "package-lock.json").read_text("utf-8"))

    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []
    assert [name for name, package in lock["packages"].items() if name and "integrity" not in package] == []
