"""The wheel: it carries the schema and the bundled workflows, and the server runs from it in an empty environment."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(directory), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (path,) = directory.glob("*.whl")
    return path


def test_the_wheel_carries_the_schema_the_workflows_and_the_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    bundled = {f"workflowlookup/bundled/{path.name}" for path in (ROOT / "src/workflowlookup/bundled").glob("*.json")}
    assert len(bundled) >= 8
    assert bundled | {"workflowlookup/core/workflow.schema.json", "workflowlookup/py.typed"} <= names
    assert not {name for name in names if name.endswith(".test.yaml")}
    assert not {name for name in names if name.startswith(("tests", "bench", "demo", "docs"))}


def test_the_server_runs_from_the_wheel_in_an_empty_environment(wheel, tmp_path):
    venv.create(tmp_path / "venv")
    binaries = tmp_path / "venv" / "bin"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            binaries / "python",
            "install",
            "--quiet",
            "--no-compile",
            str(wheel),
        ],
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )
    messages = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2024-11-05", "capabilities": {}},
        },
        {"jsonrpc": "2.0", "id": 2, "method": "workflow_list"},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "workflow_next",
            "params": {"workflowId": "code-review", "completedSteps": []},
        },
        {"jsonrpc": "2.0", "id": 4, "method": "shutdown"},
    ]
    done = subprocess.run(
        [binaries / "workflowlookup", "serve"],
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": str(binaries)},
    )

    replies = [json.loads(line)["result"] for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert len(replies[1]["workflows"]) >= 8
    assert replies[2]["step"]["id"]
    assert replies[3] is None
