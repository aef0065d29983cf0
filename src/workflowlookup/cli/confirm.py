"""`workflowlookup confirm RUN`: a person's word on the step that a run is held at."""

import argparse

from workflowlookup.cli.answers import plain
from workflowlookup.cli.journal import add_run_argument, command_line, find_run, open_services, person
from workflowlookup.cli.main import Command
from workflowlookup.cli.output import write, write_hint, write_json
from workflowlookup.cli.run_view import standing, write_question
from workflowlookup.settings import Settings
from workflowlookup.tools.registry import NOBODY
from workflowlookup.tools.run_answers import answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    parser.add_argument("--deny", action="store_true", help="do not agree: the step is done again, or the run fails")
    parser.add_argument("--note", metavar="TEXT", default="", help="what the one who goes on should know")
    parser.add_argument("--json", action="store_true", help="print the state of the run after it")


def run(options: argparse.Namespace, settings: Settings) -> int:
    services = open_services(settings)
    runs = services.runs
    before = runs.get(find_run(runs, options.run))
    tell_runs = runs.deny if options.deny else runs.confirm
    after = tell_runs(before.id, before.current, note=options.note, by=person())
    if options.json:
        write_json(plain(answer(services, after, NOBODY)))
        return 0
    if before.asked is not None:
        write_question(before)
        write()
    said, style = ("Not confirmed", "bold red") if options.deny else ("Confirmed", "bold green")
    write((said, style), f": {options.note}" if options.note else ".")
    write(standing(after))
    if not after.is_over:
        write_hint("Go on with: ", command_line(settings, "run", "--resume", after.id))
    return 0


COMMAND = Command(
    run=run,
    arguments=add_arguments,
    examples="""\
  workflowlookup confirm 9f2c                                     the run goes on
  workflowlookup confirm 9f2c --deny --note "Too risky today."    the step is done again
  workflowlookup run show 9f2c                                    what you are asked to agree to""",
)
