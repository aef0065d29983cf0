"""`workflowlookup update`: shows what changed in the repositories of the library, and locks that after a question."""

import argparse

from workflowlookup.cli.git_sources import (
    Pending,
    changing,
    chosen_sources,
    complain_about,
    document_changes,
    fetch_locked,
    look_upstream,
    put_into_lock,
    refuse_if_frozen,
    refuse_unless_trusted,
    write_pending,
)
from workflowlookup.cli.input import ask_yes_or_no, is_interactive
from workflowlookup.cli.output import CommandError, complain, is_terminal, shown_path, write
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="a source of the settings (default: all)")
    parser.add_argument("--locked", action="store_true", help="fetch exactly what is locked, and nothing newer")
    parser.add_argument("--yes", action="store_true", help="lock what changed without asking")


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Exit code 1 if a source could not be updated. The others are."""
    refuse_if_frozen(settings)
    sources = chosen_sources(settings, options.names)
    if not sources:
        write("There are no sources. `workflowlookup add GIT_URL` adds one.")
    pending: list[Pending] = []
    failures = 0
    for name, configured in sources.items():
        try:
            refuse_unless_trusted(name, configured)
            if options.locked:
                write((name, "bold"), f": {fetch_locked(name, configured, settings)} is in the cache.")
            else:
                pending.append(look_upstream(name, configured, settings))
        except WorkflowLookupError as problem:
            complain_about(name, problem)
            failures += 1
    return max(_update(pending, options, settings), int(failures > 0))


def _update(pending: list[Pending], options: argparse.Namespace, settings: Settings) -> int:
    changed = [one for one in pending if one.is_change]
    for one in pending:
        if one.is_change:
            write_pending(one, document_changes(one, settings.cache_directory), is_whole=True)
        else:
            write((one.name, "bold"), f": {one.after} is up to date.")
    if not changed:
        return 0
    if not options.yes:
        if not (is_terminal() and is_interactive()):
            raise CommandError("nothing was locked. Look at the changes, and add --yes to lock them.")
        if not ask_yes_or_no("Lock this?"):
            complain("nothing was locked.")
            return 1
    for one in changed:
        with changing(settings, one.configured.file):
            put_into_lock(one.configured.lock_file, one.name, one.after)
    for file in dict.fromkeys(one.configured.lock_file for one in changed):
        write(("Wrote ", "green"), shown_path(file), ".")
    return 0


EXAMPLES = """\
  workflowlookup update                   show what changed in all sources, and ask
  workflowlookup update team --yes        lock what changed in one of them
  workflowlookup update --locked          after a clone: fetch what the lock names"""
