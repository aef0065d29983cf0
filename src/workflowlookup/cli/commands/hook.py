"""`workflowlookup hook EVENT` with options: answers a hook of Claude Code, Codex or Gemini CLI. See `hook_entry`."""

import argparse

from workflowlookup.cli.hook_entry import ALIASES, EVENTS, complain, parse_message, read_input
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "event", metavar="EVENT", help=f"one of {', '.join((*EVENTS, *ALIASES))}; its message is read from stdin"
    )


def run(options: argparse.Namespace, _: Settings) -> int:
    from workflowlookup.cli.hook_answers import answer_hook  # noqa: PLC0415 - not for `--help`

    try:
        message = parse_message(options.event, read_input(options.event))
        answer_hook(options.event, message, vars(options), options.config)
    except Exception as problem:  # noqa: BLE001 - no fault of ours may stop the agent
        complain(problem)
    return 0


EXAMPLES = """\
  workflowlookup hook Stop < message.json          answer a message of the client
  workflowlookup hook PreToolUse < message.json    whether a tool may be used
  workflowlookup install claude-code --hooks       let Claude Code call it"""
