"""Statistics of the runs of a workflow, step by step, which show authors where people and agents get stuck.

All iterations of a step in a loop are counted together. The time of a step is from its offer to its accepted output,
without the time spent waiting for people.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.language.model import LoopStep, Workflow
from workflowlookup.language.navigation import split_instance
from workflowlookup.runs import events
from workflowlookup.runs.events import Record
from workflowlookup.runs.fold import fold
from workflowlookup.runs.proofs.statistics import ProofStatistics, ProofTally, median, slow
from workflowlookup.runs.run import OVER, Run, State

MAX_ISSUES: Final = 50
"""Limit on the reasons for refusals of a step, the most frequent first."""


class StepStatistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The statistics of a step over all runs; times in milliseconds."""

    id: str
    title: str
    depth: int = 0
    reached: int = 0
    skipped: int = 0
    done: int = 0
    refused: int = 0
    """Refused outputs and failed calls."""
    denied: int = 0
    tries: float | None = None
    """Outputs per accepted output, on average; refused and denied outputs are counted."""
    median_time: int | None = None
    slow_time: int | None = None
    """One in ten took longer."""
    waiting: int = 0
    """Runs that wait here now."""
    stopped: int = 0
    """Runs that failed or were cancelled here."""
    proved: int = 0
    """Proofs that passed; a proof that was taken again counts again."""
    disproved: int = 0
    unproved: int = 0
    """Proofs that failed, and those that could not be judged."""
    issues: dict[str, int] = {}
    """The issues of refused outputs, and how often each occurred."""


class WorkflowStatistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The statistics of one version of a workflow."""

    workflow_id: str
    version: str
    runs: int
    states: dict[str, int]
    median_time: int | None
    """Of completed runs, from start to end, without the time spent waiting for people."""
    steps: tuple[StepStatistics, ...]
    proofs: tuple[ProofStatistics, ...] = ()


class Tally:
    """Collects the statistics of one version of a workflow, run by run."""

    def __init__(self) -> None:
        self._latest: Run | None = None
        self._states: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = {}
        self._outputs: Counter[str] = Counter()
        self._issues: dict[str, Counter[str]] = {}
        self._times: dict[str, list[int]] = {}
        self._run_times: list[int] = []
        self._proofs = ProofTally()

    def add(self, run_id: str, records: Sequence[Record]) -> None:
        """Add a run. Raises `RunStateError` for records that are not a valid run."""
        run = fold(run_id, records)
        if self._latest is None or run.started >= self._latest.started:
            self._latest = run
        self._states[run.state] += 1
        if run.state is State.COMPLETED:
            self._run_times.append(run.updated - run.started - run.waited)
        elif run.current:
            self._count(run.current)["stopped" if run.state in OVER else "waiting"] += 1
        self._count_events(records)
        self._proofs.add(records)

    def _count_events(self, records: Sequence[Record]) -> None:
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
                    self._outputs[_plain(step_id)] += bool(key)  # without a key, it was counted as refused before
                case events.ProofTaken(step_id=step_id, judgement=judgement) if not judgement.at_start:
                    self._count(step_id)[_VERDICTS[judgement.verdict]] += 1
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
        """The statistics, with the steps of the latest run's document; None without runs."""
        if self._latest is None:
            return None
        workflow = self._latest.workflow
        return WorkflowStatistics(
            workflow_id=workflow.id,
            version=workflow.version,
            runs=self._states.total(),
            states=dict(self._states),
            median_time=median(self._run_times),
            steps=tuple(self._steps(workflow)),
            proofs=tuple(self._proofs.statistics(workflow)),
        )

    def _steps(self, workflow: Workflow) -> Iterator[StepStatistics]:
        for step in workflow.every_step:
            if isinstance(step, LoopStep) and step.run_condition is None:
                continue  # it always runs, so its body has all there is to count
            count, times = self._counts.get(step.id, Counter[str]()), sorted(self._times.get(step.id, ()))
            yield StepStatistics(
                id=step.id,
                title=step.title,
                depth=len(workflow.enclosing[step.id]),
                tries=round(self._outputs[step.id] / count["done"], 2) if count["done"] else None,
                median_time=median(times),
                slow_time=slow(times),
                issues=dict(self._issues.get(step.id, Counter[str]()).most_common(MAX_ISSUES)),
                **count,
            )


_VERDICTS: Final = {"passed": "proved", "failed": "disproved", "unproved": "unproved"}


def _plain(step_id: str) -> str:
    return split_instance(step_id)[0]
