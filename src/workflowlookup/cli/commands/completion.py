"""`workflowlookup completion`: completion scripts for shells, and the words that they offer.

A script runs this command at each press of the tab key, so that ids of workflows and runs are completed as well.
Options and choices are parsed from the `--help` text of a command, so that they are defined only once.
"""

import argparse
import io
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Final

from workflowlookup.cli.output import write_text
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.settings import Settings

SCRIPTS: Final = {
    "bash": """\
_workflowlookup() {
    local IFS=$'\\n'
    COMPREPLY=($(workflowlookup completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _workflowlookup workflowlookup
""",
    "zsh": """\
#compdef workflowlookup
_workflowlookup() {
    local -a found
    found=(${(f)"$(workflowlookup completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _workflowlookup workflowlookup
""",
    "fish": """\
function _workflowlookup
    workflowlookup completion words -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c workflowlookup -a '(_workflowlookup)'
""",
}
MAX_RUNS: Final = 20
"""How many runs are offered, newest first."""
_OPTION: Final = re.compile(r"^ +(?:-\w(?: \S+)?, )?(--[\w-]+)(?: \{([^}]*)\})?", re.MULTILINE)
_POSITIONAL: Final = re.compile(r"^  (?:\{([^}]*)\}|([A-Z_]+))(?: |$)", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=[*SCRIPTS, "words"], help="the shell; words is for the scripts themselves")
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.shell != "words":
        write_text(SCRIPTS[options.shell])
        return 0
    words = options.words[options.words[:1] == ["--"] :] or [""]  # some versions of argparse keep the `--`
    prefix = words[-1]
    write_text("".join(f"{word}\n" for word in _candidates(words[:-1], prefix, settings) if word.startswith(prefix)))
    return 0


def _candidates(before: Sequence[str], prefix: str, settings: Settings) -> Iterable[str]:
    """The words that may follow; none where a file name may follow."""
    from workflowlookup.cli.main import COMMANDS  # noqa: PLC0415 - which imports the commands

    if not before:
        return [*COMMANDS, "help"]
    if before[0] == "help":
        return COMMANDS
    if before[0] not in COMMANDS:
        return []
    text = _help(before[0])
    choices: dict[str, str] = dict(_OPTION.findall(text))
    if before[-1] in choices and choices[before[-1]]:
        return choices[before[-1]].split(",")
    if prefix.startswith("-"):
        return choices
    return _positionals(text, settings)


def _help(name: str) -> str:
    from workflowlookup.cli.main import make_parser  # noqa: PLC0415

    text = io.StringIO()
    os.environ["COLUMNS"] = "1000"  # so that no option is wrapped
    with suppress(SystemExit), redirect_stdout(text), redirect_stderr(io.StringIO()):
        make_parser(name).parse_args([name, "--help"])
    return text.getvalue()


def _positionals(text: str, settings: Settings) -> Iterable[str]:
    section = text.partition("positional arguments:")[2].partition("\n\n")[0]
    for choices, name in _POSITIONAL.findall(section):
        if choices:
            yield from choices.split(",")
        with suppress(WorkflowLookupError):
            if "ID" in name.split("_"):
                yield from _workflow_ids(settings)
            if "RUN" in name.split("_"):
                yield from _run_ids(settings)


def _workflow_ids(settings: Settings) -> list[str]:
    from workflowlookup.app import make_catalog  # noqa: PLC0415 - only where ids may come

    return [workflow.id for workflow in make_catalog(settings).workflows()]


def _run_ids(settings: Settings) -> list[str]:
    from workflowlookup.cli.services import call_tool, has_journal  # noqa: PLC0415 - only where runs may come
    from workflowlookup.tools.builtin import workflow_runs  # noqa: PLC0415

    if not has_journal(settings):
        return []
    answer = call_tool(workflow_runs.handle, settings, workflow_runs.RunsArguments(limit=MAX_RUNS))
    return [run["runId"] for run in answer["runs"]]


EXAMPLES = """\
  workflowlookup completion bash >> ~/.bashrc                                    then open a new terminal
  workflowlookup completion zsh > "${fpath[1]}/_workflowlookup"                  in a directory of $fpath
  workflowlookup completion fish > ~/.config/fish/completions/workflowlookup.fish"""
