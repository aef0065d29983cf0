"""The composition root: builds servers, catalogs, journals and services from settings."""

import contextlib
import functools
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from workflowlookup.repository import (
    SESSION_VARIABLE,
    find_above,
    find_project,
    find_root_of_run,
    is_inside,
    names_root,
)
from workflowlookup.settings import Live, Settings, plan_of
from workflowlookup.store.journal_url import JournalUrl

if TYPE_CHECKING:
    import socket

    from workflowlookup.console.app import LocalConsole
    from workflowlookup.execution.proof_runner import ProofRunner
    from workflowlookup.execution.service import Execution
    from workflowlookup.library.catalog import Catalog, CatalogEntry, Source
    from workflowlookup.people.store import PeopleStore
    from workflowlookup.protocol.connection import Connection
    from workflowlookup.runs.draft import Location
    from workflowlookup.runs.run import Run
    from workflowlookup.store.journal import Journal
    from workflowlookup.store.pool import JournalPool
    from workflowlookup.store.replica_bus import ReplicaBus
    from workflowlookup.store.service import Runs
    from workflowlookup.store.tokens import Tokens
    from workflowlookup.tools.contract import ServerServices
    from workflowlookup.tools.dynamic import DynamicTools
    from workflowlookup.trust import Consent

USER_DIRECTORY: Final = "~/.workflowlookup/workflows"
REFRESH: Final = "refresh"
"""Topic on the replica bus: read the settings again, and ask the providers for their workflows."""
TOOLS_NAMED: Final = "tools-named"
"""Topic on the replica bus: tools have new names in the journal."""
BUNDLED: Final = "bundled"
PROJECT: Final = "project"
PROJECT_DIRECTORY: Final = os.path.join(".workflowlookup", "workflows")


def _directory(name: str, root: str, *, required: bool = False) -> "Source":
    from workflowlookup.library.directory import DirectorySource  # noqa: PLC0415 - nothing is read before it is needed

    return DirectorySource(name, root, required=required)


def _bundled(settings: Settings, _: "Sequence[str]") -> Iterator["Source"]:
    if settings.bundled:
        yield _directory(BUNDLED, os.path.join(os.path.dirname(__file__), "bundled"))


def _user(settings: Settings, _: "Sequence[str]") -> Iterator["Source"]:
    if settings.user:
        yield _directory("user", os.path.expanduser(USER_DIRECTORY))


def _configured(settings: Settings, _: "Sequence[str]") -> Iterator["Source"]:
    for directory in settings.directories:
        yield _directory("directories", directory, required=True)


def _project(settings: Settings, client_roots: "Sequence[str]") -> Iterator["Source"]:
    root, _ = find_root_of_library(settings, client_roots)
    if settings.project and root:
        yield _directory(PROJECT, find_above(PROJECT_DIRECTORY, root, settings.directory))


def _from_git(settings: Settings, _: "Sequence[str]") -> Iterator["Source"]:
    for name, configured in settings.sources.items():
        from workflowlookup.library.locked import LockedSource  # noqa: PLC0415 - as above

        yield LockedSource(name, configured.source, configured.lock_file, settings.cache_directory)


SOURCES: Final[tuple[Callable[[Settings, Sequence[str]], Iterator["Source"]], ...]] = (
    _bundled,
    _from_git,
    _user,
    _configured,
    _project,
)
"""Each gets the settings and the roots of the client. A later source shadows the ids of those before it: what the user
wrote counts before what others did."""


def find_root_of_library(settings: Settings, client_roots: "Sequence[str]" = ()) -> tuple[str, str]:
    """The project directory whose workflows are offered, and how it was determined, as `find_root_of_run`. A server
    over HTTP has that around its working directory.
    """
    if settings.http:
        root, source = find_root_of_run("", {}, settings.directory)
    else:
        root, source = find_root_of_run(settings.root, os.environ, settings.directory, client_roots)
    if source in ("git", "directory"):
        try:
            os.getcwd()
        except OSError:  # the working directory was deleted
            return "", ""
    return root, source


def make_sources(settings: Settings, client_roots: "Sequence[str]" = ()) -> "list[Source]":
    """Where the documents of the library come from. `client_roots` are the directories in which the client works."""
    sources: dict[str, Source] = {}
    for make in SOURCES:
        for source in make(settings, client_roots):
            sources.pop(source.root, None)  # a directory that is named twice counts once, at the later position
            sources[source.root] = source
    return list(sources.values())


