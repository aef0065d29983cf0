"""The checks of `workflowlookup doctor`.

`examine` returns a `Report` with the state of the installation, and with `problems`, each with its remedy.
"""

import argparse
import contextlib
import itertools
import logging
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from workflowlookup import __version__, extras
from workflowlookup.app import (
    commands_of,
    find_root_of_library,
    locate_run,
    make_catalog,
    make_consent,
    make_journal,
    make_people,
)
from workflowlookup.cli.checkup_tools import MAX_SHOWN, Problem, ReportPart, ToolsReport, examine_tools, tools_problems
from workflowlookup.cli.clients import CLIENTS, SERVER_NAME, Client, server_command, typed_program, words_of
from workflowlookup.cli.configuration import NotReadable, read_text, servers
from workflowlookup.cli.output import shown_path
from workflowlookup.cli.services import has_journal
from workflowlookup.errors import MissingExtra, NotAsLocked, StorageError
from workflowlookup.language.text import first_few, joined
from workflowlookup.library.catalog import Catalog, CatalogEntry
from workflowlookup.library.git_source import PREFIX
from workflowlookup.people.store import PeopleStore
from workflowlookup.settings import SETTINGS, Settings, needed_extras
from workflowlookup.store.journal import DamagedJournal, Journal
from workflowlookup.store.journal_url import without_password
from workflowlookup.store.service import Runs
from workflowlookup.trust import how_to_trust

TIMEOUT_SECONDS: Final = 30.0
"""Time limit of the self-test."""
READ_SECONDS: Final = 10.0
"""How long runs are read, the last started first, to find damaged ones."""


class SourceState(ReportPart, frozen=True, kw_only=True):
    """A directory with workflows."""

    name: str
    directory: str
    exists: bool
    workflows: int
    problems: int


class Shadow(ReportPart, frozen=True, kw_only=True):
    """A workflow that is hidden by another with the same id."""

    id: str
    hidden: str
    by: str
    is_mistake: bool
    """Whether both are in one source. In different sources, hiding is intended: a project has its own version."""


class SettingState(ReportPart, frozen=True, kw_only=True):
    """A setting in force, and where it came from."""

    name: str
    value: Any
    origin: str


class ProjectState(ReportPart, frozen=True, kw_only=True):
    """The project directory in which proofs are taken, how it was determined, and the commands that proofs can use."""

    root: str
    exists: bool
    source: str
    library_root: str
    """The project directory whose workflows are offered: the same, except over HTTP."""
    library_source: str
    commands: dict[str, tuple[str, ...]]


class ClientEntry(ReportPart, frozen=True, kw_only=True):
    """An entry for this server in a client's configuration, and whether its command exists."""

    name: str
    command: str
    is_found: bool
    is_cached: bool
    """Whether the command is in the cache of uv, which may delete it at any time."""


class ClientState(ReportPart, frozen=True, kw_only=True):
    """A client's configuration file."""

    client: str
    scope: str
    file: str
    exists: bool
    entries: tuple[ClientEntry, ...] = ()
    error: str = ""


class SelfTest(ReportPart, frozen=True, kw_only=True):
    """The result of starting a real server."""

    command: str
    milliseconds: int
    workflows: int | None = None
    error: str = ""


class PersonState(ReportPart, frozen=True, kw_only=True):
    """A key of a person who can sign answers."""

    person: str
    kind: str
    key: str
    added: int
    """In milliseconds since 1970."""
    signed_for_by: str = ""
    """Empty for the first key."""
    removed: int = 0


class Report(ReportPart, frozen=True, kw_only=True):
    """The whole report."""

    version: str
    python: str
    installed_in: str
    extras: tuple[str, ...]
    sources: tuple[SourceState, ...]
    shadowed: tuple[Shadow, ...]
    settings: tuple[SettingState, ...]
    project: ProjectState
    tools: ToolsReport
    people: tuple[PersonState, ...]
    clients: tuple[ClientState, ...]
    self_test: SelfTest
    problems: tuple[Problem, ...]


