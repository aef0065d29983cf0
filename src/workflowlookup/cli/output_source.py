"""Where the output of a step comes from: a pipe, a file, or the editor. Typed output is in `keyboard`.

Each source gives an `Entry` for the step that a run waits for, or None when there is nothing more: then the run is left
as it is. What was typed is never sent by accident, only by a line with a single dot or the end of input; and it is
never lost: until it is sent it is a draft (`drafts`).
"""

import functools
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from workflowlookup.cli.confirmation import Decision, ask_for_decision
from workflowlookup.cli.drafts import Draft, Drafts
from workflowlookup.cli.input import ask_line, ask_yes_or_no, is_typed, prepare_keyboard
from workflowlookup.cli.output import complain
from workflowlookup.cli.refused_outputs import problems
from workflowlookup.errors import StorageError
from workflowlookup.language.contract import Need, misfitting, unmet
from workflowlookup.language.guidance import guide
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.patterns import Budget
from workflowlookup.language.text import printable
from workflowlookup.language.values import Json, json_or_text
from workflowlookup.runs.events import OutputRefused
from workflowlookup.runs.run import Run


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An output, the variables that come with it, and the loop that it ends instead of a step."""

    output: str
    changes: dict[str, Json] = {}
    ends_loop: str = ""


class Source(Protocol):
    """Gives outputs, values and a person's decisions."""

    tries_again: bool
    """Whether somebody is there who can correct what was refused."""

    def entry(self, run: Run, rejected: Draft, drafts: Drafts) -> Entry | None:
        """The output of the current step; `rejected` is the last one, if it was refused or not agreed to."""

    def values(self, run: Run) -> dict[str, Json] | None:
        """The variables that the run waits for; None when they do not come."""

    def agrees(self, run: Run) -> Decision | None:
        """What the person says to the question that was shown; None when they do not say."""


class Left(Exception):
    """The person leaves the run as it is."""


class NoEditor(Exception):
    """No editor is set, or it did not end well; the text says so."""


# ── pipes and files ─────────────────────────────────────────────────────────────────────────────────────────────


class Given:
    """Outputs that nobody types, read when the first is wanted; the variables go with it."""

    tries_again = False

    def __init__(self, read: Callable[[], list[str]], changes: dict[str, Json]) -> None:
        self._read = read
        self._outputs: Iterator[str] | None = None
        self._changes = changes

    def entry(self, run: Run, rejected: Draft, drafts: Drafts) -> Entry | None:  # noqa: ARG002 - nobody is there
        if self._outputs is None:
            sys.stdout.flush()  # who reads the step may be about to write its output
            self._outputs = iter(self._read())
        output = next(self._outputs, None)
        if output is None:
            return None
        changes, self._changes = self._changes, {}
        return Entry(output=output, changes=changes)

    def values(self, run: Run) -> dict[str, Json] | None:
        if not any(need.variable in self._changes for need in run.missing):
            return None
        changes, self._changes = self._changes, {}
        return changes

    def agrees(self, run: Run) -> Decision | None:  # noqa: ARG002 - a pipe is no person
        is_left = self._read is not list if self._outputs is None else next(self._outputs, None) is not None
        if is_left:
            complain("no further output was submitted, because a person must answer first.")
        return None


def load_draft(drafts: Drafts, run: Run) -> Draft:
    try:
        return drafts.load(run.current)
    except StorageError as problem:
        complain(problem.remedy)
        return Draft()


def keep_draft(drafts: Drafts, run: Run, draft: Draft) -> None:
    if not draft.text.strip() and not draft.changes:
        drafts.drop(run.current)
        return
    try:
        drafts.save(run.current, draft)
    except StorageError as problem:
        complain(problem.remedy)


# ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────


def ask_for_values(workflow: Workflow, needs: Iterable[Need], changes: dict[str, Json]) -> None:
    """Put a value for each variable that the person gives one for into the changes. Raises `Left`."""
    for need in needs:
        value = _ask_for_value(need, functools.partial(_fits_contract, workflow, need))
        if value is not None:
            changes[need.variable] = value


def ask_for_missing(run: Run, changes: dict[str, Json]) -> dict[str, Json] | None:
    """The changes with the variables that the run waits for; None when the person gives none."""
    for need in run.missing:
        if need.variable not in changes:
            try:
                value = _ask_for_value(need, functools.partial(_is_like_example, need))
            except Left:
                return None
            if value is not None:
                changes[need.variable] = value
    return changes or None


