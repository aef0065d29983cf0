"""The way in, the tools and where they come from, and how the server is."""

import platform
from collections.abc import Mapping

import msgspec
from starlette.responses import RedirectResponse, Response

from workflowlookup.console.guard import NotThere
from workflowlookup.console.library_pages import issues_of
from workflowlookup.console.looking import scan
from workflowlookup.console.visit import Visit
from workflowlookup.core.text import plural
from workflowlookup.errors import StorageError
from workflowlookup.providers.config import LIBRARY
from workflowlookup.providers.definition import document_id
from workflowlookup.runs.journal import Query
from workflowlookup.tools.dynamic import META


async def front(visit: Visit) -> Response:
    """To the runs, if there are any."""
    has_runs = next(scan(visit, Query()), None) is not None
    return RedirectResponse("/runs" if has_runs else "/library", 303)


async def tools(visit: Visit) -> Response:
    found = [(tool, (tool.meta or {}).get(META)) for tool in visit.house.tools()]
    return visit.page(
        "tools.html",
        place="tools",
        tools=[tool for tool, about in found if about is None],
        workflows=[(tool, about) for tool, about in found if about is not None and _sees(visit, about)],
        providers=visit.house.providers(),
    )


def _sees(visit: Visit, about: Mapping[str, str]) -> bool:
    own = about["provider"] == LIBRARY
    return visit.viewer.may("read", about["id"] if own else document_id(about["provider"], about["id"]))


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at."""

    name: str
    is_well: bool
    told: str
    where: str = ""


async def health(visit: Visit) -> Response:
    if not visit.viewer.may("admin"):
        raise NotThere
    states: Mapping[str, int] = {}
    try:
        states = visit.house.runs.counts()
        journal = Check(name="Journal", is_well=True, told="It can be read.", where=visit.house.journal)
    except StorageError as refusal:
        journal = Check(name="Journal", is_well=False, told=refusal.explain(), where=visit.house.journal)
    checks = [journal, *_sources(visit), *_providers(visit)]
    return visit.page(
        "health.html",
        place="health",
        checks=checks,
        are_well=all(check.is_well for check in checks),
        states=sorted(states.items()),
        streams=visit.house.streams.count,
        python=platform.python_version(),
    )


def _sources(visit: Visit) -> list[Check]:
    found = []
    for source in visit.house.catalog.sources:
        listing = visit.house.catalog.listing(source)
        wrong = sum(file.refusal is not None for file in listing.files.values())
        told = f"{plural(len(listing.files), 'document')}{f', {wrong} with problems' if wrong else ''}."
        if listing.refusal:
            told = " ".join(issues_of(listing.refusal))
        is_well = not wrong and not listing.refusal
        found.append(Check(name=f"Library: {source.name}", is_well=is_well, told=told, where=source.root))
    return found


def _providers(visit: Visit) -> list[Check]:
    return [
        Check(name=f"Provider: {one.name}", is_well=one.state == "ready", told=one.detail or f"It is {one.state}.")
        for one in visit.house.providers()
    ]
