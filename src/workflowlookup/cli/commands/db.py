"""`workflowlookup db check|upgrade|salvage`: checks, upgrades and repairs the tables of the journal."""

import argparse
import contextlib
from typing import Any, Final

from workflowlookup.app import make_journal
from workflowlookup.cli.output import complain, write, write_json
from workflowlookup.errors import StorageError
from workflowlookup.execution.engine import engine_of
from workflowlookup.language.text import plural
from workflowlookup.settings import Settings
from workflowlookup.store.journal_url import JournalUrl
from workflowlookup.store.migrations import SchemaVersion

NEEDS_NO_TABLES: Final = "needs no tables"
NO_TABLES_YET: Final = "no tables yet: a server creates them with its first call"
UPGRADE_ADVICE: Final = "`workflowlookup db upgrade` does it now; a server does it when it starts."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=["check", "upgrade", "salvage"],
        help="check only; upgrade the tables; or copy what can be read of a damaged SQLite journal into a new one",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "salvage":
        return _salvage(options, settings)
    status: dict[str, Any] = {"journal": JournalUrl(settings.journal).shown}
    try:
        with contextlib.closing(make_journal(settings)) as journal:
            before = journal.schema_version()
            if options.action == "upgrade" and not before.problem and not before.is_up_to_date:
                journal.upgrade()
            schema = journal.schema_version()
    except StorageError as problem:
        return _report(options, {**status, "reachable": False, "state": "unreachable", "problem": str(problem)})
    engine = engine_of(settings.journal)
    status |= {
        "reachable": True,
        "state": _state(schema),
        "version": schema.version,
        "known": schema.supported,
        "least": schema.required,
        "engine": engine.version(settings.journal) if engine.version else None,
    }
    if schema.problem:
        status["problem"] = schema.problem
    if options.action == "upgrade":
        status["from"] = before.version
    return _report(options, status, NO_TABLES_YET if engine.version else NEEDS_NO_TABLES)


def _salvage(options: argparse.Namespace, settings: Settings) -> int:
    with contextlib.closing(make_journal(settings)) as journal:
        set_aside = journal.salvage()
    if options.json:
        write_json({"setAside": set_aside})
        return 0
    write(str(set_aside or "No damage was found, and nothing was done."))
    for line in set_aside.details if set_aside else ():
        write(line)
    return 0


def _state(schema: SchemaVersion) -> str:
    if schema.problem:
        return "foreign" if schema.is_foreign else "too new"
    if schema.version == schema.supported:
        return "up to date"
    if schema.version > schema.supported:
        return "newer"
    return "behind" if schema.version else "empty"


def _report(options: argparse.Namespace, status: dict[str, Any], without_engine_tables: str = "") -> int:
    is_up_to_date = status["state"] in ("up to date", "newer")
    if options.json:
        write_json(status)
        return 0 if is_up_to_date else 1
    if not status["reachable"]:
        complain(str(status["problem"]))
        return 1
    write(f"journal   {status['journal']}")
    write(f"tables    {_tables(status)}")
    engine = status["engine"]
    write(f"engine    {f'version {engine}' if engine else without_engine_tables}")
    write(_sentence(status))
    return 0 if is_up_to_date else 1


def _tables(status: dict[str, Any]) -> str:
    if not status["version"]:
        return f"none yet; this program makes version {status['known']}"
    least = f", for programs that know version {status['least']} or later" if status["least"] else ""
    return f"version {status['version']}{least}; this program makes version {status['known']}"


def _sentence(status: dict[str, Any]) -> str:
    if status.get("from") is not None and status["from"] < status["version"] == status["known"]:
        return f"Upgraded from version {status['from']} to {status['version']}."
    steps = status["known"] - status["version"]
    return {
        "up to date": "Up to date: nothing to do.",
        "newer": "The tables are newer than this program, but it can use them: nothing to do.",
        "foreign": f"{str(status.get('problem', '')).capitalize()}.",
        "too new": "The tables are too new for this program: update it.",
        "behind": f"Upgrade needed: {plural(steps, 'step')}. {UPGRADE_ADVICE}",
        "empty": f"The tables do not exist yet. {UPGRADE_ADVICE}",
    }[status["state"]]


EXAMPLES = """\
  workflowlookup db check                     whether the tables are up to date; changes nothing
  workflowlookup db check --json              the same for programs; exit code 1 if an upgrade is needed
  workflowlookup db upgrade                   upgrade them, while servers run
  workflowlookup db salvage                   copy what can be read of a damaged SQLite journal into a new one"""
