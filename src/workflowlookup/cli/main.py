"""The command `workflowlookup`: finds the subcommand, and imports only that one.

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
from workflowlookup.settings import SETTINGS, Settings, SettingsError, read_settings, warn_faults, warn_ignored

FOLLOW: Final = "Follow workflows"
RUNS: Final = "Runs"
LIBRARIES: Final = "Libraries from git"
AUTHORS: Final = "Write workflows"
SET_UP: Final = "Set up and administer"

COMMANDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "list": ("list_", FOLLOW, "list the workflows of the library"),
    "show": ("show", FOLLOW, "show one workflow"),
    "next": ("next_", FOLLOW, "show the step that comes next"),
    "check": ("check", FOLLOW, "judge an output by the criteria of a step"),
    "run": ("run", FOLLOW, "follow a workflow step by step, or show a run"),
    "tools": ("tools", FOLLOW, "list the workflows that are tools, with their providers"),
    "runs": ("runs", RUNS, "list runs, newest first"),
    "why": ("why", RUNS, "explain why each step ran, was skipped or waits"),
    "confirm": ("confirm", RUNS, "answer the question of a run that waits for a person"),
    "pause": ("pause", RUNS, "pause a run, so that hooks leave the agent alone"),
    "resume": ("resume", RUNS, "end the pause of a run"),
    "cancel": ("cancel", RUNS, "cancel a run"),
    "stats": ("stats", RUNS, "show statistics of runs: attempts, median time, time of 9 in 10 (slow), where they stop"),
    "notify": ("notify", RUNS, "show who gets notices about runs, and send a trial"),
    "console": ("console", RUNS, "open the library and the runs in the browser"),
    "export": ("export", RUNS, "write the journal or the report of a run, or a workflow as a skill"),
    "import": ("import_", AUTHORS, "make a workflow of a skill, a command or a recipe; or import exported runs"),
    "receipt": ("receipt", RUNS, "write a signed receipt of a completed run"),
    "verify": ("verify", RUNS, "check a receipt, or that a run was not changed"),
    "purge": ("purge", RUNS, "delete old runs that have ended"),
    "add": ("add", LIBRARIES, "add the workflows of a git repository to the library, and lock them"),
    "update": ("update", LIBRARIES, "show what changed in the repositories of the library, and lock that"),
    "outdated": ("outdated", LIBRARIES, "show what `update` would change"),
    "remove": ("remove", LIBRARIES, "remove a repository from the library"),
    "new": ("new", AUTHORS, "write a new workflow"),
    "init": ("init", AUTHORS, "prepare a project for workflows"),
    "validate": ("validate", AUTHORS, "check workflow documents"),
    "lint": ("lint", AUTHORS, "find dead steps, endless loops, criteria that no output meets, injections"),
    "test": ("test_", AUTHORS, "run the test fixtures of workflows"),
    "fmt": ("fmt", AUTHORS, "format documents"),
    "convert": ("convert", AUTHORS, "convert a document to Markdown, YAML or JSON"),
    "watch": ("watch", AUTHORS, "check documents whenever they are saved"),
    "graph": ("graph", AUTHORS, "draw the flow of a workflow: tree, Mermaid or SVG"),
    "diff": ("diff", AUTHORS, "show what changed between two versions of a workflow"),
    "schema": ("schema", AUTHORS, "print the JSON Schema of workflow documents"),
    "install": ("install", SET_UP, "add the server to an MCP client"),
    "uninstall": ("uninstall", SET_UP, "remove the server from an MCP client"),
    "hook": ("hook", SET_UP, "answer a hook of a coding agent; installed by `install CLIENT --hooks`"),
    "serve": ("serve", SET_UP, "serve MCP on standard input and output, or over HTTP"),
    "doctor": ("doctor", SET_UP, "check the installation, the library and the settings"),
    "trust": ("trust", SET_UP, "show what a repository would run, and allow it"),
    "witness": ("witness", SET_UP, "take the proofs of your runs on a server over HTTP, in this project"),
    "person": ("person", SET_UP, "create, list, approve and remove the keys of people who can sign answers"),
    "token": ("token", SET_UP, "create, list and revoke tokens for a server over HTTP"),
    "key": ("key", SET_UP, "show the public key for receipts"),
    "db": ("db", SET_UP, "check, upgrade or repair the journal"),
    "completion": ("completion", SET_UP, "print the completion script for bash, zsh or fish"),
}
"""By name: the module in `commands`, the group in `--help`, and a line of help."""

_EXAMPLES: Final = """\
examples:
  workflowlookup list                          list the workflows
  workflowlookup show bug-investigation        what it is about, and its first step
  workflowlookup run bug-investigation         follow it yourself, step by step
  workflowlookup install claude-code           add the server to Claude Code
  workflowlookup validate my-flow.workflow.md  check a document of your own

`workflowlookup help COMMAND` shows the options and examples of a command.
exit codes: 0 success, 1 problems were found, 2 wrong usage"""


_NOT_ON_WINDOWS: Final = (
    "workflowlookup: Windows is not supported: the server polls pipes and locks files as only Unix can. "
    "Use it on Linux, for example in the Windows Subsystem for Linux (WSL)."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code."""
    if sys.platform == "win32":
        print(_NOT_ON_WINDOWS, file=sys.stderr)
        return 2
    if arguments is not None:
        return _run(arguments)
    from workflowlookup.transport.signals import Terminated, end_by, end_when_signalled  # noqa: PLC0415

    end_when_signalled()
    try:
        return _run(sys.argv[1:])
    except Terminated as termination:
        end_by(termination.number)