def make_catalog(
    settings: Settings, *, client_roots: Callable[[], "Sequence[str]"] = tuple, is_server: bool = False
) -> "Catalog":
    """The library of these settings. A server reads a large library in slices, over several requests."""
    from workflowlookup.library.catalog import READ_SECONDS, Catalog  # noqa: PLC0415

    def origin_of_entry(entry: "CatalogEntry") -> str:
        if entry.source == BUNDLED:
            return ""
        path = entry.file.path
        if entry.source == PROJECT and find_project(find_root_of_library(settings, client_roots())[0]).brings(path):
            return os.path.realpath(path)
        return origin_of(path, settings)

    return Catalog(
        make_sources(settings, client_roots()),
        origin_of=origin_of_entry,
        read_seconds=READ_SECONDS if is_server else math.inf,
    )


def origin_of(path: str, settings: Settings) -> str:
    """The real path of a document that the project brings, or the path that stands for one from git in each of its
    commits; empty for the user's own.
    """
    if is_inside(path, settings.cache_directory):
        from workflowlookup.library.git_source import origin_in_cache  # noqa: PLC0415 - only for what is from git

        return origin_in_cache(path, settings.cache_directory)
    return os.path.realpath(path) if settings.enclosing_project.brings(path) else ""


def disagreements(settings: Settings) -> list[str]:
    """Where the sources in the settings, the lock files and the cache do not agree, as sentences."""
    from workflowlookup.errors import StorageError  # noqa: PLC0415 - only where this is asked
    from workflowlookup.library.git_source import LOCK_NAME  # noqa: PLC0415
    from workflowlookup.library.locked import LockedSource, faults, read_lock  # noqa: PLC0415

    unusable = {entry: why for entry, why in settings.left_out.items() if entry.partition(".")[0] == "sources"}
    problems = [f"[{entry}] cannot be used: {why}." for entry, why in unusable.items()]
    for source in _from_git(settings, ()):
        assert isinstance(source, LockedSource)
        problems += [str(fault) for fault in faults(source)]
    for directory in dict.fromkeys(os.path.dirname(file) for file in settings.candidates if file):
        lock = os.path.join(directory, LOCK_NAME)
        try:
            names = read_lock(lock).sources.keys() - settings.sources.keys()
        except StorageError as problem:
            problems.append(str(problem))
        else:
            problems += [f"{lock} has the source '{name}', and the settings do not." for name in sorted(names)]
    return list(dict.fromkeys(problems))


def refuse_disagreement(settings: Settings) -> None:
    """Raises `NotAsLocked` where `frozen` does not allow what `disagreements` has."""
    from workflowlookup.errors import NotAsLocked  # noqa: PLC0415 - only if it is wanted

    if problems := disagreements(settings):
        more = f" And {len(problems) - 5} more." if len(problems) > 5 else ""
        raise NotAsLocked(
            f"frozen is set, and the library is not as it was locked: {' '.join(problems[:5])}{more}",
            "Run the command that helps without frozen.",
        )


def make_journal(settings: Settings) -> "Journal":
    """The journal of the settings. It is opened at first use."""
    return JournalUrl(settings.journal).open(settings.journal_timeout_seconds)


def make_journal_pool(settings: Settings) -> "JournalPool":
    """The same journal for a server on an event loop, which a slow journal must not block."""
    from workflowlookup.store.pool import JournalPool  # noqa: PLC0415

    return JournalPool(functools.partial(make_journal, settings), settings.journal_timeout_seconds)


def make_runs(  # noqa: PLR0913 - what they depend on
    settings: Settings,
    consent: "Consent | None" = None,
    journal: "Journal | None" = None,
    *,
    people: "PeopleStore | None" = None,
    began: int | None = None,
    client_roots: Callable[[], Sequence[str]] = tuple,
) -> "Runs":
    """The runs in the journal of the settings, or in this journal if it is open already. `began`: see `Runs`."""
    from workflowlookup.store.service import Runs  # noqa: PLC0415

    return Runs(
        journal or make_journal(settings),
        consent=consent or make_consent(lambda: settings),
        locate=lambda: locate_run(settings, client_roots()),
        people=people or make_people(settings),
        began=began,
    )


def make_people(settings: Settings) -> "PeopleStore":
    """The people who can sign answers. Their file is beside the one with what the user has trusted."""
    from workflowlookup.people.store import PeopleStore  # noqa: PLC0415 - with the first run

    problem = settings.trust.problem.replace("nothing is trusted", "nobody is known")
    directory = settings.config_directory if settings.trust.path else ""
    return PeopleStore(directory, settings.person_confirmation, problem or "This account has no home directory.")


