"""Calls of a run that a command leads: made by the command itself, with their progress on the terminal.

Interrupting it cancels the run, and tells what was stopped.
"""

import sys
import time
from typing import Final

from workflowlookup.cli.journal_access import person
from workflowlookup.cli.output import is_terminal, width, write
from workflowlookup.cli.run_display import write_call, write_verdict
from workflowlookup.language.text import printable
from workflowlookup.runs.run import Run, Waiting
from workflowlookup.store.service import Runs
from workflowlookup.tools.contract import ServerServices
from workflowlookup.tools.run_answers import stopped_in

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
