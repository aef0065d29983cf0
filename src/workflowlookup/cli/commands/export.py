"""`workflowlookup export RUN`: writes the events of a run as JSON lines, or its report as Markdown."""

import argparse
from collections.abc import Sequence

from workflowlookup.atomic import replacing
from workflowlookup.cli.output import shown_path, write, write_text
from workflowlookup.cli.services import find_run, open_services, user_name
from workflowlookup.errors import StorageError
from workflowlookup.language.text import plural
from workflowlookup.logs import audit
from workflowlookup.runs.events import Record
from workflowlookup.runs.exchange import Exporter
from workflowlookup.runs.report import report_of
from workflowlookup.runs.run import Run
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="ids of runs, or unique prefixes of ids")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="write the report, for people (default: JSON lines)")
    form.add_argument(
        "--json", action="store_true", help="write JSON lines, one event per line, for `import` (default)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file")


def run(options: argparse.Namespace, settings: Settings) -> int:
    runs = open_services(settings).runs
    ids = list(dict.fromkeys(find_run(runs, name) for name in options.runs))
    for run_id in ids:
        audit("export", by=user_name(), run=run_id)
    form = report_of if options.markdown else _lines
    parts = (form(runs.get(run_id), runs.history(run_id)) for run_id in ids)
    if not options.output:
        for part in parts:
            write_text(part)
        return 0
    path = options.output
    try:
        with replacing(path) as file:  # outputs may be private, so only the owner can read a new file
            file.writelines(part.encode() for part in parts)
    except OSError as problem:
        raise StorageError(f"{shown_path(path)} cannot be written: {problem.strerror}.", file=path) from problem
    write(f"Wrote {plural(len(ids), 'run')} to {shown_path(path)}")
    return 0


def _lines(run: Run, records: Sequence[Record]) -> str:
    return Exporter(run).lines(records[: run.sequence])


EXAMPLES = """\
  workflowlookup export 9f2c -o run.jsonl         every event, to store or to import elsewhere
  workflowlookup export 9f2c --markdown           a report for people
  workflowlookup export 9f2c | jq -r '.event.event'"""
