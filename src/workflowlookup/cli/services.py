"""The services of a server for commands: the journal, if there is one, runs by a prefix of their ids, and the tools.

A command that only reads creates no journal. It gets its answers from the same handlers as a client does.
"""

import getpass
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from workflowlookup.app import make_catalog, make_services
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

MAX_LISTED: Final = 5
"""How many runs an error message lists."""


def has_journal(settings: Settings) -> bool:
    """Whether there may be runs. A database counts as existing, even if it cannot be reached."""
    url = JournalUrl(settings.journal)
    path = url.identity
    exists = _may_exist(path) or _may_exist(f"{path}-wal")  # a write-ahead log without its journal has runs as well
    return not url.kind.is_file or exists or is_salvage_begun(path) or bool(find_damaged_journals(path))


def _may_exist(path: str) -> bool:
    """Whether a file exists, or cannot be checked. Opening it will then say why."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def open_services(settings: Settings) -> ServerServices:
    """The services for a command about existing runs. Raises `RunNotFound` when there is no journal."""
    if not has_journal(settings):
        url = JournalUrl(settings.journal).shown
        raise RunNotFound(f"There are no runs yet: no journal exists at {url}. Start one with `workflowlookup run ID`.")
    return make_services(settings)


def find_run(runs: "Runs", prefix: str) -> str:
    """The id of the run with this id or unique prefix. Raises `RunNotFound`, with similar ids."""
    if runs.journal.head(prefix) is not None:
        return prefix
    ids = [summary.id for summary in runs.all_summaries()]
    matches = [run_id for run_id in ids if prefix and run_id.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = first_few(matches, MAX_LISTED)
        message = (
            f"{len(matches)} runs have an id that begins with '{prefix}': {listed}. Type more characters of the id."
        )
        raise RunNotFound(message, runId=prefix)
    damage = "".join(f" {damaged}" for damaged in runs.damaged_journals())
    raise RunNotFound(f"There is no run '{prefix}'.{_suggestion(prefix, ids)}{damage}", runId=prefix)


def _suggestion(name: str, ids: list[str]) -> str:
    import difflib  # noqa: PLC0415 - only mistakes need it

    close = difflib.get_close_matches(name, ids, n=3, cutoff=0.6)
    suggestion = f" Did you mean {' or '.join(close)}?" if close else ""
    return f"{suggestion} `workflowlookup runs` lists all runs." if ids else " There are no runs at all."


def user_name() -> str:
    """The name of the user who runs the command, for the journal; empty when it is unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


# ── times ───────────────────────────────────────────────────────────────────────────────────────────────────────


def milliseconds(time: str) -> int:
    """An ISO 8601 time in milliseconds since 1970, as in the journal."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def ago(then: int) -> str:
    """`5 min ago`, `12 s ago`."""
    seconds = max(0, now() - then) // 1000
    return time_ago(seconds) if seconds >= 60 else f"{seconds} s ago"


# ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────────


def provenances(settings: Settings) -> dict[str, str]:
    """By id: the repository and the commit of each workflow that comes from git."""
    if not settings.sources:
        return {}
    entries = make_catalog(settings).snapshot().entries
    return {workflow_id: entry.provenance for workflow_id, entry in entries.items() if entry.provenance}


def call_tool(handler: Handler, settings: Settings, arguments: msgspec.Struct) -> dict[str, Any]:
    """Call a built-in tool; its answer as JSON values. Raises what the tool raises."""
    return to_json(handler(make_services(settings), arguments, NO_CLIENT))


def to_json(value: object) -> dict[str, Any]:
    """An answer as JSON values, also the parts that are encoded already."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return decoded


def write_run(services: ServerServices, run: Run) -> None:
    """Print the state of a run as JSON."""
    write_json(to_json(answer(services, run, NO_CLIENT)))
