"""Where the output of a step comes from: the keyboard, a pipe, a file, or the editor.

Each source gives an `Entry` for the step that a run waits for, or None when there is nothing more: then the run is left
as it is. What was typed is never sent by accident: only a line with a single dot, or the end of input, sends it.
"""

import argparse
import io
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from workflowlookup.cli.context import variable
from workflowlookup.cli.output import clean, complain, write
from workflowlookup.core.advance import loops_to_end
from workflowlookup.core.contract import Need, unmet
from workflowlookup.core.events import OutputRefused
from workflowlookup.core.guidance import guide
from workflowlookup.core.navigation import scope_of
from workflowlookup.core.run import Run
from workflowlookup.core.values import Json
from workflowlookup.errors import StorageError

END: Final = "."
PROMPT: Final = "> "
SCISSORS: Final = "# ------------------------ >8 ------------------------"
BELOW: Final = "# This line and all below it are left out. Save an empty file to leave the run as it is."

HELP: Final = (
    (":set NAME=VALUE", "set a context variable with this output"),
    (":edit", "go on in your editor"),
    (":end", "end the loop that the run is in"),
    (":leave", "leave; the run is kept (so do Ctrl-C, and Ctrl-D on an empty output)"),
)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An output, the variables that come with it, and the loop that it ends instead of a step."""

    output: str
    changes: dict[str, Json] = {}
    ends_loop: str = ""


class Source(Protocol):
    """Gives outputs, and a person's word."""

    tries_again: bool
    """Whether somebody is there who can mend what was refused."""

    def entry(self, run: Run, last: str) -> Entry | None:
        """The output of the current step; `last` is the one that was refused."""

    def values(self, run: Run) -> dict[str, Json] | None:
        """The variables that the run waits for; None when they do not come."""

    def agrees(self, run: Run) -> tuple[bool, str] | None:
        """Whether the person agrees, and a note; None when they do not say."""


class NoEditor(Exception):
    """No editor is set, or it did not end well; the text says so."""


def is_typed() -> bool:
    """Whether somebody types what comes in."""
    return sys.stdin is not None and sys.stdin.isatty()


# ── pipes and files ─────────────────────────────────────────────────────────────────────────────────────────────


def read_pipe() -> list[str]:
    """The outputs in standard input: a line with a single dot ends one and begins the next."""
    outputs: list[list[str]] = [[]]
    for line in io.StringIO(_read_standard_input(), newline=""):
        if line.rstrip("\r\n") == END:
            outputs.append([])
        else:
            outputs[-1].append(line)
    texts = ["".join(lines).removesuffix("\n").removesuffix("\r") for lines in outputs]
    return [text for text in texts if text.strip()]


def read_file(path: str) -> str:
    """All of a file; `-` is standard input. Raises `StorageError`."""
    if path == "-":
        return _read_standard_input().removesuffix("\n")
    try:
        with open(path, "rb") as stream:
            return _decoded(stream.read(), path).removesuffix("\n")
    except OSError as problem:
        raise StorageError(f"{path} cannot be read: {problem.strerror}.", file=path) from problem


def _read_standard_input() -> str:
    return _decoded(b"" if sys.stdin is None else sys.stdin.buffer.read(), "standard input")


