"""`workflowlookup outdated`: shows what `update` would change, and changes nothing but the cache."""

import argparse

from workflowlookup.cli.git_sources import (
    Pending,
    chosen_sources,
    complain_about,
    document_changes,
    look_upstream,
    refuse_if_frozen,
    refuse_unless_trusted,
    write_pending,
)
from workflowlookup.cli.output import write, write_json
from workflowlookup.errors import WorkflowLookupError
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="a source of the settings (default: all)")
    parser.add_argument("--json", action="store_true", help="print the changes as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    """Exit code 1 if a source is outdated, or could not be asked."""
    refuse_if_frozen(settings)
    sources = chosen_sources(settings, options.names)
    pending: list[Pending] = []
    for name, configured in sources.items():
        try:
            refuse_unless_trusted(name, configured)
            pending.append(look_upstream(name, configured, settings))
        except WorkflowLookupError as problem:
            complain_about(name, problem)
    changed = [one for one in pending if one.is_change]
    if options.json:
        write_json({"sources": [_described(one, settings) for one in pending]})
    else:
        for one in changed:
            write_pending(one, document_changes(one, settings.cache_directory), is_whole=False)
        if pending and not changed:
            write(("Everything is up to date.", "green"))
        elif not sources:
            write("There are no sources. `workflowlookup add GIT_URL` adds one.")
    return int(bool(changed) or len(pending) < len(sources))


def _described(one: Pending, settings: Settings) -> dict[str, object]:
    return {
        "name": one.name,
        "url": one.after.url,
        "rev": one.after.rev,
        "locked": one.before.commit if one.before else None,
        "commit": one.after.commit,
        "isOutdated": one.is_change,
        "reason": one.reason,
        "documents": document_changes(one, settings.cache_directory),
    }


EXAMPLES = """\
  workflowlookup outdated                               sources whose branch or tag is another commit now
  workflowlookup outdated --json | jq '.sources[]'      for a script"""
