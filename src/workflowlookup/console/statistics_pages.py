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

from workflowlookup.cache import ExpiringCache
from workflowlookup.console import plots
from workflowlookup.console.queries import DAY, TIMES, current, scan, since_filter
from workflowlookup.console.request import PageNotFound, Visit
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.language.text import duration, plural
from workflowlookup.runs.proofs.statistics import ProofStatistics
from workflowlookup.runs.statistics import StepStatistics, Tally, WorkflowStatistics
from workflowlookup.store.journal import RunQuery, now
from workflowlookup.store.loading import read_excerpts

if TYPE_CHECKING:
    from workflowlookup.access import Access

CACHE_SECONDS: Final = 10.0
"""How old the statistics on a page may be."""
MAX_ENTRIES: Final = 64
MAX_BYTES: Final = 2 << 20
"""For each kind of page, measured as JSON; in memory the values take about four times as much."""


class WorkflowCounts(msgspec.Struct, kw_only=True):
    """Counts of the runs of one workflow."""

    states: dict[str, int] = {}
    median: int | None = None
    """Median duration of completed runs, in milliseconds."""


class Overview(msgspec.Struct, kw_only=True):
    """Counts of all runs that a caller may see."""

    workflows: dict[str, WorkflowCounts] = {}
    days: dict[int, dict[str, int]] = {}
    """By day of start, in days since the epoch."""


class VersionStatistics(msgspec.Struct, frozen=True):
    """Statistics of one workflow by version, over the latest runs that a caller may see."""

    by_version: dict[str, WorkflowStatistics]
    """The version with the latest run first."""
    runs: int
    """How many runs were read."""


def _weigh(value: Overview | VersionStatistics) -> int:
    return len(msgspec.json.encode(value))


class StatisticsCache:
    """Recently computed statistics. The caller is part of each key, so nobody sees another's."""

    def __init__(self) -> None:
        self.overviews: ExpiringCache[tuple[Access, str], Overview] = ExpiringCache(
            CACHE_SECONDS, MAX_ENTRIES, max_weight=MAX_BYTES, weigh=_weigh
        )
        """By caller and time."""
        self.versions: ExpiringCache[tuple[Access, str, str], VersionStatistics] = ExpiringCache(
            CACHE_SECONDS, MAX_ENTRIES, max_weight=MAX_BYTES, weigh=_weigh
        )
        """By caller, workflow and time."""


MAX_RUNS_READ: Final = 1_000
"""How many runs are read for the statistics of a workflow: the last started ones."""
READ_BATCH: Final = 20
"""How many runs are read before other requests are served."""
MAX_RULES: Final = 15
DAYS: Final = 30
COUNT_BATCH: Final = 200
"""How many runs are counted before other requests are served."""
WAIT_SECONDS: Final = 30.0
"""How long a request waits for another request of its caller that computes the same statistics."""
ORDER: Final = {
    "completed": "completed",
    "waiting": "under way",
    "failed": "failed",
    "cancelled": "cancelled",
    "unknown": "unknown",
}
"""The kinds of runs on these pages, in order: the CSS class, and the word for people."""


