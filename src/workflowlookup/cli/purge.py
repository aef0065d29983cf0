"""`workflowlookup purge --older-than AGE`: forgets finished runs; those that wait are never touched."""

import argparse
from typing import Final

from workflowlookup.app import make_services
from workflowlookup.cli.drafts import forget_drafts
from workflowlookup.cli.entry import ask_yes_or_no, is_typed
from workflowlookup.cli.journal import age, ago, has_journal, person
from workflowlookup.cli.output import CommandError, write, write_json, write_table
from workflowlookup.core.run import OVER
from workflowlookup.core.text import plural
from workflowlookup.logs import audit
from workflowlookup.runs.journal import Summary, now
from workflowlookup.settings import Settings

MAX_SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    old = "runs that ended longer ago than this: 12h, 30d, 4w"
    parser.add_argument("--older-than", metavar="AGE", type=age, required=True, help=old)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    parser.add_argument("--json", action="store_true", help="print the deleted runs as JSON; needs --yes or --dry-run")


def run(options: argparse.Namespace, settings: Settings) -> int:
    is_asked = not (options.yes or options.dry_run)
    if is_asked and (options.json or not is_typed()):
        advice = "Add --yes to forget them, --dry-run to see them."
        raise CommandError(f"nothing was forgotten: nobody can be asked here. {advice}", 2)
    before = now() - options.older_than
    runs = make_services(settings).runs  # one connection: without room, purge needs the journal for itself
    every = runs.every() if has_journal(settings) else ()
    old = [summary for summary in every if summary.state in OVER and summary.updated < before]
    if not options.json:
        _show(old)
    if old and is_asked and not ask_yes_or_no(f"Forget {'it' if len(old) == 1 else 'them'} for good?"):
        write("Nothing was forgotten.")
        return 0
    purged = 0 if options.dry_run or not old else runs.purge(before)
    if purged:
        audit("purge", by=person(), runs=purged, before=before)
        forget_drafts(settings.journal, [one.id for one in old])
    if options.json:
        write_json({"purged": purged, "runs": [one.id for one in old]})
    elif purged:
        write(f"Forgot {plural(purged, 'run')}.")
    return 0


def _show(old: list[Summary]) -> None:
    if not old:
        write("No finished run is that old.")
        return
    rows = [(one.id, one.workflow_id, one.state, ago(one.updated)) for one in old[:MAX_SHOWN]]
    write_table(("run", "workflow", "state", "ended"), rows)
    if len(old) > MAX_SHOWN:
        write(f"… and {len(old) - MAX_SHOWN:,} more")
    write(f"{plural(len(old), 'finished run')} in all.")


EXAMPLES = """\
  workflowlookup purge --older-than 30d --dry-run     what would be deleted
  workflowlookup purge --older-than 30d               show it, ask, delete it
  workflowlookup purge --older-than 4w --yes          from a timer"""
