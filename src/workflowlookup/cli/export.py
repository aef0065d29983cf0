"""`workflowlookup export RUN`: the journal of a run as JSON lines, or its report as Markdown."""

import argparse
from collections.abc import Iterator

from workflowlookup.atomic import replacing
from workflowlookup.cli.journal import find_run, open_services
from workflowlookup.cli.output import complain, is_terminal, shown_path, write, write_bytes
from workflowlookup.core.exchange import as_line
from workflowlookup.core.report import report
from workflowlookup.core.text import plural, printable
from workflowlookup.runs.service import Runs
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="which runs: ids, or as much of their beginning as is needed"
    )
    parser.add_argument("--markdown", action="store_true", help="the report, for people (default: JSON lines)")
    parser.add_argument("--json", action="store_true", help="JSON lines, an event each: what `import` reads (default)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file")


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.markdown and options.json:
        complain("--markdown and --json cannot be used together")
        return 2
    runs = open_services(settings).runs
    ids = list(dict.fromkeys(find_run(runs, name) for name in options.runs))
    parts = _reports(runs, ids) if options.markdown else _lines(runs, ids)
    if options.output:
        return _save(parts, options.output, len(ids))
    for part in parts:
        write_bytes(printable(part).encode() if is_terminal() else part.encode())
    return 0


def _reports(runs: Runs, ids: list[str]) -> Iterator[str]:
    for run_id in ids:
        yield report(run_id, runs.history(run_id))


def _lines(runs: Runs, ids: list[str]) -> Iterator[str]:
    for run_id in ids:
        yield "".join(as_line(run_id, record) for record in runs.history(run_id))


def _save(parts: Iterator[str], path: str, count: int) -> int:
    """Whole or not at all; outputs may be private, so only the owner can read a new file."""
    try:
        with replacing(path) as file:
            file.writelines(part.encode() for part in parts)
    except OSError as problem:
        complain(f"{shown_path(path)} cannot be written: {problem.strerror}")
        return 1
    write(f"Wrote {plural(count, 'run')} to {shown_path(path)}")
    return 0


EXAMPLES = """\
  workflowlookup export 9f2c -o run.jsonl         every event, to keep or to import elsewhere
  workflowlookup export 9f2c --markdown           a report for people
  workflowlookup export 9f2c | jq -r '.event.event'"""
