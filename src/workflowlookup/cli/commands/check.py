"""`workflowlookup check ID STEP`: judges an output by the criteria of a step, as the tool `workflow_validate` does."""

import argparse

from workflowlookup.cli.arguments import add_context_argument
from workflowlookup.cli.documents import open_workflow
from workflowlookup.cli.input import STANDARD_INPUT, is_interactive, read_file
from workflowlookup.cli.output import CommandError, is_terminal, write, write_json, write_list
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import find_step
from workflowlookup.settings import Settings
from workflowlookup.tools.builtin.workflow_validate import judge_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="ID_OR_PATH", help="a workflow: an id, or the path of a document")
    parser.add_argument("step", metavar="STEP", help="id of the step; in a loop with its iteration (review@2)")
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default=STANDARD_INPUT, help="the output; - is standard input (default)"
    )
    add_context_argument(parser)
    parser.add_argument("--json", action="store_true", help="print what the tool workflow_validate answers")


def run(options: argparse.Namespace, settings: Settings) -> int:
    workflow = open_workflow(options.workflow, settings)
    if options.file == STANDARD_INPUT and is_terminal() and is_interactive():
        write(("Type or paste the output; Ctrl-D on a line of its own ends it.", "dim"))
    output = read_file(options.file)
    if not output:
        raise CommandError("the output is empty.")
    verdict = judge_output(workflow, options.step, output, dict(options.context))
    step = find_step(workflow, options.step)
    if options.json:
        write_json(verdict)
    elif not verdict["valid"]:
        write((options.step, "bold"), ": ", ("refused", "bold red"))
        write_list("Issues", verdict["issues"])
        write_list("Suggestions", verdict["suggestions"])
    elif isinstance(step, PromptStep) and step.criteria is not None:
        write((options.step, "bold"), ": ", ("accepted", "green"))
    else:
        write((options.step, "bold"), ": ", ("accepted", "yellow"), "; the step has no criteria, so any output is")
    if not options.json and verdict["valid"]:
        write_list("In a run, the server would also check", verdict.get("proofs", ()))
    return int(not verdict["valid"])


EXAMPLES = """\
  workflowlookup check bug-investigation reproduce output.md      judge a file
  echo "It crashes." | workflowlookup check bug-investigation reproduce
  workflowlookup check my-workflow.yaml plan draft.md --context taskSize=large"""
