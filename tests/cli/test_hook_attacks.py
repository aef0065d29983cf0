"""What a hostile project, message or journal can do by a hook: nothing. The agent goes on, and nothing is run or read."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cli import hooks
from cli.hooks import EVENTS, SESSION, call, git, journal, kind, start
from support.command_line import Cli
from workflowlookup.cli.hook_entry import MAX_INPUT

SAMPLE = hooks.SAMPLE
MESSAGE = json.dumps({"session_id": SESSION, "tool_name": "Edit", "prompt": "An odd thing."}).encode()


def test_modules_and_settings_of_a_project_are_not_run(cli: Cli) -> None:
    for name in ("json", "os", "sqlite3", "msgspec", "sitecustomize"):
        (cli.directory / f"{name}.py").write_text(f"open('ran-{name}', 'w')")
    (cli.directory / "workflowlookup.toml").write_text('hook_triggers = true\n[commands]\ntest = ["touch", "ran"]\n')

    done = [cli("hook", event, stdin=MESSAGE) for event in EVENTS]

    assert [(one.returncode, one.stdout) for one in done] == [(0, "")] * len(EVENTS)
    assert list(cli.directory.glob("ran*")) == []


@pytest.mark.parametrize("key", ["root", "journal"])
def test_the_settings_of_a_project_show_no_runs_of_another(cli: Cli, tmp_path: Path, key: str) -> None:
    start(cli)
    other = tmp_path.with_name(f"{tmp_path.name}-other")
    other.mkdir()
    git(other, "init")
    value = cli.directory if key == "root" else journal(cli)
    (other / "workflowlookup.toml").write_text(f"{key} = {json.dumps(str(value))}\n")
    message = json.dumps({"session_id": SESSION, "cwd": str(other)}).encode()

    done = [cli("hook", event, stdin=message, CLAUDE_PROJECT_DIR=str(other)) for event in EVENTS]

    assert [one.stdout for one in done] == [""] * len(EVENTS)


def test_a_project_with_settings_gets_no_journal_by_a_hook(cli: Cli) -> None:
    (cli.directory / "workflowlookup.toml").write_text('log_level = "error"\n')

    assert [call(cli, event) for event in EVENTS] == [""] * len(EVENTS)
    assert not journal(cli).parent.exists()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_pipe, link_to_itself, link_to_zeros, Path.mkdir])
@pytest.mark.parametrize("target", ["journal", "settings"])
def test_a_file_of_another_kind_does_not_hold_a_hook(cli: Cli, make: Callable[[Path], object], target: str) -> None:
    path = journal(cli) if target == "journal" else cli.directory / "workflowlookup.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)

    done = cli("hook", "Stop", stdin=MESSAGE)

    assert (done.returncode, done.stdout, done.stderr.count("\n") <= 1) == (0, "", True)


def test_a_journal_behind_a_link_counts(cli: Cli) -> None:
    start(cli)
    real = journal(cli).with_name("elsewhere.sqlite")
    journal(cli).rename(real)
    journal(cli).symlink_to(real)

    assert kind(call(cli, "Stop")) == "block"


@pytest.mark.parametrize(
    "directory", ["../..", "", "/" * 5_000, "/a" * 100_000, "~root", "/\0", "//host/share", "/proc/self"]
)
def test_a_strange_working_directory_does_no_harm(cli: Cli, directory: str) -> None:
    start(cli, root="/")  # so that every path is in the project
    message = json.dumps({"session_id": SESSION, "cwd": directory}).encode()

    done = cli("hook", "SessionStart", stdin=message)

    assert (done.returncode, done.stderr.count("\n") <= 1) == (0, True)


@pytest.mark.parametrize(
    "data", [b"\0" * (MAX_INPUT + 1), b'{"a": "' + b"x" * MAX_INPUT + b'"}'], ids=["zeros", "text"]
)
def test_a_message_without_end_is_not_read_to_its_end(cli: Cli, data: bytes) -> None:
    start(cli)

    done = cli("hook", "Stop", stdin=data)

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "workflowlookup hook: the agent goes on unchecked: the message is too long\n"


def test_a_complaint_never_reaches_the_client_as_an_answer(cli: Cli) -> None:
    """Without standard error, Python prints to standard output what was meant for it."""
    code = (
        "import os, runpy, sys; os.close(2); sys.stderr = None; runpy.run_module('workflowlookup', run_name='__main__')"
    )

    done = cli("hook", "SessionStart", stdin=b"{", program=("-c", code))

    assert (done.returncode, done.stdout) == (0, "")