def _decoded(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise StorageError(f"What {place} holds is not UTF-8 text (byte {problem.start + 1}).") from None


class Given:
    """Outputs that nobody types, read when the first is wanted; the variables go with it."""

    tries_again = False

    def __init__(self, read: Callable[[], list[str]], changes: dict[str, Json]) -> None:
        self._read = read
        self._outputs: Iterator[str] | None = None
        self._changes = changes

    def entry(self, run: Run, last: str) -> Entry | None:  # noqa: ARG002 - nobody is there to mend it
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

    def agrees(self, run: Run) -> tuple[bool, str] | None:  # noqa: ARG002 - a pipe is no person
        return None


# ── the keyboard ────────────────────────────────────────────────────────────────────────────────────────────────


class Keyboard:
    """A person who types."""

    tries_again = True

    def __init__(self, changes: dict[str, Json]) -> None:
        self._changes = changes
        _prepare_keyboard()

    def entry(self, run: Run, last: str) -> Entry | None:
        loops = loops_to_end(run)
        write()
        write(("Your output. End it with a line that is a single dot, or with Ctrl-D; :help tells more.", "dim"))
        return self._typed(run, last, loops)

    def _typed(self, run: Run, last: str, loops: list[str]) -> Entry | None:
        lines: list[str] = []
        while True:
            line = _line(PROMPT)
            is_blank = not any(typed.strip() for typed in lines)
            if line is None and is_blank:
                return None
            if line is None or line == END:
                if is_blank:
                    write(("There is nothing yet. :leave leaves the run as it is.", "dim"))
                    continue
                return self._with_variables(run, "\n".join(lines))
            word, _, rest = line.strip().partition(" ")
            match word:
                case ":leave" | ":quit":
                    return None
                case ":help":
                    for command, meaning in HELP:
                        write((f"  {command:<16}", "cyan"), f"  {meaning}")
                case ":set":
                    self._set(rest.strip())
                case ":end" if loops:
                    return Entry(output="\n".join(lines), changes=self._taken(), ends_loop=loops[-1])
                case ":edit":
                    text = _edited_or_told(run, "\n".join(lines) or last)
                    if text is not None and text.strip():
                        return self._with_variables(run, text)
                case _:
                    lines.append(line)

    def _set(self, text: str) -> None:
        try:
            name, value = variable(text)
        except argparse.ArgumentTypeError as problem:
            complain(str(problem))
        else:
            self._changes[name] = value
            write((f"  {name} is set with this output.", "dim"))

    def _with_variables(self, run: Run, output: str) -> Entry:
        """The output, with what the step should leave in the context and the person has not set yet."""
        changes = self._taken()
        return Entry(output=output, changes=_ask_for(_needs(run, changes), changes))

    def _taken(self) -> dict[str, Json]:
        changes, self._changes = self._changes, {}
        return changes

    def values(self, run: Run) -> dict[str, Json] | None:
        return _ask_for_all(run.missing, self._taken())

    def agrees(self, run: Run) -> tuple[bool, str] | None:  # noqa: ARG002 - the question was shown
        return ask_for_word()


def ask_for_word() -> tuple[bool, str] | None:
    """Yes, no with a reason, or nothing said."""
    while True:
        said = _line("Do you agree? [y]es, [n]o, [l]eave it for later: ")
        word = (said or "").strip().lower()
        if said is None or word in ("l", "leave"):
            return None
        if word in ("y", "yes"):
            return True, ""
        if word in ("n", "no"):
            return False, (_line("Why not? (may be empty) ") or "").strip()


def ask_yes_or_no(question: str) -> bool:
    """Only a plain yes is one."""
    return (_line(f"{question} [y/N] ") or "").strip().lower() in ("y", "yes")


def _prepare_keyboard() -> None:
    """Lines as long as one likes, which can be edited; bytes that are no text do not end it."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    try:
        import readline  # noqa: PLC0415 - a terminal alone cuts lines at 4,095 characters
    except ImportError:
        return
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste off")  # a paste of many lines is many lines


def _line(question: str) -> str | None:
    """A line; None at the end of input."""
    sys.stdout.flush()
    try:
        return input(question)
    except EOFError:
        write()
        return None


def _needs(run: Run, changes: dict[str, Json]) -> tuple[Need, ...]:
    scope = scope_of(run.workflow, run.current, {**run.context, **changes}, run.extents)
    return unmet(run.workflow, run.step, scope, is_done=True)


def _ask_for(needs: Iterable[Need], changes: dict[str, Json]) -> dict[str, Json]:
    """The changes, with a value for each variable that the person gives one for."""
    for need in needs:
        example = msgspec.json.encode(need.example["context"][need.variable]).decode()
        such_as = "" if "…" in example else f", such as {clean(example)}"
        typed = _line(f"{clean(need.variable)} ({clean(need.expected)}{such_as}): ")
        if typed and typed.strip():
            changes[need.variable] = _value(typed.strip())
    return changes


def _ask_for_all(needs: Iterable[Need], changes: dict[str, Json]) -> dict[str, Json] | None:
    """The same, of variables without which the run cannot go on; None when the person gives none."""
    open_needs = [need for need in needs if need.variable not in changes]
    return _ask_for(open_needs, changes) or None


def _value(text: str) -> Json:
    try:
        return msgspec.json.decode(text.encode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        return text


# ── the editor ──────────────────────────────────────────────────────────────────────────────────────────────────


class Editor:
    """`$VISUAL` or `$EDITOR`, once a step."""

    def __init__(self, changes: dict[str, Json]) -> None:
        self._changes = changes
        self.tries_again = is_typed()
        if self.tries_again:
            _prepare_keyboard()

    def entry(self, run: Run, last: str) -> Entry | None:
        if last and not ask_yes_or_no("Edit it again?"):
            return None
        output = edited(run, last)
        if not output.strip():
            return None
        changes, self._changes = self._changes, {}
        if self.tries_again:
            changes = _ask_for(_needs(run, changes), changes)
        return Entry(output=output, changes=changes)

    def values(self, run: Run) -> dict[str, Json] | None:
        changes, self._changes = self._changes, {}
        return _ask_for_all(run.missing, changes) if self.tries_again else changes or None

    def agrees(self, run: Run) -> tuple[bool, str] | None:  # noqa: ARG002 - the question was shown
        return ask_for_word() if self.tries_again else None


def _edited_or_told(run: Run, text: str) -> str | None:
    try:
        return edited(run, text)
    except NoEditor as problem:
        complain(str(problem))
        return None


def edited(run: Run, text: str) -> str:
    """What the person made of the text. Raises `NoEditor`."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise NoEditor("no editor is set. Set EDITOR, as in: export EDITOR=nano")
    descriptor, path = tempfile.mkstemp(prefix="workflowlookup-", suffix=".md")
    try:
        with open(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write("\n".join([text, "", SCISSORS, BELOW, "", *_reminder(run), ""]))
        done = subprocess.run([*words, path], check=False)  # noqa: S603 - the person's own editor
        if done.returncode:
            raise NoEditor(f"the editor '{command}' ended with code {done.returncode}; nothing was sent")
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().partition(SCISSORS)[0].strip("\n")
    except OSError as problem:
        told = f"the editor '{command}' cannot be started: {problem.strerror}. Set EDITOR to one that can."
        raise NoEditor(told) from problem
    finally:
        os.unlink(path)


def _reminder(run: Run) -> Iterator[str]:
    """What the output is for, below the line."""
    guidance = guide(run.workflow, run.offered)
    yield f"# {clean(guidance.step['title'])}"
    if isinstance(run.judged, OutputRefused):
        yield "\nIt was refused:"
        yield from (f"- {clean(issue)}" for issue in run.judged.issues)
    yield f"\n{clean(guidance.prompt)}"
    if guidance.criteria:
        yield "\nThe output must meet:"
        yield from (f"- {clean(sentence)}" for sentence in guidance.criteria)