def locate_run(settings: Settings, client_roots: "Sequence[str]" = ()) -> "Location":
    """Where a run of this process starts. A server over HTTP cannot see the files of its clients."""
    from workflowlookup.execution.proof_runner import machine_id  # noqa: PLC0415 - with the first run
    from workflowlookup.runs.draft import NOWHERE, Location  # noqa: PLC0415

    if settings.http:
        return NOWHERE
    root, source = find_root_of_run(settings.root, os.environ, settings.directory, client_roots)
    session = os.environ.get(SESSION_VARIABLE, "")
    return Location(root=root, root_source=source, machine=machine_id(), client_session=session)


def commands_of(settings: Settings, root: str) -> "Mapping[str, Sequence[str]]":
    """The commands of the project at this root, as its settings and the user's trust are now."""
    project = _settings_of(settings, root)
    return project.commands if project is not None else {}


def _settings_of(settings: Settings, root: str) -> Settings | None:
    """The settings of the project at this root, as they are now; None if they cannot be used."""
    from workflowlookup.settings import SettingsError, read_settings  # noqa: PLC0415 - with the first proof

    try:
        if find_root_of_run(settings.root, os.environ, settings.directory)[0] == root and settings.reload is not None:
            return settings.reload()
        return read_settings({}, os.environ, directory=root)
    except SettingsError as problem:
        logging.getLogger(__name__).warning("the commands of %s cannot be used: %s", root, problem)
        return None


def make_consent(current: Callable[[], Settings]) -> "Consent":
    """What repositories may do, given what the user has trusted and the current settings.

    Revoked entries are ignored at once, even before the settings are read again.
    """
    from workflowlookup.trust import SOURCE, Consent, TrustEntry  # noqa: PLC0415

    store = current().trust.store()

    def ignored() -> tuple[TrustEntry, ...]:
        settings = current()
        return tuple(
            entry
            for entry in settings.from_repository
            if entry.kind != SOURCE and (entry in settings.ignored or not store.has_record(entry))
        )

    def systems() -> frozenset[str]:
        settings = current()
        revoked = {entry.name for entry in ignored() if entry not in settings.ignored}
        return frozenset((*settings.servers, *settings.providers)) - revoked

    return Consent(store, ignored, systems)


def make_tokens(settings: Settings, journal: "Journal | None" = None) -> "Tokens":
    """The access tokens, which are stored in the journal."""
    from workflowlookup.store.tokens import TOKENS_REQUIRED_FILE, RequiredTokens, Tokens  # noqa: PLC0415

    directory = settings.config_directory
    required = RequiredTokens(os.path.join(directory, TOKENS_REQUIRED_FILE) if directory else "")
    return Tokens(journal or make_journal(settings), required=required)


def make_replica_bus(
    settings: Settings, wake: Callable[[], None], journal: "Journal | None" = None
) -> "ReplicaBus | None":
    """The messages between the servers of one journal; None for a kind of journal that has no replicas."""
    if not JournalUrl(settings.journal).kind.has_replicas:
        return None
    from workflowlookup.store.replica_bus import ReplicaBus  # noqa: PLC0415 - only where there are replicas

    return ReplicaBus(functools.partial(make_journal, settings), wake, journal)


def _no_transport() -> None:
    """Replaces `Waker.wake` where no transport waits."""


def make_execution(
    settings: Settings,
    wake: Callable[[], None] = _no_transport,
    current: Callable[[], Settings] | None = None,
    *,
    is_guest: bool = False,
) -> "Execution":
    """The execution of calls. Its thread is started with the first call. A guest drives only the runs that it started.

    `current` returns the current settings, if they may change.
    """
    from workflowlookup.execution.service import Execution  # noqa: PLC0415

    runs = functools.partial(make_runs, settings)
    get_settings = current or (lambda: settings)

    def make_proofs(consent: "Consent") -> "ProofRunner":
        from workflowlookup.execution.proof_runner import ProofRunner, machine_id  # noqa: PLC0415 - on its thread

        return ProofRunner(
            lambda root: commands_of(get_settings(), root),
            lambda: get_settings().proof_hosts,
            consent,
            machine_id(),
            lambda: get_settings().witness_seconds,
            ignored=lambda root: project.ignored if (project := _settings_of(get_settings(), root)) else (),
        )

    consent = functools.partial(make_consent, get_settings)
    return Execution(
        plan_of(settings), runs, settings.journal, wake, consent, make_proofs=make_proofs, is_guest=is_guest
    )


