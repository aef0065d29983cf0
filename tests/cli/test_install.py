"""`workflowlookup install`."""

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import Cli

SCRIPT = Path(sys.executable).with_name("workflowlookup")
START = [str(SCRIPT)] if os.access(SCRIPT, os.X_OK) else [sys.executable, "-P", "-m", "workflowlookup"]
COMMAND, ARGUMENTS = START[0], [*START[1:], "serve"]
ENTRY = {"command": COMMAND, "args": ARGUMENTS}

PLACES = [
    (["claude-code"], "home/.claude.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["claude-code", "--scope", "project"], ".mcp.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["codex"], "home/.codex/config.toml", {"mcp_servers": {"workflowlookup": ENTRY}}),
    (["cursor"], "home/.cursor/mcp.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["cursor", "--scope", "project"], ".cursor/mcp.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["vscode", "--scope", "project"], ".vscode/mcp.json", {"servers": {"workflowlookup": {"type": "stdio", **ENTRY}}}),
]
if sys.platform == "linux":
    PLACES += [
        (
            ["claude-desktop"],
            "home/.config/Claude/claude_desktop_config.json",
            {"mcpServers": {"workflowlookup": ENTRY}},
        ),
        (["vscode"], "home/.config/Code/User/mcp.json", {"servers": {"workflowlookup": {"type": "stdio", **ENTRY}}}),
    ]

OTHERS = """\
{
    "theme": "dark",
    "mcpServers": {
        "other": {"command": "npx", "args": ["-y", "ot\\u00e9her"]}
    },
    "numbers": [1.0, 1e3]
}
"""


def content_of(path: Path) -> object:
    text = path.read_text("utf-8")
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


@pytest.mark.parametrize(("words", "file", "content"), PLACES, ids=lambda value: str(value)[:40])
def test_each_client_gets_its_entry_in_its_file(cli: Cli, words: list[str], file: str, content: object) -> None:
    done = cli("install", *words, "--yes")

    assert (done.returncode, done.stderr) == (0, "")
    assert content_of(cli.directory / file) == content
    assert f"Wrote {cli.directory / file}." in done.stdout


@pytest.mark.parametrize(("words", "file", "content"), PLACES, ids=lambda value: str(value)[:40])
def test_print_gives_just_the_entry_and_changes_nothing(cli: Cli, words: list[str], file: str, content: object) -> None:
    done = cli("install", *words, "--print")

    parse = tomllib.loads if file.endswith(".toml") else json.loads
    assert (done.returncode, done.stderr, parse(done.stdout)) == (0, "", content)
    assert not (cli.directory / file).exists()


def test_the_rest_of_the_file_stays_byte_for_byte_and_a_copy_is_kept(cli: Cli) -> None:
    file = cli.directory / ".mcp.json"
    file.write_text(OTHERS)
    file.chmod(0o640)

    done = cli("install", "claude-code", "--scope", "project", "--yes")

    added = json.dumps(ENTRY, indent=4).replace("\n", "\n" + " " * 8)
    assert done.returncode == 0
    assert file.read_text() == OTHERS.replace('her"]}', f'her"]}},\n        "workflowlookup": {added}')
    assert file.with_name(".mcp.json.bak").read_text() == OTHERS
    assert [stat.S_IMODE(item.stat().st_mode) for item in (file, file.with_name(".mcp.json.bak"))] == [0o640, 0o640]
    assert sorted(item.name for item in cli.directory.iterdir()) == [".mcp.json", ".mcp.json.bak", "home"]


@pytest.mark.parametrize(
    "before",
    ["", "{}", "{ }\n", '{"a": 1}', '{"mcpServers": {}}', '{\r\n\t"mcpServers": {}\r\n}', '{\n "a": [\n  {}\n ]\n}\n'],
)
def test_any_layout_of_json_takes_the_entry(cli: Cli, before: str) -> None:
    file = cli.directory / ".mcp.json"
    file.write_bytes(before.encode())

    done = cli("install", "claude-code", "--scope", "project", "--yes")

    after = file.read_bytes().decode()
    assert done.returncode == 0
    assert json.loads(after) == {**json.loads(before or "{}"), "mcpServers": {"workflowlookup": ENTRY}}
    assert after.count("\n") == after.count("\r\n") or "\r\n" not in before
    assert "\n" not in after or before != '{"a": 1}'


