"""`workflowlookup import SOURCE`: makes a workflow of a skill or another procedure, or imports exported runs.

What SOURCE is decides: a URL, a folder or a file in one of `FORMATS` becomes a workflow; anything else are runs.
"""

import argparse

from workflowlookup.cli.commands.new import PROJECT_DIRECTORY
from workflowlookup.cli.input import STANDARD_INPUT, read_data
from workflowlookup.cli.run_import import import_runs
from workflowlookup.cli.workflow_import import import_workflow, open_source
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="the folder of a skill, a file such as a command or a recipe, or GIT_URL[@REV]; or runs: JSON lines from "
        "`workflowlookup export`, - is standard input",
    )
    workflows = parser.add_argument_group("workflows", "for everything but runs")
    workflows.add_argument("--path", metavar="PATH", default="", help="the folder or file in the repository or folder")
    workflows.add_argument(
        "--directory", metavar="DIR", default=PROJECT_DIRECTORY, help=f"target directory (default: {PROJECT_DIRECTORY})"
    )
    workflows.add_argument("--strict", action="store_true", help="write nothing and exit with 1 if no steps were found")
    workflows.add_argument("--force", action="store_true", help="replace the files if there are such")
    parser.add_argument("--json", action="store_true", help="print the report, or the imported runs, as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    opened = None if options.source == STANDARD_INPUT else open_source(options.source, options.path, settings)
    if opened is None:
        return import_runs(read_data(options.source), options.source, settings, is_json=options.json)
    return import_workflow(
        opened, options.directory, is_strict=options.strict, is_forced=options.force, is_json=options.json
    )


EXAMPLES = """\
  workflowlookup import .claude/skills/release              a skill becomes a workflow
  workflowlookup import .claude/commands/fix-issue.md       and so does a command, a recipe, a formula …
  workflowlookup import https://github.com/anthropics/skills@main --path skills/pdf
  workflowlookup import run.jsonl                           runs from `workflowlookup export`
  ssh server workflowlookup export 9f2c | workflowlookup import -"""
