"""`workflowlookup runs`: a line for each run, newest first."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from workflowlookup.app import make_journal
from workflowlookup.cli.arguments import time_or_age, whole_number
from workflowlookup.cli.output import complain, write_hint, write_json, write_records
from workflowlookup.cli.services import ago, call_tool, has_journal, milliseconds
from workflowlookup.settings import Settings, command_line
from workflowlookup.store.run_search import HELP
from workflowlookup.tools.builtin import workflow_runs
from workflowlookup.tools.result_schemas import STATES

COLUMNS: Final = ("run", "workflow", "state", "done", "proved", "started", "changed", "step", "about")
FEWER_COLUMNS: Final = ("run", "state", "done", "workflow")
"""For a narrow terminal."""

NARROW: Final = 90
DEFAULT_LIMIT: Final = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="*", help=HELP)
    parser.add_argument("--state", choices=STATES, help="only runs in this state")
    parser.add_argument("--workflow", metavar="ID", help="only runs of this workflow")
    parser.add_argument(
        "--since", metavar="TIME", type=time_or_age, help="only runs started since: 2026-11-16, 12h, 30d"
    )
    number = whole_number(1, 1_000_000)
    parser.add_argument(
        "--limit", metavar="N", type=number, default=DEFAULT_LIMIT, help=f"at most this many (default: {DEFAULT_LIMIT})"
    )
    parser.add_argument("--json", action="store_true", help="print what the tool workflow_runs answers")


def run(options: argparse.Namespace, settings: Settings) -> int:
    answer = _query(options, settings)
    lines = answer["runs"]
    if options.json:
        write_json(answer)
    elif lines:
        used = {"proved": "proofs", "about": "about"}
        columns = [column for column in COLUMNS if column not in used or any(used[column] in line for line in lines)]
        write_records([_row(line) for line in lines], columns, fewer=FEWER_COLUMNS, min_width=NARROW)
        if "nextCursor" in answer:
            complain(f"there are more: --limit {options.limit * 10} shows more of them")
        write_hint(f"`{command_line(settings, 'run', 'show', lines[0]['runId'])}` shows one of them.")
    elif options.query or options.state or options.workflow or options.since:
        complain("no run matches. Without QUERY, --state, --workflow and --since all runs are listed.")
    else:
        complain("there are no runs yet. `workflowlookup run ID` starts one.")
    for aside in [] if options.json else make_journal(settings).damaged_journals():
        complain(f"{aside} `workflowlookup doctor` tells more.")
    return 0


def _query(options: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    if not has_journal(settings):
        return {"runs": [], "next": "There are no runs. Call workflow_start."}
    arguments = workflow_runs.RunsArguments(
        query=" ".join(map(_with_quotes, options.query)),
        state=options.state,
        workflow_id=options.workflow,
        since=options.since,
        limit=options.limit,
    )
    return call_tool(workflow_runs.handle, settings, arguments)


def _with_quotes(word: str) -> str:
    """A word of the search; what the shell has taken from quotes is put into quotes again."""
    field, colon, text = word.partition(":") if ":" in word else ("", "", word)
    return f'{field}{colon}"{text}"' if " " in text else word


def _row(line: Mapping[str, Any]) -> dict[str, str]:
    progress = line["progress"]
    person = " (person)" if line.get("waitingFor") == "confirmation" else ""
    imported = f" (imported from {line['importedFrom']})" if "importedFrom" in line else ""
    done = f"{progress['done']}/{progress['total']}" if "total" in progress else str(progress["done"])
    return {
        "run": line["runId"],
        "workflow": line["workflowId"],
        "state": f"{line['state']}{person}{imported}",
        "done": done,
        "proved": line.get("proofs", "").removeprefix("proved "),
        "started": ago(milliseconds(line["started"])),
        "changed": ago(milliseconds(line["updated"])),
        "step": line.get("step", ""),
        "about": line.get("about", ""),
    }


EXAMPLES = """\
  workflowlookup runs                                   the latest
  workflowlookup runs march export                      those that contain both words
  workflowlookup runs is:stuck by:anna                  where agents of Anna do not get on
  workflowlookup runs --state waiting                   those that can be continued
  workflowlookup runs --workflow bug-investigation --since 7d
  workflowlookup runs --state failed --json | jq -r '.runs[].runId'"""
