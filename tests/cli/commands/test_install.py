"""`workflowlookup install`."""

import argparse
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.command_line import Cli
from support.json_values import Json
from workflowlookup import extras
from workflowlookup.cli.client_hooks import HOOK_EVENTS
from workflowlookup.cli.clients import server_command

SCRIPT = Path(sys.executable).with_name("workflowlookup")
START = [str(SCRIPT)] if os.access(SCRIPT, os.X_OK) else [sys.executable, "-P", "-m", "workflowlookup"]
COMMAND, ARGUMENTS = START[0], [*START[1:], "serve"]
ENTRY = {"command": COMMAND, "args": ARGUMENTS}

PLACES = [
    (["claude-code"], "home/.claude.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["claude-code", "--scope", "project"], ".mcp.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["codex"], "home/.codex/config.toml", {"mcp_servers": {"workflowlookup": ENTRY}}),
    (["codex", "--scope", "project"], ".codex/config.toml", {"mcp_servers": {"workflowlookup": ENTRY}}),
    (["gemini"], "home/.gemini/settings.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["gemini", "--scope", "project"], ".gemini/settings.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (["windsurf"], "home/.codeium/windsurf/mcp_config.json", {"mcpServers": {"workflowlookup": ENTRY}}),
    (
        ["opencode", "--scope", "project"],
        "opencode.json",
        {"mcp": {"workflowlookup": {"type": "local", "command": [COMMAND, *ARGUMENTS], "enabled": True}}},
    ),
    (["zed", "--scope", "project"], ".zed/settings.json", {"context_servers": {"workflowlookup": ENTRY}}),
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
        (
            ["goose"],
            "home/.config/goose/config.yaml",
            {
                "extensions": {
                    "workflowlookup": {
                        "type": "stdio",
                        "name": "workflowlookup",
                        "enabled": True,
                        "cmd": COMMAND,
                        "args": ARGUMENTS,
                        "timeout": 300,
                    }
                }
            },
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


PARSERS: dict[str, Callable[[str], Json]] = {".toml": tomllib.loads, ".json": json.loads, ".yaml": yaml.safe_load}
TEXTS = {
    ".json": OTHERS,
    ".toml": 'model = "o9"  # mine\n\n[mcp_servers.other]\ncommand = "npx"\n\n[mcp_servers.other.env]\nA = "b"\n',
    ".yaml": "GOOSE_MODEL: x  # mine\nextensions:\n    developer:\n        enabled: true\n        type: builtin\nlast: 1\n",
}
"""What a file may hold before."""


def content_of(path: Path) -> Json:
    return PARSERS[path.suffix](path.read_text("utf-8"))


@pytest.mark.parametrize(("words", "file", "content"), PLACES, ids=lambda value: str(value)[:40])
def test_each_client_gets_its_entry_in_its_file(cli: Cli, words: list[str], file: str, content: object) -> None:
    done = cli("install", *words, "--yes")

    assert (done.returncode, done.stderr) == (0, "")
    assert content_of(cli.directory / file) == content
    assert f"Wrote {cli.directory / file}." in done.stdout


@pytest.mark.parametrize(("words", "file", "content"), PLACES, ids=lambda value: str(value)[:40])
def test_print_gives_just_the_entry_and_changes_nothing(cli: Cli, words: list[str], file: str, content: object) -> None:
    done = cli("install", *words, "--print")

    assert (done.returncode, done.stderr, PARSERS[Path(file).suffix](done.stdout)) == (0, "", content)
    assert not (cli.directory / file).exists()


@pytest.mark.parametrize(("words", "file", "content"), PLACES, ids=lambda value: str(value)[:40])
def test_uninstall_removes_only_what_install_added(
    cli: Cli, words: list[str], file: str, content: dict[str, dict[str, object]]
) -> None:
    path = cli.directory / file
    path.parent.mkdir(parents=True, exist_ok=True)
    before = TEXTS[path.suffix].replace("mcpServers", next(iter(content)))
    path.write_text(before)
    cli("install", *words, "--yes")
    installed = content_of(path)

    done = cli("uninstall", *words, "--yes")

    assert installed != PARSERS[path.suffix](before)
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_text().rstrip("\n") == before.rstrip("\n")
    again = cli("uninstall", *words, "--yes")
    assert "has no server 'workflowlookup'" in again.stdout


@pytest.mark.parametrize(("words", "file", "content"), PLACES, ids=lambda value: str(value)[:40])
def test_every_client_has_an_out_of_date_entry_renewed_as_the_doctor_says(
    cli: Cli, words: list[str], file: str, content: dict[str, object]
) -> None:
    path = cli.directory / file
    cli("install", *words, "--yes")
    path.write_text(path.read_text().replace(COMMAND, "/gone/workflowlookup"))
    problems = [
        problem for problem in json.loads(cli("doctor", "--json").stdout)["problems"] if "/gone/" in str(problem)
    ]

    renewal = shlex.split(problems[0]["remedy"].partition(": ")[2].strip("`"))[1:]
    done = cli(*renewal, "--yes")

    assert (done.returncode, done.stderr) == (0, "")
    assert content_of(path) == content


@pytest.mark.parametrize(
    "text", ['{"mcpServers": {"a": {}, "workflowlookup": {}, "b": {}}}', '{"mcpServers": {"workflowlookup": {}}}']
)
def test_an_entry_is_removed_from_one_line(cli: Cli, text: str) -> None:
    file = cli.directory / ".mcp.json"
    file.write_text(text)

    done = cli("uninstall", "claude-code", "--scope", "project", "--yes")

    left = json.loads(text)
    del left["mcpServers"]["workflowlookup"]
    assert (done.returncode, json.loads(file.read_text())) == (0, left)


@pytest.mark.parametrize(
    ("file", "client", "text"),
    [
        (".mcp.json", "claude-code", '{"mcpServers": {"workflowlookup": {/* mine */}}}'),
        (".codex/config.toml", "codex", 'mcp_servers = {workflowlookup = {command = "x"}}\n'),
    ],
)
def test_an_entry_that_cannot_be_removed_safely_stays(cli: Cli, file: str, client: str, text: str) -> None:
    path = cli.directory / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)

    done = cli("uninstall", client, "--scope", "project", "--yes")

    assert (done.returncode, path.read_text()) == (1, text)
    assert "was not changed" in done.stderr


def test_no_path_of_the_cache_of_uv_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/home/me/.cache/uv/archive-v0/Xy3_-k")
    monkeypatch.setattr(shutil, "which", lambda name: f"/home/me/.local/bin/{name}")

    command = server_command(argparse.Namespace())

    assert command == [*extras.one_run_command(), "serve"]
    assert command[:2] == ["/home/me/.local/bin/uvx", "--from"]


@pytest.mark.parametrize(
    ("scope", "file", "mode"), [("user", "home/.claude.json", 0o600), ("project", ".mcp.json", 0o644)]
)
def test_a_new_file_of_a_user_has_mode_600(cli: Cli, scope: str, file: str, mode: int) -> None:
    older = os.umask(0o022)
    try:
        done = cli("install", "claude-code", "--scope", scope, "--yes")
    finally:
        os.umask(older)

    assert (done.returncode, stat.S_IMODE((cli.directory / file).stat().st_mode)) == (0, mode)


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
def test_the_entry_can_be_inserted_into_any_layout_of_json(cli: Cli, before: str) -> None:
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
def test_installing_again_says_that_the_entry_exists(cli: Cli, words: list[str]) -> None:
    cli("install", *words, "--yes")

    again = cli("install", *words)

    assert (again.returncode, again.stderr) == (0, "")
    assert "has the server already: 'workflowlookup' in " in again.stdout


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
        (["cursor"], "home/.cursor/mcp.json", "[]", "no object 'mcpServers'"),
        (["cursor"], "home/.cursor/mcp.json", '{"mcpServers": 5}', "no object 'mcpServers'"),
        (
            ["vscode", "--scope", "project"],
            ".vscode/mcp.json",
            '{"servers": {"workflowlookup": {"command": "x" /* mine */}}}',
            "its older entry has comments, which would be lost",
        ),
        (["codex"], "home/.codex/config.toml", "a = ", "it is not valid TOML"),
        (["codex"], "home/.codex/config.toml", "mcp_servers = {}", "touch more than the entry"),
        (["codex"], "home/.codex/config.toml", 'mcp_servers.workflowlookup.command = "x"\n', "no table"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_not_changed(
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


def test_a_backup_never_follows_a_planted_link(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".mcp.json").write_text("{}")
    (tmp_path / ".mcp.json.bak").symlink_to(tmp_path / "precious")

    cli("install", "claude-code", "--scope", "project", "--yes")

    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("obstacle", ["a directory", "a pipe"])
def test_something_else_at_the_path_of_the_file_is_reported(cli: Cli, obstacle: str) -> None:
    path = cli.directory / ".mcp.json"
    path.mkdir() if obstacle == "a directory" else os.mkfifo(path)

    done = cli("install", "claude-code", "--scope", "project", "--yes")

    assert (done.returncode, "it is not a regular file" in done.stderr) == (1, True)


def test_an_unwritable_path_is_reported(cli: Cli) -> None:
    (cli.directory / ".cursor").write_text("a file where the directory should be")

    done = cli("install", "cursor", "--scope", "project", "--yes")

    assert (done.returncode, "workflowlookup: Storage error. " in done.stderr) == (1, True)


def test_without_a_terminal_and_without_yes_the_change_is_only_shown(cli: Cli) -> None:
    done = cli("install", "claude-code")

    assert (done.returncode, (cli.home / ".claude.json").exists()) == (1, False)
    assert '+    "workflowlookup": {' in done.stdout
    assert f"claude mcp add --scope user workflowlookup -- {COMMAND}" in done.stdout
    assert done.stderr == (
        "workflowlookup: nothing was written. Add --yes to write without asking, or edit the file yourself.\n"
    )


@pytest.mark.parametrize(
    ("typed", "code", "is_written"), [("y\n", 0, True), ("\n", 1, False), ("no\n", 1, False), ("\x04", 1, False)]
)
def test_on_a_terminal_the_change_is_shown_in_colour_and_asked_for(
    cli: Cli, typed: str, code: int, is_written: bool
) -> None:
    done, seen = cli.on_terminal("install", "cursor", typed=typed, columns=200)

    assert (done, (cli.home / ".cursor" / "mcp.json").exists()) == (code, is_written)
    assert '\x1b[32m+    "workflowlookup": {\x1b[0m' in seen
    assert "Write this? [y/N] " in seen
    assert ("nothing was written" in seen) is not is_written


def test_configured_folders_of_clients_are_used(cli: Cli) -> None:
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
    start = [str(python), "-P", "-m", "workflowlookup", "install", "claude-code", "--print"]
    printed = subprocess.run(start, cwd=repository, env=environment, capture_output=True, check=True).stdout
    entry = json.loads(printed)["mcpServers"]["workflowlookup"]

    served = subprocess.run(
        [entry["command"], *entry["args"]], cwd=repository, env=environment, stdin=subprocess.DEVNULL, check=False
    )

    assert (entry["command"], served.returncode, marker.exists()) == (str(python), 0, False)


# ── hooks ───────────────────────────────────────────────────────────────────────────────────────────────────────────

OTHER = {"hooks": [{"type": "command", "command": "notify-send done"}]}


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["claude-code"], "home/.claude/settings.json"),
        (["claude-code", "--scope", "project"], ".claude/settings.json"),
        (["codex"], "home/.codex/hooks.json"),
        (["codex", "--scope", "project"], ".codex/hooks.json"),
        (["gemini"], "home/.gemini/settings.json"),
        (["gemini", "--scope", "project"], ".gemini/settings.json"),
    ],
)
def test_hooks_come_and_go_beside_those_of_others(cli: Cli, words: list[str], file: str) -> None:
    path = cli.directory / file
    path.parent.mkdir(parents=True)
    before = json.dumps({"mcpServers": {}, "hooks": {"Stop": [OTHER], "Notification": [OTHER]}}, indent=2)
    path.write_text(before)

    added = cli("install", *words, "--hooks", "--yes")
    hooks = json.loads(path.read_text())["hooks"]
    again = cli("install", *words, "--hooks", "--yes")
    with_hooks = path.read_text()
    removed = cli("uninstall", *words, "--yes")

    assert (added.returncode, again.returncode, removed.returncode) == (0, 0, 0)
    assert "+++" in added.stdout
    assert "has the hooks already" in again.stdout
    assert json.loads(with_hooks)["hooks"] == hooks
    assert (hooks["Stop"][0], hooks["Notification"]) == (OTHER, [OTHER])
    events = HOOK_EVENTS[words[0]]
    commands = {event: hooks[event][-1]["hooks"][0]["command"] for event in events}
    assert commands == {event: shlex.join([*START, "hook", event]) for event in events}
    assert json.loads(path.read_text()) == json.loads(before)


@pytest.mark.parametrize("client", HOOK_EVENTS)
def test_hooks_for_the_user_and_for_the_project_would_run_twice(cli: Cli, client: str) -> None:
    assert cli("install", client, "--hooks", "--yes").returncode == 0

    refused = cli("install", client, "--scope", "project", "--hooks", "--yes")

    assert (refused.returncode, "with both each would run twice" in refused.stderr) == (1, True)
    assert f"`workflowlookup uninstall {client} --scope user`" in " ".join(refused.stderr.split())


def test_in_the_home_directory_both_scopes_have_one_file(cli: Cli) -> None:
    cli.directory = cli.home

    codes = [cli("install", "claude-code", "--hooks", "--yes").returncode for _ in range(2)]

    assert codes == [0, 0]


def test_codex_says_which_hooks_to_trust(cli: Cli) -> None:
    done = cli("install", "codex", "--hooks", "--yes")

    words = " ".join(done.stdout.split())
    assert f"trust those of {cli.home / '.codex/hooks.json'} whose command is `{shlex.join(START)} hook EVENT`" in words


def test_hooks_of_another_version_are_replaced_and_settings_are_passed_on(cli: Cli) -> None:
    path = cli.directory / ".claude/settings.json"
    path.parent.mkdir()
    old = {"hooks": [{"type": "command", "command": "uvx workflowlookup==0.9 hook Stop"}, *OTHER["hooks"]]}
    path.write_text(json.dumps({"hooks": {"Stop": [old]}}))

    cli("install", "claude-code", "--scope", "project", "--hooks", "--yes", "--journal", "/data/runs.sqlite")

    stop = json.loads(path.read_text())["hooks"]["Stop"]
    command = shlex.join([*START, "hook", "Stop", "--journal", "/data/runs.sqlite"])
    assert stop == [OTHER, {"hooks": [{"type": "command", "command": command, "timeout": 10}]}]


@pytest.mark.parametrize("text", ["[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "{"])
def test_a_file_of_another_form_is_not_changed(cli: Cli, text: str) -> None:
    path = cli.directory / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text(text)

    done = cli("install", "claude-code", "--scope", "project", "--hooks", "--yes")

    assert (done.returncode, path.read_text()) == (1, text)
    assert "hook SessionStart" in done.stdout


def test_a_client_without_hooks_is_refused(cli: Cli) -> None:
    done = cli("install", "zed", "--hooks", "--yes")

    assert (done.returncode, "Zed has no hooks" in done.stderr) == (2, True)
    assert not (cli.home / ".config/zed").exists()
