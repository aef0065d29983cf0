"""Pages about the server: the start page, tools and providers, files that need trust, and health."""

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


async def start_page(visit: Visit) -> Response:
    """Redirect to the runs if there are any, else to the library."""
    has_runs = next(scan(visit, RunQuery()), None) is not None
    return RedirectResponse("/runs" if has_runs else "/library", 303)


async def tools(visit: Visit) -> Response:
    visit.backend.registry.refresh()
    tools = [(tool, (tool.meta or {}).get(META)) for tool in visit.backend.registry.tools.values()]
    return visit.page(
        "tools.html",
        section="tools",
        tools=[tool for tool, about in tools if about is None],
        workflows=[(tool, about) for tool, about in tools if about is not None],
        providers=list(_providers(visit.services)),
    )


class ProviderRow(msgspec.Struct, frozen=True, kw_only=True):
    """A provider on the page of tools."""

    name: str
    kind: str
    state: str
    """`ready`, or another word if it is not."""
    workflows: int
    detail: str = ""


def _providers(services: Services) -> Iterator[ProviderRow]:
    count = len(services.catalog.snapshot().summaries)
    yield ProviderRow(name=LIBRARY, kind="documents on this machine", state="ready", workflows=count)
    workflows = services.workflows
    for name, listing in workflows.discovered().items() if workflows is not None else ():
        config = workflows.plan.providers.get(name) if workflows is not None else None
        kind = config.kind if config is not None else ""
        count = len(listing.definitions)
        yield ProviderRow(name=name, kind=kind, state=listing.state, workflows=count, detail=listing.cause)


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the page of health."""

    name: str
    is_ok: bool
    message: str
    location: str = ""


async def health(visit: Visit) -> Response:
    visit.require_section("health")
    states: Mapping[str, int] = {}
    sees_server = visit.access.administers_all  # may see locations, and how many pages are open
    location = visit.journal if sees_server else ""
    try:
        states = visit.services.runs.counts()
        journal = HealthCheck(name="Journal", is_ok=True, message="It can be read.", location=location)
    except StorageError as refusal:
        message = refusal.explain() if sees_server else f"{refusal.message}."
        journal = HealthCheck(name="Journal", is_ok=False, message=message, location=location)
    checks = [journal, *_sources(visit.services), *_provider_checks(visit.services)]
    return visit.page(
        "health.html",
        section="health",
        checks=checks,
        is_all_ok=all(check.is_ok for check in checks),
        states=sorted(states.items()),
        streams=visit.streams.count if sees_server else None,
        python=platform.python_version(),
    )


def _sources(services: Services) -> list[HealthCheck]:
    checks = []
    for source in services.catalog.sources:
        listing = services.catalog.listing(source)
        invalid = sum(file.refusal is not None for file in listing.files.values())
        message = f"{plural(len(listing.files), 'document')}{f', {invalid} with problems' if invalid else ''}."
        if listing.refusal:
            message = " ".join(issues_of(listing.refusal))
        is_ok = not invalid and not listing.refusal
        checks.append(HealthCheck(name=f"Library: {source.name}", is_ok=is_ok, message=message, location=source.root))
    return checks


def _provider_checks(services: Services) -> list[HealthCheck]:
    return [
        HealthCheck(
            name=f"Provider: {one.name}", is_ok=one.state == "ready", message=one.detail or f"It is {one.state}."
        )
        for one in _providers(services)
    ]


async def trust(visit: Visit) -> Response:
    visit.require_section("trust")
    entries = _untrusted(visit)
    digests = digests_of(entries)
    untrustable = [entry for entry in entries if all(entry is not other for other, _ in digests)]
    return visit.page(
        "trust.html",
        section="trust",
        entries=[(entry, redacted_json(entry)) for entry, _ in digests],
        untrustable=untrustable,
        shown=digest_of_all(digests),
        problem=visit.services.consent.store.fault(),
        refusal="" if visit.access.may_trust else ONLY_A_PERSON,
        is_trusted=visit.query("notice") == "trusted",
    )


async def allow(visit: Visit) -> Response:
    """Trust exactly what was shown. Raises `RunStateError` if it has changed since."""
    visit.require_section("trust")
    digests = digests_of(_untrusted(visit))
    if not digests or visit.form.get("shown") != digest_of_all(digests):
        raise RunStateError("The files changed since this page was shown. Review them again before you decide.")
    visit.services.trust(digests, by=f"console: {visit.name}")
    return RedirectResponse("/trust?notice=trusted", 303)


def _untrusted(visit: Visit) -> list[TrustEntry]:
    return visit.services.consent.untrusted_in(visit.services.catalog.workflows())
