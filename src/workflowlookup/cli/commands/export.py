"""`workflowlookup export`: writes the events of a run as JSON lines or its report, or a workflow for other programs.

`--as` decides: with it the names are workflows, without it runs.
"""

import argparse
from collections.abc import Sequence

from workflowlookup.atomic import replacing
from workflowlookup.authoring.export.targets import TARGETS
from workflowlookup.cli.exported_workflows import as_json, destination, export_workflow, write_exported
from workflowlookup.cli.output import CommandError, complain, shown_path, write, write_json, write_text
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
    parser.add_argument(
        "names",
        metavar="RUN_OR_ID",
        nargs="+",
        help="ids of runs, or unique prefixes of ids; with --as, ids of workflows or paths of documents",
    )
    parser.add_argument(
        "--as",
        dest="target",
        choices=tuple(TARGETS),
        help="export workflows: as an Agent Skill, a command of Claude Code, or a section of AGENTS.md",
    )
    parser.add_argument(
        "--standalone", action="store_true", help="with --as: all steps as text, for use without a server"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="write the report, for people (default: JSON lines)")
    form.add_argument(
        "--json",
        action="store_true",
        help="write JSON lines, one event per line, for `import` (default); with --as, JSON",
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="write to this file; with --as also a directory")
    parser.add_argument("--force", action="store_true", help="with --as: replace an exported file that was changed")


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.target:
        return _export_workflows(options, settings)
    if options.standalone or options.force:
        raise CommandError("--standalone and --force are for workflows: add --as skill.", 2)
    return _export_runs(options, settings)


def _export_workflows(options: argparse.Namespace, settings: Settings) -> int:
    is_section = TARGETS[options.target].is_section
    if options.markdown:
        raise CommandError("--markdown is for runs; what --as writes is Markdown already.", 2)
    if options.standalone and is_section:
        raise CommandError("AGENTS.md is read with every task, so it gets no whole workflow: use --as skill.", 2)
    if len(options.names) > 1 and not (options.output or options.json or is_section):
        raise CommandError("Several workflows need a directory: name it with --output.", 2)
    every = [
        export_workflow(name, options.target, settings, is_standalone=options.standalone)
        for name in dict.fromkeys(options.names)
    ]
    if not options.output:
        if options.json:
            write_json([as_json(exported) for exported in every])
            return 0
        for exported in every:
            write_text(exported.text)
            if exported.files:
                complain(
                    f"{plural(len(exported.files), 'file')} of {exported.workflow.id}: written only with --output."
                )
        return 0
    paths = [destination(exported, options.output) for exported in every]
    if len(set(paths)) < len(paths) and not is_section:
        raise CommandError(f"{shown_path(options.output)} cannot be all of them: name a directory with --output.", 2)
    written = [write_exported(exported, path, force=options.force) for exported, path in zip(every, paths, strict=True)]
    if options.json:
        write_json([{**as_json(each), "written": names} for each, names in zip(every, written, strict=True)])
        return 0
    for path, names in zip(paths, written, strict=True):
        write(f"Wrote {shown_path(path)}" if names else f"{shown_path(path)} is up to date")
    return 0


def _export_runs(options: argparse.Namespace, settings: Settings) -> int:
    runs = open_services(settings).runs
    ids = list(dict.fromkeys(find_run(runs, name) for name in options.names))
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
  workflowlookup export 9f2c | jq -r '.event.event'
  workflowlookup export code-review --as skill -o .claude/skills          a skill that starts the run
  workflowlookup export code-review --as skill --standalone               all of it on standard output
  workflowlookup export code-review --as claude-command -o .claude/commands
  workflowlookup export code-review --as agents-md -o AGENTS.md           a section, in place of the last one"""
