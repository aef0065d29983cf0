"""The answer to every hook in every situation of a run: a table."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from cli import hooks
from cli.hooks import EVENTS, SESSION, call, git, journal, kind, kinds_of_events, start, submit
from support.command_line import Cli
from support.json_values import JsonObject
from support.make import document, loop, step, write
from workflowlookup.cli.hook_answers import Hook
from workflowlookup.execution.proof_runner import machine_id
from workflowlookup.language.document.building import build
from workflowlookup.runs.draft import Location
from workflowlookup.settings import read_settings
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.service import Runs

SAMPLE = hooks.SAMPLE
ONE_STEP = document(step("the-end"), identifier="one-step")
A_LOOP = document(loop("each-file", [step("in-loop")], type="forEach", items="files"), identifier="with-loop")
READ_ONLY = {"allow": ["read"]}
PROVED = document(step("the-step", tools=READ_ONLY, proof=[{"kind": "command", "run": ["true"]}]), identifier="proved")
CONFIRMED = document(step("the-step", tools=READ_ONLY, requireConfirmation=True), identifier="confirmed")


def path_of(cli: Cli) -> str:
    return cli.environment.get("WORKFLOWLOOKUP_JOURNAL") or str(journal(cli))


def prove(cli: Cli) -> str:
    """A run whose server has an output, and takes its proofs."""
    return submitted(cli, PROVED, "proof")


def ask(cli: Cli) -> str:
    """A run whose output a person has to confirm."""
    return submitted(cli, CONFIRMED, "confirmation")


def submitted(cli: Cli, content: JsonObject, waiting_for: str) -> str:
    journal(cli).parent.mkdir(parents=True, exist_ok=True)
    here = Location(root=os.path.realpath(cli.directory), machine=machine_id(), client_session=SESSION)
    with closing(Runs(JournalUrl(path_of(cli)).open(5.0), locate=lambda: here)) as runs:
        run = runs.start(build(content), {}, {})
        assert runs.submit(run.id, "the-step", "Done.", {}).waiting_for == waiting_for
        return run.id


def damage(cli: Cli) -> None:
    """A run of which an event cannot be read."""
    run_id, url = start(cli), path_of(cli)
    text = "UPDATE {}events SET body = 'x' WHERE run = '{}' AND sequence = 1"
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            connection.execute(text.format("workflowlookup.", run_id).encode())
    else:
        with closing(sqlite3.connect(url)) as file, file:
            file.execute(text.format("", run_id))


def lack_a_variable(cli: Cli) -> None:
    write(cli.directory / ".workflowlookup" / "workflows", A_LOOP)
    done = cli("run", "with-loop", "--json", CLAUDE_CODE_SESSION_ID=SESSION)
    assert json.loads(done.stdout)["waitingFor"] == "context", done


def finish(cli: Cli) -> None:
    write(cli.directory / ".workflowlookup" / "workflows", ONE_STEP)
    done = cli("run", "one-step", "--json", stdin=b"It is done.", CLAUDE_CODE_SESSION_ID=SESSION)
    assert json.loads(done.stdout)["state"] == "completed", done


def let_go(cli: Cli) -> None:
    start(cli)
    for _ in range(4):
        last = cli("hook", "Stop", stdin=message(cli, "Stop"))
    assert (last.stdout, last.stderr) == ("", "")


def message(cli: Cli, event: str, directory: Path | None = None) -> bytes:
    fields = {
        "hook_event_name": event,
        "session_id": SESSION,
        "cwd": str(directory or cli.directory),
        "tool_name": "Edit",
        "tool_input": {"file_path": "a.py"},
        "prompt": "An odd thing happened.",
    }
    return json.dumps(fields).encode()


NOTHING = ("", "", "", "")
SHOWN = ("context", "", "", "")
RULED = ("context", "deny", "", "")
HELD = ("context", "deny", "block", "block")
COMPLAINT = ("!", "!", "!", "!")
"""Nothing, and a line on standard error that says why."""

STATES: dict[str, tuple[Callable[[Cli], object], tuple[str, str, str, str]]] = {
    # the run of the session              SessionStart, PreToolUse, Stop, SubagentStop
    "is none": (lambda _: None, NOTHING),
    "waits for an output": (start, HELD),
    "waits for a variable": (lack_a_variable, ("context", "", "block", "block")),
    "waits for a person": (lambda cli: submit(cli, start(cli), "All is here."), SHOWN),
    "waits for a person in a step with rules": (ask, RULED),
    "is proved": (prove, RULED),
    "is paused while it is proved": (lambda cli: cli("pause", prove(cli)), SHOWN),
    "is paused": (lambda cli: cli("pause", start(cli)), SHOWN),
    "is resumed": (lambda cli: (run_id := start(cli), cli("pause", run_id), cli("resume", run_id)), HELD),
    "was let go": (let_go, RULED),
    "is finished": (finish, NOTHING),
    "is cancelled": (lambda cli: cli("cancel", start(cli)), NOTHING),
    "is damaged": (damage, COMPLAINT),
    "is of another session": (lambda cli: start(cli, session="session-2"), SHOWN),
    "is of nobody's session": (lambda cli: start(cli, session=""), SHOWN),
}


def answers(cli: Cli, directory: Path | None = None) -> dict[str, str]:
    """By event: the kind of the answer, or `!` if there is only a complaint."""
    result = {}
    for event in EVENTS:  # a process for each: that is what a client starts
        done = cli("hook", event, stdin=message(cli, event, directory), CLAUDE_CODE_SESSION_ID=SESSION)
        assert (done.returncode, done.stderr.count("\n") <= 1) == (0, True)
        assert not (done.stdout and done.stderr)
        result[event] = "!" if done.stderr else kind(done.stdout)
    return result


def expected(row: tuple[str, str, str, str]) -> dict[str, str]:
    return dict(zip(("SessionStart", "PreToolUse", "Stop", "SubagentStop"), row, strict=True)) | {
        "UserPromptSubmit": "",
        "PostToolUse": "",
    }


@pytest.mark.parametrize("state", STATES)
def test_every_event_in_every_state(cli: Cli, state: str) -> None:
    prepare, row = STATES[state]
    prepare(cli)

    assert answers(cli) == expected(row)


@pytest.mark.parametrize("state", ["waits for an output", "is proved", "is paused", "is damaged"])
def test_a_postgresql_journal_gives_the_same_answers(cli: Cli, database: str, state: str) -> None:
    cli.environment["WORKFLOWLOOKUP_JOURNAL"] = database
    prepare, row = STATES[state]
    prepare(cli)

    assert answers(cli) == expected(row)


def test_a_postgresql_journal_counts_the_turns_and_keeps_what_was_refused(cli: Cli, database: str) -> None:
    cli.environment["WORKFLOWLOOKUP_JOURNAL"] = database
    run_id = start(cli)

    kinds = [kind(call(cli, event)) for event in ("PreToolUse", "Stop", "Stop", "Stop", "Stop")]

    assert kinds == ["deny", "block", "block", "block", ""]
    assert kinds_of_events(cli, run_id)[2:] == ["tool-refused", *["stop-blocked"] * 3, "stop-released"]


# ── projects ────────────────────────────────────────────────────────────────────────────────────────────────────────


def below(cli: Cli) -> Path:
    directory = cli.directory / "src" / "deep"
    directory.mkdir(parents=True)
    return directory


def by_a_link(cli: Cli) -> Path:
    link = cli.directory.with_name(f"{cli.directory.name}-link")
    link.symlink_to(cli.directory)
    return link


def other_project(cli: Cli) -> Path:
    other = cli.directory / "other"
    other.mkdir()
    git(other, "init")
    return other


def worktree(cli: Cli) -> Path:
    git(cli.directory, "commit", "--allow-empty", "-m", "First")
    path = cli.directory.with_name(f"{cli.directory.name}-worktree")
    git(cli.directory, "worktree", "add", str(path))
    return path


PLACES: dict[str, tuple[Callable[[Cli], Path], tuple[str, str, str, str]]] = {
    # the session is in
    "the project": (lambda cli: cli.directory, HELD),
    "a directory below": (below, HELD),
    "a link to it": (by_a_link, HELD),
    "another repository in it": (other_project, NOTHING),
    "a worktree of it": (worktree, NOTHING),
    "the root of the system": (lambda _: Path("/"), NOTHING),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_session_in(cli: Cli, place: str) -> None:
    git(cli.directory, "init")
    start(cli)
    find, row = PLACES[place]

    assert answers(cli, find(cli)) == expected(row)


def test_a_damaged_run_does_not_hide_another(cli: Cli) -> None:
    run_id = start(cli)
    damage(cli)

    done = cli("hook", "Stop", stdin=message(cli, "Stop"), CLAUDE_CODE_SESSION_ID=SESSION)

    assert (run_id in done.stdout, kind(done.stdout), done.stderr.count("\n")) == (True, "block", 1)


class PurgedMeanwhile(Runs):
    """Runs of which one is purged after the open ones were listed."""

    def open_runs(self, root: str) -> list[str]:
        return ["purged", *super().open_runs(root)]


def test_a_run_that_is_purged_meanwhile_does_not_hide_another(cli: Cli) -> None:
    run_id = start(cli)
    with closing(PurgedMeanwhile(JournalUrl(path_of(cli)).open(5.0))) as runs:
        hook = Hook(
            event="Stop",
            message={"session_id": SESSION},
            settings=read_settings({}, {"WORKFLOWLOOKUP_JOURNAL": path_of(cli)}, directory=str(cli.directory)),
            root=os.path.realpath(cli.directory),
            runs=runs,
            is_session_known=True,
        )
        assert [run.id for run in hook.open_runs()] == [run_id]
