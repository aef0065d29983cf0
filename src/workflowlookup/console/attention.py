"""What needs somebody, for other programs: an Atom feed of any list of runs, and the runs that browsers announce."""

from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import msgspec
from starlette.responses import JSONResponse, Response

from workflowlookup.console.queries import DAY
from workflowlookup.console.request import RequestRefused, Visit
from workflowlookup.console.run_list import RunRow, query_of, rows_of
from workflowlookup.language.text import printable
from workflowlookup.notices.messages import HEADLINES
from workflowlookup.runs.run import State
from workflowlookup.runs.triage import Triage
from workflowlookup.store.journal import RunOrder, RunQuery, now

MAX_ENTRIES: Final = 50
MAX_ANNOUNCED: Final = 100


async def feed(visit: Visit) -> Response:
    """The runs of a list as an Atom feed, the last changed first; the query is that of the list."""
    query, problem = query_of(visit)
    if problem:
        raise RequestRefused(400, problem)
    query = msgspec.structs.replace(query, limit=MAX_ENTRIES, order=RunOrder.LAST_STARTED, after=None)
    rows = rows_of(visit, visit.services.runs.summaries(query), query.now)
    rows.sort(key=lambda row: row.since, reverse=True)
    base = str(visit.request.base_url).rstrip("/")
    search = f"?{visit.request.url.query}" if visit.request.url.query else ""
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        "<title>Runs · workflowlookup</title>",
        f"<id>{_text(f'{base}/feed.atom{search}')}</id>",
        f"<updated>{_moment(rows[0].since if rows else query.now)}</updated>",
        f'<link rel="self" href={quoteattr(f"{base}/feed.atom{search}")}/>',
        f'<link rel="alternate" type="text/html" href={quoteattr(f"{base}/runs{search}")}/>',
        *(_entry(row, base) for row in rows),
        "</feed>",
    ]
    return Response("\n".join(parts).encode(errors="replace"), media_type="application/atom+xml")


def _entry(row: RunRow, base: str) -> str:
    run = row.run
    link = f"{base}/runs/{quote(run.id, safe='')}"
    headline = HEADLINES.get(row.group, run.state.capitalize())
    lines = [line for line in (run.subject, run.title or run.step, row.reason) if line]
    return (
        f"<entry><id>{_text(f'{link}#{row.group}-{row.since}')}</id>"
        f"<title>{_text(f'{headline}: {row.name}')}</title><updated>{_moment(row.since)}</updated>"
        f"<author><name>{_text(run.who or 'workflowlookup')}</name></author>"
        f'<link rel="alternate" type="text/html" href={quoteattr(link)}/>'
        f"<summary>{_text(' · '.join(lines))}</summary></entry>"
    )


def _text(text: str) -> str:
    return escape(printable(text))


def _moment(time: int) -> str:
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="seconds")


async def attention(visit: Visit) -> Response:
    """How many runs wait for somebody, and those that a browser tells its user about: changed in the last day, and
    waiting for a person, stuck, or failed.
    """
    at = now()
    rows: list[RunRow] = []
    for group in (Triage.PERSON, Triage.STUCK, Triage.FAILED):
        query = RunQuery(triage=group, now=at, updated_since=at - DAY, order=RunOrder.LAST_WAITING, limit=MAX_ANNOUNCED)
        rows += rows_of(visit, visit.services.runs.summaries(query), at)
    counts = visit.services.runs.triage_counts(RunQuery(now=at, state=State.WAITING))
    waiting = sum(number for (_, group), number in counts.items() if group in (Triage.PERSON, Triage.STUCK))
    return JSONResponse(
        {
            "waiting": waiting,
            "runs": [
                {
                    "key": f"{row.run.id}:{row.group}:{row.since}",
                    "link": f"/runs/{quote(row.run.id, safe='')}",
                    "headline": printable(f"{HEADLINES[row.group]}: {row.name}"),
                    "text": printable(" · ".join(part for part in (row.run.subject, row.run.title) if part)),
                }
                for row in rows
            ],
        }
    )