def examine(options: argparse.Namespace, settings: Settings) -> Report:
    """Run all checks. `options` are the flags for the self-test."""
    logging.getLogger("workflowlookup").setLevel(logging.ERROR)  # the report has what would be logged
    catalog = make_catalog(settings)
    shadowed = tuple(_shadows(catalog))
    tools = examine_tools(settings, catalog)
    people = make_people(settings)
    clients = tuple(_clients())
    journal_problems, self_test = _try_journal_and_server(options, settings)
    return Report(
        version=__version__,
        python=f"{sys.version.split()[0]} ({shown_path(sys.executable)})",
        installed_in=shown_path(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
        extras=tuple(extras.installed()),
        sources=tuple(_sources(catalog)),
        shadowed=shadowed,
        settings=tuple(_settings(settings)),
        project=_project(settings),
        tools=tools,
        people=tuple(_people(people)),
        clients=clients,
        self_test=self_test,
        problems=(
            *_settings_problems(options),
            *_extras_problems(catalog, settings),
            *_trust_problems(catalog, settings),
            *_people_problems(people),
            *journal_problems,
            *_library_problems(catalog, settings),
            *_shadow_problems(shadowed),
            *tools_problems(tools, settings),
            *_client_problems(clients),
            *_test_problems(self_test),
        ),
    )


def _try_journal_and_server(options: argparse.Namespace, settings: Settings) -> tuple[tuple[Problem, ...], SelfTest]:
    """Check the journal before a server opens it, and again if that server has set it aside."""
    try:
        journal = make_journal(settings)
    except MissingExtra:
        return (), _self_test(server_command(options))
    with contextlib.closing(journal):
        damaged = journal.damaged_journals()
        problems = tuple(_journal_problems(journal, settings, damaged))
        checked = journal.damaged_journals()
        self_test = _self_test(server_command(options))
        if journal.damaged_journals() == checked:
            problems = (*problems, *(() if problems else _damaged_runs(journal, settings)))
        else:
            *others, newest = _journal_problems(journal, settings, damaged)
            damage = [one.problem for one in problems if one not in others]
            problems = (*others, msgspec.structs.replace(newest, problem=" ".join((*damage, newest.problem))))
    return problems, self_test


def _settings_problems(options: argparse.Namespace) -> Iterator[Problem]:
    """A setting that could not be used. The rest of the report is for the default settings."""
    problem = getattr(options, "settings_problem", None)
    if problem:
        yield Problem(problem=problem, remedy="Fix or remove the setting. Until then the server does not start.")


def _extras_problems(catalog: Catalog, settings: Settings) -> Iterator[Problem]:
    """The extras that are needed but not installed."""
    needed = needed_extras(settings)
    callers = [f"the workflow '{workflow.id}'" for workflow in catalog.workflows() if workflow.has_calls]
    if callers:
        needed[extras.CALLS] = [*needed.get(extras.CALLS, ()), *callers]
    missing = [extra for extra in needed if extras.is_missing(extra)]
    for extra in missing:
        names = first_few(needed[extra], MAX_SHOWN)
        yield Problem(
            problem=f"{extras.explain_missing(extra)} It is needed by: {names}.",
            remedy=extras.how_to_install(*missing),
        )


def _trust_problems(catalog: Catalog, settings: Settings) -> Iterator[Problem]:
    """Faults in the project's settings, and untrusted entries of a repository."""
    for fault in settings.faults:
        yield Problem(problem=f"{fault}. It is ignored.", remedy="Fix or remove it in the settings of the project.")
    consent = make_consent(lambda: settings)
    entries = consent.untrusted_in(catalog.workflows())
    if entries and (fault := consent.store.fault()):
        yield Problem(problem=f"{fault}.", remedy="Look at the file; remove it to start over.")
    for entry in entries:
        yield Problem(
            problem=f"{shown_path(entry.file)}: {entry} is ignored, because it is not trusted.",
            remedy=how_to_trust([shown_path(entry.file)]),
        )


def _people(people: PeopleStore) -> Iterator[PersonState]:
    for key in people.all_keys().values():
        signer = key.endorsement.person if key.endorsement else ""
        yield PersonState(
            person=key.person, kind=key.method, key=key.id, added=key.added, signed_for_by=signer, removed=key.removed
        )


def _people_problems(people: PeopleStore) -> Iterator[Problem]:
    people.all_keys()  # reads the file
    if people.path and people.problem:
        yield Problem(
            problem=f"{people.problem}.", remedy=f"Look at {shown_path(people.path)}; delete it to start over."
        )


def _journal_problems(journal: Journal, settings: Settings, damaged: Sequence[DamagedJournal]) -> Iterator[Problem]:
    """What is wrong with the journal. Does not create one."""
    origin = shown_path(settings.origins["journal"])
    for problem, remedy in journal.faults(damaged):
        yield Problem(problem=problem, remedy=f"{remedy} The setting journal is from {origin}.")


def _damaged_runs(journal: Journal, settings: Settings) -> Iterator[Problem]:
    """Runs that cannot be read, or were changed after they were written; as many as are found in `READ_SECONDS`."""
    if not has_journal(settings):
        return
    damaged = Runs(journal, people=make_people(settings)).damaged_runs(time.monotonic() + READ_SECONDS)
    with contextlib.suppress(StorageError):  # the journal worked a moment ago; `faults` reports it the next time
        for summary, problem in itertools.islice(damaged, MAX_SHOWN):
            advice = "Compare it with an export or a backup; `workflowlookup purge --damaged` deletes it."
            yield Problem(
                problem=f"{problem} Its workflow is '{summary.workflow_id}', and it cannot go on.", remedy=advice
            )


# ── the library and its settings ────────────────────────────────────────────────────────────────────────────────


def _sources(catalog: Catalog) -> Iterator[SourceState]:
    for source in catalog.sources:
        listing = catalog.listing(source)
        sound = sum(file.refusal is None for file in listing.files.values())
        yield SourceState(
            name=source.name,
            directory=shown_path(listing.provenance or source.root),
            exists=bool(listing.provenance) or os.path.isdir(source.root),
            workflows=sound,
            problems=len(listing.files) - sound + bool(listing.refusal),
        )


def _shadows(catalog: Catalog) -> Iterator[Shadow]:
    for hidden, winner in catalog.snapshot().shadowed:
        yield Shadow(
            id=hidden.file.id,
            hidden=_where(hidden),
            by=_where(winner),
            is_mistake=hidden.root == winner.root,
        )


def _where(entry: CatalogEntry) -> str:
    return shown_path(entry.location if entry.provenance else entry.file.path)


def _settings(settings: Settings) -> Iterator[SettingState]:
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        yield SettingState(
            name=setting.name,
            value=[shown_path(part) for part in value] if isinstance(value, tuple) else _shown(value),
            origin=shown_path(settings.origins[setting.name]),
        )


def _project(settings: Settings) -> ProjectState:
    location = locate_run(settings)
    root = location.root
    commands = {name: tuple(words) for name, words in commands_of(settings, root).items()} if root else {}
    exists = os.path.isdir(root)
    library_root, library_source = find_root_of_library(settings)
    return ProjectState(
        root=shown_path(root),
        exists=exists,
        source=location.root_source,
        library_root=shown_path(library_root),
        library_source=library_source,
        commands=commands,
    )


def _shown(value: object) -> object:
    return shown_path(without_password(value)) if isinstance(value, str) else value


def _library_problems(catalog: Catalog, settings: Settings) -> Iterator[Problem]:
    for source in catalog.sources:
        refusal = catalog.listing(source).refusal
        if isinstance(refusal, NotAsLocked):
            yield Problem(problem=refusal.problem, remedy=refusal.fix)
        elif refusal and source.name.startswith(PREFIX):
            yield Problem(problem=refusal.remedy, remedy="Until then this source is left out, and the others are used.")
        elif refusal:
            origin = settings.origins.get(source.name, "the settings")
            fix = "Make it readable" if os.path.isdir(source.root) else "Create it"
            yield Problem(problem=refusal.remedy, remedy=f"{fix}, or remove it from {origin}.")
    for document in catalog.snapshot().problems:
        if isinstance(document.file.refusal, NotAsLocked):
            yield Problem(problem=document.file.refusal.problem, remedy=document.file.refusal.fix)
            continue
        yield Problem(
            problem=joined(str(document.file.refusal)),
            remedy=f"See what is wrong with it: {command('validate', shown_path(document.file.path))}",
        )


def _shadow_problems(shadowed: Sequence[Shadow]) -> Iterator[Problem]:
    for shadow in shadowed:
        if shadow.is_mistake:
            yield Problem(
                problem=f"{shadow.hidden} and {shadow.by} have the same id '{shadow.id}'; only the second is used.",
                remedy="Give one of them another id.",
            )


# ── clients ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _clients() -> Iterator[ClientState]:
    files: set[str] = set()
    for name, client in CLIENTS.items():
        for scope in client.files:
            state = _client(name, scope)
            if state.file not in files:  # in the home directory, both scopes may be one file
                yield state
            files.add(state.file)


def _client(name: str, scope: str) -> ClientState:
    client = CLIENTS[name]
    file = client.file(scope)
    state = ClientState(client=name, scope=scope, file=shown_path(file), exists=os.path.exists(file))
    try:
        return msgspec.structs.replace(state, entries=tuple(_our_entries(client, file)))
    except (NotReadable, StorageError) as problem:
        return msgspec.structs.replace(state, error=str(problem).rstrip("."))


def _our_entries(client: Client, file: str) -> Iterator[ClientEntry]:
    """The entries for this server, by their name or their command."""
    for name, entry in servers(read_text(file) or "", file, client.section).items():
        words = words_of(entry)
        if name == SERVER_NAME or any(os.path.basename(word).startswith(SERVER_NAME) for word in words):
            is_cached = any(map(extras.is_in_cache, words))
            yield ClientEntry(name=name, command=shlex.join(words), is_found=_exists(words), is_cached=is_cached)


def _exists(words: Sequence[str]) -> bool:
    """Whether the program exists, and the clone or file that `--from` or `--spec` names, if any.

    True for a URL instead of a command, and for a variable that only the client knows.
    """
    if not words or "${" in words[0]:
        return True
    source = next((word for flag, word in itertools.pairwise(words) if flag in ("--from", "--spec")), "")
    is_path = os.path.isabs(source)
    return shutil.which(words[0]) is not None and (not is_path or os.path.exists(source.partition("[")[0]))


def _client_problems(clients: Sequence[ClientState]) -> Iterator[Problem]:
    for state in clients:
        title = CLIENTS[state.client].title
        if state.error:
            yield Problem(
                problem=f"The servers of {title} in {state.file} cannot be read: {state.error}.",
                remedy="Fix the file; until then the client may start none of them.",
            )
        for entry in state.entries:
            if not entry.is_found or entry.is_cached:
                again = command("install", state.client, "--scope", state.scope, "--name", entry.name)
                fault = "that is in the cache of uv" if entry.is_cached else "that does not exist"
                yield Problem(
                    problem=f"{title} starts '{entry.name}' with a command {fault}: {entry.command}",
                    remedy=f"Replace the entry in {state.file}: {again}",
                )


# ── the server ──────────────────────────────────────────────────────────────────────────────────────────────────


def _self_test(words: Sequence[str]) -> SelfTest:
    """Start the server as a client would, initialize, and list the workflows."""
    workflows, error = None, ""
    started = time.perf_counter()
    try:
        done = subprocess.run(words, input=_CONVERSATION, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)  # noqa: S603 - our own command
        _, listed = (msgspec.json.decode(line)["result"] for line in done.stdout.splitlines())
        workflows = len(listed["workflows"])
    except subprocess.TimeoutExpired:
        error = f"no answer within {TIMEOUT_SECONDS:.0f} seconds"
    except OSError as problem:
        error = problem.strerror or str(problem)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        error = lines[-1].strip().removeprefix("cause: ") if lines else f"no valid answer, exit code {done.returncode}"
    milliseconds = round((time.perf_counter() - started) * 1000)
    shown = shlex.join(map(without_password, words))
    return SelfTest(command=shown, milliseconds=milliseconds, workflows=workflows, error=error)


_HELLO: Final = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "doctor", "version": __version__},
}
_CONVERSATION: Final = b"".join(
    msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n"
    for message in (
        {"id": 1, "method": "initialize", "params": _HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "workflow_list"},
    )
)


def _test_problems(test: SelfTest) -> Iterator[Problem]:
    if test.error:
        first = "Check that its source can be reached" if extras.is_ephemeral() else "Install the package again"
        yield Problem(
            problem=f"The server does not work: {test.error.rstrip('.')}.",
            remedy=f"{first}, and try it by hand: {test.command}",
        )


def command(*words: str) -> str:
    """A command of this program for people to type, in backticks."""
    return f"`{shlex.join([*typed_program(), *words])}`"
