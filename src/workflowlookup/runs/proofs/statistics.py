"""Statistics of the proofs of a workflow: the verdicts of each, and how long it takes.

All iterations of a step in a loop are counted together.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import split_instance
from workflowlookup.runs import events
from workflowlookup.runs.events import Judgement, Record

SLOW: Final = 0.9
"""The quantile of times that `slow_time` is."""


class ProofStatistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The statistics of a proof over all runs; a proof that was taken again counts again. Times in milliseconds."""

    step: str
    name: str
    kind: str
    checked: str = ""
    """What was checked the last time, such as the command."""
    proved: int = 0
    failed: int = 0
    unproved: int = 0
    """Could not be judged, and was not waived."""
    waived: int = 0
    """Did not pass, and a person accepted the output without it."""
    skipped: int = 0
    """A variable switched it off."""
    median_time: int | None = None
    slow_time: int | None = None
    """One in ten took longer."""
    failure: str = ""
    """Why it did not pass the last time that it did not."""
    tail: str = ""
    """The end of what it wrote then."""


_VERDICTS: Final = {"passed": "proved", "failed": "failed", "unproved": "unproved"}
_Key = tuple[str, str]


class ProofTally:
    """Collects the statistics of proofs, run by run. Measures at the start of a step have a time, but no verdict."""

    def __init__(self) -> None:
        self._counts: dict[_Key, Counter[str]] = {}
        self._times: dict[_Key, list[int]] = {}
        self._checked: dict[_Key, str] = {}
        self._failures: dict[_Key, tuple[int, Judgement]] = {}
        """By proof: the time of the last judgement that did not pass, and the judgement. Runs come in any order."""

    def add(self, records: Iterable[Record]) -> None:
        last: dict[str, dict[str, Judgement]] = {}
        """By step with its iteration, and by name: the proofs of the last output."""
        proving: set[str] = set()
        for record in records:
            match record.event:
                case events.ProofsDue(step_id=step_id, reason="output"):
                    last.pop(step_id, None)
                    proving.add(step_id)
                case events.OutputRefused(step_id=step_id):
                    if step_id not in proving:  # by criteria, so none of its proofs was taken
                        last.pop(step_id, None)
                    proving.discard(step_id)
                case events.ProofTaken(step_id=step_id, judgement=judgement):
                    key = (split_instance(step_id)[0], judgement.name)
                    self._checked[key] = judgement.summary
                    if judgement.seconds:
                        self._times.setdefault(key, []).append(int(judgement.seconds * 1000))
                    if not judgement.at_start:
                        last.setdefault(step_id, {})[judgement.name] = judgement
                        self._count(key)[_VERDICTS[judgement.verdict]] += 1
                        if judgement.verdict != "passed" and record.time >= self._failures.get(key, (0,))[0]:
                            self._failures[key] = record.time, judgement
                case events.OutputAccepted(step_id=step_id, waived=waived, skipped=skipped):
                    plain = split_instance(step_id)[0]
                    proving.discard(step_id)
                    for name in waived:
                        taken = last.get(step_id, {}).get(name)
                        self._count((plain, name)).update({"waived": 1})
                        self._count((plain, name)).subtract({_VERDICTS[taken.verdict]: 1} if taken is not None else {})
                    for name in skipped:
                        self._count((plain, name))["skipped"] += 1

    def _count(self, key: _Key) -> "Counter[str]":
        return self._counts.setdefault(key, Counter())

    def statistics(self, workflow: Workflow) -> Iterator[ProofStatistics]:
        """In the order of the document: the proofs that it has, with those that were never taken."""
        for step in workflow.every_step:
            for proof in step.proofs if isinstance(step, PromptStep) else ():
                key = (step.id, proof.name)
                times = sorted(self._times.get(key, ()))
                _, failure = self._failures.get(key, (0, None))
                yield ProofStatistics(
                    step=step.id,
                    name=proof.name,
                    kind=str(proof.__struct_config__.tag),
                    checked=self._checked.get(key, ""),
                    median_time=median(times),
                    slow_time=slow(times),
                    failure=failure.reason if failure is not None else "",
                    tail=failure.tail if failure is not None else "",
                    **self._counts.get(key, Counter[str]()),
                )


def median(values: Sequence[int]) -> int | None:
    return int(statistics.median(values)) if values else None


def slow(values: Sequence[int]) -> int | None:
    """The value that one in ten exceeds, of sorted values."""
    return values[math.ceil(SLOW * len(values)) - 1] if values else None
