"""What is published: all of one version; the server runs from the wheel, and from the bundle, in an empty environment."""

import json
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

import fresh_install
import release
from support.bundled import BUNDLED_FILES
from workflowlookup import __version__
from workflowlookup.cli.hook_entry import EVENTS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release") / "dist"
    release.build(directory)
    return directory


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


def test_everything_that_is_published_is_of_one_version(built: Path) -> None:
    server = json.loads((built / "server.json").read_text())
    plugin = json.loads((built / "claude-plugin/.claude-plugin/plugin.json").read_text())
    entry = json.loads((built / "claude-plugin/.mcp.json").read_text())["mcpServers"]["workflowlookup"]
    with zipfile.ZipFile(built / f"workflowlookup-{__version__}.mcpb") as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        project = tomllib.loads(bundle.read("pyproject.toml").decode())["project"]

    versions = {server["version"], server["packages"][0]["version"], plugin["version"], manifest["version"]}
    assert versions == {__version__}
    assert project["dependencies"] == [f"workflowlookup=={__version__}"]
    assert entry["args"] == [f"workflowlookup=={__version__}", "serve"]
    assert {path.name for path in built.glob("workflowlookup-*")} == {
        f"workflowlookup-{__version__}-py3-none-any.whl",
        f"workflowlookup-{__version__}.tar.gz",
        f"workflowlookup-{__version__}.mcpb",
    }
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text()
    assert len(server["description"]) <= release.MAX_DESCRIPTION
    assert release.image_command("docker", __version__)[4:8] == [
        "--build-arg",
        f"VERSION={__version__}",
        "-t",
        f"workflowlookup:{__version__}",
    ]
    assert "ARG VERSION" in (ROOT / "deploy/Containerfile").read_text()


def test_the_changelog_has_a_dated_section_for_the_version_only() -> None:
    release.check_changelog(__version__)
    with pytest.raises(release.ReleaseError, match=r"no dated section for 0\.0\.1"):
        release.check_changelog("0.0.1")


def test_the_plugin_has_hooks_and_a_place_for_skills(built: Path) -> None:
    hooks = json.loads((built / "claude-plugin/hooks/hooks.json").read_text())["hooks"]
    assert {
        event: [hook["command"] for group in groups for hook in group["hooks"]] for event, groups in hooks.items()
    } == {event: [f"uvx workflowlookup=={__version__} hook {event}"] for event in EVENTS}
    assert (built / "claude-plugin/skills").is_dir()


def test_the_wheel_carries_the_schema_the_workflows_and_the_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    bundled = {f"workflowlookup/bundled/{path.name}" for path in BUNDLED_FILES}
    assert len(bundled) >= 8
    assert bundled | {"workflowlookup/language/workflow.schema.json", "workflowlookup/py.typed"} <= names
    assert f"workflowlookup-{__version__}.data/data/share/man/man1/workflowlookup.1" in names
    assert not {name for name in names if name.endswith(".test.yaml")}
    assert not {name for name in names if name.startswith(("tests", "bench", "demo", "docs"))}


def test_the_server_runs_from_the_wheel_and_the_bundle_in_an_empty_environment(
    built: Path, wheel: Path, tmp_path: Path
) -> None:
    binaries = fresh_install.install_wheel(wheel, tmp_path / "venv").parent
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
    (bundle,) = built.glob("*.mcpb")
    zipfile.ZipFile(bundle).extractall(tmp_path / "bundle")
    started: dict[str, list[str | Path]] = {
        "wheel": [binaries / "workflowlookup", "serve"],
        "bundle": [binaries / "python", tmp_path / "bundle" / "server.py"],
    }
    done, from_bundle = (
        subprocess.run(
            command,
            input="".join(json.dumps(message) + "\n" for message in messages),
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": str(binaries)},
        )
        for command in started.values()
    )

    assert from_bundle.stdout == done.stdout
    replies = [json.loads(line)["result"] for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert len(replies[1]["workflows"]) >= 8
    assert replies[2]["step"]["id"]
    assert replies[3] is None
