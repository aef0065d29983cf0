"""Pages of figures: how many runs there were and how they ended; by step, where they stop, what is refused, how long.

Two versions of a workflow stand side by side. Nothing leaves the machine.
"""

import asyncio
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from workflowlookup.console import plots
from workflowlookup.console.guard import NotThere
from workflowlookup.console.looking import DAY, TIMES, current, scan, since_of
from workflowlookup.console.visit import Visit
from workflowlookup.core.report import duration
from workflowlookup.core.statistics import Figures, StepFigures, Tally
from workflowlookup.core.text import plural
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.runs.journal import Query, Summary, now

MOST_READ: Final = 1_000
"""How many runs are read for the figures of a workflow; the last started count."""
AT_ONCE: Final = 20
"""How many are read before others get a turn."""
MOST_RULES: Final = 15
DAYS: Final = 30
ORDER: Final = {
    "completed": "completed",
    "waiting": "under way",
    "failed": "failed",
    "cancelled": "cancelled",
    "unknown": "unknown",
}
"""How runs are told apart here: the class that draws them, and the word for it."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in the overview."""

    workflow_id: str
    runs: int
    states: list[tuple[str, int]]
    median: int | None
    bar: Markup


async def overview(visit: Visit) -> Response:
    name, since = since_of(visit)
    lines = list(scan(visit, Query(since=since)))
    by_workflow: dict[str, list[Summary]] = {}
    for line in lines:
        by_workflow.setdefault(line.workflow_id, []).append(line)
    most = max(map(len, by_workflow.values()), default=0)
    ordered = sorted(by_workflow.items(), key=lambda item: -len(item[1]))
    return visit.page(
        "statistics.html",
        place="statistics",
        times=TIMES,
        since=name,
        total=len(lines),
        states=_states(lines),
        order=ORDER,
        lines=[_line(workflow_id, found, most) for workflow_id, found in ordered],
        days=_days(lines),
    )


def _states(lines: Sequence[Summary]) -> list[tuple[str, int]]:
    return _in_order(Counter(line.state for line in lines))


def _in_order(states: Mapping[str, int]) -> list[tuple[str, int]]:
    """How many runs there are of each kind."""
    counts: Counter[str] = Counter()
    for state, count in states.items():
        counts[_kind(state)] += count
    return [(kind, counts[kind]) for kind in ORDER]


def _kind(state: str) -> str:
    return state if state in ORDER else "waiting"


def _line(workflow_id: str, found: Sequence[Summary], most: int) -> Line:
    states = _states(found)
    whole = [line.updated - line.started for line in found if line.state == "completed"]
    label = ", ".join(f"{count} {ORDER[state]}" for state, count in states if count)
    return Line(
        workflow_id=workflow_id,
        runs=len(found),
        states=states,
        median=int(statistics.median(whole)) if whole else None,
        bar=plots.bar([(count, state) for state, count in states], most, label),
    )


def _days(lines: Sequence[Summary]) -> tuple[Markup, str, str, int]:
    """Runs by the day on which they were started: drawn, the names of the first and the last day, the most in one."""
    today = now() // DAY
    counts: dict[int, Counter[str]] = {}
    for line in lines:
        counts.setdefault(line.started // DAY, Counter())[_kind(line.state)] += 1
    days = range(today - DAYS + 1, today + 1)
    parts = [[(counts.get(day, Counter[str]())[state], state) for state in ORDER] for day in days]
    started = sum(size for day in parts for size, _ in day)
    label = f"{plural(started, 'run')} started in the last {DAYS} days, by day and by what became of them"
    most = max(sum(size for size, _ in day) for day in parts)
    return plots.columns(parts, label), _date(days[0]), _date(days[-1]), most


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%-d %b}"


