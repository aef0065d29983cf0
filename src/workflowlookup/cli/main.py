"""The command `workflowlookup`: finds the subcommand, and imports no other.

A new command is a module with `add_arguments`, `run` and `EXAMPLES`, and one line in `COMMANDS`.
"""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final

from workflowlookup import __version__
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.settings import SETTINGS, SettingsError, read_settings, warn_ignored

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("serve", "serve MCP on standard input and output, or over HTTP"),
    "list": ("list_", "list the workflows of the library"),
    "tools": ("tools", "list the workflows that are tools, and whose they are"),
    "show": ("show", "show one workflow"),
    "next": ("next_", "show the step that comes next"),
    "check": ("check", "judge an output by the criteria of a step"),
    "run": ("run", "go through a workflow step by step, or show what became of a run"),
    "runs": ("runs", "list runs, the last started first"),
    "confirm": ("confirm", "agree to the step of a run that waits for a person, or not"),
    "cancel": ("cancel", "end a run that is not over"),
    "why": ("why", "tell why each step ran, was skipped or waits"),
    "stats": ("stats", "show how runs went: tries, median time, time of 9 in 10 (slow), where they stop"),
    "console": ("console", "open the library and the runs in the browser"),
    "export": ("export", "write the journal or the report of a run"),
    "import": ("import_", "take in runs that were exported"),
    "purge": ("purge", "forget finished runs that are old"),
    "token": ("token", "make, list and revoke tokens for a server that others reach"),
    "trust": ("trust", "look at what a repository would run, and allow it or not"),
    "db": ("db", "check, upgrade or repair the tables that runs are kept in"),
    "graph": ("graph", "draw the flow of a workflow: tree, Mermaid or SVG"),
    "diff": ("diff", "show what changed between two versions of a workflow"),
    "validate": ("validate", "check workflow documents"),
    "lint": ("lint", "find dead steps, endless loops, criteria that nothing meets, injections"),
    "test": ("test_", "run the test fixtures of workflows"),
    "new": ("new", "write a new workflow"),
    "init": ("init", "prepare a project for workflows"),
    "convert": ("convert", "turn JSON into YAML, or YAML into JSON"),
    "fmt": ("fmt", "lay documents out in one form"),
    "watch": ("watch", "check documents whenever they are saved"),
    "schema": ("schema", "print the JSON Schema of workflow documents"),
    "doctor": ("doctor", "check the installation, the library and the settings"),
    "install": ("install", "add the server to an MCP client"),
}
"""By name: the module in this package, and a line of help."""

_EPILOG: Final = """\
examples:
  workflowlookup list                          what there is
  workflowlookup show bug-investigation        what it is about, and its first step
  workflowlookup run bug-investigation         go through it yourself, step by step
  workflowlookup install claude-code           add the server to Claude Code
  workflowlookup validate my-workflow.json     check a document of your own
  workflowlookup lint my-workflow.json         find dead steps, endless loops and the like

exit codes: 0 all is well, 1 problems were found, 2 wrong usage"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["serve"]:  # what clients start, many times a day: no parser needs to be built for it
        options = argparse.Namespace(command="serve", config=None)
    else:
        parser = _parser(words, next((word for word in words if not word.startswith("-")), None))
        if not words:
            parser.print_help()
            return 0
        options = parser.parse_args(words)
    try:
        settings = read_settings(vars(options), os.environ, directory=_working_directory(), config=options.config)
    except SettingsError as problem:
        print(f"workflowlookup: {problem}", file=sys.stderr)
        if options.command != "doctor":
            return 2
        options.settings_problem = str(problem)  # the doctor goes on with the defaults and says so
        settings = read_settings({}, {"XDG_CONFIG_HOME": os.devnull}, directory=os.devnull)
    from workflowlookup.logs import start_log  # noqa: PLC0415 - `--help` needs no log

    start_log(settings.log_level, settings.log_format)
    if options.command not in ("doctor", "trust"):  # which show it themselves
        warn_ignored(settings)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a character gets its number
    try:
        code: int = _load(options.command).run(options, settings)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where it is known what to do when the reader has left
        return code
    except WorkflowLookupError as refusal:
        from workflowlookup.cli.output import refuse  # noqa: PLC0415 - `serve` never comes here

        return refuse(refusal)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader left: say nothing more, not even at exit
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as problem:  # nowhere to print to: a full disk
        print(f"workflowlookup: {problem.strerror or problem}", file=sys.stderr)
        return 1


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return os.curdir


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"workflowlookup.cli.{COMMANDS[name][0]}")


def _parser(words: Sequence[str], chosen: str | None) -> argparse.ArgumentParser:
    """The parser; only the chosen command's module is imported for its arguments."""
    parser = argparse.ArgumentParser(
        prog="workflowlookup",
        description="Workflows that AI agents follow and people trust, as an MCP server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"workflowlookup {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=bool(words))
    for name, (_, help_line) in COMMANDS.items():
        command = _load(name) if name == chosen else None
        subparser = commands.add_parser(
            name,
            help=help_line,
            description=help_line[0].upper() + help_line[1:] + ".",
            epilog=f"examples:\n{command.EXAMPLES}" if command else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command:
            command.add_arguments(subparser)
            _add_settings(subparser, are_listed=name == "serve")
    return parser


def _add_settings(parser: argparse.ArgumentParser, *, are_listed: bool) -> None:
    """Every command takes every setting; one lists them, so that the others show what is their own."""
    where = "also as WORKFLOWLOOKUP_NAME in the environment, or in workflowlookup.toml"
    others = "as for the server, such as --directories DIR: `workflowlookup serve --help` lists them"
    group = parser.add_argument_group("settings", where if are_listed else others)
    config = "read settings from this file" if are_listed else argparse.SUPPRESS
    group.add_argument("--config", metavar="FILE", help=config)
    for setting in SETTINGS:
        about = f"{setting.help} (default: {setting.text_of(setting.default)})" if are_listed else argparse.SUPPRESS
        group.add_argument(f"--{setting.name.replace('_', '-')}", dest=setting.name, metavar="VALUE", help=about)
