"""`workflowlookup doctor`: checks the installation, and says how to fix each problem."""

import argparse
import shlex
from collections.abc import Sequence
from typing import Final

from workflowlookup.cli.checkup import ClientState, PersonState, ProjectState, Report, SourceState, command, examine
from workflowlookup.cli.checkup_tools import Problem, ToolsReport
from workflowlookup.cli.output import write, write_heading, write_hint, write_json, write_table
from workflowlookup.language.text import plural
from workflowlookup.library.git_source import PREFIX
from workflowlookup.repository import CLIENT_VARIABLE
from workflowlookup.runs.report import clock
from workflowlookup.settings import SETTINGS, Settings

_SETTINGS: Final = {setting.name: setting for setting in SETTINGS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    report = examine(options, settings)
    if options.json:
        write_json(report)
    else:
        _write(report)
    return int(bool(report.problems))


def _write(report: Report) -> None:
    write((f"workflowlookup {report.version}", "bold"), f" on Python {report.python}")
    write(f"installed in {report.installed_in}, with {_extras_words(report)}")
    write_heading("Sources (an id in a later source hides the same id in an earlier one)")
    write_table(("source", "workflows", "problems", "directory"), [_source_row(source) for source in report.sources])
    _write_library_root(report.project)
    if report.shadowed:
        write_heading("Hidden workflows")
        write_table(("id", "in", "hidden by"), [(shadow.id, shadow.hidden, shadow.by) for shadow in report.shadowed])
    write_heading("Settings")
    rows = [(item.name, item.origin, _SETTINGS[item.name].text_of(item.value)) for item in report.settings]
    write_table(("setting", "from", "value"), rows)
    _write_project(report.project)
    _write_tools(report.tools)
    write_heading("People who can sign answers")
    write_table(("person", "kind", "key", "added", "signed for by"), [_person_row(state) for state in report.people])
    write_heading("Clients")
    write_table(
        ("client", "scope", "server", "file"),
        [(state.client, state.scope, _client_words(state), state.file) for state in report.clients],
    )
    write_heading("Self-test")
    test = report.self_test
    outcome = test.error or f"{plural(test.workflows or 0, 'workflow')} listed after {test.milliseconds} ms"
    write((outcome, "red" if test.error else "green"), f" by {test.command}")
    _write_problems(report.problems)
    if not any(state.entries for state in report.clients):
        write_hint(f"No client has the server yet: {command('install', 'claude-code')} adds it to Claude Code.")


def _extras_words(report: Report) -> str:
    return f"the extras {', '.join(report.extras)}" if report.extras else "no extras"


_SOURCES: Final = {
    "flag": "from the setting root",
    CLIENT_VARIABLE: f"from {CLIENT_VARIABLE}",
    "git": "the repository around the working directory",
    "directory": "the working directory",
}


def _write_library_root(project: ProjectState) -> None:
    if project.library_root:
        write(f"the project is {project.library_root} ({_SOURCES[project.library_source]}){_unless_roots(project)}")


def _unless_roots(project: ProjectState) -> str:
    is_certain = not project.root or project.source not in ("git", "directory")
    return "" if is_certain else ", unless the client of a server names another one (its MCP roots)"


def _write_project(project: ProjectState) -> None:
    write_heading("Proofs")
    if not project.root:
        write("none can be taken here: a server over HTTP cannot see the files of its clients")
        return
    missing = "" if project.exists else ": no such directory, so nothing can be proved"
    write(f"taken in {project.root} ({_SOURCES[project.source]}){missing}{_unless_roots(project)}")
    if project.commands:
        rows = [(name, shlex.join(words)) for name, words in project.commands.items()]
        write_table(("command", "runs"), rows)
    else:
        write(f"no commands that may run: {command('init')} finds those of a project, {command('trust')} allows them")


def _write_tools(tools: ToolsReport) -> None:
    count = f"{plural(tools.tools, 'workflow tool')} in addition to the built-in ones"
    folded = "; too many to list, so workflow_search and workflow_start replace them" if tools.is_folded else ""
    write_heading("Workflow tools")
    write(f"{count}{folded}" if tools.is_on else "switched off (workflow_tools)")
    if tools.patterns:
        rows = [
            (state.setting, state.pattern, str(state.workflows), ", ".join(state.examples)) for state in tools.patterns
        ]
        write_table(("filter", "pattern", "workflows", "such as"), rows, cut=True)
    rows = [(state.name, state.kind, str(state.workflows), state.cause or state.state) for state in tools.providers]
    write_table(("provider", "kind", "workflows", "state"), rows)
    if tools.servers:
        rows = [(state.name, str(state.tools), state.cause or state.state, state.where) for state in tools.servers]
        write_table(("MCP server", "tools", "state", "where"), rows)


def _source_row(source: SourceState) -> Sequence[str]:
    absent = "not as locked" if source.name.startswith(PREFIX) else "no directory"
    count = str(source.workflows) if source.exists else absent
    return source.name, count, str(source.problems or "-"), source.directory


def _person_row(state: PersonState) -> Sequence[str]:
    added = f"{clock(state.added)}{', removed ' + clock(state.removed) if state.removed else ''}"
    return state.person, state.kind, state.key, added, state.signed_for_by or "nobody: the first key"


def _client_words(state: ClientState) -> str:
    if state.error:
        return "cannot be read"
    if not state.exists:
        return "no file"
    names = [entry.name if entry.is_found else f"{entry.name} (no such command)" for entry in state.entries]
    return ", ".join(names) or "no entry"


def _write_problems(problems: Sequence[Problem]) -> None:
    write()
    if not problems:
        write(("No problems.", "bold green"))
        return
    write((plural(len(problems), "problem"), "bold red"))
    for problem in problems:
        write(("- ", "red"), problem.problem, hang=2)
        write((f"  {problem.remedy}", "dim"), hang=2)


EXAMPLES = """\
  workflowlookup doctor                                   check everything
  workflowlookup doctor --directories ~/team/workflows    check with these settings
  workflowlookup doctor --json | jq '.problems'           for a script"""
