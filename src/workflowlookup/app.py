"""The composition root: settings in, a server or a catalog out."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from workflowlookup.settings import Settings

if TYPE_CHECKING:
    from workflowlookup.library.catalog import Catalog, Source
    from workflowlookup.protocol.connection import Connection
    from workflowlookup.tools.registry import Services

USER_DIRECTORY: Final = "~/.workflowlookup/workflows"
PROJECT_DIRECTORY: Final = os.path.join(".workflowlookup", "workflows")


def _bundled(settings: Settings) -> Iterator["Source"]:
    from workflowlookup.library.directory import DirectorySource  # noqa: PLC0415 - nothing is read before it is needed

    if settings.bundled:
        yield DirectorySource("bundled", os.path.join(os.path.dirname(__file__), "bundled"))


def _user(settings: Settings) -> Iterator["Source"]:
    from workflowlookup.library.directory import DirectorySource  # noqa: PLC0415

    if settings.user:
        yield DirectorySource("user", os.path.expanduser(USER_DIRECTORY))


def _configured(settings: Settings) -> Iterator["Source"]:
    from workflowlookup.library.directory import DirectorySource  # noqa: PLC0415

    for directory in settings.directories:
        yield DirectorySource("directories", directory, required=True)


def _project(settings: Settings) -> Iterator["Source"]:
    from workflowlookup.library.directory import DirectorySource  # noqa: PLC0415

    try:
        os.getcwd()
    except OSError:  # the working directory was deleted
        return
    if settings.project:
        yield DirectorySource("project", PROJECT_DIRECTORY)


SOURCES: Final[tuple[Callable[[Settings], Iterator["Source"]], ...]] = (_bundled, _user, _configured, _project)
"""By precedence: the same id in a later source shadows the earlier one."""


def make_catalog(settings: Settings) -> "Catalog":
    """The library as the settings have it."""
    from workflowlookup.library.catalog import Catalog  # noqa: PLC0415

    sources: dict[str, Source] = {}
    for make in SOURCES:
        for source in make(settings):
            sources.pop(source.root, None)  # named twice: the later place counts
            sources[source.root] = source
    return Catalog(list(sources.values()))


def make_connection(settings: Settings) -> "Connection":
    """A server for one client; the library is opened with the first request that needs it."""
    from workflowlookup.protocol.connection import Connection, Surface  # noqa: PLC0415

    def make_services() -> "Services":
        from workflowlookup.tools.registry import Services  # noqa: PLC0415

        return Services(catalog=make_catalog(settings))

    return Connection(Surface(make_services))


def serve_stdio(settings: Settings) -> int:
    """Serve standard input and output until the client is done; the exit code."""
    from workflowlookup.transport.stdio import Stdio, divert  # noqa: PLC0415

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler can miss one that comes just before a read
    wire_in, wire_out = divert()
    return Stdio(make_connection(settings), wire_in, wire_out, settings.max_message_bytes).run()