def make_services(  # noqa: PLR0913 - what a server is made of
    settings: Settings,
    wake: Callable[[], None] = _no_transport,
    live: Live | None = None,
    replica_bus: "ReplicaBus | None" = None,
    journal: "Journal | None" = None,
    *,
    client_roots: Callable[[], Sequence[str]] = tuple,
) -> "ServerServices":
    """The services that tools use. `wake` wakes the transport, from any thread, when there may be messages to send.

    A server passes `live`, its current settings. Without it these are the services of a command, which leaves the calls
    of runs to a server. `replica_bus` connects the servers of one database; `journal` is used if it is open already.
    `client_roots` are the directories in which the client of a server works.
    """
    from workflowlookup.tools.contract import ServerServices  # noqa: PLC0415

    is_server = live is not None
    now = live or Live(settings)
    parts = _Parts(settings, wake, now, replica_bus, journal, client_roots=client_roots, is_server=is_server)
    parts.services = ServerServices(
        catalog=make_catalog(settings, client_roots=client_roots, is_server=is_server),
        open_runs=lambda: parts.runs,
        open_execution=lambda: parts.execution,
        open_workflows=lambda: parts.workflows,
        open_consent=lambda: parts.consent,
        confirmation=settings.confirmation,
        person_confirmation=settings.person_confirmation,
        open_people=lambda: parts.people,
        reload=parts.reload,
        question_secret=parts.question_secret,
        refresh=parts.refresh,
        start_background=parts.start_background,
        close=parts.close,
    )
    return parts.services


