"""`workflowlookup install CLIENT`: adds the server to an MCP client, after showing the change and asking."""

import argparse
import os
import re
import shlex
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


def agree_or_raise(options: argparse.Namespace) -> None:
    """Ask whether to write the change that was shown. Raises `CommandError` unless the answer is yes."""
    if options.yes:
        return
    if not (is_terminal() and is_interactive()):
        raise CommandError("nothing was written. Add --yes to write without asking, or edit the file yourself.")
    if not ask_yes_or_no("Write this?"):
        raise CommandError("nothing was written.")


def run(options: argparse.Namespace, _: Settings) -> int:
    if options.hooks and options.client not in HOOK_FILES:
        raise CommandError(
            f"{CLIENTS[options.client].title} has no hooks that are supported here. Use {' or '.join(HOOK_FILES)}.", 2
        )
    code = _install_server(options)
    return max(code, _install_hooks(options)) if options.hooks else code


def _install_hooks(options: argparse.Namespace) -> int:
    """Add the hooks to the client's file, after showing the change and asking."""
    client, scope = CLIENTS[options.client], scope_of(options, CLIENTS[options.client])
    file = hook_file(options.client, scope, folders(os.environ))
    entries = groups(options.client, *hook_command(options), server=options.name)
    snippet = with_hooks("", entries)
    if options.print:
        print(snippet, end="")
        return 0
    _refuse_two_scopes(options, scope)
    try:
        before = read_text(file)
        after = with_hooks(before or "", entries)
    except (NotReadable, NotEditable) as reason:
        complain(f"{shown_path(file)} was not changed: {reason}. Add this yourself:")
        print(snippet, end="")
        return 1
    if after == before:
        write(f"{client.title} has the hooks already, in {shown_path(file)}.")
        return 0
    write_diff(file, before or "", after)
    agree_or_raise(options)
    copy = replace_text(file, before, after, new_mode=0o600 if scope == "user" else None)
    write((f"Wrote {shown_path(file)}.", "green"), f" The old one is {shown_path(copy)}." if copy else "")
    command = shlex.join(hook_command(options)[0])
    write(AFTERWARDS[options.client].format(file=shown_path(file), command=command))
    return 0


def _refuse_two_scopes(options: argparse.Namespace, scope: str) -> None:
    """Raises `CommandError` if the client's other file has our hooks: it would start each of them twice."""
    for other in HOOK_FILES[options.client]:
        file = hook_file(options.client, other, folders(os.environ))
        try:
            text = read_text(file)
            has_ours = other != scope and text is not None and has_hooks(text)
        except NotReadable:  # the client cannot read it either
            continue
        if has_ours:
            raise CommandError(
                f"{shown_path(file)} has the hooks already, and with both each would run twice. "
                f"Run `workflowlookup uninstall {options.client} --scope {other}` first, or leave them there."
            )


def _install_server(options: argparse.Namespace) -> int:
    client = CLIENTS[options.client]
    scope = scope_of(options, client)
    file, name = client.file(scope), options.name
    command, *arguments = server_command(options)
    entry = client.entry(command, arguments)
    snippet = format_of(file).snippet(client.section, name, entry)
    if options.print:
        print(snippet, end="")
        return 0
    try:
        before = read_text(file)
        after = with_server(before or "", file, client.section, name, entry)
    except (NotReadable, NotEditable) as reason:
        complain(f"{shown_path(file)} was not changed: {reason}. Add this yourself:")
        print(snippet, end="")
        return 1
    if after == before:
        write(f"{client.title} has the server already: '{name}' in {shown_path(file)}.")
        return 0
    write_diff(file, before or "", after)
    if options.client == "claude-code":
        words = ["claude", "mcp", "add", "--scope", scope, name, "--", command, *arguments]
        write(("The same with Claude Code's own command: ", "dim"), shlex.join(words), wrap=False)
    if scope == "project":
        write(("The path is for this machine: others who share the file run this command too.", "dim"))
    agree_or_raise(options)
    # The file of a user may have tokens of other servers; that of a project is shared.
    copy = replace_text(file, before, after, new_mode=0o600 if scope == "user" else None)
    write((f"Wrote {shown_path(file)}.", "green"), f" The old one is {shown_path(copy)}." if copy else "")
    write(client.afterwards)
    return 0


EXAMPLES = """\
  workflowlookup install claude-code                             for you, in every project
  workflowlookup install claude-code --hooks                     with hooks that keep the agent on its step
  workflowlookup install vscode --scope project --yes            for this directory, without asking
  workflowlookup install codex --print                           print the entry to paste
  workflowlookup install cursor --directories ~/team/workflows   settings are passed on to the server"""
