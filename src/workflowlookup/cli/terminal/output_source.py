"""Where the output of a step comes from: a pipe, a file, or the editor. Typed output is in `keyboard`.

Each source gives a `StepOutput` for the step that a run waits for, or None to leave the run as it is. Typed text is
submitted only by a line with a single dot or by the end of input. Until then it is stored as a draft.

A draft belongs to one step of one run in one journal, and is a file, so that Ctrl-C loses nothing. It is removed when
it is submitted. The file is text for an editor: the output, a scissors line, and below it what is not part of the
output.
"""

import contextlib
import functools
import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from workflowlookup.atomic import replace_file
from workflowlookup.cli.input import ask_line, ask_yes_or_no, is_interactive, prepare_keyboard
from workflowlookup.cli.output import complain
from workflowlookup.cli.terminal.confirmation import Decision, ask_for_decision
from workflowlookup.cli.terminal.run_display import refusal_lines
from workflowlookup.errors import StorageError
from workflowlookup.language.contract import Need, misfitting, unmet
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.guidance import guide
from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import scope_of
from workflowlookup.language.text import printable
from workflowlookup.language.values import Json, json_or_text
from workflowlookup.runs.events import OutputRefused
from workflowlookup.runs.run import Run
from workflowlookup.store.journal_url import JournalUrl

SCISSORS: Final = "# ------------------------ >8 ------------------------"
BELOW: Final = "# This line and all lines below it are ignored. Save an empty file to leave the run as it is."
_VARIABLES: Final = "# Variables: "
_UNSAFE_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9@._-]+")


class OutputDraft(msgspec.Struct, frozen=True):
    """An unfinished output, and the variables that were set with it."""

    text: str = ""
    changes: dict[str, Json] = {}


class Drafts:
    """The drafts of one run."""

    def __init__(self, journal: str, run_id: str, environment: Mapping[str, str] = os.environ) -> None:
        self._directory = _directory(environment)
        self._prefix = _prefix(journal, run_id)

    def load(self, step_id: str) -> OutputDraft:
        """The draft of a step, or an empty one. Raises `StorageError` when it cannot be read."""
        path = self.path(step_id)
        try:
            with open(path, encoding="utf-8", errors="replace", newline="") as file:
                return _parse(file.read())
        except FileNotFoundError:
            return OutputDraft()
        except OSError as problem:
            raise StorageError(f"The draft {path} cannot be read: {problem.strerror}.", file=path) from problem

    def save(self, step_id: str, draft: OutputDraft, notes: Iterable[str] = ()) -> str:
        """Store a draft that only the user can read. Returns the path of the file. Raises `StorageError`."""
        path = self.path(step_id)
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            replace_file(path, "\n".join([*_lines(draft), *notes, ""]).encode(errors="replace"))
        except OSError as problem:
            reason = f"What you have written cannot be saved in {path}: {problem.strerror}"
            raise StorageError(f"{reason}. Submit it, or copy it elsewhere.", file=path) from problem
        return path

    def drop(self, step_id: str) -> None:
        """Delete the draft of a step."""
        with contextlib.suppress(OSError):
            os.unlink(self.path(step_id))

    def path(self, step_id: str) -> str:
        """The file of a step's draft. Its name is readable and unique."""
        return os.path.join(self._directory, f"{self._prefix}{_name(step_id, step_id)}.md")


