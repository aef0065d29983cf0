"""Pages of statistics: how runs ended, where they stop, what is refused, how long steps take."""

import asyncio
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
from markupsafe import Markup
from starlette.responses import Response

from workflowlookup.console import plots
from workflowlookup.console.queries import DAY, TIMES, current, scan, since_of
from workflowlookup.console.request import NotThere, Visit
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.expiring_cache import ExpiringCache
from workflowlookup.language.text import plural
from workflowlookup.runs.report import duration
from workflowlookup.runs.statistics import StepStatistics, Tally, WorkflowStatistics
from workflowlookup.store.journal import RunQuery, now
from workflowlookup.store.loading import read_excerpts

if TYPE_CHECKING:
    from workflowlookup.access import Access

FIGURES_SECONDS: Final = 10.0
"""How old the figures on a page may be."""
MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 2 << 20
"""Of each kind of figures, as JSON; as values they take some four times as much."""


class WorkflowCounts(msgspec.Struct, kw_only=True):
    """The runs of one workflow, counted."""

    states: dict[str, int] = {}
    median: int | None = None
    """Milliseconds that completed runs took."""


class Overview(msgspec.Struct, kw_only=True):
    """All runs that a caller sees, counted."""

    workflows: dict[str, WorkflowCounts] = {}
    days: dict[int, dict[str, int]] = {}
    """By the day on which they were started."""


class Versions(msgspec.Struct, frozen=True):
    """The versions of one workflow, over the latest runs that a caller sees."""

    figures: dict[str, WorkflowStatistics]
    """By version, the one with the latest run first."""
    runs: int
    """How many were read."""


def _weigh(figures: Overview | Versions) -> int:
    return len(msgspec.json.encode(figures))


class RecentFigures:
    """What the callers of one console were shown lately. The caller is part of each key: nobody sees another's."""

    def __init__(self) -> None:
        self.overviews: ExpiringCache[tuple[Access, str], Overview] = ExpiringCache(
            FIGURES_SECONDS, MAX_ENTRIES, max_weight=MAX_BYTES, weigh=_weigh
        )
        """By caller and time."""
        self.versions: ExpiringCache[tuple[Access, str, str], Versions] = ExpiringCache(
            FIGURES_SECONDS, MAX_ENTRIES, max_weight=MAX_BYTES, weigh=_weigh
        )
        """By caller, workflow and time."""


MOST_READ: Final = 1_000
"""How many runs are read for the figures of a workflow; the last started count."""
AT_ONCE: Final = 20
"""How many are read before others get a turn."""
MOST_RULES: Final = 15
DAYS: Final = 30
COUNTED_AT_ONCE: Final = 200
"""How many runs are counted before others get a turn."""
WAIT_SECONDS: Final = 30.0
"""How long a request waits for another one of its caller that computes the same figures."""
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
    median: int | None
    bar: Markup


async def overview(visit: Visit) -> Response:
    name, since = since_of(visit)
    with visit.recent.overviews.entry((visit.access, name), WAIT_SECONDS) as entry:
        if entry.value is None:
            entry.value = await _count(visit, RunQuery(since=since))
        counts = entry.value
    states: Counter[str] = Counter()
    for one in counts.workflows.values():
        states.update(one.states)
    ordered = sorted(counts.workflows.items(), key=lambda item: -sum(item[1].states.values()))
    most = sum(ordered[0][1].states.values()) if ordered else 0
    return visit.page(
        "statistics.html",
        place="statistics",
        times=TIMES,
        since=name,
        total=states.total(),
        states=_in_order(states),
        order=ORDER,
        lines=[_line(workflow_id, one, most) for workflow_id, one in ordered],
        days=_days(counts.days),
    )


