"""`workflowlookup run ID`: guides a person through a workflow; `run show RUN` shows a run.

The run is stored like those of agents, in the same journal: a person can leave it at any time, and an agent can
continue it. Calls are made by this command while it runs; interrupting a call cancels the run.
"""

import argparse
import sys
from typing import Final

from workflowlookup.app import make_services
from workflowlookup.cli.arguments import add_context_argument
from workflowlookup.cli.documents import open_workflow
from workflowlookup.cli.input import is_interactive, read_file, read_pipe
from workflowlookup.cli.output import CommandError, write_hint, write_json, write_markdown
from workflowlookup.cli.services import find_run, open_services, to_json, user_name, write_run
from workflowlookup.cli.terminal.keyboard import KeyboardSource
from workflowlookup.cli.terminal.output_source import EditorSource, OutputSource, PresetSource
from workflowlookup.cli.terminal.run_display import write_start, write_state
from workflowlookup.cli.terminal.walkthrough import CallFollower, Walkthrough, exit_code
from workflowlookup.errors import InvalidParams, WorkflowNotFound
from workflowlookup.runs.report import report_of
from workflowlookup.runs.run import Run
from workflowlookup.settings import Settings, command_line
from workflowlookup.tools.builtin import workflow_status
from workflowlookup.tools.contract import NO_CLIENT, ServerServices

SHOW: Final = "show"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", nargs="?", help="a workflow: an id, or the path of a document")
    parser.add_argument("run", metavar="RUN", nargs="?", help="with `run show`: id of a run, or a unique prefix of it")
    parser.add_argument("--resume", metavar="RUN", help="continue this run")
    add_context_argument(
        parser, meaning="a context variable for the start; with --resume, one to set with the next output"
    )
    add_context_argument(parser, "--input", "a field of the input of the workflow")
    parser.add_argument("--editor", action="store_true", help="write the outputs in $VISUAL or $EDITOR")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="submit this file as the output of the step; - submits all of standard input as one output",
    )
    parser.add_argument("--json", action="store_true", help="ask nothing, and print the state of the run at the end")


def run(options: argparse.Namespace, settings: Settings) -> int:
    if problem := _misused(options):
        raise CommandError(problem, 2)
    if options.id == SHOW:
        return _show(options, settings)
    services = open_services(settings) if options.resume else make_services(settings)
    current = (
        services.runs.get(find_run(services.runs, options.resume))
        if options.resume
        else _started(services, options, settings)
    )
    if not options.json:
        (write_state if options.resume else write_start)(current)
        sys.stdout.flush()
    source = _source(options)
    calls = CallFollower(services, is_quiet=options.json)
    walkthrough = Walkthrough(services.runs, source, settings, is_quiet=options.json, make_calls=calls.follow)
    try:
        current = walkthrough.walk(current, is_resumed=bool(options.resume))
    finally:
        services.close()
    if options.json:
        write_run(services, current)
    return exit_code(current, has_failed=walkthrough.has_failed)


def _misused(options: argparse.Namespace) -> str:
    if options.id == SHOW and not options.run:
        return "run show needs the id of a run: workflowlookup run show RUN. `workflowlookup runs` lists runs."
    if options.id != SHOW and options.run:
        return f"'{options.run}' is one word too many. Did you mean: workflowlookup run show {options.run}"
    if bool(options.id) == bool(options.resume):
        return "give a workflow, workflowlookup run ID, or a run to continue, workflowlookup run --resume RUN"
    if options.resume and options.input:
        return "--input is for a new run; with --resume set variables with --context"
    if options.editor and (options.output or options.json):
        return "--editor cannot be used together with --output or --json"
    return ""


def _started(services: ServerServices, options: argparse.Namespace, settings: Settings) -> Run:
    try:
        workflow = open_workflow(options.id, settings)
    except WorkflowNotFound as refusal:
        if services.runs.journal.head(options.id) is None:
            raise
        resume, show = (command_line(settings, "run", *words, options.id) for words in (("--resume",), ("show",)))
        message = f"No workflow has the id '{options.id}'. It is a run: `{resume}` continues it, `{show}` shows it."
        raise WorkflowNotFound(message, **refusal.data) from refusal
    try:
        return services.runs.start(workflow, dict(options.input), dict(options.context), by=user_name())
    except InvalidParams as refusal:
        flag = "--input" if refusal.remedy.startswith("input") else "--context"
        message = f"{refusal.remedy}. Set it with {flag} NAME=VALUE."
        raise InvalidParams(message, **{k: v for k, v in refusal.data.items() if k != "details"}) from refusal


def _source(options: argparse.Namespace) -> OutputSource:
    changes = dict(options.context) if options.resume else {}
    if options.editor:
        return EditorSource(changes)
    if options.output:
        return PresetSource(lambda: [read_file(options.output)], changes)
    if not is_interactive():
        return PresetSource(read_pipe, changes)
    if options.json:
        return PresetSource(list, changes)
    return KeyboardSource(changes)


# ── run show ────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(options: argparse.Namespace, settings: Settings) -> int:
    services = open_services(settings)
    run_id = find_run(services.runs, options.run)
    if options.json:
        write_json(to_json(workflow_status.handle(services, workflow_status.StatusArguments(run_id), NO_CLIENT)))
        return 0
    run = services.runs.get(run_id)
    write_markdown(report_of(run, services.runs.history(run_id)).rstrip())
    if not run.is_over:
        write_hint("Continue with: ", command_line(settings, "run", "--resume", run_id))
    return 0


EXAMPLES = """\
  workflowlookup run bug-investigation                      step by step, in the terminal
  workflowlookup run my-workflow --input ticket=BUG-7       with its input
  workflowlookup run nightly-report                         make all calls of a workflow; Ctrl-C cancels the run
  workflowlookup run bug-investigation --editor             outputs from your editor
  workflowlookup run --resume 9f2c                          continue where you stopped
  workflowlookup run --resume 9f2c < output.md              submit an output; a line with a single dot ends one
  workflowlookup run show 9f2c                              status and report"""
