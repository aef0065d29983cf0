"""How runs of a workflow went, step by step: what authors look at to see where people and agents get stuck.

Steps in loops are counted under their own id, all iterations together. Times are those between the offer of a step and
the output that was accepted, without the time in which a person was waited for.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.language.model import LoopStep, Workflow
from workflowlookup.language.navigation import split_instance
from workflowlookup.runs import events
from workflowlookup.runs.events import Record
from workflowlookup.runs.run import OVER, Run, State, fold

SLOW: Final = 0.9
"""The share of times that are no longer than `slow_time`."""
MAX_ISSUES: Final = 50
"""How many reasons for refusals are told of a step, the most frequent first."""


class StepStatistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of a step in all runs; times in milliseconds."""

    id: str
    title: str
    depth: int = 0
    reached: int = 0
    skipped: int = 0
    done: int = 0
    refused: int = 0
    """Outputs that were refused, and calls that came to nothing."""
    denied: int = 0
    tries: float | None = None
    """Outputs for one that counts, on average: what was refused or denied is a try too."""
    median_time: int | None = None
    slow_time: int | None = None
    """One in ten took longer."""
    waiting: int = 0
    """Runs that wait here now."""
    stopped: int = 0
    """Runs that failed or were cancelled here."""
    issues: dict[str, int] = {}
    """What the rules said of outputs that were refused, and how often."""


class WorkflowStatistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A version of a workflow, over all of its runs."""

    workflow_id: str
    version: str
    runs: int
    states: dict[str, int]
    median_time: int | None
    """Of completed runs, from start to end, without waiting for persons."""
    steps: tuple[StepStatistics, ...]


class Tally:
    """Counts the runs of one version of a workflow, one after the other."""

    def __init__(self) -> None:
        self._latest: Run | None = None
        self._states: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {}
        self._outputs: Counter[str] = Counter()
        self._issues: dict[str, Counter[str]] = {}
        self._times: dict[str, list[int]] = {}
        self._whole: list[int] = []

    def add(self, run_id: str, records: Sequence[Record]) -> None:
        """Count a run. Raises `RunStateError` for records that no run can have."""
        run = fold(run_id, records)
        if self._latest is None or run.started >= self._latest.started:
            self._latest = run
        self._states[run.state] += 1
        if run.state is State.COMPLETED:
            self._whole.append(run.updated - run.started - run.waited)
        elif run.current:
            self._count(run.current)["stopped" if run.state in OVER else "waiting"] += 1
        self._go_through(records)

    def _go_through(self, records: Sequence[Record]) -> None:
        offered: dict[str, int] = {}
        took: dict[str, int] = {}
        question_time = 0
        for record in records:
            match record.event:
                case events.StepOffered(step_id=step_id) | events.CallDue(step_id=step_id):
                    if step_id not in offered:
                        self._count(step_id)["reached"] += 1
                    offered.setdefault(step_id, record.time)
                case events.StepSkipped(step_id=step_id):
                    self._count(step_id)["skipped"] += 1
                case events.OutputRefused(step_id=step_id) | events.CallFailed(step_id=step_id):
                    self._count(step_id)["refused"] += 1
                    issues = (
                        record.event.issues
                        if isinstance(record.event, events.OutputRefused)
                        else (record.event.reason,)
                    )
                    self._issues.setdefault(_plain(step_id), Counter()).update(issues)
                    self._outputs[_plain(step_id)] += 1
                case events.OutputAccepted(step_id=step_id, key=key) if step_id in offered:
                    took[step_id] = record.time - offered[step_id]
                    self._outputs[_plain(step_id)] += bool(key)  # one that is taken as it is was counted as refused
                case events.ConfirmationAsked():
                    question_time = record.time
                case events.ConfirmationGiven(step_id=step_id) | events.ConfirmationDenied(step_id=step_id):
                    if isinstance(record.event, events.ConfirmationDenied):
                        self._count(step_id)["denied"] += 1
                        took.pop(step_id, None)
                    if step_id in offered:
                        offered[step_id] += record.time - question_time
        for step_id, time in took.items():
            self._count(step_id)["done"] += 1
            self._times.setdefault(_plain(step_id), []).append(time)

    def _count(self, step_id: str) -> "Counter[str]":
        return self._counts.setdefault(_plain(step_id), Counter())

    def statistics(self) -> WorkflowStatistics | None:
        """What it comes to; the steps are those of the document of the latest run. None without runs."""
        if self._latest is None:
            return None
        workflow = self._latest.workflow
        return WorkflowStatistics(
            workflow_id=workflow.id,
            version=workflow.version,
            runs=self._states.total(),
            states=dict(self._states),
            median_time=_median(self._whole),
            steps=tuple(self._steps(workflow)),
        )

    def _steps(self, workflow: Workflow) -> Iterator[StepStatistics]:
        for step in workflow.every_step:
            if isinstance(step, LoopStep) and step.run_condition is None:
                continue  # nothing decides over it: its body tells all
            count, times = self._counts.get(step.id, Counter[str]()), sorted(self._times.get(step.id, ()))
            yield StepStatistics(
                id=step.id,
                title=step.title,
                depth=len(workflow.enclosing[step.id]),
                tries=round(self._outputs[step.id] / count["done"], 2) if count["done"] else None,
                median_time=_median(times),
                slow_time=times[math.ceil(SLOW * len(times)) - 1] if times else None,
                issues=dict(self._issues.get(step.id, Counter[str]()).most_common(MAX_ISSUES)),
                **count,
            )


def _plain(step_id: str) -> str:
    return split_instance(step_id)[0]


def _median(values: Sequence[int]) -> int | None:
    return int(statistics.median(values)) if values else None