class WorkflowRow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow in the overview."""

    workflow_id: str
    runs: int
    median: int | None
    bar: Markup


async def overview(visit: Visit) -> Response:
    name, since = since_filter(visit)
    with visit.statistics_cache.overviews.entry((visit.access, name), WAIT_SECONDS) as entry:
        if entry.value is None:
            entry.value = await _count(visit, RunQuery(since=since))
        counts = entry.value
    states: Counter[str] = Counter()
    for one in counts.workflows.values():
        states.update(one.states)
    ordered = sorted(counts.workflows.items(), key=lambda item: -sum(item[1].states.values()))
    highest = sum(ordered[0][1].states.values()) if ordered else 0
    return visit.page(
        "statistics.html",
        section="statistics",
        times=TIMES,
        since=name,
        total=states.total(),
        states=_in_order(states),
        order=ORDER,
        rows=[_row(workflow_id, one, highest) for workflow_id, one in ordered],
        days=_days(counts.days),
    )


async def _count(visit: Visit, query: RunQuery) -> Overview:
    """Count the runs as they come from the journal; other requests are served in between."""
    counts = Overview()
    durations: dict[str, list[int]] = {}
    for number, run in enumerate(scan(visit, query), 1):
        kind = _kind(run.state)
        for states in (
            counts.workflows.setdefault(run.workflow_id, WorkflowCounts()).states,
            counts.days.setdefault(run.started // DAY, {}),
        ):
            states[kind] = states.get(kind, 0) + 1
        if run.state == "completed":
            durations.setdefault(run.workflow_id, []).append(run.updated - run.started)
        if number % COUNT_BATCH == 0:
            await asyncio.sleep(0)
    for workflow_id, milliseconds in durations.items():
        counts.workflows[workflow_id].median = int(statistics.median(milliseconds))
    return counts


def _in_order(states: Mapping[str, int]) -> list[tuple[str, int]]:
    """The number of runs of each kind, in the order of `ORDER`."""
    counts: Counter[str] = Counter()
    for state, count in states.items():
        counts[_kind(state)] += count
    return [(kind, counts[kind]) for kind in ORDER]


def _kind(state: str) -> str:
    return state if state in ORDER else "waiting"


def _row(workflow_id: str, counts: WorkflowCounts, highest: int) -> WorkflowRow:
    states = _in_order(counts.states)
    label = ", ".join(f"{count} {ORDER[state]}" for state, count in states if count)
    return WorkflowRow(
        workflow_id=workflow_id,
        runs=sum(counts.states.values()),
        median=counts.median,
        bar=plots.bar([(count, state) for state, count in states], highest, label),
    )


def _days(counts: Mapping[int, Mapping[str, int]]) -> tuple[Markup, str, str, int]:
    """Runs by day of start: the plot, the names of the first and last day, and the highest count of a day."""
    today = now() // DAY
    days = range(today - DAYS + 1, today + 1)
    parts = [[(counts.get(day, {}).get(state, 0), state) for state in ORDER] for day in days]
    started = sum(size for day in parts for size, _ in day)
    label = f"{plural(started, 'run')} started in the last {DAYS} days, by day and by outcome"
    highest = max(sum(size for size, _ in day) for day in parts)
    return plots.columns(parts, label), _date(days[0]), _date(days[-1]), highest


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * 86_400, UTC):%-d %b}"


# ── one workflow ────────────────────────────────────────────────────────────────────────────────────────────────


class PlotRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a plot: a step or rule, and for each version a plot and its text."""

    id: str
    title: str
    depth: int = 0
    marks: tuple[tuple[str, Markup | None, str], ...]


async def workflow(visit: Visit) -> Response:
    workflow_id = visit.path_param("workflow")
    name, since = since_filter(visit)
    with visit.statistics_cache.versions.entry((visit.access, workflow_id, name), WAIT_SECONDS) as entry:
        if entry.value is None:
            entry.value = await _tally(visit, RunQuery(workflow_id=workflow_id, since=since))
        by_version, read = entry.value.by_version, entry.value.runs
    if not by_version and current(visit, workflow_id) is None:
        raise PageNotFound("workflow")
    chosen = _chosen(visit, by_version)
    times = [time for one in chosen for step in one.steps for time in (step.median_time, step.slow_time) if time]
    scale = plots.Scale(times)
    return visit.page(
        "workflow_statistics.html",
        section="statistics",
        workflow_id=workflow_id,
        times=TIMES,
        since=name,
        versions=list(by_version),
        chosen=chosen,
        counts=[_in_order(one.states) for one in chosen],
        order=ORDER,
        read=read,
        is_cut=read >= MAX_RUNS_READ,
        stops=list(_stops(chosen)),
        rules=list(_rules(chosen)),
        spans=list(_rows(chosen, lambda step: _span(step, scale))) if times else [],
        axis=scale.axis(),
        proofs=list(_proofs(chosen)),
    )


async def _tally(visit: Visit, query: RunQuery) -> VersionStatistics:
    tallies: dict[str, Tally] = {}
    read = 0
    for run in scan(visit, query, MAX_RUNS_READ):
        read += 1
        if read % READ_BATCH == 0:
            await asyncio.sleep(0)
        try:
            records = read_excerpts(visit.services.runs, run.id)
            tallies.setdefault(run.version, Tally()).add(run.id, records)
        except WorkflowLookupError:
            continue  # damaged, or deleted in the meantime
    results = (tally.statistics() for tally in tallies.values())
    return VersionStatistics({result.version: result for result in results if result is not None}, read)


def _chosen(visit: Visit, by_version: dict[str, WorkflowStatistics]) -> list[WorkflowStatistics]:
    """The version of the query and the one beside it; by default the two with the latest runs."""
    versions = list(by_version)
    first = visit.query("version") or (versions[0] if versions else "")
    default = next((one for one in versions if one != first), "")
    beside = visit.query("beside") if "beside" in visit.request.query_params else default
    if any(one and one not in by_version for one in (visit.query("version"), visit.query("beside"))):
        raise PageNotFound("version")
    return [by_version[one] for one in dict.fromkeys((first, beside)) if one]


