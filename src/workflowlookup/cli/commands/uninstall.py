"""`workflowlookup uninstall CLIENT`: removes the server from an MCP client, after showing the change and asking."""

import argparse

from workflowlookup.cli.clients import CLIENTS
from workflowlookup.cli.commands.install import add_client_arguments, agree_or_raise, scope_of
from workflowlookup.cli.configuration import NotEditable, NotReadable, read_text, replace_text, without_server
from workflowlookup.cli.output import CommandError, shown_path, write, write_diff
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)


def run(options: argparse.Namespace, _: Settings) -> int:
    client, name = CLIENTS[options.client], options.name
    file = client.file(scope_of(options, client))
    try:
        before = read_text(file) or ""
        after = without_server(before, file, client.section, name)
    except (NotReadable, NotEditable) as reason:
        raise CommandError(f"{shown_path(file)} was not changed: {reason}. Remove '{name}' yourself.") from reason
    if after == before:
        write(f"{client.title} has no server '{name}' in {shown_path(file)}.")
        return 0
    write_diff(file, before, after)
    agree_or_raise(options)
    copy = replace_text(file, before, after)
    write((f"Wrote {shown_path(file)}.", "green"), f" The old one is {shown_path(copy)}." if copy else "")
    return 0


EXAMPLES = """\
  workflowlookup uninstall claude-code                      remove the server, after showing the change
  workflowlookup uninstall vscode --scope project --yes     from this directory, without asking"""