# ── one workflow ────────────────────────────────────────────────────────────────────────────────────────────────


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a plot: what it is about, and for each version a plot and its number in words."""

    id: str
    title: str
    depth: int = 0
    marks: tuple[tuple[str, Markup | None, str], ...]


async def workflow(visit: Visit) -> Response:
    workflow_id = visit.named("workflow")
    name, since = since_of(visit)
    tallies, read = await _tallied(visit, Query(workflow_id=workflow_id, since=since))
    known = {figures.version: figures for tally in tallies.values() if (figures := tally.figures()) is not None}
    if not known and current(visit, workflow_id) is None:
        raise NotThere("workflow")
    chosen = _chosen(visit, known)
    times = [time for one in chosen for step in one.steps for time in (step.median_time, step.slow_time) if time]
    scale = plots.Scale(times)
    return visit.page(
        "figures.html",
        place="statistics",
        workflow_id=workflow_id,
        times=TIMES,
        since=name,
        versions=list(known),
        chosen=chosen,
        counts=[_in_order(one.states) for one in chosen],
        order=ORDER,
        read=read,
        is_cut=read >= MOST_READ,
        stops=list(_stops(chosen)),
        rules=list(_rules(chosen)),
        spans=list(_rows(chosen, lambda step: _span(step, scale))) if times else [],
        axis=scale.axis(),
    )


async def _tallied(visit: Visit, query: Query) -> tuple[dict[str, Tally], int]:
    """By version, the one with the latest run first; and how many runs were read."""
    tallies: dict[str, Tally] = {}
    read = 0
    for line in scan(visit, query, MOST_READ):
        read += 1
        if read % AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            records = visit.services.runs.records(line.id)
            tallies.setdefault(line.version, Tally()).add(line.id, records)
        except WorkflowLookupError:
            continue  # one that is damaged or just gone
    return tallies, read


def _chosen(visit: Visit, known: dict[str, Figures]) -> list[Figures]:
    """The version that is asked for and the one beside it: the two of the latest runs, unless others are named."""
    versions = list(known)
    first = visit.asked("version") or (versions[0] if versions else "")
    default = next((one for one in versions if one != first), "")
    beside = visit.asked("beside") if "beside" in visit.request.query_params else default
    if any(one and one not in known for one in (visit.asked("version"), visit.asked("beside"))):
        raise NotThere("version")
    return [known[one] for one in dict.fromkeys((first, beside)) if one]


Mark = tuple[Markup | None, str]
"""A plot, if there is one, and its number in words."""


def _rows(chosen: Sequence[Figures], mark: Callable[[StepFigures | None], Mark]) -> Iterator[Row]:
    """Each step of the versions, with its mark in each."""
    found = {step.id: step for one in reversed(chosen) for step in one.steps}
    sides = [(one.version, {step.id: step for step in one.steps}) for one in chosen]
    for step_id in dict.fromkeys(step.id for one in chosen for step in one.steps):
        step = found[step_id]
        marks = tuple((version, *mark(steps.get(step_id))) for version, steps in sides)
        yield Row(id=step_id, title=step.title, depth=step.depth, marks=marks)


def _stops(chosen: Sequence[Figures]) -> Iterator[Row]:
    most = max((step.reached + step.skipped for one in chosen for step in one.steps), default=0)
    return _rows(chosen, lambda step: _stop(step, most))


def _stop(step: StepFigures | None, most: int) -> Mark:
    if step is None:
        return None, "not in this version"
    under_way = max(0, step.reached - step.done - step.waiting - step.stopped)
    parts = [
        (step.done, "completed"),
        (step.waiting, "waiting"),
        (step.stopped, "failed"),
        (under_way, "cancelled"),
        (step.skipped, "skipped"),
    ]
    counts = {"stopped": step.stopped, "waiting": step.waiting, "skipped": step.skipped}
    told = ", ".join([f"{step.done} of {step.reached} done", *(f"{n} {word}" for word, n in counts.items() if n)])
    return plots.bar(parts, most, f"{step.title}: {told}"), told


def _rules(chosen: Sequence[Figures]) -> Iterator[Row]:
    """What the rules said, the most frequent first."""
    counts: dict[tuple[str, str], list[int]] = {}
    for index, one in enumerate(chosen):
        for step in one.steps:
            for issue, count in step.issues.items():
                counts.setdefault((step.id, issue), [0] * len(chosen))[index] += count
    most = max((max(sides) for sides in counts.values()), default=0)
    for (step_id, issue), sides in sorted(counts.items(), key=lambda item: -sum(item[1]))[:MOST_RULES]:
        marks = tuple(
            (one.version, plots.bar([(count, "failed")], most, f"refused {plural(count, 'time')}"), f"{count:,}")
            for one, count in zip(chosen, sides, strict=True)
        )
        yield Row(id=step_id, title=issue, marks=marks)


def _span(step: StepFigures | None, scale: plots.Scale) -> Mark:
    if step is None or step.median_time is None or step.slow_time is None:
        return None, "not in this version" if step is None else "never done"
    told = f"{duration(step.median_time)} to {duration(step.slow_time)}"
    label = f"{step.title}: usually {duration(step.median_time)}, nine in ten within {duration(step.slow_time)}"
    return scale.span(step.median_time, step.slow_time, label), told