Mark = tuple[Markup | None, str]
"""A plot, if there is one, and its text."""


def _rows(chosen: Sequence[WorkflowStatistics], mark: Callable[[StepStatistics | None], Mark]) -> Iterator[PlotRow]:
    """A row for each step, with its mark in each version."""
    steps_by_id = {step.id: step for one in reversed(chosen) for step in one.steps}
    sides = [(one.version, {step.id: step for step in one.steps}) for one in chosen]
    for step_id in dict.fromkeys(step.id for one in chosen for step in one.steps):
        step = steps_by_id[step_id]
        marks = tuple((version, *mark(steps.get(step_id))) for version, steps in sides)
        yield PlotRow(id=step_id, title=step.title, depth=step.depth, marks=marks)


def _stops(chosen: Sequence[WorkflowStatistics]) -> Iterator[PlotRow]:
    highest = max((step.reached + step.skipped for one in chosen for step in one.steps), default=0)
    return _rows(chosen, lambda step: _stop(step, highest))


def _stop(step: StepStatistics | None, highest: int) -> Mark:
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
    text = ", ".join([f"{step.done} of {step.reached} done", *(f"{n} {word}" for word, n in counts.items() if n)])
    return plots.bar(parts, highest, f"{step.title}: {text}"), text


def _rules(chosen: Sequence[WorkflowStatistics]) -> Iterator[PlotRow]:
    """The messages of rules that refused outputs, the most frequent first."""
    counts: dict[tuple[str, str], list[int]] = {}
    for index, one in enumerate(chosen):
        for step in one.steps:
            for issue, count in step.issues.items():
                counts.setdefault((step.id, issue), [0] * len(chosen))[index] += count
    highest = max((max(sides) for sides in counts.values()), default=0)
    for (step_id, issue), sides in sorted(counts.items(), key=lambda item: -sum(item[1]))[:MAX_RULES]:
        marks = tuple(
            (one.version, plots.bar([(count, "failed")], highest, f"refused {plural(count, 'time')}"), f"{count:,}")
            for one, count in zip(chosen, sides, strict=True)
        )
        yield PlotRow(id=step_id, title=issue, marks=marks)


def _proofs(chosen: Sequence[WorkflowStatistics]) -> Iterator[PlotRow]:
    """A row for each proof that was taken, waived or skipped in one of the versions, the slowest first."""
    sides = [(one.version, {(proof.step, proof.name): proof for proof in one.proofs}) for one in chosen]
    highest = max((_total(proof) for _, proofs in sides for proof in proofs.values()), default=0)
    slowest: dict[tuple[str, str], int] = {}
    for _, proofs in sides:
        for key, proof in proofs.items():
            if _total(proof) or proof.median_time is not None:
                slowest[key] = max(slowest.get(key, 0), proof.slow_time or 0)
    for step_id, name in sorted(slowest, key=lambda key: -slowest[key]):
        marks = tuple((version, *_verdicts(proofs.get((step_id, name)), highest)) for version, proofs in sides)
        yield PlotRow(id=step_id, title=name, marks=marks)


def _total(proof: ProofStatistics) -> int:
    return proof.proved + proof.failed + proof.unproved + proof.waived + proof.skipped


def _verdicts(proof: ProofStatistics | None, highest: int) -> Mark:
    if proof is None:
        return None, "not in this version"
    parts = [
        (proof.proved, "completed"),
        (proof.failed, "failed"),
        (proof.unproved + proof.waived, "cancelled"),
        (proof.skipped, "skipped"),
    ]
    counts = {word: getattr(proof, word) for word in ("proved", "failed", "unproved", "waived", "skipped")}
    words = [f"{count:,} {word}" for word, count in counts.items() if count] or ["measured"]
    if proof.median_time is not None and proof.slow_time is not None:
        words.append(f"{duration(proof.median_time)} to {duration(proof.slow_time)}")
    text = ", ".join(words)
    return plots.bar(parts, highest, f"{proof.name}: {text}"), text


def _span(step: StepStatistics | None, scale: plots.Scale) -> Mark:
    if step is None or step.median_time is None or step.slow_time is None:
        return None, "not in this version" if step is None else "never done"
    text = f"{duration(step.median_time)} to {duration(step.slow_time)}"
    label = f"{step.title}: usually {duration(step.median_time)}, nine in ten within {duration(step.slow_time)}"
    return scale.span(step.median_time, step.slow_time, label), text
