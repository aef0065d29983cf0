"""`workflowlookup purge --older-than AGE`: deletes finished runs, never runs that wait.

`--damaged` deletes the runs that cannot be read instead.
"""

import argparse
import contextlib
from typing import Final

from workflowlookup.app import make_services
from workflowlookup.cli.arguments import age
from workflowlookup.cli.input import ask_yes_or_no, is_interactive
from workflowlookup.cli.output import CommandError, write, write_json, write_table
from workflowlookup.cli.services import ago, has_journal, user_name
from workflowlookup.cli.terminal.output_source import delete_drafts
from workflowlookup.errors import RunNotFound
from workflowlookup.language.text import plural
from workflowlookup.logs import audit
from workflowlookup.runs.run import OVER
from workflowlookup.settings import Settings
from workflowlookup.store.journal import RunSummary, now
from workflowlookup.store.service import Runs

MAX_SHOWN: Final = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    older = "runs that ended longer ago than this: 12h, 30d, 4w"
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--older-than", metavar="AGE", type=age, help=older)
    which.add_argument("--damaged", action="store_true", help="runs that cannot be read, whatever their state")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    parser.add_argument("--json", action="store_true", help="print the deleted runs as JSON; needs --yes or --dry-run")


def run(options: argparse.Namespace, settings: Settings) -> int:
    must_ask = not (options.yes or options.dry_run)
    if must_ask and (options.json or not is_interactive()):
        advice = "Add --yes to delete the runs, or --dry-run to see them."
        raise CommandError(f"nothing was deleted, because this is not a terminal to ask on. {advice}", 2)
    runs = make_services(settings).runs  # one connection: on a full disk, purge needs the journal for itself
    before = now() - (options.older_than or 0)
    if not has_journal(settings):
        chosen = []
    elif options.damaged:
        chosen = [summary for summary, _ in runs.damaged_runs()]
    else:
        chosen = [summary for summary in runs.all_summaries() if summary.state in OVER and summary.updated < before]
    kind = "damaged run" if options.damaged else "finished run"
    if not options.json:
        _show(chosen, kind)
    if chosen and must_ask and not ask_yes_or_no(f"Delete {'it' if len(chosen) == 1 else 'them'} for good?"):
        write("Nothing was deleted.")
        return 0
    purged = 0
    if chosen and not options.dry_run:
        purged = _delete(runs, chosen) if options.damaged else runs.purge(before)
    if purged:
        audit("purge", by=user_name(), runs=purged, **({"damaged": True} if options.damaged else {"before": before}))
        delete_drafts(settings.journal, [summary.id for summary in chosen])
    if options.json:
        write_json({"purged": purged, "runs": [summary.id for summary in chosen]})
    elif purged:
        write(f"Deleted {plural(purged, 'run')}.")
    return 0


def _delete(runs: Runs, chosen: list[RunSummary]) -> int:
    for summary in chosen:
        with contextlib.suppress(RunNotFound):  # another process deleted it
            runs.delete(summary.id)
    return len(chosen)


def _show(chosen: list[RunSummary], kind: str) -> None:
    if not chosen:
        write("No finished run is that old." if kind == "finished run" else "No run is damaged.")
        return
    rows = [(run.id, run.workflow_id, run.state, ago(run.updated)) for run in chosen[:MAX_SHOWN]]
    write_table(("run", "workflow", "state", "ended" if kind == "finished run" else "updated"), rows)
    if len(chosen) > MAX_SHOWN:
        write(f"… and {len(chosen) - MAX_SHOWN:,} more")
    write(f"{plural(len(chosen), kind)} in all.")


EXAMPLES = """\
  workflowlookup purge --older-than 30d --dry-run     what would be deleted
  workflowlookup purge --older-than 30d               show it, ask, delete it
  workflowlookup purge --older-than 4w --yes          from a timer
  workflowlookup purge --damaged                      runs that cannot be read"""
