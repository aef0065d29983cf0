"""Where the workflows of a project are found: below its root, by the client's variable, and in the client's roots."""

import json
import os
from pathlib import Path

import pytest

from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, step, write
from workflowlookup.app import make_catalog, make_connection
from workflowlookup.protocol.connection import Connection
from workflowlookup.repository import find_above
from workflowlookup.settings import Settings, read_settings

LIBRARY = Path(".workflowlookup") / "workflows"


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)


def make_project(path: Path, identifier: str) -> Path:
    """A repository with one workflow, and a directory in it."""
    (path / ".git").mkdir(parents=True)
    (path / "src" / "deep").mkdir(parents=True)
    write(path / LIBRARY, document(step("one-step"), identifier=identifier))
    return path


def settings(home: Path, directory: Path, **flags: Json) -> Settings:
    named = {"bundled": False, "journal": str(home / "runs.sqlite"), **flags}
    return read_settings(named, {"HOME": str(home / "home")}, directory=str(directory))


def ids(home: Path, directory: Path, **flags: Json) -> list[str]:
    return [summary.id for summary in make_catalog(settings(home, directory, **flags)).snapshot().summaries]


def test_workflows_are_found_from_any_directory_below_the_root(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", "of-the-project")

    for directory in (project, project / "src", project / "src" / "deep", project / LIBRARY):
        assert ids(tmp_path, directory) == ["of-the-project"]
    assert ids(tmp_path, tmp_path) == []


def test_a_directory_with_workflows_of_its_own_comes_before_those_above(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", "of-the-project")
    write(project / "src" / LIBRARY, document(step("one-step"), identifier="of-the-part"))

    assert ids(tmp_path, project / "src" / "deep") == ["of-the-part"]
    assert ids(tmp_path, project) == ["of-the-project"]


def test_nothing_above_the_repository_is_taken(tmp_path: Path) -> None:
    make_project(tmp_path / "outer", "of-the-outer")
    (tmp_path / "outer" / "inner" / ".git").mkdir(parents=True)

    assert ids(tmp_path, tmp_path / "outer" / "inner") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another account")
def test_a_directory_above_that_belongs_to_another_account_is_not_taken(tmp_path: Path) -> None:
    library = tmp_path / "shared" / LIBRARY
    directory = tmp_path / "shared" / "mine"
    for path in (library, directory):
        path.mkdir(parents=True)

    before = find_above(str(LIBRARY), str(directory), str(directory))
    os.chown(library, 4321, 4321)

    assert (before, find_above(str(LIBRARY), str(directory), str(directory))) == (
        str(library),
        str(directory / LIBRARY),
    )


def test_the_variable_of_the_client_and_the_setting_name_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, client, chosen = (make_project(tmp_path / name, f"of-{name}") for name in ("here", "client", "chosen"))
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(client / "src"))

    assert ids(tmp_path, here) == ["of-client"]
    assert ids(tmp_path, here, root=str(chosen)) == ["of-chosen"]
    assert ids(tmp_path, here, root=str(chosen), http="127.0.0.1:0") == ["of-here"]


def test_a_document_of_a_named_project_is_not_the_user_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = make_project(tmp_path / "client", "of-client")
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(client))

    workflow = make_catalog(settings(tmp_path, make_project(tmp_path / "here", "of-here"))).get("of-client")

    assert workflow.origin == str(client / LIBRARY / "of-client.json")


def ask(connection: Connection, method: str, **params: Json) -> JsonObject:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    result: JsonObject = json.loads(connection.handle(json.dumps(message).encode()) or b"{}")["result"]
    return result


def test_the_roots_of_the_client_bring_their_workflows_and_the_client_is_notified(tmp_path: Path) -> None:
    here, client = make_project(tmp_path / "here", "of-here"), make_project(tmp_path / "client", "of-client")
    connection = make_connection(settings(tmp_path, here))
    ask(connection, "initialize", protocolVersion="2025-11-25", capabilities={"roots": {}})
    connection.handle(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    (request,) = map(json.loads, connection.outbox)
    connection.outbox.clear()
    before = ask(connection, "prompts/list")["prompts"]
    ask(connection, "tools/list")

    roots = {"jsonrpc": "2.0", "id": request["id"], "result": {"roots": [{"uri": client.as_uri()}]}}
    connection.handle(json.dumps(roots).encode())
    connection.poll()

    assert [prompt["name"] for prompt in before] == ["of-here"]
    assert [prompt["name"] for prompt in ask(connection, "prompts/list")["prompts"]] == ["of-client"]
    assert [json.loads(line)["method"] for line in connection.outbox] == ["notifications/tools/list_changed"]
    connection.close()


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "the repository around the working directory), unless the client of a server names another one"),
        ({"WORKFLOWLOOKUP_ROOT": "."}, "from the setting root)"),
        ({"CLAUDE_PROJECT_DIR": "{}"}, "from CLAUDE_PROJECT_DIR)"),
    ],
    ids=["git", "setting", "variable"],
)
def test_doctor_says_which_root_was_taken_and_why(tmp_path: Path, environment: dict[str, str], words: str) -> None:
    make_project(tmp_path, "of-the-project")
    chosen: JsonObject = {name: value.format(tmp_path) for name, value in environment.items()}

    lines = Cli(tmp_path)("doctor", **chosen).stdout.replace("\n", " ")

    assert f"the project is {tmp_path} ({words}" in lines


def test_commands_without_paths_find_the_workflows_from_below(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", "of-the-project")

    done = Cli(project / "src" / "deep")("validate")

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 document, no problems")
