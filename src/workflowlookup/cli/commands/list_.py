"""`workflowlookup list`: lists the workflows of the library."""

import argparse
from typing import Final

from workflowlookup.cli.output import complain, width, write, write_hint, write_json, write_records
from workflowlookup.cli.services import call_tool, provenances
from workflowlookup.settings import Settings
from workflowlookup.tools.builtin import workflow_list

COLUMNS: Final = ("id", "name", "category", "version", "description")
FEWER_COLUMNS: Final = ("id", "category", "description")
"""For a narrow terminal."""
COLUMNS_FROM_GIT: Final = ("id", "name", "category", "version", "source", "description")
FEWER_FROM_GIT: Final = ("id", "source", "description")
"""The same where workflows come from git."""

NARROW: Final = 110
NO_TABLE: Final = 70
"""On a terminal with fewer columns than this, each workflow is a paragraph, because a table would cut it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--category", metavar="NAME", help="only workflows of this category")
    parser.add_argument("--query", metavar="WORDS", help="only workflows that contain all these words")
    parser.add_argument("--json", action="store_true", help="print what the tool workflow_list answers, in one page")


def run(options: argparse.Namespace, settings: Settings) -> int:
    answer = call_tool(
        workflow_list.list_all, settings, workflow_list.ListArguments(category=options.category, query=options.query)
    )
    workflows = answer["workflows"]
    if options.json:
        write_json(answer)
    elif workflows:
        sources = provenances(settings)
        if (width() or NO_TABLE) < NO_TABLE:
            for workflow in workflows:
                write((workflow["id"], "cyan"))
                write("  ", workflow["description"], hang=2)
                if workflow["id"] in sources:
                    write("  ", (sources[workflow["id"]], "dim"), hang=2)
        else:
            rows = [{**workflow, "source": sources.get(workflow["id"], "-")} for workflow in workflows]
            columns, fewer = (COLUMNS_FROM_GIT, FEWER_FROM_GIT) if sources else (COLUMNS, FEWER_COLUMNS)
            write_records(rows, columns, fewer=fewer, min_width=NARROW, cut=True)
        write_hint(f"`workflowlookup show {workflows[0]['id']}` shows one of them.")
    elif options.category or options.query:
        complain("no workflow matches. Without --category and --query all workflows are listed.")
    else:
        complain("there are no workflows. `workflowlookup doctor` shows the directories that are searched.")
    return 0


EXAMPLES = """\
  workflowlookup list                              every workflow
  workflowlookup list --query "bug cause"          those about bugs and causes
  workflowlookup list --category development --json | jq '.workflows[].id'"""
