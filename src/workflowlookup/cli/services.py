"""The services of a server for commands: the journal, if there is one, runs by a prefix of their ids, and the tools.

A command that only reads creates no journal. It gets its answers from the same handlers as a client does.
"""

import getpass
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.app import make_services
from workflowlookup.cli.output import write_json
from workflowlookup.errors import RunNotFound
from workflowlookup.language.text import ago as time_ago
from workflowlookup.language.text import first_few
from workflowlookup.runs.run import Run
from workflowlookup.settings import Settings
from workflowlookup.store.journal import now
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.salvage import find_damaged_journals, is_salvage_begun
from workflowlookup.tools.contract import NO_CLIENT, Handler, ServerServices
from workflowlookup.tools.run_answers import answer

if TYPE_CHECKING:
    from workflowlookup.store.service import Runs

MAX_NAMED: Final = 5
"""How many runs a complaint names."""


def has_journal(settings: Settings) -> bool:
    """Whether there may be runs; a database is there, whether or not it can be reached."""
    url = JournalUrl(settings.journal)
    path = url.identity
    is_there = _may_exist(path) or _may_exist(f"{path}-wal")  # a log whose journal is lost has runs, too
    return not url.kind.is_file or is_there or is_salvage_begun(path) or bool(find_damaged_journals(path))


def _may_exist(path: str) -> bool:
    """Whether there is a file, or a directory in the way keeps from knowing: to open it says which."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def open_services(settings: Settings) -> ServerServices:
    """What the run tools need, for a command that asks about runs. Raises `RunNotFound` where there never was one."""
    if not has_journal(settings):
        url = JournalUrl(settings.journal).shown
        raise RunNotFound(f"There are no runs yet: no journal is at {url}. Start one with `workflowlookup run ID`.")
    return make_services(settings)


def find_run(runs: "Runs", name: str) -> str:
    """The id of the run that is meant. Raises `RunNotFound`, naming those that come close."""
    if runs.journal.head(name) is not None:
        return name
    ids = [summary.id for summary in runs.all_summaries()]
    found = [run_id for run_id in ids if name and run_id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        named = first_few(found, MAX_NAMED)
        told = f"{len(found)} runs have an id that begins with '{name}': {named}. Give more of the one you mean."
        raise RunNotFound(told, runId=name)
    kept = "".join(f" {aside}" for aside in runs.damaged_journals())
    raise RunNotFound(f"There is no run '{name}'.{_nearest(name, ids)}{kept}", runId=name)


def _nearest(name: str, ids: list[str]) -> str:
    import difflib  # noqa: PLC0415 - only mistakes need it

    close = difflib.get_close_matches(name, ids, n=3, cutoff=0.6)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{meant} `workflowlookup runs` lists them." if ids else " There are none at all."


def person() -> str:
    """Who sits at the terminal, as the journal names them; empty when nobody knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


# ── times ───────────────────────────────────────────────────────────────────────────────────────────────────────


def milliseconds(time: str) -> int:
    """A time in ISO 8601, as the journal has it."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def ago(then: int) -> str:
    """`5 min ago`, `12 s ago`."""
    seconds = max(0, now() - then) // 1000
    return time_ago(seconds) if seconds >= 60 else f"{seconds} s ago"


# ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(handler: Handler, settings: Settings, arguments: msgspec.Struct) -> dict[str, Any]:
    """A tool's answer as plain JSON values. Raises what the tool raises."""
    return plain(handler(make_services(settings), arguments, NO_CLIENT))


def plain(value: object) -> dict[str, Any]:
    """An answer as plain JSON values; some parts of it may be encoded already."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return decoded


def write_run(services: ServerServices, run: Run) -> None:
    """The state of a run as JSON."""
    write_json(plain(answer(services, run, NO_CLIENT)))
