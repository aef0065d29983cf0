"""`workflowlookup confirm RUN`: asks a person on the terminal for the answer that a run waits for."""

import argparse

from workflowlookup.cli.arguments import add_run_argument
from workflowlookup.cli.input import refuse_agents
from workflowlookup.cli.output import write, write_hint
from workflowlookup.cli.services import find_run, open_services, user_name, write_run
from workflowlookup.cli.terminal.confirmation import PURPOSE, ask_for_decision, refuse_unless_signable
from workflowlookup.cli.terminal.run_display import status_sentence
from workflowlookup.runs.checks import refuse_unless_question_open
from workflowlookup.settings import Settings, command_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_argument(parser)
    denial = "say no: the step is done again or the run fails, as the question says"
    parser.add_argument("--deny", action="store_true", help=denial)
    parser.add_argument("--note", metavar="TEXT", default="", help="a note for the agent or person who continues")
    parser.add_argument("--json", action="store_true", help="print the new state of the run")


def run(options: argparse.Namespace, settings: Settings) -> int:
    services = open_services(settings)
    runs = services.runs
    before = runs.get(find_run(runs, options.run))
    refuse_unless_question_open(before)
    refuse_agents(PURPOSE)
    refuse_unless_signable(before, services.people)
    show = command_line(settings, "run", "show", before.id)
    decision = ask_for_decision(before, command=show, denies=options.deny, note=options.note)
    after = before if decision is None else decision.store(runs, before, services.people, by=user_name())
    if options.json:
        write_run(services, after)
        return int(decision is None)
    if decision is None:
        write(("No answer was recorded", "bold"), ". ", status_sentence(after))
        return 1
    verdict, style = ("Confirmed", "bold green") if decision.agrees else ("Not confirmed", "bold red")
    write((verdict, style), f": {decision.note}" if decision.note else ".")
    write(status_sentence(after))
    if not after.is_over:
        write_hint("Continue with: ", command_line(settings, "run", "--resume", after.id))
    return 0


EXAMPLES = """\
  workflowlookup confirm 9f2c                                     show the question and ask
  workflowlookup confirm 9f2c --deny --note "Too risky today."    say no, and why
  workflowlookup run show 9f2c                                    the run so far"""
