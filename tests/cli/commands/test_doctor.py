"""`workflowlookup doctor`."""

import argparse
import contextlib
import json
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, write
from workflowlookup import __version__
from workflowlookup.cli.checkup import examine
from workflowlookup.settings import SETTINGS, read_settings

PROGRAM = Path(sys.executable).with_name("workflowlookup")


def report_of(cli: Cli, *words: str, **environment: Json) -> JsonObject:
    result: JsonObject = json.loads(cli("doctor", "--json", *words, **environment).stdout)
    return result


def test_a_fresh_installation_has_no_problems(cli: Cli) -> None:
    done = cli("doctor")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"workflowlookup {__version__} on Python 3.")
    assert done.stdout.endswith("\nNo problems.\n")


def test_sources_come_in_order_with_their_counts(cli: Cli, project: Path) -> None:
    write(project, document())
    write(cli.directory / "team", document(identifier="team-flow"))

    sources = report_of(cli, "--directories", "team")["sources"]

    assert [(source["name"], source["exists"], source["workflows"], source["problems"]) for source in sources] == [
        ("bundled", True, 10, 0),
        ("user", False, 0, 0),
        ("directories", True, 1, 0),
        ("project", True, 1, 0),
    ]
    assert sources[-1]["directory"] == str(project)


def test_a_shadowed_workflow_is_shown_and_is_not_a_problem(cli: Cli, project: Path) -> None:
    write(project, document(identifier="code-review"))

    report = report_of(cli)

    assert [(shadow["id"], shadow["by"]) for shadow in report["shadowed"]] == [
        ("code-review", str(project / "code-review.json"))
    ]
    assert report["problems"] == []
    assert "Hidden workflows" in cli("doctor").stdout


def test_a_call_to_an_unconfigured_server_is_a_problem(cli: Cli, project: Path) -> None:
    calls = [{"id": f"ask-{number}", "title": "t", "call": {"server": "nobody", "tool": "x"}} for number in range(2)]
    write(project, document(steps=calls))

    problems = report_of(cli)["problems"]  # beside those of a repository that is not trusted
    assert [problem for problem in problems if "calls the MCP server" in problem["problem"]] == [
        {
            "problem": "The workflow 'sample-workflow' calls the MCP server 'nobody', which is not in the settings.",
            "remedy": "Add [mcpServers.nobody] to the settings, or fix 'server' in the workflow.",
        }
    ]


def test_the_same_id_twice_in_one_directory_is_a_problem(cli: Cli, project: Path) -> None:
    write(project, document(), "a.json")
    write(project, document(), "b.json")

    assert report_of(cli)["problems"] == [
        {
            "problem": f"{project}/b.json and {project}/a.json have the same id 'sample-workflow'; "
            "only the second is used.",
            "remedy": "Give one of them another id.",
        }
    ]


def test_a_broken_document_and_a_missing_directory_are_one_line_each_with_a_remedy(cli: Cli, project: Path) -> None:
    (project / "broken.json").write_text("{")

    done = cli("doctor", WORKFLOW_STORAGE_PATH="/no/such/place")

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.partition("2 problems\n")[2].splitlines() == [
        "- /no/such/place does not exist.",
        "  Create it, or remove it from WORKFLOW_STORAGE_PATH.",
        f"- {project}/broken.json: JSON syntax error: Unexpected end of JSON input at position 1 (line 1, column 2).",
        f"  See what is wrong with it: `{PROGRAM} validate {project}/broken.json`",
    ]


def test_each_setting_comes_with_its_origin(cli: Cli) -> None:
    (cli.directory / "workflowlookup.toml").write_text("user = false\n")

    settings = report_of(cli, "--log-level", "info", WORKFLOWLOOKUP_PROJECT="no")["settings"]

    assert [setting["name"] for setting in settings] == [setting.name for setting in SETTINGS]
    values = {setting["name"]: (setting["value"], setting["origin"]) for setting in settings}
    assert (
        values
        | {
            "bundled": (True, "default"),
            "user": (False, str(cli.directory / "workflowlookup.toml")),
            "project": (False, "WORKFLOWLOOKUP_PROJECT"),
            "directories": ([], "default"),
            "log_level": ("info", "--log-level"),
        }
        == values
    )


