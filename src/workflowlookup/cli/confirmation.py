"""A person's decision about the step that a run waits at, asked for on the terminal itself.

Shared by `confirm` and `run`. It counts only for the question that was shown. An empty answer is no decision: nothing
is stored, and the run keeps waiting.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from workflowlookup.cli.input import Terminal, person_terminal
from workflowlookup.language.patterns import Budget
from workflowlookup.language.values import Json
from workflowlookup.runs.questions import field_problem, fields_of, question_of
from workflowlookup.runs.run import Run
from workflowlookup.store.service import Runs

MAX_SHOWN: Final = 20_000
"""How many characters of an output a person is shown before they agree to it."""
PURPOSE: Final = "answer for a run that waits for a person"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a person answered."""

    agrees: bool
    note: str = ""
    answers: Mapping[str, Json] = {}
    was_interrupted: bool = False
    """They said no, and pressed Ctrl-C when asked why: the no counts."""

    def store(self, runs: Runs, run: Run, *, by: str) -> Run:
        """The run after the decision. Raises `RunStateError` when the run has gone on since the person saw it."""
        if self.agrees:
            return runs.confirm(
                run.id,
                run.current,
                how="terminal",
                question=run.question_id,
                note=self.note,
                answers=self.answers,
                by=by,
            )
        return runs.deny(run.id, run.current, how="terminal", question=run.question_id, note=self.note, by=by)


def ask_for_decision(run: Run, *, command: str = "", denies: bool = False, note: str = "") -> Decision | None:
    """What the person at the terminal decides; None when they leave it open.

    With `command`, which shows all of a long output, the question is written to the terminal first; otherwise the
    caller has shown it. With `denies` they are only asked whether they mean no.
    Raises `SecurityError` without a terminal, or when an agent runs this.
    """
    with person_terminal(PURPOSE) as terminal:
        if command:
            _show(terminal, run, command)
        if denies:
            return Decision(agrees=False, note=note) if terminal.agrees("Do you say no to this?") else None
        while True:
            said = (terminal.ask("Do you agree? [y]es, [n]o, [l]eave it for later (Enter):") or "").lower()
            if said in ("y", "yes"):
                answers = _fill_in(terminal, run)
                return None if answers is None else Decision(agrees=True, note=note, answers=answers)
            if said in ("n", "no"):
                return _denied(terminal, note)
            if said in ("", "l", "leave"):
                return None


def _denied(terminal: Terminal, note: str) -> Decision:
    try:
        return Decision(agrees=False, note=note or terminal.ask("Why not? (may be empty)") or "")
    except KeyboardInterrupt:
        return Decision(agrees=False, was_interrupted=True)


def _show(terminal: Terminal, run: Run, command: str) -> None:
    question = question_of(run, Budget())
    terminal.show(question.heading, wrap=True)
    for about, text in question.quotations:
        terminal.show(f"\n{about}:")
        terminal.quote(text[:MAX_SHOWN])
        if len(text) > MAX_SHOWN:
            terminal.show(f"… {len(text) - MAX_SHOWN:,} more characters: `{command}` has them.")
    terminal.show()


def _fill_in(terminal: Terminal, run: Run) -> dict[str, Json] | None:
    """The values that the question asks for, without those that are left empty; None when the person breaks off.

    A value that does not fit is asked for again at once.
    """
    values: dict[str, Json] = {}
    for field in fields_of(run, Budget()):
        while True:
            text = terminal.ask(f"{field.label}{'' if field.required else ', optional'}:")
            if text is None:
                return None
            given: dict[str, Json] = {field.name: field.parse(text)} if text else {}
            problem = field_problem(run, field, given)
            if not problem:
                break
            terminal.show(f"{problem}. Try again, or leave it for later with Ctrl-D.", wrap=True)
        values |= given
    return values
