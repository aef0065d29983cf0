"""`workflowlookup add GIT_URL`: adds the workflows of a repository to the library, and locks them."""

import argparse
import os
import re
from collections.abc import Mapping
from typing import Final

from workflowlookup.app import PROJECT_DIRECTORY
from workflowlookup.cli.configuration import (
    NotEditable,
    NotReadable,
    read_text,
    replace_text,
    servers,
    with_server,
    without_server,
)
from workflowlookup.cli.git_sources import as_locked, changing, fetch_locked, put_into_lock, refuse_if_frozen
from workflowlookup.cli.output import CommandError, complain, shown_path, write, write_hint, write_table
from workflowlookup.fetching.contents import Fetched, NoSuchPath, describe_left_out, fetch
from workflowlookup.language.text import first_few, joined, plural
from workflowlookup.library.files import LoadedFile
from workflowlookup.library.git_source import LOCK_NAME, SOURCE_NAME, GitSource, checked
from workflowlookup.library.locked import look_at, read_lock
from workflowlookup.settings import FILE_NAME, SOURCES, ConfiguredSource, Settings

MAX_SHOWN: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="GIT_URL", help="a repository: https://…, ssh://… or file:///…")
    parser.add_argument("--rev", default="", metavar="REV", help="a branch, a tag or a commit id (default branch)")
    where = f"the directory in it (default: {PROJECT_DIRECTORY} if it has that, else all of it)"
    parser.add_argument("--path", metavar="DIR", help=where)
    parser.add_argument("--name", metavar="NAME", help="how the source is called (default: as the repository)")
    parser.add_argument("--own", action="store_true", help="add it to your own settings, for every project")


def run(options: argparse.Namespace, settings: Settings) -> int:
    refuse_if_frozen(settings)
    file = _settings_file(options, settings)
    name = options.name or _name_of(options.url)
    if not re.fullmatch(SOURCE_NAME, name):
        raise CommandError("a name has letters, digits, dashes and underscores, 64 at most: choose one with --name.", 2)
    existing = _existing(file, name)
    if existing is not None and existing.get("url") != options.url:
        raise CommandError(f"{shown_path(file)} has a source '{name}' with another URL: choose a name with --name.")
    if _is_locked(existing, options, name, file):
        path = str((existing or {}).get("path", ""))
        source = checked(GitSource(url=options.url, rev=options.rev, path=path))
        entry = fetch_locked(name, ConfiguredSource(source=source, file=file, may_fetch=True), settings)
        write((name, "bold"), f": {entry} was added before, and is in the cache.")
        write_hint(f"`workflowlookup update {name}` looks for a newer commit.")
        return 0
    fetched = _fetch(options, settings)
    files = _workflows_or_raise(fetched)
    entry = as_locked(fetched, fetched.source)
    with changing(settings, file):
        put_into_lock(os.path.join(os.path.dirname(file), LOCK_NAME), name, entry)
        _write_settings(file, name, fetched.source)
    write(("Added ", "green"), (name, "bold"), f": {entry}")
    write_table(("id", "name"), [(one.summary.id, one.summary.name) for one in files if one.summary])
    _write_problems(fetched, files)
    write(f"It is in {shown_path(file)}, and locked in {LOCK_NAME} beside it: keep both in version control.")
    if settings.enclosing_project.brings(file):
        write_hint(f"`workflowlookup trust {shown_path(file)}` lets `update` fetch what this project names.")
    return 0


def _settings_file(options: argparse.Namespace, settings: Settings) -> str:
    if not options.own:
        *_, file, _ = settings.candidates  # the last one is the trust store
        file = os.path.join(settings.directory, file)
    elif settings.config_directory:
        file = os.path.join(settings.config_directory, FILE_NAME)
    else:
        raise CommandError("this account has no home directory, so it has no settings of its own.")
    if not file.endswith(".toml"):
        raise CommandError(f"the name of {shown_path(file)} does not end in .toml, so it is not changed.", 2)
    return file


def _name_of(url: str) -> str:
    """The last part of a URL, as a name."""
    last = url.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return re.sub(r"[^A-Za-z0-9_-]+", "-", last).strip("-_")[:64]


def _existing(file: str, name: str) -> Mapping[str, object] | None:
    """The entry in the settings file."""
    try:
        entry = servers(read_text(file) or "", file, SOURCES).get(name)
    except NotReadable as reason:
        raise CommandError(f"{shown_path(file)} cannot be changed: {reason}.") from reason
    return entry if isinstance(entry, dict) else None


def _is_locked(existing: Mapping[str, object] | None, options: argparse.Namespace, name: str, file: str) -> bool:
    """Whether exactly this was added before."""
    if existing is None or existing.get("rev", "") != options.rev:
        return False
    is_same_path = options.path is None or options.path.strip("/") == existing.get("path", "")
    return is_same_path and name in read_lock(os.path.join(os.path.dirname(file), LOCK_NAME)).sources


def _fetch(options: argparse.Namespace, settings: Settings) -> Fetched:
    def get(path: str) -> Fetched:
        try:
            source = checked(GitSource(url=options.url, rev=options.rev, path=path))
        except ValueError as problem:
            raise CommandError(f"expected {problem}.", 2) from problem
        return fetch(source, cache=settings.cache_directory, seconds=settings.git_timeout_seconds)

    if options.path is not None:
        return get(options.path)
    try:
        return get(PROJECT_DIRECTORY)
    except NoSuchPath:
        return get("")


def _workflows_or_raise(fetched: Fetched) -> list[LoadedFile]:
    files = list(look_at(fetched.directory).files.values())
    if not any(one.summary for one in files):
        problems = f" {joined(str(files[0].refusal))}" if files else ""
        advice = "Name the directory that has them with --path."
        raise CommandError(f"{fetched.source} has no workflow that can be used.{problems} {advice}")
    return files


def _write_problems(fetched: Fetched, files: list[LoadedFile]) -> None:
    wrong = [f"{os.path.relpath(one.path, fetched.directory)}" for one in files if one.refusal]
    if wrong:
        listed = first_few(wrong, MAX_SHOWN)
        complain(f"{plural(len(wrong), 'document')} of it cannot be used: {listed}. `workflowlookup doctor` says why.")
    if fetched.left_out:
        write(describe_left_out(fetched.left_out))


def _write_settings(file: str, name: str, source: GitSource) -> None:
    fields = {"url": source.url, "rev": source.rev, "path": source.path}
    entry = {field: value for field, value in fields.items() if value}
    before = read_text(file)
    try:
        text = without_server(before or "", file, SOURCES, name)
        after = with_server(text, file, SOURCES, name, entry)
    except (NotReadable, NotEditable) as reason:
        raise CommandError(
            f"{shown_path(file)} was not changed: {reason}. Add [{SOURCES}.{name}] yourself."
        ) from reason
    if after != before:
        replace_text(file, before, after, keep_copy=False)


EXAMPLES = """\
  workflowlookup add https://git.example.com/team/workflows.git              its default branch
  workflowlookup add https://git.example.com/team/workflows.git --rev v1.2   a tag
  workflowlookup add ssh://git@git.example.com/team/app.git --path flows     a directory of it
  workflowlookup add file:///srv/git/workflows --name team --own             for every project of yours"""
