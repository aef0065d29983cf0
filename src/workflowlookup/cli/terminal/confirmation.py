"""Asks a person on the terminal to confirm the step that a run waits at, for `confirm` and `run`.

The decision is for the question that was shown and no other. With an empty answer nothing is stored, and the run keeps
waiting.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from workflowlookup.cli.input import Terminal, person_terminal
from workflowlookup.cli.terminal.signing import refuse_without_key, sign_on_terminal
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.values import Json
from workflowlookup.people.store import PeopleStore
from workflowlookup.runs.questions import field_problem, fields_of, question_of
from workflowlookup.runs.run import Run
from workflowlookup.runs.signing import text_to_sign
from workflowlookup.store.service import Runs

MAX_SHOWN: Final = 20_000
"""How many characters of an output are shown before a person confirms it."""
PURPOSE: Final = "answer for a run that waits for a person"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a person."""

    agrees: bool
    note: str = ""
    answers: Mapping[str, Json] = {}
    was_interrupted: bool = False
    """The person said no and pressed Ctrl-C when asked why. The no is stored."""

    def store(self, runs: Runs, run: Run, people: PeopleStore, *, by: str) -> Run:
        """Store the decision, signed if the step needs that. Returns the new run.

        Raises `RunStateError` when it has changed since it was shown, and the errors of `sign_on_terminal`.
        """
        signature = None
        if _needs_signature(run, people):
            text = text_to_sign(run, agrees=self.agrees, note=self.note, answers=self.answers)
            with person_terminal(PURPOSE) as terminal:
                signature = sign_on_terminal(terminal, people, text, "sign your answer")
        answer: dict[str, Any] = {"how": signature.method if signature else "terminal", "signature": signature}
        answer |= {"question": run.question_id, "note": self.note, "by": by}
        if self.agrees:
            return runs.confirm(run.id, run.current, answers=self.answers, **answer)
        return runs.deny(run.id, run.current, **answer)


def refuse_unless_signable(run: Run, people: PeopleStore) -> None:
    """Raises as `refuse_without_key` if the answer must be signed, and cannot be; call it before the question."""
    if _needs_signature(run, people):
        refuse_without_key(people)


def _needs_signature(run: Run, people: PeopleStore) -> bool:
    return run.needs_person and "terminal" not in people.kinds


def ask_for_decision(run: Run, *, command: str = "", denies: bool = False, note: str = "") -> Decision | None:
    """Ask the person at the terminal for a decision; None when they make none.

    With `command`, which shows all of a long output, the question is shown first; otherwise the caller has shown it.
    With `denies` the person is only asked to confirm the no. Raises `SecurityError` without a terminal, or when an
    agent runs this.
    """
    with person_terminal(PURPOSE) as terminal:
        if command:
            _show(terminal, run, command)
        if denies:
            return Decision(agrees=False, note=note) if terminal.ask_yes_or_no("Do you say no to this?") else None
        while True:
            answer = (terminal.ask("Do you agree? [y]es, [n]o, [l]eave it for later (Enter):") or "").lower()
            if answer in ("y", "yes"):
                answers = _fill_in(terminal, run)
                return None if answers is None else Decision(agrees=True, note=note, answers=answers)
            if answer in ("n", "no"):
                return _denied(terminal, note)
            if answer in ("", "l", "leave"):
                return None


def _denied(terminal: Terminal, note: str) -> Decision:
    try:
        return Decision(agrees=False, note=note or terminal.ask("Why not? (may be empty)") or "")
    except KeyboardInterrupt:
        return Decision(agrees=False, was_interrupted=True)


def _show(terminal: Terminal, run: Run, command: str) -> None:
    question = question_of(run, Budget())
    terminal.show(question.heading, wrap=True)
    for title, text in question.quotations:
        terminal.show(f"\n{title}:")
        terminal.quote(text[:MAX_SHOWN])
        if len(text) > MAX_SHOWN:
            terminal.show(f"… {len(text) - MAX_SHOWN:,} more characters: `{command}` shows them.")
    terminal.show()


def _fill_in(terminal: Terminal, run: Run) -> dict[str, Json] | None:
    """Ask for the values of the question's fields; empty ones are left out. None at the end of input.

    An invalid value is asked for again at once.
    """
    values: dict[str, Json] = {}
    for field in fields_of(run, Budget()):
        while True:
            text = terminal.ask(f"{field.label}{'' if field.required else ', optional'}:")
            if text is None:
                return None
            value: dict[str, Json] = {field.name: field.parse(text)} if text else {}
            problem = field_problem(run, field, value)
            if not problem:
                break
            terminal.show(f"{problem}. Try again, or leave it for later with Ctrl-D.", wrap=True)
        values |= value
    return values