def _run(arguments: Sequence[str]) -> int:
    options = _parse(list(arguments))
    try:
        settings = read_settings(vars(options), os.environ, directory=_working_directory(), config=options.config)
    except SettingsError as problem:
        print(f"workflowlookup: {problem}", file=sys.stderr)
        if options.command != "doctor":
            return 2
        options.settings_problem = str(problem)  # `doctor` reports it and continues with the defaults
        settings = read_settings({}, {"XDG_CONFIG_HOME": os.devnull}, directory=os.devnull)
    from workflowlookup.logs import announce, start_audit, start_log  # noqa: PLC0415 - `--help` needs no log

    start_log(settings.log_level, settings.log_format)
    try:
        start_audit(settings.audit_log)
    except OSError as problem:
        announce(f"workflowlookup: audit_log: {settings.audit_log} cannot be written: {problem.strerror}")
        return 2
    if options.command != "doctor":  # `doctor` lists them
        warn_faults(settings)
    if options.command not in ("doctor", "trust"):  # these two show them
        warn_ignored(settings)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # escape characters that the terminal lacks
    command = _load(options.command)
    if options.command != "serve":  # `serve` has a watchdog instead
        from workflowlookup.transport.signals import raise_when_signalled  # noqa: PLC0415

        raise_when_signalled()
    try:
        _refuse_if_not_frozen(options.command, settings)
        code: int = command.run(options, settings)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, so that a closed pipe is handled below
        return code
    except WorkflowLookupError as refusal:
        from workflowlookup.cli.output import refuse  # noqa: PLC0415 - `serve` never comes here

        return refuse(refusal)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the pipe is closed: print nothing more, not even at exit
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as problem:  # the address is in use, or the disk is full
        announce(f"workflowlookup: {problem.strerror or problem}")
        return 1


def _refuse_if_not_frozen(command: str, settings: Settings) -> None:
    """Raises `NotAsLocked` if the setting `frozen` is on and the library is not as it was locked."""
    if settings.frozen and command != "doctor":  # `doctor` lists the differences
        from workflowlookup.app import refuse_disagreement  # noqa: PLC0415 - only if it is wanted

        refuse_disagreement(settings)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command. Raises `SystemExit` after help, and for wrong usage."""
    if words == ["serve"]:  # what clients start: saves the time to build a parser
        return argparse.Namespace(command="serve", config=None)
    if not words or words[0] == "help":
        words = [*words[1:2], "--help"]
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)
        raise SystemExit(2)
    return make_parser(name).parse_args(words)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return os.curdir


def _load(name: str) -> ModuleType:
    return importlib.import_module(f"workflowlookup.cli.commands.{COMMANDS[name][0]}")


def _unknown(name: str) -> str:
    import difflib  # noqa: PLC0415 - only for what is misspelt

    close = difflib.get_close_matches(name, [*COMMANDS, "help"], n=1, cutoff=0.5)
    suggestion = f" Did you mean '{close[0]}'?" if close else ""
    return f"workflowlookup: there is no command {name!r}.{suggestion} `workflowlookup help` lists all commands."


def make_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command line. Only the module of the chosen command is imported."""
    parser = argparse.ArgumentParser(
        prog="workflowlookup",
        usage="workflowlookup COMMAND [OPTIONS]",
        description="Workflows that AI agents follow and people trust, as an MCP server.",
        epilog=f"{_list_commands()}\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"workflowlookup {__version__}")
    commands = parser.add_subparsers(dest="command", prog="workflowlookup", required=True, help=argparse.SUPPRESS)
    if chosen is not None:
        command, (_, _, help_line) = _load(chosen), COMMANDS[chosen]
        subparser = commands.add_parser(
            chosen,
            description=help_line[0].upper() + help_line[1:] + ".",
            epilog=f"examples:\n{command.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(subparser)
        _add_settings(subparser, are_listed=chosen == "serve")
    return parser


def _list_commands() -> str:
    """The commands by group, one per line."""
    groups: dict[str, list[str]] = {}
    for name, (_, group, help_line) in COMMANDS.items():
        groups.setdefault(group, []).append(f"  {name:<10}  {help_line}")
    return "\n\n".join("\n".join([f"{group}:", *lines]) for group, lines in groups.items())


def _add_settings(parser: argparse.ArgumentParser, *, are_listed: bool) -> None:
    """Add the settings as options. Every command takes them, but only the help of `serve` lists them."""
    sources = "also as WORKFLOWLOOKUP_NAME in the environment, or in workflowlookup.toml"
    reference = "as for the server, such as --directories DIR: `workflowlookup serve --help` lists them"
    group = parser.add_argument_group("settings", sources if are_listed else reference)
    config = "read settings from this file" if are_listed else argparse.SUPPRESS
    group.add_argument("--config", metavar="FILE", help=config)
    for setting in SETTINGS:
        help_line = f"{setting.help} (default: {setting.text_of(setting.default)})" if are_listed else argparse.SUPPRESS
        flag = f"--{setting.name.replace('_', '-')}"
        is_switch = setting.default is False  # `--frozen` alone means true
        group.add_argument(
            flag,
            dest=setting.name,
            metavar="VALUE",
            help=help_line,
            nargs="?" if is_switch else None,
            const="true" if is_switch else None,
        )