class _Parts:
    """The parts of a server that are created at first use: the runs, the execution of calls, the workflow tools.

    Execution follows what is stored in the journal, and all parts follow changes of the settings.
    """

    services: "ServerServices"

    def __init__(  # noqa: PLR0913 - what a server is made of
        self,
        settings: Settings,
        wake: Callable[[], None],
        live: Live,
        replica_bus: "ReplicaBus | None",
        journal: "Journal | None",
        *,
        client_roots: Callable[[], Sequence[str]],
        is_server: bool,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._client_roots = client_roots
        self._replica_bus = replica_bus
        self._is_server = is_server
        self._live = live
        self._wake = wake
        self._began = time.time_ns() // 1_000_000

    @functools.cached_property
    def runs(self) -> "Runs":
        runs = make_runs(
            self._settings,
            self.consent,
            self._journal,
            people=self.people,
            began=self._began,
            client_roots=self._client_roots,
        )
        if self._is_server:
            runs.listeners.append(self._follow)
        return runs

    @functools.cached_property
    def people(self) -> "PeopleStore":
        return make_people(self._settings)

    @functools.cached_property
    def consent(self) -> "Consent":
        return make_consent(lambda: self._live.settings)

    @functools.cached_property
    def execution(self) -> "Execution":
        live = self._live
        return make_execution(live.settings, self._wake, lambda: live.settings, is_guest=not self._is_server)

    @functools.cached_property
    def workflows(self) -> "DynamicTools":
        from workflowlookup.tools.dynamic import DynamicTools  # noqa: PLC0415 - with the first list of tools

        return DynamicTools(
            self.services,
            plan_of(self._live.settings),
            poll_settings=self._poll_settings,
            on_names_stored=functools.partial(self._announce, TOOLS_NAMED),
        )

    def question_secret(self) -> str:
        """The secret that all servers of this journal share; one of this process while the journal cannot be used."""
        from workflowlookup.errors import StorageError  # noqa: PLC0415 - with the first of it
        from workflowlookup.tools.contract import PROCESS_SECRET  # noqa: PLC0415

        try:
            return self._shared_secret
        except StorageError:
            return PROCESS_SECRET

    @functools.cached_property
    def _shared_secret(self) -> str:
        return self.runs.journal.shared_secret("questions", os.urandom(32).hex())

    def reload(self) -> None:
        """Read the settings now, here and in the other servers of this journal."""
        self._poll_settings(force=True)
        self._announce(REFRESH)

    def refresh(self) -> None:
        """Read the settings now, and ask every provider for its workflows."""
        self.reload()
        self._ask_providers()

    def _ask_providers(self) -> None:
        plan = plan_of(self._live.settings)
        if plan.is_on and plan.providers:
            self.execution.refresh()

    def _announce(self, topic: str) -> None:
        from workflowlookup.errors import StorageError  # noqa: PLC0415 - with the first of it

        if self._replica_bus is not None:
            try:
                self._replica_bus.announce(topic)
            except StorageError as problem:
                logging.getLogger(__name__).warning("could not notify the other servers (%s): %s", topic, problem)

    def _on_message(self, topic: str, _: str) -> None:
        """Handle a message of another server."""
        from workflowlookup.store.replica_bus import MISSED  # noqa: PLC0415 - loaded with them

        if topic in (REFRESH, MISSED):
            self._poll_settings(force=True)
            self._ask_providers()
        if topic in (TOOLS_NAMED, MISSED):
            self.workflows.forget_names()

    def _poll_settings(self, *, force: bool = False) -> None:
        if self._replica_bus is not None and not force:
            self._replica_bus.poll()
        new = self._live.poll(force=force)
        if new is None:
            return
        plan = plan_of(new)
        self.execution.apply(plan)
        self.workflows.apply(plan)

    def _follow(self, _: str, run: "Run | None") -> None:
        if run is not None and (run.needs_server or run.ended_at_proofs):
            self.execution.follow(run)

    def start_background(self) -> None:
        if self._replica_bus is not None:
            self._replica_bus.listeners.append(self._on_message)
            self._replica_bus.start()
        self.execution.recover()

    def close(self) -> None:
        if self._replica_bus is not None:
            self._replica_bus.close()
        if "execution" in self.__dict__:
            self.execution.close()
        if "runs" in self.__dict__:
            self.runs.close()


def make_connection(settings: Settings, wake: Callable[[], None] = _no_transport) -> "Connection":
    """A server for one client. The library is opened with the first request that needs it."""
    from workflowlookup.protocol.backend import ServerBackend  # noqa: PLC0415
    from workflowlookup.protocol.connection import Connection  # noqa: PLC0415

    live = Live(settings)
    client_roots: list[str] = []
    made: list[ServerServices] = []

    def set_roots(paths: "Sequence[str]") -> None:
        client_roots[:] = paths
        for services in made:
            services.catalog.replace_sources(make_sources(settings, paths))

    def make() -> "ServerServices":
        bus = make_replica_bus(settings, wake)
        made.append(make_services(settings, wake, live, bus, client_roots=lambda: client_roots))
        return made[-1]

    return Connection(
        ServerBackend(make, announces_changes=lambda: live.settings.workflow_tools),
        None if names_root(settings.root, os.environ) else set_roots,
    )


def make_console(settings: Settings, *, person: str, port: int, is_agent: bool = False) -> "LocalConsole":
    """The console for the user of this machine, with services of its own. With `is_agent` it cannot answer questions
    to a person.
    """
    from workflowlookup.console.app import LocalConsole  # noqa: PLC0415

    journal = JournalUrl(settings.journal).shown
    return LocalConsole(make_services(settings), person=person, journal=journal, port=port, is_agent=is_agent)


@contextlib.contextmanager
def notifying(settings: Settings) -> Iterator[None]:
    """Send notices meanwhile, if the settings name recipients."""
    if not settings.notify:
        yield
        return
    from workflowlookup.notices.notifier import Notifier  # noqa: PLC0415 - most people have no recipients
    from workflowlookup.store.journal import now  # noqa: PLC0415

    notifier = Notifier(make_runs(settings), settings.notify, public_url=settings.public_url, clock=now)
    notifier.start()
    try:
        yield
    finally:
        notifier.close()


def serve_console(console: "LocalConsole", listener: "socket.socket", settings: Settings) -> None:
    """Serve a console until a signal stops the process. Calls of runs are executed meanwhile."""
    from workflowlookup.transport.http.server import run_pages  # noqa: PLC0415

    console.services.start_background()
    try:
        with notifying(settings):
            run_pages(console.app, listener, end_streams=console.streams.close)
    finally:
        console.services.close()


def serve_stdio(settings: Settings) -> int:
    """Serve standard input and output until the client closes them. Returns the exit code."""
    from workflowlookup.transport.signals import END_SECONDS, Waker, Watchdog  # noqa: PLC0415
    from workflowlookup.transport.stdio import INTERRUPT_SIGNAL, Stdio, redirect_stdio  # noqa: PLC0415

    wire = redirect_stdio()  # first: a file opened earlier could get the number of a closed standard descriptor
    waker = Waker()
    connection = make_connection(settings, waker.wake)
    server = Stdio(connection, wire, settings.max_message_bytes, waker, drain_seconds=settings.drain_seconds)
    watchdog = Watchdog(
        settings.drain_seconds + END_SECONDS,
        stop=server.stop,
        reload=server.reload,
        progress=lambda: server.progress,
        input_descriptor=wire[0],
    )
    server.on_end = watchdog.end_input
    signal.signal(INTERRUPT_SIGNAL, server.interrupt)
    watchdog.start()
    with notifying(settings):
        code = server.run()
    watchdog.finish()
    return code
