"""Pages about the server: the front page, its tools and providers, what waits for trust, and its health."""

import platform
from collections.abc import Iterator, Mapping

import msgspec
from starlette.responses import RedirectResponse, Response

from workflowlookup.console.library_pages import issues_of
from workflowlookup.console.queries import scan
from workflowlookup.console.request import Visit
from workflowlookup.errors import RunStateError, StorageError
from workflowlookup.language.text import plural
from workflowlookup.providers.config import LIBRARY
from workflowlookup.store.journal import RunQuery
from workflowlookup.tools.contract import ONLY_A_PERSON, Services
from workflowlookup.tools.dynamic import META
from workflowlookup.trust import TrustEntry, digest_of_all, digests_of, redacted_json


async def front(visit: Visit) -> Response:
    """To the runs, if there are any."""
    has_runs = next(scan(visit, RunQuery()), None) is not None
    return RedirectResponse("/runs" if has_runs else "/library", 303)


async def tools(visit: Visit) -> Response:
    visit.backend.registry.refresh()
    found = [(tool, (tool.meta or {}).get(META)) for tool in visit.backend.registry.tools.values()]
    return visit.page(
        "tools.html",
        place="tools",
        tools=[tool for tool, about in found if about is None],
        workflows=[(tool, about) for tool, about in found if about is not None],
        providers=list(_providers(visit.services)),
    )


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A system that has workflows, and how it is."""

    name: str
    kind: str
    state: str
    """`ready`, or another word when it is not."""
    workflows: int
    detail: str = ""


def _providers(services: Services) -> Iterator[Provider]:
    count = len(services.catalog.snapshot().summaries)
    yield Provider(name=LIBRARY, kind="documents on this machine", state="ready", workflows=count)
    workflows = services.workflows
    for name, found in workflows.discovered().items() if workflows is not None else ():
        config = workflows.plan.providers.get(name) if workflows is not None else None
        kind = config.kind if config is not None else ""
        count = len(found.definitions)
        yield Provider(name=name, kind=kind, state=found.state, workflows=count, detail=found.cause)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at."""

    name: str
    is_well: bool
    told: str
    where: str = ""


async def health(visit: Visit) -> Response:
    visit.need_place("health")
    states: Mapping[str, int] = {}
    sees_server = visit.access.administers_all  # where things lie, and how many others there are
    where = visit.journal if sees_server else ""
    try:
        states = visit.services.runs.counts()
        journal = Check(name="Journal", is_well=True, told="It can be read.", where=where)
    except StorageError as refusal:
        told = refusal.explain() if sees_server else f"{refusal.message}."
        journal = Check(name="Journal", is_well=False, told=told, where=where)
    checks = [journal, *_sources(visit.services), *_provider_checks(visit.services)]
    return visit.page(
        "health.html",
        place="health",
        checks=checks,
        are_well=all(check.is_well for check in checks),
        states=sorted(states.items()),
        streams=visit.streams.count if sees_server else None,
        python=platform.python_version(),
    )


def _sources(services: Services) -> list[Check]:
    found = []
    for source in services.catalog.sources:
        listing = services.catalog.listing(source)
        wrong = sum(file.refusal is not None for file in listing.files.values())
        told = f"{plural(len(listing.files), 'document')}{f', {wrong} with problems' if wrong else ''}."
        if listing.refusal:
            told = " ".join(issues_of(listing.refusal))
        is_well = not wrong and not listing.refusal
        found.append(Check(name=f"Library: {source.name}", is_well=is_well, told=told, where=source.root))
    return found


def _provider_checks(services: Services) -> list[Check]:
    return [
        Check(name=f"Provider: {one.name}", is_well=one.state == "ready", told=one.detail or f"It is {one.state}.")
        for one in _providers(services)
    ]


async def trust(visit: Visit) -> Response:
    visit.need_place("trust")
    entries = _untrusted(visit)
    digests = digests_of(entries)
    hopeless = [entry for entry in entries if all(entry is not other for other, _ in digests)]
    return visit.page(
        "trust.html",
        place="trust",
        entries=[(entry, redacted_json(entry)) for entry, _ in digests],
        hopeless=hopeless,
        shown=digest_of_all(digests),
        problem=visit.services.consent.store.fault(),
        refusal="" if visit.access.may_trust else ONLY_A_PERSON,
        is_said=visit.asked("said") == "trusted",
    )


async def allow(visit: Visit) -> Response:
    """Trust exactly what was shown. Raises `RunStateError` when it is not the same any more."""
    visit.need_place("trust")
    digests = digests_of(_untrusted(visit))
    if not digests or visit.form.get("shown") != digest_of_all(digests):
        raise RunStateError("What would run has changed since you looked at it. Look again before you decide.")
    visit.services.trust(digests, by=f"console: {visit.name}")
    return RedirectResponse("/trust?said=trusted", 303)


def _untrusted(visit: Visit) -> list[TrustEntry]:
    return visit.services.consent.untrusted_in(visit.services.catalog.workflows())