def _fits_contract(workflow: Workflow, need: Need, value: Json) -> bool:
    return not misfitting(workflow, {need.variable: value})


def _is_like_example(need: Need, value: Json) -> bool:
    return type(value) is type(need.example["context"][need.variable])


def _ask_for_value(need: Need, fits: Callable[[Json], bool]) -> Json:
    """A value for a variable, asked for until it fits; None when the line is left empty. Raises `Left`."""
    example = msgspec.json.encode(need.example["context"][need.variable]).decode()
    such_as = "" if example == '"…"' else f", such as {printable(example)}"
    while True:
        typed = ask_line(f"{printable(need.variable)} ({printable(need.expected)}{such_as}):")
        if typed is None:
            raise Left
        text = typed.strip()
        if not text:
            return None
        for value in (json_or_text(text), text):
            if fits(value):
                return value
        complain(f"{need.variable} must be {need.expected}{such_as}. An empty line leaves it unset.")


def needs_of(run: Run, changes: dict[str, Json]) -> tuple[Need, ...]:
    scope = scope_of(run.workflow, run.current, {**run.context, **changes}, run.extents)
    return unmet(run.workflow, run.step, scope, is_done=True)


class Person:
    """Somebody at the terminal, if it is one, who is asked for what is missing and for a decision."""

    def __init__(self, changes: dict[str, Json]) -> None:
        self._changes = changes
        self.tries_again = is_typed()
        if self.tries_again:
            prepare_keyboard()

    def take_changes(self) -> dict[str, Json]:
        """The variables of the command line, which go with the first output or the first values."""
        changes, self._changes = self._changes, {}
        return changes

    def values(self, run: Run) -> dict[str, Json] | None:
        changes = self.take_changes()
        return ask_for_missing(run, changes) if self.tries_again else changes or None

    def agrees(self, run: Run) -> Decision | None:
        return ask_for_decision(run) if self.tries_again else None


# ── the editor ──────────────────────────────────────────────────────────────────────────────────────────────────


class Editor(Person):
    """`$VISUAL` or `$EDITOR`, once a step."""

    _last = ""

    def entry(self, run: Run, rejected: Draft, drafts: Drafts) -> Entry | None:
        if self._last == run.current and not ask_yes_or_no("Edit it again?"):
            return None
        self._last = run.current
        draft = load_draft(drafts, run)
        changes = {**rejected.changes, **draft.changes, **self.take_changes()}
        output = edited(run, Draft(draft.text or rejected.text, changes), drafts)
        if not output.strip():
            drafts.drop(run.current)
            return None
        try:
            if self.tries_again:
                ask_for_values(run.workflow, needs_of(run, changes), changes)
        except Left:
            return None
        finally:
            keep_draft(drafts, run, Draft(output, changes))
        return Entry(output=output, changes=changes)


def edited(run: Run, draft: Draft, drafts: Drafts) -> str:
    """What the person made of the draft, in the file that keeps it. Raises `NoEditor`."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise NoEditor("no editor is set. Set EDITOR, as in: export EDITOR=nano")
    try:
        path = drafts.save(run.current, draft, ["", *_reminder(run)])
        before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the editor, which gets it too
        try:
            done = subprocess.run([*words, path], check=False)  # noqa: S603 - the person's own editor
        finally:
            signal.signal(signal.SIGINT, before)
        text = drafts.load(run.current).text.strip("\n")
        keep_draft(drafts, run, Draft(text, draft.changes))
    except StorageError as problem:
        raise NoEditor(problem.remedy) from problem
    except OSError as problem:
        message = f"the editor '{command}' cannot be started: {problem.strerror}. Set EDITOR to one that can."
        raise NoEditor(message) from problem
    if done.returncode:
        raise NoEditor(f"the editor '{command}' ended with code {done.returncode}; nothing was sent")
    return text


def _reminder(run: Run) -> Iterator[str]:
    """What the output is for, below the line."""
    guidance = guide(run.workflow, run.offered, Budget())
    yield f"# {printable(guidance.step['title'])}"
    if isinstance(run.last_submission, OutputRefused):
        yield "\nIt was refused:"
        yield from (f"- {printable(problem)}" for problem in problems(run))
    yield f"\n{printable(guidance.prompt)}"
    if guidance.criteria:
        yield "\nThe output must meet:"
        yield from (f"- {printable(sentence)}" for sentence in guidance.criteria)
