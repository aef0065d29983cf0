"""`workflowlookup install CLIENT`: adds the server to an MCP client, after showing the change and asking."""

import argparse
import os
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

from workflowlookup.cli.client_hooks import AFTERWARDS, HOOK_FILES, groups, has_hooks, hook_file, with_hooks
from workflowlookup.cli.clients import CLIENTS, SERVER_NAME, Client, folders, hook_command, server_command
from workflowlookup.cli.configuration import NotEditable, NotReadable, format_of, read_text, replace_text, with_server
from workflowlookup.cli.input import ask_yes_or_no, is_interactive
from workflowlookup.cli.output import CommandError, complain, is_terminal, shown_path, write, write_diff
from workflowlookup.settings import Settings

SCOPES: Final = ("user", "project")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument(
        "--hooks",
        action="store_true",
        help=f"also add hooks that keep the agent on its step ({', '.join(HOOK_FILES)})",
    )
    parser.add_argument("--print", action="store_true", help="print the entry to paste, and change nothing")


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `install` and `uninstall`: which entry of which client."""
    parser.add_argument("client", metavar="CLIENT", choices=tuple(CLIENTS), help=f"one of {', '.join(CLIENTS)}")
    parser.add_argument("--scope", choices=SCOPES, help="for you everywhere (default), or for this directory")
    parser.add_argument("--yes", action="store_true", help="write without asking")
    parser.add_argument(
        "--name",
        type=_server_name,
        default=SERVER_NAME,
        help=f"name of the server in the client (default: {SERVER_NAME})",
    )


def _server_name(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]+", text):
        raise argparse.ArgumentTypeError(f"'{text}' must be letters, digits, hyphens and underscores")
    return text


def scope_of(options: argparse.Namespace, client: Client) -> str:
    """The chosen scope, or the default. Raises `CommandError` when the client has no such scope."""
    scope: str = options.scope or next(iter(client.files))
    if scope not in client.files:
        raise CommandError(f"{client.title} has no scope '{scope}'. Use --scope {' or '.join(client.files)}.", 2)
    return scope


def write_change(  # noqa: PLR0913 - all that a change is
    options: argparse.Namespace,
    file: str,
    before: str | None,
    after: str,
    *,
    remarks: Sequence[str] = (),
    new_mode: int | None = None,
) -> None:
    """Show a change, ask, and write it. Raises `CommandError` unless the answer is yes."""
    write_diff(file, before or "", after)
    for remark in remarks:
        write((remark, "dim"), wrap=False)
    if not options.yes:
        if not (is_terminal() and is_interactive()):
            raise CommandError("nothing was written. Add --yes to write without asking, or edit the file yourself.")
        if not ask_yes_or_no("Write this?"):
            raise CommandError("nothing was written.")
    copy = replace_text(file, before, after, new_mode=new_mode)
    write((f"Wrote {shown_path(file)}.", "green"), f" The old one is {shown_path(copy)}." if copy else "")


def run(options: argparse.Namespace, _: Settings) -> int:
    if options.hooks and options.client not in HOOK_FILES:
        raise CommandError(
            f"{CLIENTS[options.client].title} has no hooks that are supported here. Use {' or '.join(HOOK_FILES)}.", 2
        )
    code = _install_server(options)
    return max(code, _install_hooks(options)) if options.hooks else code


def _install_server(options: argparse.Namespace) -> int:
    client = CLIENTS[options.client]
    scope = scope_of(options, client)
    file, name = client.file(scope), options.name
    command, *arguments = server_command(options)
    entry = client.entry(command, arguments)
    remarks = []
    if options.client == "claude-code":
        words = ["claude", "mcp", "add", "--scope", scope, name, "--", command, *arguments]
        remarks.append(f"The same with Claude Code's own command: {shlex.join(words)}")
    if scope == "project":
        remarks.append("The path is for this machine: others who share the file run this command too.")
    return _add(
        options,
        file,
        format_of(file).snippet(client.section, name, entry),
        lambda text: with_server(text, file, client.section, name, entry),
        already=f"{client.title} has the server already: '{name}' in {shown_path(file)}.",
        remarks=remarks,
        afterwards=client.afterwards,
    )


def _install_hooks(options: argparse.Namespace) -> int:
    client = CLIENTS[options.client]
    file = hook_file(options.client, scope_of(options, client), folders(os.environ))
    entries = groups(options.client, *hook_command(options), server=options.name)
    if not options.print:
        _refuse_two_scopes(options, file)
    command = shlex.join(hook_command(options)[0])
    return _add(
        options,
        file,
        with_hooks("", entries),
        lambda text: with_hooks(text, entries),
        already=f"{client.title} has the hooks already, in {shown_path(file)}.",
        afterwards=AFTERWARDS[options.client].format(file=shown_path(file), command=command),
    )


def _refuse_two_scopes(options: argparse.Namespace, chosen: str) -> None:
    """Raises `CommandError` if the client's other file has our hooks: it would start each of them twice."""
    for other in HOOK_FILES[options.client]:
        file = hook_file(options.client, other, folders(os.environ))
        if os.path.realpath(file) == os.path.realpath(chosen):  # in the home directory, both scopes have one file
            continue
        try:
            text = read_text(file)
            has_ours = text is not None and has_hooks(text)
        except NotReadable:  # the client cannot read it either
            continue
        if has_ours:
            raise CommandError(
                f"{shown_path(file)} has the hooks already, and with both each would run twice. "
                f"Run `workflowlookup uninstall {options.client} --scope {other}` first, or leave them there."
            )


def _add(  # noqa: PLR0913 - what differs between the server and the hooks
    options: argparse.Namespace,
    file: str,
    snippet: str,
    add: Callable[[str], str],
    *,
    already: str,
    remarks: Sequence[str] = (),
    afterwards: str,
) -> int:
    """Add an entry to a file of the client, after showing the change and asking; or only print the snippet."""
    if options.print:
        print(snippet, end="")
        return 0
    try:
        before = read_text(file)
        after = add(before or "")
    except (NotReadable, NotEditable) as reason:
        complain(f"{shown_path(file)} was not changed: {reason}. Add this yourself:")
        print(snippet, end="")
        return 1
    if after == before:
        write(already)
        return 0
    # The file of a user may have tokens of other servers; that of a project is shared.
    mode = 0o600 if scope_of(options, CLIENTS[options.client]) == "user" else None
    write_change(options, file, before, after, remarks=remarks, new_mode=mode)
    write(afterwards)
    return 0


EXAMPLES = """\
  workflowlookup install claude-code                             for you, in every project
  workflowlookup install claude-code --hooks                     with hooks that keep the agent on its step
  workflowlookup install vscode --scope project --yes            for this directory, without asking
  workflowlookup install codex --print                           print the entry to paste
  workflowlookup install cursor --directories ~/team/workflows   settings are passed on to the server"""