def test_lists_are_shown_in_the_form_of_a_flag(cli: Cli) -> None:
    done = cli("doctor", "--directories", "one:two", "--allowed-origins", "https://one,https://two")

    shown = dict(words for line in done.stdout.splitlines() if len(words := line.split()[::2]) == 2)
    assert shown["directories"] == "one:two"
    assert shown["allowed_origins"] == "https://one,https://two"
    assert shown["trusted_proxies"] == "none"


def test_the_password_of_a_journal_is_not_shown(cli: Cli) -> None:
    report = report_of(cli, WORKFLOWLOOKUP_JOURNAL="postgresql://me:secret@host/db?password=secret&port=1")

    (value,) = [setting["value"] for setting in report["settings"] if setting["name"] == "journal"]
    assert value == "postgresql://me:…@host/db?password=…&port=1"


def test_the_password_is_not_in_the_command_of_the_self_test(cli: Cli) -> None:
    done = cli("doctor", "--json", "--journal", "postgresql://me:secret@127.0.0.1:1/db")

    assert "serve --journal 'postgresql://me:…@127.0.0.1:1/db'" in done.stdout
    assert "secret" not in done.stdout + done.stderr


def test_a_journal_that_cannot_be_opened_or_created_is_a_problem(cli: Cli) -> None:
    (cli.directory / "file").write_text("")
    place = cli.directory / "file" / "runs.sqlite"
    cannot = (
        "cannot be used: it cannot be created there. Check that its directory is there and that you may write to it."
    )

    assert report_of(cli, WORKFLOWLOOKUP_JOURNAL=str(place))["problems"] == [
        {
            "problem": f"The journal of runs, {place}, {cannot}",
            "remedy": "Until then no run can be stored. The setting journal is from WORKFLOWLOOKUP_JOURNAL.",
        }
    ]
    (problem,) = report_of(cli, "--journal", "postgresql://127.0.0.1:1/db")["problems"]
    assert problem["problem"].startswith(
        "The journal of runs, PostgreSQL database 'db' at 127.0.0.1, does not answer: "
    )
    assert problem["remedy"] == "Until then no run can be stored. The setting journal is from --journal."


def test_a_journal_of_a_newer_version_is_a_problem_and_one_that_is_not_there_yet_is_not_made(cli: Cli) -> None:
    place = cli.directory / "new" / "runs.sqlite"
    assert report_of(cli, "--journal", str(place))["problems"] == []
    assert not place.parent.exists()
    place.parent.mkdir()
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.execute("PRAGMA user_version = 999")

    assert report_of(cli, "--journal", str(place))["problems"] == [
        {
            "problem": f"The journal of runs, {place}, cannot be used: "
            "it was written by a newer version of workflowlookup. Update this one.",
            "remedy": "`workflowlookup db check` shows the versions. The setting journal is from --journal.",
        }
    ]


def test_a_client_that_was_installed_is_found(cli: Cli) -> None:
    cli("install", "codex", "--yes")

    report = report_of(cli)

    state = next(state for state in report["clients"] if state["client"] == "codex")
    assert (state["exists"], state["entries"][0]["name"], state["entries"][0]["isFound"]) == (
        True,
        "workflowlookup",
        True,
    )
    assert report["problems"] == []


def test_an_entry_whose_command_is_gone_is_a_problem_that_install_fixes(cli: Cli) -> None:
    file = cli.directory / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"servers": {"flows": {"command": "/gone/workflowlookup", "args": ["serve"]}, /* mine */ "x": 1}}')

    problems = report_of(cli)["problems"]
    remedy = problems[0]["remedy"].split("`")[1]
    subprocess.run(f"{remedy} --yes", shell=True, check=True, cwd=cli.directory, env={"HOME": str(cli.home)})

    assert problems == [
        {
            "problem": "VS Code starts 'flows' with a command that does not exist: /gone/workflowlookup serve",
            "remedy": f"Replace the entry in {file}: `{PROGRAM} install vscode --scope project --name flows`",
        }
    ]
    assert report_of(cli)["problems"] == []


