"""`workflowlookup trust`: shows what a repository would run, and lets a person allow exactly that."""

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from workflowlookup.app import make_catalog, origin_of
from workflowlookup.cli.input import Terminal, person_terminal
from workflowlookup.cli.output import CommandError, complain, shown_path, write, write_json, write_table
from workflowlookup.cli.services import user_name
from workflowlookup.errors import StorageError
from workflowlookup.language.forms import form_of
from workflowlookup.logs import audit
from workflowlookup.repository import is_inside
from workflowlookup.settings import FILE_NAME, Settings, SettingsError, read_settings
from workflowlookup.trust import (
    KINDS,
    SOURCE,
    TrustEntry,
    TrustRecord,
    TrustStore,
    redacted,
    redacted_json,
    step_entries,
)

TERMINAL: Final = "terminal"
"""How the person answered, as recorded in the store."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    path = "a project, a settings file or a workflow (default: this project)"
    parser.add_argument("path", nargs="?", metavar="PATH", help=path)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="show what is trusted and what is not, and ask nothing")
    action.add_argument("--revoke", action="store_true", help="revoke the trust in PATH and everything below it")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.path and not os.path.exists(options.path) and not is_inside(options.path, settings.cache_directory):
        raise StorageError(f"{options.path} does not exist. Name a project, a settings file or a workflow.")
    real = os.path.realpath(options.path or ".")
    store = settings.trust.store()
    if options.revoke:
        root = real if options.path else settings.enclosing_project.root
        return _revoke(store, root, is_json=options.json)
    try:
        entries = list(_entries(real, settings)) if options.path else list(_all_entries(settings))
    except SettingsError as problem:
        raise CommandError(str(problem), 2) from problem
    repositories = _repositories(settings)
    if options.list:
        return _list(store, entries, real if options.path else "", repositories, is_json=options.json)
    return _ask(store, [entry for entry in entries if store.pins(entry) is None], repositories, is_json=options.json)


# ── entries ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _entries(real: str, settings: Settings) -> Iterator[TrustEntry]:
    """The entries of a project, a settings file or a workflow, as a server that is started there would read them."""
    if is_inside(real, settings.cache_directory):  # stands for a document from git, in every commit
        origin = origin_of(real, settings)
        yield from (entry for entry in _all_entries(settings) if entry.file == origin)
        return
    if os.path.isdir(real):
        os.chdir(real)  # the workflows of a project are found from the working directory
        yield from _all_entries(read_settings({}, os.environ, directory=real))
        return
    config = None if form_of(real) else real
    is_named_here = config and os.path.basename(real) != FILE_NAME and settings.enclosing_project.brings(real)
    if not is_named_here:  # a file for `--config` is read from the working directory, other files from their own
        os.chdir(os.path.dirname(real))
    there = read_settings({}, os.environ, directory=os.getcwd(), config=config)
    if config is None:
        yield from _document_entries(real, there)
    yield from (entry for entry in there.from_repository if entry.file == real)


def _all_entries(settings: Settings) -> Iterator[TrustEntry]:
    yield from settings.from_repository
    for workflow in make_catalog(settings).workflows():
        if workflow.origin:
            yield from step_entries(workflow.origin, workflow.document)


def _repositories(settings: Settings) -> Mapping[str, str]:
    """By the file of entries of workflows from git: the repository and its commit."""
    if not settings.sources:
        return {}
    entries = make_catalog(settings).snapshot().entries.values()
    return {origin_of(entry.file.path, settings): entry.provenance for entry in entries if entry.provenance}


def _document_entries(real: str, settings: Settings) -> Iterator[TrustEntry]:
    from workflowlookup.cli.documents import open_workflow  # noqa: PLC0415 - for this alone

    workflow = open_workflow(real, settings)
    if workflow.origin:
        yield from step_entries(workflow.origin, workflow.document)


# ── --list and --revoke ─────────────────────────────────────────────────────────────────────────────────────────


def _list(
    store: TrustStore, entries: Sequence[TrustEntry], root: str, repositories: Mapping[str, str], *, is_json: bool
) -> int:
    here = {(entry.file, entry.kind, entry.name): entry for entry in entries}
    others = [record for key, record in store.records().items() if key not in here and _is_below(record, root)]
    rows: list[dict[str, Any]] = [{**_described(entry), "state": _state(store, entry)} for entry in entries]
    rows += [{"file": record.file, "kind": record.kind, "name": record.name, "state": "elsewhere"} for record in others]
    if is_json:
        write_json({"file": store.path, "problem": store.fault(), "entries": rows})
    elif rows:
        columns = ("state", "kind", "name", "file")
        rows = [{**row, "file": repositories.get(row["file"], row["file"])} for row in rows]
        write_table(columns, [[shown_path(str(row[column])) for column in columns] for row in rows])
    else:
        write("Nothing here needs trust, and nothing is trusted.")
    if store.fault():
        complain(store.fault())
    return int(bool(store.fault()))


def _state(store: TrustStore, entry: TrustEntry) -> str:
    if store.pins(entry) is not None:
        return "trusted"
    return "changed" if (entry.file, entry.kind, entry.name) in store.records() else "not trusted"


def _described(entry: TrustEntry) -> dict[str, Any]:
    fields = {"file": entry.file, "kind": entry.kind, "name": entry.name, "value": redacted(entry)}
    return {**fields, "programs": list(entry.programs)} if entry.programs else fields


def _is_below(record: TrustRecord, root: str) -> bool:
    return not root or is_inside(record.file, root)


def _revoke(store: TrustStore, root: str, *, is_json: bool) -> int:
    revoked = store.revoke(lambda record: _is_below(record, root))
    if is_json:
        records = [{"file": record.file, "kind": record.kind, "name": record.name} for record in revoked]
        write_json({"revoked": records})
        return 0
    for record in revoked:
        kind = KINDS.get(record.kind, record.kind)
        write("No longer trusted: ", f"{kind} '{record.name}' in {shown_path(record.file)}")
    if not revoked:
        write(f"Nothing in {shown_path(root)} was trusted.")
    return 0


# ── questions ───────────────────────────────────────────────────────────────────────────────────────────────────


def _ask(store: TrustStore, entries: Sequence[TrustEntry], repositories: Mapping[str, str], *, is_json: bool) -> int:
    """Show what would run, file by file, and trust what a person agrees to."""
    trusted: list[TrustEntry] = []
    if entries:
        with person_terminal("trust what a repository brings") as terminal:
            for file in dict.fromkeys(entry.file for entry in entries):
                of_file = [entry for entry in entries if entry.file == file]
                trusted += ask_about(terminal, store, of_file, repository=repositories.get(file, ""))
    if is_json:
        untrusted = [entry for entry in entries if entry not in trusted]
        write_json({"trusted": [*map(_described, trusted)], "notTrusted": [*map(_described, untrusted)]})
    elif not entries:
        write("Nothing here needs your trust.")
    else:
        again = "" if len(trusted) == len(entries) else " The rest stays ignored; `workflowlookup trust` asks again."
        write(f"Trusted: {len(trusted)}. Not trusted: {len(entries) - len(trusted)}.{again}")
    return int(len(trusted) < len(entries))


def ask_about(
    terminal: Terminal, store: TrustStore, entries: Sequence[TrustEntry], question: str = "", repository: str = ""
) -> list[TrustEntry]:
    """Ask about the entries of one file. Returns those that the person trusted, exactly as shown.

    `repository`: where a workflow from git comes from.
    """
    lines = [f"\n{shown_path(entries[0].file)}", *([f"from {shown_path(repository)}"] if repository else [])]
    digests: list[tuple[TrustEntry, str]] = []
    for entry in entries:
        files = entry.file_digests()
        lines.append(f"\n{entry}:\n{redacted_json(entry)}")
        if files is None:
            lines.append("It uses too many files, or files that cannot be read, so it cannot be trusted.")
            continue
        if files:
            lines.append("It uses these files of the repository. Their current content is trusted with it:")
            lines += [f"  {path!a}  SHA-256 {digest}" for path, digest in files.items()]
        digests.append((entry, entry.digest(files)))
    subject = "this" if len(digests) == 1 else f"these {len(digests)}"
    is_fetching = all(entry.kind == SOURCE for entry, _ in digests)
    what = "May `update` and `outdated` fetch from" if is_fetching else "May"
    end = "?" if is_fetching else " run whenever a server is started in this project?"
    question = question or f"\n{what} {subject}{end}"
    if not terminal.show_pages("\n".join(lines)) or not digests or not terminal.ask_yes_or_no(question):
        return []
    store.trust(digests, by=TERMINAL, time=int(time.time() * 1000))
    audit("trust", by=user_name(), what=", ".join(str(entry) for entry, _ in digests))
    return [entry for entry, _ in digests]


EXAMPLES = """\
  workflowlookup trust                                show what this project would run, and allow it
  workflowlookup trust ~/clone/workflowlookup.toml    the same for one file
  workflowlookup trust --list                         what is trusted, and what is not
  workflowlookup trust --revoke                       nothing of this project may run any more"""