def delete_drafts(journal: str, run_ids: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Delete the drafts of deleted runs."""
    directory = _directory(environment)
    with contextlib.suppress(OSError):
        files = os.listdir(directory)
        prefixes = tuple(_prefix(journal, run_id) for run_id in run_ids) if files else ()
        for file in files:
            if file.startswith(prefixes):
                os.unlink(os.path.join(directory, file))


def _directory(environment: Mapping[str, str]) -> str:
    state = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "workflowlookup", "drafts")


def _prefix(journal: str, run_id: str) -> str:
    """The prefix of the file names of a run's drafts."""
    identity = "\0".join((JournalUrl(journal).identity, run_id))
    return f"{_name(run_id, identity)}."


def _name(words: str, identity: str) -> str:
    """A part of a file name: readable text, and a digest that makes it unique."""
    digest = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{_UNSAFE_IN_NAMES.sub('_', words)[:60]}-{digest}"


def _lines(draft: OutputDraft) -> Iterator[str]:
    yield draft.text
    yield SCISSORS
    yield BELOW
    if draft.changes:
        yield _VARIABLES + msgspec.json.encode(draft.changes).decode()


def _parse(content: str) -> OutputDraft:
    text, _, below = content.partition(SCISSORS)
    changes: dict[str, Json] = {}
    for line in below.splitlines():
        if line.startswith(_VARIABLES):
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                changes = msgspec.json.decode(line.removeprefix(_VARIABLES), type=dict[str, Json])
            break
    return OutputDraft(text.removesuffix("\n"), changes)


class StepOutput(msgspec.Struct, frozen=True, kw_only=True):
    """An output, the context variables that it sets, and the loop that it ends, if any."""

    output: str
    changes: dict[str, Json] = {}
    ends_loop: str = ""


class OutputSource(Protocol):
    """Gives outputs, values of variables, and decisions of a person."""

    can_retry: bool
    """Whether a person can correct what was refused."""

    def next_output(self, run: Run, rejected: OutputDraft, drafts: Drafts) -> StepOutput | None:
        """The output of the current step; `rejected` is the last one, if it was refused or denied."""

    def values(self, run: Run) -> dict[str, Json] | None:
        """The variables that the run waits for; None when there are none."""

    def decide(self, run: Run) -> Decision | None:
        """The answer of the person to the question that was shown; None when they do not answer."""


class LeaveRun(Exception):
    """The person leaves the run as it is."""


class NoEditor(Exception):
    """No editor is set, or it failed; the message says which."""


# ── pipes and files ─────────────────────────────────────────────────────────────────────────────────────────────


class PresetSource:
    """Outputs of a pipe or a file, read when the first one is needed. The variables go with the first."""

    can_retry = False

    def __init__(self, read: Callable[[], list[str]], changes: dict[str, Json]) -> None:
        self._read = read
        self._outputs: Iterator[str] | None = None
        self._changes = changes

    def next_output(self, run: Run, rejected: OutputDraft, drafts: Drafts) -> StepOutput | None:  # noqa: ARG002 - nobody is there
        if self._outputs is None:
            sys.stdout.flush()  # the other end of the pipe may need to read the step first
            self._outputs = iter(self._read())
        output = next(self._outputs, None)
        if output is None:
            return None
        changes, self._changes = self._changes, {}
        return StepOutput(output=output, changes=changes)

    def values(self, run: Run) -> dict[str, Json] | None:
        if not any(need.variable in self._changes for need in run.missing):
            return None
        changes, self._changes = self._changes, {}
        return changes

    def decide(self, run: Run) -> Decision | None:  # noqa: ARG002 - a pipe is no person
        has_more = self._read is not list if self._outputs is None else next(self._outputs, None) is not None
        if has_more:
            complain("no further output was submitted, because a person must answer first.")
        return None


def load_draft(drafts: Drafts, run: Run) -> OutputDraft:
    try:
        return drafts.load(run.current)
    except StorageError as problem:
        complain(problem.remedy)
        return OutputDraft()


def keep_draft(drafts: Drafts, run: Run, draft: OutputDraft) -> None:
    if not draft.text.strip() and not draft.changes:
        drafts.drop(run.current)
        return
    try:
        drafts.save(run.current, draft)
    except StorageError as problem:
        complain(problem.remedy)


# ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────


def ask_for_values(workflow: Workflow, needs: Iterable[Need], changes: dict[str, Json]) -> None:
    """Ask for the value of each variable, and add those that the person gives to `changes`. Raises `LeaveRun`."""
    for need in needs:
        value = _ask_for_value(need, functools.partial(_fits_contract, workflow, need))
        if value is not None:
            changes[need.variable] = value


def ask_for_missing(run: Run, changes: dict[str, Json]) -> dict[str, Json] | None:
    """`changes` with the variables that the run waits for; None when the person gives none."""
    for need in run.missing:
        if need.variable not in changes:
            try:
                value = _ask_for_value(need, functools.partial(_is_like_example, need))
            except LeaveRun:
                return None
            if value is not None:
                changes[need.variable] = value
    return changes or None


def _fits_contract(workflow: Workflow, need: Need, value: Json) -> bool:
    return not misfitting(workflow, {need.variable: value})


def _is_like_example(need: Need, value: Json) -> bool:
    return type(value) is type(need.example["context"][need.variable])


def _ask_for_value(need: Need, fits: Callable[[Json], bool]) -> Json:
    """Ask for a variable until the value is valid; None when the line is empty. Raises `LeaveRun`."""
    example = msgspec.json.encode(need.example["context"][need.variable]).decode()
    example_hint = "" if example == '"…"' else f", such as {printable(example)}"
    while True:
        typed = ask_line(f"{printable(need.variable)} ({printable(need.expected)}{example_hint}):")
        if typed is None:
            raise LeaveRun
        text = typed.strip()
        if not text:
            return None
        for value in (json_or_text(text), text):
            if fits(value):
                return value
        complain(f"{need.variable} must be {need.expected}{example_hint}. An empty line leaves it unset.")


def unset_variables(run: Run, changes: dict[str, Json]) -> tuple[Need, ...]:
    scope = scope_of(run.workflow, run.current, {**run.context, **changes}, run.extents)
    return unmet(run.workflow, run.step, scope, is_done=True)


class PersonSource:
    """A person at the terminal, if there is one, who is asked for missing variables and for a decision."""

    def __init__(self, changes: dict[str, Json]) -> None:
        self._changes = changes
        self.can_retry = is_interactive()
        if self.can_retry:
            prepare_keyboard()

    def take_changes(self) -> dict[str, Json]:
        """The variables of the command line, which are used once."""
        changes, self._changes = self._changes, {}
        return changes

    def values(self, run: Run) -> dict[str, Json] | None:
        changes = self.take_changes()
        return ask_for_missing(run, changes) if self.can_retry else changes or None

    def decide(self, run: Run) -> Decision | None:
        return ask_for_decision(run) if self.can_retry else None


# ── the editor ──────────────────────────────────────────────────────────────────────────────────────────────────


class EditorSource(PersonSource):
    """Opens `$VISUAL` or `$EDITOR` for each step."""

    _last = ""

    def next_output(self, run: Run, rejected: OutputDraft, drafts: Drafts) -> StepOutput | None:
        if self._last == run.current and not ask_yes_or_no("Edit it again?"):
            return None
        self._last = run.current
        draft = load_draft(drafts, run)
        changes = {**rejected.changes, **draft.changes, **self.take_changes()}
        output = edit_draft(run, OutputDraft(draft.text or rejected.text, changes), drafts)
        if not output.strip():
            drafts.drop(run.current)
            return None
        try:
            if self.can_retry:
                ask_for_values(run.workflow, unset_variables(run, changes), changes)
        except LeaveRun:
            return None
        finally:
            keep_draft(drafts, run, OutputDraft(output, changes))
        return StepOutput(output=output, changes=changes)


def edit_draft(run: Run, draft: OutputDraft, drafts: Drafts) -> str:
    """Open the file of the draft in the editor. Returns the edited text. Raises `NoEditor`."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise NoEditor("no editor is set. Set EDITOR, as in: export EDITOR=nano")
    try:
        path = drafts.save(run.current, draft, ["", *_reminder(run)])
        before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is meant for the editor
        try:
            done = subprocess.run([*words, path], check=False)  # noqa: S603 - the person's own editor
        finally:
            signal.signal(signal.SIGINT, before)
        text = drafts.load(run.current).text.strip("\n")
        keep_draft(drafts, run, OutputDraft(text, draft.changes))
    except StorageError as problem:
        raise NoEditor(problem.remedy) from problem
    except OSError as problem:
        message = f"the editor '{command}' cannot be started: {problem.strerror}. Set EDITOR to one that can."
        raise NoEditor(message) from problem
    if done.returncode:
        raise NoEditor(f"the editor '{command}' ended with code {done.returncode}; nothing was submitted")
    return text


def _reminder(run: Run) -> Iterator[str]:
    """The step and its criteria, for below the scissors line."""
    guidance = guide(run.workflow, run.offered, Budget())
    yield f"# {printable(guidance.step['title'])}"
    if isinstance(run.last_submission, OutputRefused):
        yield "\nThe last output was refused:"
        yield from (f"- {printable(problem)}" for problem in refusal_lines(run))
    yield f"\n{printable(guidance.prompt)}"
    if guidance.criteria:
        yield "\nThe output must meet:"
        yield from (f"- {printable(sentence)}" for sentence in guidance.criteria)
    if guidance.proofs:
        yield "\nThe server will check:"
        yield from (f"- {printable(sentence)}" for sentence in guidance.proofs)
