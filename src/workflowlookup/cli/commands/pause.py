"""`workflowlookup pause RUN`: pauses a run, so that hooks leave the agent alone."""

import argparse

from workflowlookup.cli.arguments import add_run_argument
from workflowlookup.cli.input import refuse_agents
from workflowlookup.cli.output import write
from workflowlookup.cli.services import find_run, open_services, user_name, write_run
from workflowlookup.settings import Settings, command_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument("--reason", metavar="TEXT", default="", help="why the run is paused")
    parser.add_argument("--json", action="store_true", help="print the state of the run")


def run(options: argparse.Namespace, settings: Settings) -> int:
    refuse_agents("pause a run")  # else the agent would release itself
    services = open_services(settings)
    paused = services.runs.pause(find_run(services.runs, options.run), options.reason, by=user_name())
    if options.json:
        write_run(services, paused)
    else:
        resume = command_line(settings, "resume", paused.id)
        write(f"Run {paused.id} is paused at step '{paused.current}': the agent may stop. Resume it with `{resume}`.")
    return 0


EXAMPLES = """\
  workflowlookup pause 9f2c
  workflowlookup pause 9f2c --reason "Waiting for the other team.\""""
