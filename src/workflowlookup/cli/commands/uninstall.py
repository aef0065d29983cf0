"""`workflowlookup uninstall CLIENT`: removes the server and its hooks from an MCP client. Asks before."""

import argparse
import os
from collections.abc import Callable

from workflowlookup.cli.client_hooks import HOOK_FILES, hook_file, without_hooks
from workflowlookup.cli.clients import CLIENTS, folders
from workflowlookup.cli.commands.install import add_client_arguments, scope_of, write_change
from workflowlookup.cli.configuration import NotEditable, NotReadable, read_text, without_server
from workflowlookup.cli.output import CommandError, shown_path, write
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)


def run(options: argparse.Namespace, _: Settings) -> int:
    client, name = CLIENTS[options.client], options.name
    scope = scope_of(options, client)
    file = client.file(scope)
    if options.client in HOOK_FILES:
        hooks = hook_file(options.client, scope, folders(os.environ))
        _remove(options, hooks, "the hooks", lambda text: without_hooks(text, hooks))
    is_removed = _remove(options, file, f"'{name}'", lambda text: without_server(text, file, client.section, name))
    if not is_removed:
        write(f"{client.title} has no server '{name}' in {shown_path(file)}.")
    return 0


def _remove(options: argparse.Namespace, file: str, what: str, without: Callable[[str], str]) -> bool:
    """Write a file without our entry, after showing the change and asking; False if it had none."""
    try:
        before = read_text(file) or ""
        after = without(before)
    except (NotReadable, NotEditable) as reason:
        raise CommandError(f"{shown_path(file)} was not changed: {reason}. Remove {what} yourself.") from reason
    if after == before:
        return False
    write_change(options, file, before, after)
    return True


EXAMPLES = """\
  workflowlookup uninstall claude-code                      remove the server, after showing the change
  workflowlookup uninstall vscode --scope project --yes     from this directory, without asking"""
