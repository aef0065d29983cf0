"""Leads a person through a run: shows the step, takes the output, tells the verdict, asks for confirmation, goes on.

Everything that is accepted is in the journal before the next step is shown, so the run can be left at any time.
Calls are made by the command itself, with their progress on the terminal; interrupting one cancels the run.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Final

from workflowlookup.cli.drafts import Draft, Drafts
from workflowlookup.cli.output import complain, is_terminal, refuse, width, write
from workflowlookup.cli.output_source import Entry, NoEditor, Source
from workflowlookup.cli.run_display import (
    standing,
    write_call,
    write_end,
    write_needs,
    write_note,
    write_question,
    write_step,
    write_verdict,
)
from workflowlookup.cli.services import person
from workflowlookup.errors import (
    InvalidCriteria,
    InvalidParams,
    InvalidWorkflow,
    RunStateError,
    StorageError,
    WorkflowLookupError,
)
from workflowlookup.language.text import printable
from workflowlookup.runs.events import OutputAccepted, OutputRefused
from workflowlookup.runs.run import Run, State, Waiting
from workflowlookup.settings import Settings, command_line
from workflowlookup.store.service import Runs
from workflowlookup.tools.contract import ServerServices
from workflowlookup.tools.run_answers import stopped_in


class Leading:
    """One sitting with a run."""

    def __init__(
        self,
        runs: Runs,
        source: Source,
        settings: Settings,
        *,
        is_quiet: bool = False,
        work: Callable[[Run], Run] | None = None,
    ) -> None:
        """`work` makes the calls of a run until it waits for somebody or is over; without it they are left."""
        self._runs = runs
        self._source = source
        self._settings = settings
        self._is_quiet = is_quiet
        self._work = work
        self._is_resumed = False
        self._unsent = Draft()
        """What was not taken by the journal, as when the disk is full."""
        self._is_stuck = False
        self.was_refused = False

    @property
    def has_failed(self) -> bool:
        """Whether an output was refused where nobody could correct it, or cannot be judged at all."""
        return self._is_stuck or (self.was_refused and not self._source.tries_again)

    def lead(self, run: Run, *, is_resumed: bool = False) -> Run:
        """Go on until the run is over or left; the run as it is then. One that is resumed has its state shown."""
        self._is_resumed = is_resumed
        try:
            return self._lead(run)
        except KeyboardInterrupt:
            write()
            self._tell_how_to_resume(run)
            raise

    def _lead(self, run: Run) -> Run:
        while not run.is_over:
            is_step = run.waiting_for is Waiting.OUTPUT
            if not (is_step and self.was_refused):  # after a refusal the person knows the step, and reads the verdict
                self._show(run)
            try:
                moved = self._take(run)
            except NoEditor as problem:
                complain(str(problem))
                self.was_refused = True
                moved = None
            if moved is None:
                break
            run = moved
            if self.was_refused and not self._source.tries_again:
                break
        if not self._is_quiet:
            if run.is_over:
                write_end(run)
            self._tell_how_to_resume(run)
        return run

    def _take(self, run: Run) -> Run | None:
        """The run after what it waits for; None when that does not come."""
        match run.waiting_for:
            case Waiting.OUTPUT:
                return self._take_output(run)
            case Waiting.CONTEXT:
                return self._take_values(run)
            case Waiting.CONFIRMATION:
                return self._take_decision(run)
        self.was_refused = False
        return self._work(run) if self._work else None

    def _show(self, run: Run) -> None:
        if self._is_quiet:
            return
        if run.waiting_for is Waiting.CALL:
            write_call(run)
            return
        if run.waiting_for is Waiting.CONTEXT:
            write_needs(run)
        elif run.waiting_for is Waiting.OUTPUT:
            write_step(run, with_progress=not self._is_resumed)
            write_note(run)
            if self._is_resumed and isinstance(run.last_submission, OutputRefused):
                write()
                write_verdict(run)
        else:
            write_question(run, command_line(self._settings, "run", "show", run.id))
        self._is_resumed = False

    def _take_output(self, run: Run) -> Run | None:
        drafts = Drafts(self._settings.journal, run.id)
        entry = self._source.entry(run, self._rejected(run), drafts)
        if entry is None:
            return None
        try:
            step = entry.ends_loop or run.current
            moved = self._runs.submit(run.id, step, entry.output, entry.changes, by=person())
        except (InvalidParams, RunStateError, StorageError) as refusal:
            return self._not_taken(run, entry, refusal)
        except (InvalidCriteria, InvalidWorkflow) as refusal:  # of the author; no other output helps
            refuse(refusal)
            self._is_stuck = True
            return None
        self._unsent = Draft()
        self.was_refused = isinstance(moved.last_submission, OutputRefused)
        if not self.was_refused or drafts.load(run.current).text == entry.output:
            drafts.drop(run.current)
        if not self._is_quiet:
            write_verdict(moved)
        return moved

    def _rejected(self, run: Run) -> Draft:
        """The last output of the current step, if it was refused, not agreed to, or not taken at all."""
        if self._unsent.text:
            return self._unsent
        if isinstance(run.last_submission, OutputRefused):
            return Draft(run.last_submission.output, dict(run.last_submission.context))
        if run.refused_by_person(run.current):
            events = [record.event for record in self._runs.history(run.id)]
            outputs = [
                event.output for event in events if isinstance(event, OutputAccepted) and event.step_id == run.current
            ]
            return Draft(outputs[-1] if outputs else "")
        return Draft()

    def _not_taken(self, run: Run, entry: Entry, refusal: WorkflowLookupError) -> Run:
        """Variables that do not fit, a run that somebody else moved, a full disk: what was written is not lost."""
        if not self._source.tries_again:
            raise refusal
        refuse(refusal)
        self._unsent = Draft(entry.output, entry.changes)
        now = run if isinstance(refusal, StorageError) else self._runs.get(run.id)
        self.was_refused = now.sequence == run.sequence
        if self.was_refused:
            complain("nothing was sent.")
        return now

    def _take_decision(self, run: Run) -> Run | None:
        decision = self._source.agrees(run)
        if decision is None:
            return None
        self.was_refused = False
        try:
            moved = decision.store(self._runs, run, by=person())
        except (InvalidParams, RunStateError) as refusal:
            refuse(refusal)  # somebody else was asked too and was faster, or a value does not fit
            moved = self._runs.get(run.id)
        if decision.was_interrupted:
            raise KeyboardInterrupt
        return moved

    def _take_values(self, run: Run) -> Run | None:
        values = self._source.values(run)
        if values is None:
            return None
        try:
            moved = self._runs.supply(run.id, run.current, values, by=person())
        except (InvalidParams, RunStateError, StorageError) as refusal:
            if not self._source.tries_again:
                raise
            refuse(refusal)
            return self._runs.get(run.id)
        self.was_refused = False
        return moved

    def _tell_how_to_resume(self, run: Run) -> None:
        if self._is_quiet:
            return
        if run.is_over:
            write((f"The report: {command_line(self._settings, 'run', 'show', run.id)}", "dim"), wrap=False)
            return
        now = self._runs.get(run.id)
        write()
        write(standing(now), " It is kept.", " So is what you have written." if self._has_draft(now) else "")
        if self._is_stuck:
            write("Cancel it with:  ", (command_line(self._settings, "cancel", run.id), "bold"), wrap=False)
            return
        if now.waiting_for is Waiting.CONFIRMATION:
            confirm = command_line(self._settings, "confirm", run.id)
            write("Confirm it with: ", (confirm, "bold"), "   (or with --deny)", wrap=False)
        write("Go on with:      ", (command_line(self._settings, "run", "--resume", run.id), "bold"), wrap=False)

    def _has_draft(self, run: Run) -> bool:
        with contextlib.suppress(StorageError):
            return bool(Drafts(self._settings.journal, run.id).load(run.current).text)
        return False


def exit_code(run: Run, *, has_failed: bool) -> int:
    """1 for a run that did not end well, and when an output was refused or could not be judged here."""
    return int(has_failed or run.state in (State.FAILED, State.CANCELLED, State.UNKNOWN))


LOOK_SECONDS: Final = 0.05
STOP_SECONDS: Final = 6.0
"""How long the word on what became of a call is waited for."""


class Work:
    """The calls of one sitting."""

    def __init__(self, services: ServerServices, *, is_quiet: bool) -> None:
        self._services = services
        self._is_quiet = is_quiet
        self._is_drawn = False

    def follow(self, run: Run) -> Run:
        """Have the calls of a run made until it waits for somebody or is over; the run as it is then."""
        try:
            return self._follow(run)
        except KeyboardInterrupt:
            self._wipe()
            now = self._services.runs.get(run.id)
            if not now.is_over:
                now = self._services.runs.cancel(run.id, "It was interrupted at the terminal.", by=person())
                self._services.execution.stop(run.id)
            now = until_stopped(self._services.runs, now)
            if not self._is_quiet:
                write_stopped(now)
            return now

    def _follow(self, run: Run) -> Run:
        runs = self._services.runs
        self._services.execution.follow(run)
        failed = 0
        while True:
            before, run = run, runs.after(run)  # each time it rested in turn: a call that was short is told as well
            if run.sequence == before.sequence:
                self._draw(run)
                time.sleep(LOOK_SECONDS)
                runs.get(run.id)  # which ends a run whose time is over
                continue
            if run.waiting_for is not Waiting.CALL or run.calling is None:
                break
            self._wipe()
            if run.current != before.current:
                failed = 0
                if not self._is_quiet:
                    write_verdict(run)
                    write_call(run)
            if run.calling.failure and not run.calling.begun and run.calling.attempt != failed:
                failed = run.calling.attempt
                if not self._is_quiet:
                    write(("It failed, and is tried again: ", "yellow"), run.calling.failure)
            sys.stdout.flush()
        self._wipe()
        if not self._is_quiet and not run.is_over:
            write_verdict(run)
        return until_stopped(runs, run)

    def _draw(self, run: Run) -> None:
        """How far the call is, on a line that is written over."""
        if self._is_quiet or not is_terminal():
            return
        progress = self._services.execution.progress(run.id)
        if progress is None:
            return
        of = "" if progress.total is None else f" of {progress.total:g}"
        line = printable(f"  {progress.done:g}{of}  {progress.message}").replace("\n", " ")[: (width() or 80) - 1]
        sys.stdout.write(f"\r\x1b[K{line}")
        sys.stdout.flush()
        self._is_drawn = True

    def _wipe(self) -> None:
        if self._is_drawn:
            sys.stdout.write("\r\x1b[K")
            self._is_drawn = False


def until_stopped(runs: Runs, run: Run) -> Run:
    """The run once it is known what became of the call beneath it; or as it is when nobody tells in time."""
    end = time.monotonic() + STOP_SECONDS
    while run.needs_stop and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        run = runs.get(run.id)
    return run


def write_stopped(run: Run) -> None:
    """What became of the call that ran beneath."""
    for entry in stopped_in(run):
        told = str(entry["told"])
        write((f"{told[:1].upper()}{told[1:]}.", "" if entry["stopped"] else "yellow"))
