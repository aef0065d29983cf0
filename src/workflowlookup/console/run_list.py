"""The page with the list of runs: one search field, a tab for each group of the triage, and filters in the URL."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from workflowlookup.console.queries import NO_SUCH_FILTER, TIMES, since_filter
from workflowlookup.console.rendering import parse_number
from workflowlookup.console.request import RequestRefused, Visit
from workflowlookup.errors import InvalidParams
from workflowlookup.language.text import duration, how_often
from workflowlookup.runs.run import State
from workflowlookup.runs.triage import STUCK_REFUSALS, Triage
from workflowlookup.store.journal import RunOrder, RunQuery, RunSummary, now
from workflowlookup.store.run_search import RunSearch, parse_search

PAGE_SIZE: Final = 50
TABS: Final[Mapping[str, str]] = {
    "": "All",
    Triage.PERSON: "Needs a person",
    Triage.STUCK: "Stuck",
    Triage.AGENT: "Agent at work",
    Triage.SERVER: "Server at work",
    Triage.DONE: "Done",
    Triage.FAILED: "Failed",
    Triage.CANCELLED: "Cancelled",
}
_OPEN: Final = frozenset({Triage.PERSON, Triage.STUCK, Triage.AGENT, Triage.SERVER})
"""The groups in which the run that waits longest comes first."""


_GROUP_OF: Final[Mapping[State, Triage]] = {
    State.QUEUED: Triage.SERVER,
    State.RUNNING: Triage.SERVER,
    State.COMPLETED: Triage.DONE,
    State.FAILED: Triage.FAILED,
    State.UNKNOWN: Triage.FAILED,
    State.CANCELLED: Triage.CANCELLED,
}
"""Of the runs that wait for no agent and no person."""


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list. All fields except `group` may contain untrusted text."""

    run: RunSummary
    name: str
    group: Triage
    reason: str
    """Why it is in its group."""
    since: int
    """The time that matters: when the wait began, or when the run ended."""


async def runs(visit: Visit) -> Response:
    query, problem = query_of(visit)
    summaries = [] if problem else visit.services.runs.summaries(query)
    is_whole = len(summaries) <= PAGE_SIZE and query.triage is None and query.after is None and not problem
    counts = Counter(run.triage(query.now) for run in summaries) if is_whole else group_counts(visit, query)
    chosen = {name: visit.query(name) for name in ("q", "is", "since")}
    are_more = len(summaries) > PAGE_SIZE
    return visit.page(
        "runs.html",
        section="runs",
        rows=rows_of(visit, summaries[:PAGE_SIZE], query.now),
        next=runs_url(chosen, after=_encode(query.place_of(summaries[PAGE_SIZE - 1]))) if are_more else "",
        tabs=[
            (
                key or "all",
                name,
                counts[Triage(key)] if key else counts.total(),
                runs_url(chosen, **{"is": key}),
                key == (query.triage or ""),
            )
            for key, name in TABS.items()
        ],
        feed=runs_url(chosen).replace("/runs", "/feed.atom", 1),
        times=TIMES,
        is_filtered=any(chosen.values()),
        is_first=query.after is None,
        longest_first=query.order is RunOrder.LONGEST_WAITING,
        problem=problem,
        text=chosen["q"],
        group=chosen["is"],
        since=chosen["since"],
    )


def group_counts(visit: Visit, query: RunQuery) -> Counter[Triage]:
    """By group: how many runs match, whatever the group and page of the query.

    Without a filter only those that wait are read: for all others the group follows from the state, whose index is
    enough.
    """
    runs, counts = visit.services.runs, Counter[Triage]()
    if visit.access.sees_all and not query.terms and query.since is None:
        for state, number in runs.counts().items():
            if state != State.WAITING:
                counts[_GROUP_OF[State(state)]] += number
        query = msgspec.structs.replace(query, state=State.WAITING)
    for (_, group), number in runs.triage_counts(query).items():
        counts[group] += number
    return counts


def query_of(visit: Visit) -> tuple[RunQuery, str]:
    """The query for the list that a URL asks for, and what is wrong with its search; empty if nothing is."""
    group = visit.query("is")
    _, started_after = since_filter(visit)
    if group not in TABS:
        raise RequestRefused(400, NO_SUCH_FILTER)
    problem, search = "", RunSearch()
    try:
        search = parse_search(visit.query("q"))
    except InvalidParams as refusal:
        problem = refusal.explain()
    shown_group = search.triage or (Triage(group) if group else None)
    query = RunQuery(
        terms=search.terms,
        triage=shown_group,
        now=now(),
        since=started_after,
        order=RunOrder.LONGEST_WAITING if shown_group in _OPEN else RunOrder.LAST_STARTED,
        after=_cursor(visit.query("after")),
        limit=PAGE_SIZE + 1,
    )
    return query, problem


def rows_of(visit: Visit, runs: Sequence[RunSummary], at: int) -> list[RunRow]:
    entries = visit.services.catalog.snapshot().entries
    rows = []
    for run in runs:
        entry = entries.get(run.workflow_id)
        summary = entry.file.summary if entry is not None else None
        group = run.triage(at)
        rows.append(
            RunRow(
                run=run,
                name=run.name or (summary.name if summary is not None else run.workflow_id),
                group=group,
                reason=_reason(run, group, at),
                since=run.waiting_since if group in _OPEN else run.updated,
            )
        )
    return rows


def _reason(run: RunSummary, group: Triage, at: int) -> str:
    attempts = run.attempts or 0
    refused = f"refused {how_often(attempts)}" if attempts else ""
    match group:
        case Triage.PERSON:
            return refused or "asks a person"
        case Triage.STUCK:
            return refused if attempts >= STUCK_REFUSALS else f"no progress for {duration(at - run.waiting_since)}"
        case Triage.AGENT:
            state = "paused" if run.paused else "waits for variables" if run.waiting_for == "context" else "works"
            return f"{state}, {refused}" if refused else state
        case Triage.SERVER:
            return (
                "queued" if run.state == "queued" else "takes proofs" if run.waiting_for == "proof" else "makes a call"
            )
    return "end unknown" if run.state == "unknown" else run.state


def runs_url(chosen: Mapping[str, str], **changed: str) -> str:
    """The URL of the list with these filters."""
    words = {name: value for name, value in {**chosen, **changed}.items() if value}
    return f"/runs?{urlencode(words)}" if words else "/runs"


def _encode(place: tuple[int, str]) -> str:
    return f"{place[0]}.{place[1]}"


def _cursor(text: str) -> tuple[int, str] | None:
    """The place of the last run on the page before, as `_encode` wrote it."""
    first, _, run_id = text.partition(".")
    number = parse_number(first)
    return None if number is None else (number, run_id)
