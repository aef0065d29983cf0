"""Reads the output of a step from the terminal, with commands that begin with a colon."""

import argparse
import difflib
import select
import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from workflowlookup.cli.arguments import variable
from workflowlookup.cli.input import END, TerminalGone, ask_line, interrupt_on_hangup, is_interactive, partial_line
from workflowlookup.cli.output import complain, write, write_quoted
from workflowlookup.cli.terminal.output_source import (
    Drafts,
    LeaveRun,
    NoEditor,
    OutputDraft,
    PersonSource,
    StepOutput,
    ask_for_values,
    edit_draft,
    keep_draft,
    load_draft,
    unset_variables,
)
from workflowlookup.cli.terminal.run_display import write_step, write_verdict
from workflowlookup.language.contract import misfitting
from workflowlookup.language.text import plural
from workflowlookup.language.values import Json
from workflowlookup.runs.draft import loops_to_end
from workflowlookup.runs.run import Run

PROMPT: Final = ">"
COLON: Final = ":"
"""A command begins with it. A line of the output that begins with a colon has it doubled."""
MAX_ROWS: Final = 20
"""How many lines of a draft are shown."""


class KeyboardSource(PersonSource):
    """Reads outputs that a person types."""

    def next_output(self, run: Run, rejected: OutputDraft, drafts: Drafts) -> StepOutput | None:
        return _Typing(run, rejected, drafts, self.take_changes()).read()


class _Typing:
    """The output of one step while it is being typed."""

    def __init__(self, run: Run, rejected: OutputDraft, drafts: Drafts, changes: dict[str, Json]) -> None:
        draft = load_draft(drafts, run)
        self.run = run
        self.rejected = rejected
        self.lines = draft.text.split("\n") if draft.text else []
        self.changes = {**rejected.changes, **draft.changes, **changes}
        self.drafts = drafts
        self._saved = draft

    def read(self) -> StepOutput | None:
        """The output that the person submits; None when they leave."""
        write()
        if self.lines:
            write("Your draft so far:")
            self.show_lines()
        elif self.rejected.text:
            write((":edit opens the last output in your editor, :again adds to it. Or type a new one.", "dim"))
        heading = "Continue your output" if self.lines else "Your output"
        write((f"{heading}. End it with a line that is a single dot, or with Ctrl-D; :help lists the commands.", "dim"))
        try:
            return self._read_lines()
        except LeaveRun:
            return None
        finally:
            self.keep_draft()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def show_lines(self) -> None:
        """Print the last lines of the draft."""
        hidden = len(self.lines) - MAX_ROWS
        if hidden > 0:
            write((f"  … {plural(hidden, 'line')} before", "dim"))
        write_quoted("\n".join(self.lines[-MAX_ROWS:]))

    def finish(self) -> StepOutput:
        """The output; asks first for variables that the step should set and the person has not set yet."""
        ask_for_values(self.run.workflow, unset_variables(self.run, self.changes), self.changes)
        return StepOutput(output=self.text, changes=self.changes)

    def _read_lines(self) -> StepOutput:
        while True:
            self._keep_while_idle()
            line = self._read()
            if line is None or line == END:
                if self.text.strip():
                    return self.finish()
                if line is None:
                    raise LeaveRun
                write(("The output is empty. :leave leaves the run as it is.", "dim"))
                continue
            word, _, argument = line.strip().partition(" ")
            if word in LINE_COMMANDS:
                output = LINE_COMMANDS[word].act(self, argument.strip())
                if output is not None:
                    return output
            elif line.startswith(COLON):
                self._take_colon_line(line, word)
            else:
                self.lines.append(line)

    def _take_colon_line(self, line: str, word: str) -> None:
        """Add `::text` as the line `:text`. Any other word after a colon is an error, and not added."""
        if line.startswith(COLON * 2):
            self.lines.append(line.removeprefix(COLON))
            return
        completions = [name for name in LINE_COMMANDS if name.startswith(word)]
        close = completions or difflib.get_close_matches(word, LINE_COMMANDS, n=1, cutoff=0.5)
        suggestion = f" Did you mean {close[0]}?" if close else ""
        complain(
            f"'{word}' is not a command, and the line was not added.{suggestion} "
            f"The commands are {', '.join(LINE_COMMANDS)}. For a line that begins with a colon, type two: :{word}"
        )

    def _read(self) -> str | None:
        """The next line. If it is interrupted, the unfinished line is kept."""
        try:
            with interrupt_on_hangup():
                line = ask_line(PROMPT)
        except TerminalGone as end:
            self._keep_partial("".join(end.args))
            raise
        except KeyboardInterrupt:
            self._keep_partial(partial_line())
            raise
        if line is None and not is_interactive():  # not Ctrl-D: the terminal was closed, and nothing is submitted
            raise TerminalGone
        return line

    def _keep_partial(self, line: str) -> None:
        if line and (line.startswith(COLON * 2) or not line.startswith(COLON)):
            self.lines.append(line.removeprefix(COLON))

    def _keep_while_idle(self) -> None:
        """Save the draft unless more input is waiting, so that a long paste is not saved once per line."""
        if not select.select([sys.stdin], [], [], 0)[0]:
            self.keep_draft()

    def keep_draft(self) -> None:
        draft = OutputDraft(self.text, dict(self.changes))
        if draft != self._saved:
            self._saved = draft
            keep_draft(self.drafts, self.run, draft)


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────


class LineCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that is typed in place of a line of the output."""

    usage: str
    meaning: str
    act: Callable[[_Typing, str], StepOutput | None]
    """Returns the output when it is complete. Raises `LeaveRun` to leave."""


def _set(typing: _Typing, argument: str) -> None:
    try:
        name, value = variable(argument)
    except argparse.ArgumentTypeError as problem:
        complain(str(problem))
        return
    violations = misfitting(typing.run.workflow, {name: value})
    if violations:
        complain(f"{violations[0].sentence()}. It was not set.")
        return
    typing.changes[name] = value
    write((f"  {name} will be set with this output.", "dim"))


def _edit(typing: _Typing, _: str) -> StepOutput | None:
    start = OutputDraft(typing.text or typing.rejected.text, typing.changes)
    try:
        text = edit_draft(typing.run, start, typing.drafts)
    except NoEditor as problem:
        complain(str(problem))
        return None
    typing.lines = text.split("\n") if text else []
    return typing.finish() if text.strip() else None


def _again(typing: _Typing, _: str) -> None:
    if not typing.rejected.text:
        complain("there is no earlier output of this step to add to")
        return
    typing.lines[:0] = typing.rejected.text.split("\n")
    typing.show_lines()


def _clear(typing: _Typing, _: str) -> None:
    typing.lines.clear()
    typing.changes.clear()
    write(("  The draft is empty now.", "dim"))


def _show(typing: _Typing, _: str) -> None:
    write_step(typing.run)
    write_verdict(typing.run)
    if typing.lines:
        write()
        write("Your draft so far:")
        typing.show_lines()


def _end(typing: _Typing, _: str) -> StepOutput | None:
    loops = loops_to_end(typing.run)
    if loops:
        return StepOutput(output=typing.text, changes=typing.changes, ends_loop=loops[-1])
    complain("this step is not in a loop that can be ended now")
    return None


def _leave(*_: object) -> None:
    raise LeaveRun


def _help(*_: object) -> None:
    for command in dict.fromkeys(LINE_COMMANDS.values()):
        write((f"  {command.usage:<16}", "cyan"), f"  {command.meaning}", hang=20)
    write((f"  {'::text':<16}", "cyan"), "  a line of the output that begins with a colon", hang=20)


_LEAVE: Final = LineCommand(
    usage=":leave",
    meaning="leave; the run and your draft are saved (Ctrl-C does the same, and Ctrl-D on an empty output)",
    act=_leave,
)

LINE_COMMANDS: Final[Mapping[str, LineCommand]] = {
    ":set": LineCommand(usage=":set NAME=VALUE", meaning="set a context variable with this output", act=_set),
    ":edit": LineCommand(usage=":edit", meaning="continue in your editor", act=_edit),
    ":again": LineCommand(usage=":again", meaning="start from the output that was refused", act=_again),
    ":show": LineCommand(usage=":show", meaning="show the step, the verdict and your draft", act=_show),
    ":clear": LineCommand(usage=":clear", meaning="discard the draft", act=_clear),
    ":end": LineCommand(usage=":end", meaning="end the loop that the run is in", act=_end),
    ":leave": _LEAVE,
    ":quit": _LEAVE,
    ":help": LineCommand(usage=":help", meaning="show this", act=_help),
}
"""By name. A new command is a function and a line here."""
