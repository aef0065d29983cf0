"""What all commands have in common: help, exit codes and errors; and `serve` imports nothing of the others."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, step, write
from workflowlookup.cli.main import COMMANDS, main

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
WITHOUT_DATA = {
    "add",
    "remove",
    "update",
    "serve",
    "hook",
    "schema",
    "receipt",
    "install",
    "uninstall",
    "new",
    "init",
    "convert",
    "fmt",
    "watch",
    "witness",
    "console",
    "completion",
}
UNNEEDED = (
    "rich",
    "jsonschema_rs",
    "regex",
    "yaml",
    "tomllib",
    "sqlite3",
    "mcp",
    "dbos",
    "httpx2",
    "starlette",
    "jinja2",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_two_examples_at_least(cli: Cli, name: str) -> None:
    done = cli(name, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.partition("examples:")[2].count(f"workflowlookup {name}") >= 2


def test_only_the_server_lists_the_settings_and_every_command_takes_them(cli: Cli) -> None:
    assert "--max-message-bytes VALUE" in cli("serve", "--help").stdout
    for words in (["fmt", "--help"], ["graph", "--help"], ["graph"]):
        done = cli(*words)
        assert "--max-message-bytes" not in done.stdout + done.stderr
    assert "`workflowlookup serve --help` lists them" in cli("fmt", "--help").stdout
    assert cli("list", "--bundled", "false", "--json").stdout != cli("list", "--json").stdout


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_DATA])
def test_every_command_that_prints_data_has_json(cli: Cli, name: str) -> None:
    assert "--json" in cli(name, "--help").stdout


def test_without_a_command_there_is_help(cli: Cli) -> None:
    done = cli()

    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert re.findall(r"^(\w[\w ]+):$", done.stdout, re.MULTILINE) == [
        "options",
        *dict.fromkeys(group for _, group, _ in COMMANDS.values()),
        "examples",
    ]


def test_help_is_a_command_too(cli: Cli) -> None:
    assert cli("help").stdout == cli().stdout == cli("--help").stdout
    assert cli("help", "lint").stdout == cli("lint", "--help").stdout


def test_a_misspelt_command_gets_a_suggestion(cli: Cli) -> None:
    done = cli("lsit")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "workflowlookup: there is no command 'lsit'. Did you mean 'list'? `workflowlookup help` lists all commands.\n"
    )


def test_force_color_colours_piped_output(cli: Cli) -> None:
    assert "\x1b[" not in cli("list").stdout
    assert "\x1b[" in cli("list", FORCE_COLOR="1").stdout
    assert "\x1b[" not in cli("list", FORCE_COLOR="0").stdout


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["dance"], id="a command that does not exist"),
        pytest.param(["show"], id="no id"),
        pytest.param(["list", "--nonsense"], id="a flag that does not exist"),
        pytest.param(["show", "code-review", "--mode", "all"], id="a mode that does not exist"),
        pytest.param(["next", "code-review", "--context", "size"], id="a variable without a value"),
        pytest.param(["install", "emacs"], id="a client that is not known"),
        pytest.param(["install", "windsurf", "--scope", "project"], id="a scope that the client does not have"),
        pytest.param(["install", "codex", "--name", "a b"], id="a name that clients refuse"),
        pytest.param(["list", "--bundled", "perhaps"], id="a setting that cannot be used"),
    ],
)
def test_wrong_usage_is_reported_on_standard_error_with_exit_code_2(cli: Cli, words: list[str]) -> None:
    done = cli(*words)

    assert (done.returncode, done.stdout) == (2, "")
    assert "workflowlookup" in done.stderr


def test_a_refusal_of_a_tool_is_a_sentence_with_exit_code_1(cli: Cli) -> None:
    done = cli("show", "bug-investigatoin")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "workflowlookup: Workflow not found. No workflow has the id 'bug-investigatoin'. "
        "Did you mean 'bug-investigation'? Run `workflowlookup list` to see every id.\n"
    )


def test_control_characters_of_a_document_do_not_reach_the_terminal(cli: Cli, project: Path) -> None:
    write(project, document(name="Evil\x1b[2J\x9b0m \u202ename"))

    _, seen = cli.on_terminal("list", "--bundled", "false", columns=140, NO_COLOR="1")

    assert "Evil\ufffd[2J\ufffd0m \ufffdname" in seen


def test_control_characters_of_a_document_do_not_reach_the_log(cli: Cli, project: Path) -> None:
    write(project, document(step(agentRole="r\x1bc\u202e")))

    logged = cli("list", "--bundled", "false").stderr + cli("next", "sample-workflow").stderr

    assert "warning" in logged
    assert not {"\x1b", "\u202e"} & set(logged)


def test_a_terminal_without_unicode_gets_numbers_instead_of_a_traceback(cli: Cli) -> None:
    done = cli("show", "bug-investigation", PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    assert "\\xb7 version 2.0.1" in done.stdout


@pytest.mark.parametrize("words", ["list", "list --json", "schema", "doctor"])
def test_a_closed_pipe_is_not_an_error(cli: Cli, words: str) -> None:
    command = f"{sys.executable} -m workflowlookup {words} | true; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, cwd=cli.directory, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


def test_serve_imports_nothing_of_the_other_commands_for_a_handshake(cli: Cli, tmp_path: Path) -> None:
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode() + b"\n"
    command = [sys.executable, "-X", "importtime", "-m", "workflowlookup", "serve"]

    done = subprocess.run(
        command, input=hello, capture_output=True, cwd=tmp_path, env={"HOME": str(cli.home)}, check=True
    )

    imported = set(re.findall(r"\| +([\w.]+)\n", done.stderr.decode()))
    ours = {name for name in imported if name.startswith("workflowlookup.cli.")}
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "workflowlookup"
    assert "workflowlookup.transport.stdio" in imported
    assert ours == {"workflowlookup.cli.main"}  # the command itself is loaded by importlib, which is not timed
    assert imported & {*UNNEEDED} == set()


@pytest.mark.parametrize("words", [["install", "claude-code", "--print"], ["serve"], ["list"]], ids=" ".join)
def test_windows_is_refused_in_a_sentence(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")

    code = main(words)

    assert (code, *capsys.readouterr()) == (
        2,
        "",
        "workflowlookup: Windows is not supported: the server polls pipes and locks files as only Unix can. "
        "Use it on Linux, for example in the Windows Subsystem for Linux (WSL).\n",
    )