def test_the_table_is_appended_to_toml_and_the_comments_stay(cli: Cli) -> None:
    file = cli.home / ".codex" / "config.toml"
    file.parent.mkdir()
    before = '# mine\nmodel = "gpt"   # the best\n[mcp_servers.other]\ncommand = "npx"'
    file.write_text(before)

    cli("install", "codex", "--yes")

    after = file.read_text()
    assert after.startswith(before + "\n\n[mcp_servers.workflowlookup]\n")
    assert tomllib.loads(after)["mcp_servers"] == {"other": {"command": "npx"}, "workflowlookup": ENTRY}


@pytest.mark.parametrize("words", [["codex"], ["cursor"]])
def test_a_second_time_says_that_it_is_there(cli: Cli, words: list[str]) -> None:
    cli("install", *words, "--yes")

    again = cli("install", *words)

    assert (again.returncode, again.stderr) == (0, "")
    assert "knows the server already: 'workflowlookup' in " in again.stdout


def test_an_entry_that_is_out_of_date_is_renewed_and_keeps_its_environment(cli: Cli) -> None:
    file = cli.directory / ".mcp.json"
    older = {"command": "/gone/workflowlookup", "args": ["serve"], "env": {"WORKFLOWLOOKUP_BUNDLED": "false"}}
    file.write_text(json.dumps({"mcpServers": {"workflowlookup": older, "other": {}}}, indent=2))

    cli("install", "claude-code", "--scope", "project", "--yes")

    assert content_of(file) == {"mcpServers": {"workflowlookup": {**older, **ENTRY}, "other": {}}}


def test_another_name_and_settings_are_passed_on(cli: Cli) -> None:
    cli("install", "cursor", "--yes", "--name", "team", "--directories", "flows", "--log-level", "info")

    entry = content_of(cli.home / ".cursor" / "mcp.json")["mcpServers"]["team"]
    assert entry["args"] == [*ARGUMENTS, "--directories", str(cli.directory / "flows"), "--log-level", "info"]


