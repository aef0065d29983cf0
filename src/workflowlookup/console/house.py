"""What the pages ask: the library, the runs, the providers, and who is looking."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from workflowlookup.console.streams import Streams
from workflowlookup.console.viewer import Viewer
from workflowlookup.core.model import Workflow
from workflowlookup.errors import WorkflowNotFound
from workflowlookup.library.catalog import CatalogView
from workflowlookup.providers.config import LIBRARY
from workflowlookup.runs.view import RunsView
from workflowlookup.tools import BUILTIN_TOOLS
from workflowlookup.tools.contract import Services, Tool
from workflowlookup.tools.registry import Registry
from workflowlookup.trust import NO_CONSENT, Consent

if TYPE_CHECKING:
    from workflowlookup.providers.discovery import Discovered


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A system that has workflows, and how it is."""

    name: str
    kind: str
    state: str
    """`ready`, or another word when it is not."""
    workflows: int = 0
    detail: str = ""


class House(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the console stands on. The library and the runs are its own, and are used on its thread only."""

    catalog: CatalogView
    runs: RunsView
    streams: Streams
    """Closed by whoever serves the console, before it waits for open connections."""
    viewer: Callable[[Request], Viewer | None]
    providers: Callable[[], Sequence[Provider]]
    resolve: Callable[[str], Workflow]
    """The workflow that a new run of this id is led by. Raises what the library or its provider says."""
    tools: Callable[[], Sequence[Tool]]
    secret: bytes
    journal: str = ""
    """Where the runs are, as it may be shown."""
    welcome: str = ""
    """What somebody is told who is not known: how to come in."""
    confirmation: str = "auto"
    """Whose word counts where a step needs a person: the setting of this name."""
    consent: Consent = NO_CONSENT
    """What repositories brought and nobody trusted."""
    reload: Callable[[], None] = lambda: None
    """Read the settings again, now."""
    is_private: bool = False
    """Whether it was opened with the key of the person who started it: then `local` is that person."""
    is_view: bool = False
    """Whether the runs are those of one viewer, and say themselves who did what."""
    see: "Callable[[Viewer], House] | None" = None
    """The house as a viewer sees it; None where there is only one, who sees all."""

    def seen_by(self, viewer: Viewer) -> "House":
        return self if self.see is None else self.see(viewer)


def make_house(  # noqa: PLR0913 - all that a house has
    services: Services,
    *,
    registry: Registry | None = None,
    streams: Streams | None = None,
    see: Callable[[Viewer], House] | None = None,
    viewer: Callable[[Request], Viewer | None],
    secret: bytes,
    journal: str = "",
    welcome: str = "",
    is_private: bool = False,
) -> House:
    """The house of a server: what its tools stand on, for people. The services are for the event loop's thread.

    `registry` and `streams` are those of the server, where there are some already.
    """
    known = registry or Registry(BUILTIN_TOOLS, services)

    def tools() -> Sequence[Tool]:
        known.refresh()
        return tuple(known.tools.values())

    def resolve(workflow_id: str) -> Workflow:
        try:
            return services.catalog.get(workflow_id)
        except WorkflowNotFound:
            tools()  # so that what makes tools of workflows knows them all
            found = services.workflows.resolve(workflow_id) if services.workflows is not None else None
            if found is None:
                raise
            return found

    return House(
        catalog=services.catalog,
        runs=services.runs,
        streams=streams or Streams(services.runs),
        confirmation=services.confirmation,
        consent=services.consent,
        reload=services.reload,
        is_private=is_private,
        is_view=not services.access.is_unbound,
        see=see,
        viewer=viewer,
        providers=lambda: tuple(_providers(services)),
        resolve=resolve,
        tools=tools,
        secret=secret,
        journal=journal,
        welcome=welcome,
    )


def _providers(services: Services) -> Iterator[Provider]:
    count = len(services.catalog.snapshot().summaries)
    yield Provider(name=LIBRARY, kind="documents on this machine", state="ready", workflows=count)
    workflows: Any = services.workflows
    discovered: Mapping[str, Discovered] = workflows.discovered() if workflows is not None else {}
    for name, found in discovered.items():
        config = workflows.plan.providers.get(name)
        yield Provider(
            name=name,
            kind=config.kind if config is not None else "",
            state="away" if found.is_away else "ready" if found.is_listed else "not asked yet",
            workflows=len(found.definitions),
            detail=found.cause,
        )
