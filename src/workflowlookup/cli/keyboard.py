"""The output of a step, typed at the terminal: lines of it, and commands that begin with a colon."""

import argparse
import difflib
import select
import sys
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from workflowlookup.cli.arguments import variable
from workflowlookup.cli.drafts import Draft, Drafts
from workflowlookup.cli.input import END, TerminalGone, ask_line, end_of_terminal, is_typed, line_so_far
from workflowlookup.cli.output import complain, write, write_quoted
from workflowlookup.cli.output_source import (
    Entry,
    Left,
    NoEditor,
    Person,
    ask_for_values,
    edited,
    keep_draft,
    load_draft,
    needs_of,
)
from workflowlookup.cli.run_display import write_step, write_verdict
from workflowlookup.language.contract import misfitting
from workflowlookup.language.text import plural
from workflowlookup.language.values import Json
from workflowlookup.runs.draft import loops_to_end
from workflowlookup.runs.run import Run

PROMPT: Final = ">"
COLON: Final = ":"
"""What a line begins with that is a command. Doubled, it begins a line of the output."""
MAX_ROWS: Final = 20
"""How many lines of a draft are shown."""


class Keyboard(Person):
    """A person who types."""

    def entry(self, run: Run, rejected: Draft, drafts: Drafts) -> Entry | None:
        return _Typing(run, rejected, drafts, self.take_changes()).entry()


class _Typing:
    """The output of one step while it is being typed."""

    def __init__(self, run: Run, rejected: Draft, drafts: Drafts, changes: dict[str, Json]) -> None:
        draft = load_draft(drafts, run)
        self.run = run
        self.rejected = rejected
        self.lines = draft.text.split("\n") if draft.text else []
        self.changes = {**rejected.changes, **draft.changes, **changes}
        self.drafts = drafts
        self._saved = draft

    def entry(self) -> Entry | None:
        """What the person sends; None when they leave."""
        write()
        if self.lines:
            write("What you have written so far:")
            self.show_lines()
        elif self.rejected.text:
            write((":edit opens the last output in your editor, :again adds to it. Or type a new one.", "dim"))
        begin = "Go on with your output" if self.lines else "Your output"
        write((f"{begin}. End it with a line that is a single dot, or with Ctrl-D; :help tells more.", "dim"))
        try:
            entry = self._typed()
        except Left:
            entry = None
        finally:
            self.keep_draft()
        return entry

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def show_lines(self) -> None:
        """The lines so far; of many, the last."""
        hidden = len(self.lines) - MAX_ROWS
        if hidden > 0:
            write((f"  … {plural(hidden, 'line')} before", "dim"))
        write_quoted("\n".join(self.lines[-MAX_ROWS:]))

    def finish(self) -> Entry:
        """The output, with what the step should leave in the context and the person has not set yet."""
        ask_for_values(self.run.workflow, needs_of(self.run, self.changes), self.changes)
        return Entry(output=self.text, changes=self.changes)

    def _typed(self) -> Entry:
        while True:
            self._keep_while_idle()
            line = self._read()
            if line is None or line == END:
                if self.text.strip():
                    return self.finish()
                if line is None:
                    raise Left
                write(("There is nothing yet. :leave leaves the run as it is.", "dim"))
                continue
            word, _, rest = line.strip().partition(" ")
            if word in COMMANDS:
                entry = COMMANDS[word].act(self, rest.strip())
                if entry is not None:
                    return entry
            elif line.startswith(COLON):
                self._take_colon_line(line, word)
            else:
                self.lines.append(line)

    def _take_colon_line(self, line: str, word: str) -> None:
        """Add `::text` as the line `:text`; name any other word after a colon as a mistake, and do not add it."""
        if line.startswith(COLON * 2):
            self.lines.append(line.removeprefix(COLON))
            return
        begun = [name for name in COMMANDS if name.startswith(word)]
        close = begun or difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
        meant = f" Did you mean {close[0]}?" if close else ""
        complain(
            f"'{word}' is not a command, and the line was not added.{meant} The commands are {', '.join(COMMANDS)}. "
            f"For a line that begins with a colon, type two: :{word}"
        )

    def _read(self) -> str | None:
        """The next line; what was typed of it when the person breaks off is kept as well."""
        try:
            with end_of_terminal():
                line = ask_line(PROMPT)
        except TerminalGone as end:
            self._keep_begun("".join(end.args))
            raise
        except KeyboardInterrupt:
            self._keep_begun(line_so_far())
            raise
        if line is None and not is_typed():  # no Ctrl-D: the terminal is gone, and nothing is sent
            raise TerminalGone
        return line

    def _keep_begun(self, line: str) -> None:
        if line and (line.startswith(COLON * 2) or not line.startswith(COLON)):
            self.lines.append(line.removeprefix(COLON))

    def _keep_while_idle(self) -> None:
        """Keep the draft, unless more lines are there already: a long paste is not written once for each of them."""
        if not select.select([sys.stdin], [], [], 0)[0]:
            self.keep_draft()

    def keep_draft(self) -> None:
        draft = Draft(self.text, dict(self.changes))
        if draft != self._saved:
            self._saved = draft
            keep_draft(self.drafts, self.run, draft)


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────


class LineCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that is typed in place of a line of the output."""

    usage: str
    meaning: str
    act: Callable[[_Typing, str], Entry | None]
    """Gives the entry when the output is complete. Raises `Left` to leave."""


def _set(typing: _Typing, rest: str) -> None:
    try:
        name, value = variable(rest)
    except argparse.ArgumentTypeError as problem:
        complain(str(problem))
        return
    wrong = misfitting(typing.run.workflow, {name: value})
    if wrong:
        complain(f"{wrong[0].sentence()}. It was not set.")
        return
    typing.changes[name] = value
    write((f"  {name} is set with this output.", "dim"))


def _edit(typing: _Typing, _: str) -> Entry | None:
    start = Draft(typing.text or typing.rejected.text, typing.changes)
    try:
        text = edited(typing.run, start, typing.drafts)
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
    write(("  What you had written is gone.", "dim"))


def _show(typing: _Typing, _: str) -> None:
    write_step(typing.run)
    write_verdict(typing.run)
    if typing.lines:
        write()
        write("What you have written so far:")
        typing.show_lines()


def _end(typing: _Typing, _: str) -> Entry | None:
    loops = loops_to_end(typing.run)
    if loops:
        return Entry(output=typing.text, changes=typing.changes, ends_loop=loops[-1])
    complain("this step is in no loop that you can end")
    return None


def _leave(*_: object) -> None:
    raise Left


def _help(*_: object) -> None:
    for command in dict.fromkeys(COMMANDS.values()):
        write((f"  {command.usage:<16}", "cyan"), f"  {command.meaning}", hang=20)
    write((f"  {'::text':<16}", "cyan"), "  a line of the output that begins with a colon", hang=20)


_LEAVE: Final = LineCommand(
    usage=":leave",
    meaning="leave; the run and what you have written are kept (so do Ctrl-C, and Ctrl-D on an empty output)",
    act=_leave,
)

COMMANDS: Final[Mapping[str, LineCommand]] = {
    ":set": LineCommand(usage=":set NAME=VALUE", meaning="set a context variable with this output", act=_set),
    ":edit": LineCommand(usage=":edit", meaning="go on in your editor", act=_edit),
    ":again": LineCommand(usage=":again", meaning="begin with the output that was refused", act=_again),
    ":show": LineCommand(usage=":show", meaning="show the step, the verdict and what you have written", act=_show),
    ":clear": LineCommand(usage=":clear", meaning="begin with nothing", act=_clear),
    ":end": LineCommand(usage=":end", meaning="end the loop that the run is in", act=_end),
    ":leave": _LEAVE,
    ":quit": _LEAVE,
    ":help": LineCommand(usage=":help", meaning="show this", act=_help),
}
"""By the word that is typed. A new command is a function and a line here."""