async def _count(visit: Visit, query: RunQuery) -> Overview:
    """Count the runs, each page of them as it comes from the journal, and let others have a turn in between."""
    counts = Overview()
    times: dict[str, list[int]] = {}
    for number, line in enumerate(scan(visit, query), 1):
        kind = _kind(line.state)
        for states in (
            counts.workflows.setdefault(line.workflow_id, WorkflowCounts()).states,
            counts.days.setdefault(line.started // DAY, {}),
        ):
            states[kind] = states.get(kind, 0) + 1
        if line.state == "completed":
            times.setdefault(line.workflow_id, []).append(line.updated - line.started)
        if number % COUNTED_AT_ONCE == 0:
            await asyncio.sleep(0)
    for workflow_id, took in times.items():
        counts.workflows[workflow_id].median = int(statistics.median(took))
    return counts


def _in_order(states: Mapping[str, int]) -> list[tuple[str, int]]:
    """How many runs there are of each kind."""
    counts: Counter[str] = Counter()
    for state, count in states.items():
        counts[_kind(state)] += count
    return [(kind, counts[kind]) for kind in ORDER]


def _kind(state: str) -> str:
    return state if state in ORDER else "waiting"


def _line(workflow_id: str, counts: WorkflowCounts, most: int) -> Line:
    states = _in_order(counts.states)
    label = ", ".join(f"{count} {ORDER[state]}" for state, count in states if count)
    return Line(
        workflow_id=workflow_id,
        runs=sum(counts.states.values()),
        median=counts.median,
        bar=plots.bar([(count, state) for state, count in states], most, label),
    )


def _days(counts: Mapping[int, Mapping[str, int]]) -> tuple[Markup, str, str, int]:
    """Runs by the day on which they were started: drawn, the names of the first and the last day, the most in one."""
    today = now() // DAY
    days = range(today - DAYS + 1, today + 1)
    parts = [[(counts.get(day, {}).get(state, 0), state) for state in ORDER] for day in days]
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
    with visit.recent.versions.entry((visit.access, workflow_id, name), WAIT_SECONDS) as entry:
        if entry.value is None:
            entry.value = await _tallied(visit, RunQuery(workflow_id=workflow_id, since=since))
        known, read = entry.value.figures, entry.value.runs
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


async def _tallied(visit: Visit, query: RunQuery) -> Versions:
    tallies: dict[str, Tally] = {}
    read = 0
    for line in scan(visit, query, MOST_READ):
        read += 1
        if read % AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            records = read_excerpts(visit.services.runs, line.id)
            tallies.setdefault(line.version, Tally()).add(line.id, records)
        except WorkflowLookupError:
            continue  # one that is damaged or just gone
    known = {figures.version: figures for tally in tallies.values() if (figures := tally.statistics()) is not None}
    return Versions(known, read)


def _chosen(visit: Visit, known: dict[str, WorkflowStatistics]) -> list[WorkflowStatistics]:
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


def _rows(chosen: Sequence[WorkflowStatistics], mark: Callable[[StepStatistics | None], Mark]) -> Iterator[Row]:
    """Each step of the versions, with its mark in each."""
    found = {step.id: step for one in reversed(chosen) for step in one.steps}
    sides = [(one.version, {step.id: step for step in one.steps}) for one in chosen]
    for step_id in dict.fromkeys(step.id for one in chosen for step in one.steps):
        step = found[step_id]
        marks = tuple((version, *mark(steps.get(step_id))) for version, steps in sides)
        yield Row(id=step_id, title=step.title, depth=step.depth, marks=marks)


def _stops(chosen: Sequence[WorkflowStatistics]) -> Iterator[Row]:
    most = max((step.reached + step.skipped for one in chosen for step in one.steps), default=0)
    return _rows(chosen, lambda step: _stop(step, most))


def _stop(step: StepStatistics | None, most: int) -> Mark:
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


def _rules(chosen: Sequence[WorkflowStatistics]) -> Iterator[Row]:
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


def _span(step: StepStatistics | None, scale: plots.Scale) -> Mark:
    if step is None or step.median_time is None or step.slow_time is None:
        return None, "not in this version" if step is None else "never done"
    told = f"{duration(step.median_time)} to {duration(step.slow_time)}"
    label = f"{step.title}: usually {duration(step.median_time)}, nine in ten within {duration(step.slow_time)}"
    return scale.span(step.median_time, step.slow_time, label), told
