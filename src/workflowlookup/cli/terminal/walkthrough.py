"""Guides a person through a run: shows a step, reads the output, shows the verdict, asks for confirmation, continues.

Everything that is accepted is in the journal before the next step is shown, so a person can leave the run at any time.
Calls are made by the command itself, with their progress on the terminal; interrupting one cancels the run.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Final

from workflowlookup.app import make_people
from workflowlookup.cli.output import complain, is_terminal, refuse, width, write
from workflowlookup.cli.services import user_name
from workflowlookup.cli.terminal.confirmation import refuse_unless_signable
from workflowlookup.cli.terminal.output_source import Drafts, NoEditor, OutputDraft, OutputSource, StepOutput
from workflowlookup.cli.terminal.run_display import (
    status_sentence,
    write_call,
    write_end,
    write_needs,
    write_note,
    write_proving,
    write_question,
    write_step,
    write_verdict,
)
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


class Walkthrough:
    """One session of a person with a run."""

    def __init__(
        self,
        runs: Runs,
        source: OutputSource,
        settings: Settings,
        *,
        is_quiet: bool = False,
        make_calls: Callable[[Run], Run] | None = None,
    ) -> None:
        """`make_calls` makes the calls of a run until it waits for a person or is over; without it, none are made."""
        self._runs = runs
        self._source = source
        self._settings = settings
        self._is_quiet = is_quiet
        self._make_calls = make_calls
        self._is_resumed = False
        self._unsent = OutputDraft()
        """An output that could not be stored, as when the disk is full."""
        self._is_stuck = False
        self.was_refused = False

    @property
    def has_failed(self) -> bool:
        """Whether an output was refused and nobody is there to correct it, or cannot be judged at all."""
        return self._is_stuck or (self.was_refused and not self._source.can_retry)

    def walk(self, run: Run, *, is_resumed: bool = False) -> Run:
        """Continue until the run is over or the person leaves. Returns the run. `is_resumed`: its state was shown."""
        self._is_resumed = is_resumed
        try:
            return self._walk(run)
        except KeyboardInterrupt:
            write()
            self._write_how_to_resume(run)
            raise

    def _walk(self, run: Run) -> Run:
        while not run.is_over:
            is_step = run.waiting_for is Waiting.OUTPUT
            if not (is_step and self.was_refused):  # after a refusal the person has seen the step
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
            if self.was_refused and not self._source.can_retry:
                break
        if not self._is_quiet:
            if run.is_over:
                write_end(run)
            self._write_how_to_resume(run)
        return run

    def _take(self, run: Run) -> Run | None:
        """Read what the run waits for. Returns the new run, or None when nothing comes."""
        match run.waiting_for:
            case Waiting.OUTPUT:
                return self._take_output(run)
            case Waiting.CONTEXT:
                return self._take_values(run)
            case Waiting.CONFIRMATION:
                return self._take_decision(run)
        self.was_refused = False
        if self._make_calls is None:
            return None
        moved = self._make_calls(run)
        if run.waiting_for is Waiting.PROOF:
            self.was_refused = isinstance(moved.last_submission, OutputRefused) and not moved.is_over
        return moved

    def _show(self, run: Run) -> None:
        if self._is_quiet:
            return
        if run.waiting_for is Waiting.CALL:
            write_call(run)
            return
        if run.waiting_for is Waiting.PROOF:
            write_proving(run)
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
        submission = self._source.next_output(run, self._rejected(run), drafts)
        if submission is None:
            return None
        try:
            step = submission.ends_loop or run.current
            moved = self._runs.submit(run.id, step, submission.output, submission.changes, by=user_name())
        except (InvalidParams, RunStateError, StorageError) as refusal:
            return self._keep_unsent(run, submission, refusal)
        except (InvalidCriteria, InvalidWorkflow) as refusal:  # a mistake of the author: no other output helps
            refuse(refusal)
            self._is_stuck = True
            return None
        self._unsent = OutputDraft()
        self.was_refused = isinstance(moved.last_submission, OutputRefused)
        if not self.was_refused or drafts.load(run.current).text == submission.output:
            drafts.drop(run.current)
        if not self._is_quiet:
            write_verdict(moved)
        return moved

    def _rejected(self, run: Run) -> OutputDraft:
        """The last output of the current step if it was refused, denied by a person, or not stored."""
        if self._unsent.text:
            return self._unsent
        if isinstance(run.last_submission, OutputRefused):
            return OutputDraft(run.last_submission.output, dict(run.last_submission.context))
        if run.refused_by_person(run.current):
            events = [record.event for record in self._runs.history(run.id)]
            outputs = [
                event.output for event in events if isinstance(event, OutputAccepted) and event.step_id == run.current
            ]
            return OutputDraft(outputs[-1] if outputs else "")
        return OutputDraft()

    def _keep_unsent(self, run: Run, submission: StepOutput, refusal: WorkflowLookupError) -> Run:
        """Keep an output that was not stored: a variable is invalid, another client moved the run, the disk is full."""
        if not self._source.can_retry:
            raise refusal
        refuse(refusal)
        self._unsent = OutputDraft(submission.output, submission.changes)
        now = run if isinstance(refusal, StorageError) else self._runs.get(run.id)
        self.was_refused = now.sequence == run.sequence
        if self.was_refused:
            complain("nothing was submitted.")
        return now

    def _take_decision(self, run: Run) -> Run | None:
        people = make_people(self._settings)
        if self._source.can_retry:
            refuse_unless_signable(run, people)
        decision = self._source.decide(run)
        if decision is None:
            return None
        self.was_refused = False
        try:
            moved = decision.store(self._runs, run, people, by=user_name())
        except (InvalidParams, RunStateError) as refusal:
            refuse(refusal)  # another person answered first, or a value is invalid
            moved = self._runs.get(run.id)
        if decision.was_interrupted:
            raise KeyboardInterrupt
        return moved

    def _take_values(self, run: Run) -> Run | None:
        values = self._source.values(run)
        if values is None:
            return None
        try:
            moved = self._runs.supply(run.id, run.current, values, by=user_name())
        except (InvalidParams, RunStateError, StorageError) as refusal:
            if not self._source.can_retry:
                raise
            refuse(refusal)
            return self._runs.get(run.id)
        self.was_refused = False
        return moved

    def _write_how_to_resume(self, run: Run) -> None:
        if self._is_quiet:
            return
        if run.is_over:
            write((f"The report: {command_line(self._settings, 'run', 'show', run.id)}", "dim"), wrap=False)
            return
        now = self._runs.get(run.id)
        write()
        write(status_sentence(now), " It is saved.", " So is your draft." if self._has_draft(now) else "")
        if self._is_stuck:
            write("Cancel it with:  ", (command_line(self._settings, "cancel", run.id), "bold"), wrap=False)
            return
        if now.waiting_for is Waiting.CONFIRMATION:
            confirm = command_line(self._settings, "confirm", run.id)
            write("Confirm it with: ", (confirm, "bold"), "   (or with --deny)", wrap=False)
        write("Continue with:   ", (command_line(self._settings, "run", "--resume", run.id), "bold"), wrap=False)

    def _has_draft(self, run: Run) -> bool:
        with contextlib.suppress(StorageError):
            return bool(Drafts(self._settings.journal, run.id).load(run.current).text)
        return False


def exit_code(run: Run, *, has_failed: bool) -> int:
    """1 for a run that failed, was cancelled or has an unknown end, and after an output that was refused; else 0."""
    return int(has_failed or run.state in (State.FAILED, State.CANCELLED, State.UNKNOWN))


POLL_SECONDS: Final = 0.05
STOP_SECONDS: Final = 6.0
"""How long to wait for the outcome of a call that was stopped."""


class CallFollower:
    """Makes the calls of runs and takes their proofs, and shows the progress of both."""

    def __init__(self, services: ServerServices, *, is_quiet: bool) -> None:
        self._services = services
        self._is_quiet = is_quiet
        self._is_drawn = False

    def follow(self, run: Run) -> Run:
        """Make the calls and take the proofs of a run until it waits for a person or is over. Returns the run.

        An interrupted call cancels the run; interrupted proofs are taken again when the run is resumed.
        """
        try:
            return self._follow(run)
        except KeyboardInterrupt:
            self._erase_progress()
            now = self._services.runs.get(run.id)
            if now.waiting_for is Waiting.PROOF:
                raise
            if not now.is_over:
                now = self._services.runs.cancel(run.id, "It was interrupted at the terminal.", by=user_name())
                self._services.execution.stop(run.id)
            now = wait_until_stopped(self._services.runs, now)
            if not self._is_quiet:
                write_stopped(now)
            return now

    def _follow(self, run: Run) -> Run:
        runs = self._services.runs
        self._services.execution.follow(run)
        failed = 0
        while True:
            before, run = run, runs.after(run)  # one state after another, so that short calls are shown as well
            if run.sequence == before.sequence:
                self._draw(run)
                time.sleep(POLL_SECONDS)
                runs.get(run.id)  # ends a run that has timed out
                continue
            if run.due is None:
                break
            self._erase_progress()
            if run.waiting_for is Waiting.PROOF or run.calling is None:
                continue
            if run.current != before.current:
                failed = 0
                if not self._is_quiet:
                    write_verdict(run)
                    write_call(run)
            if run.calling.failure and not run.calling.begun and run.calling.attempt != failed:
                failed = run.calling.attempt
                if not self._is_quiet:
                    write(("The call failed, and is retried: ", "yellow"), run.calling.failure)
            sys.stdout.flush()
        self._erase_progress()
        if not self._is_quiet and not run.is_over:
            write_verdict(run)
        return wait_until_stopped(runs, run)

    def _draw(self, run: Run) -> None:
        """Show the progress of the call on a line that is overwritten."""
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

    def _erase_progress(self) -> None:
        if self._is_drawn:
            sys.stdout.write("\r\x1b[K")
            self._is_drawn = False


def wait_until_stopped(runs: Runs, run: Run) -> Run:
    """Wait until the outcome of a stopped call is stored, but not for long. Returns the run."""
    end = time.monotonic() + STOP_SECONDS
    while run.needs_stop and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        run = runs.get(run.id)
    return run


def write_stopped(run: Run) -> None:
    """Print the outcome of a call that was stopped."""
    for outcome in stopped_in(run):
        message = str(outcome["told"])
        write((f"{message[:1].upper()}{message[1:]}.", "" if outcome["stopped"] else "yellow"))
