"""What the pages ask: the library, the runs, the providers, and who is looking."""

from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request

from workflowlookup.console.streams import Streams
from workflowlookup.console.viewer import Viewer
from workflowlookup.library.catalog import Catalog
from workflowlookup.runs.service import Runs


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

    catalog: Catalog
    runs: Runs
    streams: Streams
    """Closed by whoever serves the console, before it waits for open connections."""
    viewer: Callable[[Request], Viewer | None]
    providers: Callable[[], Sequence[Provider]]
    secret: bytes
    journal: str = ""
    """Where the runs are, as it may be shown."""
    welcome: str = ""
    """What somebody is told who is not known: how to come in."""
