"""`workflowlookup resume RUN`: ends the pause of a run."""

import argparse

from workflowlookup.cli.arguments import add_run_argument
from workflowlookup.cli.output import write
from workflowlookup.cli.services import find_run, open_services, user_name, write_run
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the state of the run")


def run(options: argparse.Namespace, settings: Settings) -> int:
    services = open_services(settings)
    resumed = services.runs.resume(find_run(services.runs, options.run), by=user_name())
    if options.json:
        write_run(services, resumed)
    else:
        write(f"Run {resumed.id} is no longer paused. It is at step '{resumed.current}'.")
    return 0


EXAMPLES = """\
  workflowlookup resume 9f2c
  workflowlookup resume 9f2c --json      print the state of the run"""