@pytest.mark.parametrize("source", ["{}", "{}[http]"])
def test_an_entry_is_a_problem_only_if_its_clone_is_gone(cli: Cli, source: str) -> None:
    words = ["--from", source.format(cli.directory / "clone"), "workflowlookup", "serve"]
    entry = {"command": sys.executable, "args": words}
    (cli.directory / ".mcp.json").write_text(json.dumps({"mcpServers": {"workflowlookup": entry}}))

    (problem,) = report_of(cli)["problems"]
    (cli.directory / "clone").mkdir()

    start = "Claude Code starts 'workflowlookup' with a command that does not exist"
    assert problem["problem"] == f"{start}: {shlex.join([sys.executable, *words])}"
    assert report_of(cli)["problems"] == []


def test_a_server_that_cannot_be_installed_for_one_run_is_a_problem_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uvx = tmp_path / "uvx"
    uvx.write_text("#!/bin/sh\necho 'error: No solution found' >&2\necho '  cause: Because it is unsatisfiable.' >&2\n")
    uvx.chmod(0o700)
    monkeypatch.setattr(sys, "prefix", "/home/me/.cache/uv/archive-v0/Xy3_-k")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    report = examine(argparse.Namespace(), read_settings({}, {"HOME": str(tmp_path)}, directory=str(tmp_path)))

    assert report.problems[-1].problem == "The server does not work: Because it is unsatisfiable."
    assert report.problems[-1].remedy.startswith("Check that its source can be reached, and try it by hand: ")
    assert report.self_test.command in report.problems[-1].remedy


def test_an_entry_in_the_cache_of_uv_is_a_problem_while_it_is_there(cli: Cli) -> None:
    program = cli.home / ".cache/uv/archive-v0/Xy3_-k/bin/workflowlookup"
    program.parent.mkdir(parents=True)
    program.symlink_to(PROGRAM)
    (cli.directory / ".mcp.json").write_text(json.dumps({"mcpServers": {"workflowlookup": {"command": str(program)}}}))

    (problem,) = report_of(cli)["problems"]

    start = "Claude Code starts 'workflowlookup' with a command that is in the cache of uv"
    assert problem["problem"] == f"{start}: {program}"
    assert f"`{PROGRAM} install claude-code" in problem["remedy"]


def test_a_program_on_the_path_is_named_as_it_is_typed(cli: Cli) -> None:
    seen = cli.on_terminal("doctor", columns=120, PATH=str(PROGRAM.parent))[1]

    assert "No client has the server yet: `workflowlookup install claude-code`" in seen


def test_a_configuration_that_cannot_be_read_is_a_problem(cli: Cli) -> None:
    (cli.home / ".claude.json").write_text("{")

    done = cli("doctor")

    assert (done.returncode, "it is not valid JSON" in done.stdout) == (1, True)
    assert "claude-code     user     cannot be read" in done.stdout


def test_the_self_test_talks_to_a_real_server_with_the_same_settings(cli: Cli, project: Path) -> None:
    write(project, document())

    test = report_of(cli, "--bundled", "false")["selfTest"]

    assert (test["workflows"], test["error"]) == (1, "")
    assert test["command"].endswith("serve --bundled false")
    assert 0 < test["milliseconds"] < 30_000


def test_a_terminal_has_colour_and_a_hint(cli: Cli) -> None:
    code, seen = cli.on_terminal("doctor", columns=120)

    assert code == 0
    assert "\x1b[1;32mNo problems." in seen
    assert f"No client has the server yet: `{PROGRAM} install claude-code`" in seen


def test_an_invalid_address_is_a_problem_and_the_checkup_continues(cli: Cli, project: Path) -> None:
    servers = {
        "port": "http://127.0.0.1:999999/mcp",
        "host": "http://[::1/mcp",
        "user": "http://u:pw@127.0.0.1:9/m?k=v",
    }
    tables = "".join(f'[mcpServers.{name}]\nurl = "{url}"\n' for name, url in servers.items())
    (cli.own / "workflowlookup.toml").write_text(tables)

    reported = report_of(cli)["tools"]["servers"]

    assert [(server["where"], server["state"]) for server in reported] == [
        ("http://127.0.0.1:999999/mcp", "away"),
        ("http://[::1/mcp", "away"),
        ("http://127.0.0.1:9/m", "away"),
    ]
