"""`workflowlookup remove NAME`: removes a repository from the settings and the lock."""

import argparse

from workflowlookup.cli.configuration import NotEditable, NotReadable, read_text, replace_text, without_server
from workflowlookup.cli.git_sources import changing, chosen_sources, put_into_lock, refuse_if_frozen
from workflowlookup.cli.output import CommandError, shown_path, write
from workflowlookup.settings import SOURCES, Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the source, as it is called in the settings")


def run(options: argparse.Namespace, settings: Settings) -> int:
    refuse_if_frozen(settings)
    configured = chosen_sources(settings, [options.name])[options.name]
    file = configured.file
    with changing(settings, file):
        try:
            before = read_text(file) or ""
            after = without_server(before, file, SOURCES, options.name)
        except (NotReadable, NotEditable) as reason:
            message = f"{shown_path(file)} was not changed: {reason}. Remove [{SOURCES}.{options.name}] yourself."
            raise CommandError(message) from reason
        replace_text(file, before, after, keep_copy=False)
        put_into_lock(configured.lock_file, options.name, None)
    write(
        ("Removed ", "green"),
        (options.name, "bold"),
        f" from {shown_path(file)} and {shown_path(configured.lock_file)}.",
    )
    return 0


EXAMPLES = """\
  workflowlookup remove team                                the workflows of this source leave the library
  workflowlookup remove team --config shared.toml           a source of another settings file"""
