"""`workflowlookup cancel RUN`: cancels a run, and shows the outcome of its call if one was running."""

import argparse

from workflowlookup.cli.arguments import add_run_argument
from workflowlookup.cli.output import write
from workflowlookup.cli.services import find_run, open_services, user_name, write_run
from workflowlookup.cli.terminal.run_display import end_pieces
from workflowlookup.cli.terminal.walkthrough import wait_until_stopped, write_stopped
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument("--reason", metavar="TEXT", default="", help="why the run is cancelled")
    parser.add_argument("--json", action="store_true", help="print the new state of the run")


def run(options: argparse.Namespace, settings: Settings) -> int:
    services = open_services(settings)
    cancelled = services.runs.cancel(find_run(services.runs, options.run), options.reason, by=user_name())
    cancelled = wait_until_stopped(services.runs, cancelled)
    if options.json:
        write_run(services, cancelled)
    else:
        write(*end_pieces(cancelled))
        write_stopped(cancelled)
    return 0


EXAMPLES = """\
  workflowlookup cancel 9f2c
  workflowlookup cancel 9f2c --reason "The bug is fixed upstream.\""""
