"""The composition root: settings in, a server or a catalog out."""

import functools
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from workflowlookup.settings import Settings, without_password

if TYPE_CHECKING:
    from workflowlookup.console.local import Local
    from workflowlookup.library.catalog import Catalog, Source
    from workflowlookup.protocol.connection import Connection
    from workflowlookup.runs.journal import Journal
    from workflowlookup.runs.service import Runs
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


def _sqlite(place: str) -> "Journal":
    from workflowlookup.runs.sqlite import SqliteJournal  # noqa: PLC0415

    return SqliteJournal(place)


def _postgres(place: str) -> "Journal":
    from workflowlookup.runs.postgres import PostgresJournal  # noqa: PLC0415

    return PostgresJournal(place)


JOURNALS: Final[Mapping[str, Callable[[str], "Journal"]]] = {
    "": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
}
"""By the scheme of the setting `journal`; a path has none."""


def make_runs(settings: Settings) -> "Runs":
    """The runs where the settings say; the journal is opened with the first question."""
    from workflowlookup.runs.service import Runs  # noqa: PLC0415

    scheme = settings.journal.partition("://")[0] if "://" in settings.journal else ""
    return Runs(JOURNALS[scheme](settings.journal))


def make_services(settings: Settings) -> "Services":
    """What the tools need."""
    from workflowlookup.tools.registry import Services  # noqa: PLC0415

    return Services(
        catalog=make_catalog(settings),
        open_runs=functools.cache(functools.partial(make_runs, settings)),
        confirmation=settings.confirmation,
    )


def make_connection(settings: Settings) -> "Connection":
    """A server for one client; the library is opened with the first request that needs it."""
    from workflowlookup.protocol.connection import Connection, Surface  # noqa: PLC0415

    return Connection(Surface(lambda: make_services(settings)))


def make_console(settings: Settings, *, person: str, port: int) -> "Local":
    """The console for the person at this machine, with a library and runs of its own."""
    from workflowlookup.console.local import Local  # noqa: PLC0415

    journal = without_password(settings.journal)
    return Local(make_catalog(settings), make_runs(settings), person=person, journal=journal, port=port)


def serve_stdio(settings: Settings) -> int:
    """Serve standard input and output until the client is done; the exit code."""
    from workflowlookup.transport.stdio import Stdio, divert  # noqa: PLC0415

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler can miss one that comes just before a read
    wire_in, wire_out = divert()
    return Stdio(make_connection(settings), wire_in, wire_out, settings.max_message_bytes).run()