@pytest.mark.parametrize(
    ("words", "file", "text", "reason"),
    [
        (["cursor"], "home/.cursor/mcp.json", '{"a": ', "it is not valid JSON: Expecting value"),
        (["cursor"], "home/.cursor/mcp.json", "[]", "no object 'mcpServers' where one is expected"),
        (["cursor"], "home/.cursor/mcp.json", '{"mcpServers": 5}', "no object 'mcpServers' where one is expected"),
        (
            ["vscode", "--scope", "project"],
            ".vscode/mcp.json",
            '{"servers": {"workflowlookup": {"command": "x" /* mine */}}}',
            "its older entry has comments, which would be lost",
        ),
        (["codex"], "home/.codex/config.toml", "a = ", "it is not valid TOML"),
        (["codex"], "home/.codex/config.toml", "mcp_servers = {}", "touch more than the entry"),
        (["codex"], "home/.codex/config.toml", '[mcp_servers.workflowlookup]\ncommand = "x"\n', "already, with other"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_alone(
    cli: Cli, words: list[str], file: str, text: str, reason: str
) -> None:
    path = cli.directory / file
    path.parent.mkdir(parents=True)
    path.write_text(text)

    done = cli("install", *words, "--yes")

    assert (done.returncode, path.read_text()) == (1, text)
    assert reason in done.stderr
    assert done.stdout == cli("install", *words, "--print").stdout


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ('{"servers": {} // mine\n}\n', '{"servers": {', "} // mine\n}\n"),
        ('{"servers": {},}', '{"servers": {', "},}"),
        ('{\n  "servers": {\n    // none yet\n  }\n}\n', '{\n  "servers": {\n    // none yet\n', "\n  }\n}\n"),
        ('{\n  "inputs": [], // theirs\n}\n', '{\n  "inputs": [], // theirs\n  "servers": {', "}\n}\n"),
        ('{\n  "inputs": [] // theirs\n}\n', '{\n  "inputs": [], // theirs\n  "servers": {', "}\n}\n"),
    ],
)
def test_comments_and_trailing_commas_stay(cli: Cli, text: str, before: str, after: str) -> None:
    path = cli.directory / ".vscode" / "mcp.json"
    path.parent.mkdir()
    path.write_text(text)

    done = cli("install", "vscode", "--scope", "project", "--yes")

    changed = path.read_text()
    assert (done.returncode, done.stderr) == (0, "")
    assert changed.startswith(before)
    assert changed.endswith(after)
    assert '"workflowlookup": {' in changed


def test_a_link_is_followed_and_stays_a_link(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "mcp.json"
    target.parent.mkdir()
    target.write_text("{}")
    (tmp_path / ".mcp.json").symlink_to(target)

    cli("install", "claude-code", "--scope", "project", "--yes")

    assert (tmp_path / ".mcp.json").is_symlink()
    assert content_of(target) == {"mcpServers": {"workflowlookup": ENTRY}}


def test_a_copy_never_follows_a_link_that_someone_laid(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".mcp.json").write_text("{}")
    (tmp_path / ".mcp.json.bak").symlink_to(tmp_path / "precious")

    cli("install", "claude-code", "--scope", "project", "--yes")

    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("obstacle", ["a directory", "a pipe"])
def test_something_else_in_the_place_of_the_file_is_told(cli: Cli, obstacle: str) -> None:
    path = cli.directory / ".mcp.json"
    path.mkdir() if obstacle == "a directory" else os.mkfifo(path)

    done = cli("install", "claude-code", "--scope", "project", "--yes")

    assert (done.returncode, "it is not a regular file" in done.stderr) == (1, True)


def test_a_place_that_cannot_be_written_is_told(cli: Cli) -> None:
    (cli.directory / ".cursor").write_text("a file where the directory should be")

    done = cli("install", "cursor", "--scope", "project", "--yes")

    assert (done.returncode, "workflowlookup: Storage error. " in done.stderr) == (1, True)


def test_without_a_terminal_and_without_yes_the_change_is_only_shown(cli: Cli) -> None:
    done = cli("install", "claude-code")

    assert (done.returncode, (cli.home / ".claude.json").exists()) == (1, False)
    assert '+    "workflowlookup": {' in done.stdout
    assert f"claude mcp add --scope user workflowlookup -- {COMMAND}" in done.stdout
    assert done.stderr == (
        "workflowlookup: nothing was written. "
        "Add --yes to write without being asked, or --print to paste it yourself.\n"
    )


@pytest.mark.parametrize(
    ("typed", "code", "is_written"), [("y\n", 0, True), ("\n", 1, False), ("no\n", 1, False), ("\x04", 1, False)]
)
def test_on_a_terminal_the_change_is_shown_in_colour_and_asked_for(
    cli: Cli, typed: str, code: int, is_written: bool
) -> None:
    found, seen = cli.on_terminal("install", "cursor", typed=typed, columns=200)

    assert (found, (cli.home / ".cursor" / "mcp.json").exists()) == (code, is_written)
    assert '\x1b[32m+    "workflowlookup": {\x1b[0m' in seen
    assert "Write this? [y/N] " in seen
    assert ("nothing was written" in seen) is not is_written


def test_the_folders_that_clients_let_one_choose_are_honoured(cli: Cli) -> None:
    cli("install", "claude-code", "--yes", CLAUDE_CONFIG_DIR=str(cli.home / "c"))
    cli("install", "codex", "--yes", CODEX_HOME=str(cli.home / "x"))

    assert (cli.home / "c" / ".claude.json").exists()
    assert (cli.home / "x" / "config.toml").exists()


def test_an_installation_without_a_script_runs_no_module_of_the_repository(cli: Cli, tmp_path: Path) -> None:
    """As after `pip install --user`, where the script is not beside the interpreter."""
    python, marker, repository = tmp_path / "bin" / "python", tmp_path / "marker", tmp_path / "repository"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    (repository / "workflowlookup").mkdir(parents=True)
    for module in ("msgspec.py", "workflowlookup/__init__.py"):
        (repository / module).write_text(f"open({str(marker)!r}, 'w')\n")
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(cli.home)}
    start = [python, "-P", "-m", "workflowlookup", "install", "claude-code", "--print"]
    printed = subprocess.run(start, cwd=repository, env=environment, capture_output=True, check=True).stdout
    entry = json.loads(printed)["mcpServers"]["workflowlookup"]

    served = subprocess.run(
        [entry["command"], *entry["args"]], cwd=repository, env=environment, stdin=subprocess.DEVNULL, check=False
    )

    assert (entry["command"], served.returncode, marker.exists()) == (str(python), 0, False)
