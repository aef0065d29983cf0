"""Makes a workflow of a procedure of another program: reads it, writes three files, or none of them.

`authoring.foreign` says what is in the files; here they are read, fetched from git, and written.
"""

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.atomic import replacing
from workflowlookup.authoring.foreign.draft import Draft, Note, NotImportable, Place, Source
from workflowlookup.authoring.foreign.formats import FORMATS, Format, recognise
from workflowlookup.authoring.foreign.inspection import suspicious
from workflowlookup.authoring.foreign.markdown_formats import text_of
from workflowlookup.authoring.foreign.report import Report, report_of, report_text
from workflowlookup.authoring.foreign.writing import Provenance, document_of, fixture_of, markdown_of
from workflowlookup.cli.commands.new import PROJECT_DIRECTORY
from workflowlookup.cli.git_sources import refuse_if_frozen
from workflowlookup.cli.output import CommandError, complain, shown_path, write, write_json
from workflowlookup.errors import StorageError
from workflowlookup.fetching.contents import fetch
from workflowlookup.language.forms import DOCUMENT_SUFFIXES, YAML, document_text
from workflowlookup.language.text import first_few, one_line, plural
from workflowlookup.library.files import MAX_FILE_BYTES
from workflowlookup.library.foreign_folder import (
    MAX_BYTES,
    MAX_FILES,
    FolderFiles,
    folders_below,
    has_folder,
    main_file,
    read_folder,
    read_one,
)
from workflowlookup.library.git_source import GitSource, checked
from workflowlookup.settings import Settings

WORKFLOW_SUFFIX: Final = ".workflow.md"
FIXTURE_SUFFIX: Final = ".test.yaml"
REPORT_SUFFIX: Final = ".import.md"
MAX_CHOICES: Final = 20
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.-]+@[\w.-]+:")
_LICENCE: Final = re.compile(r"(?:LICEN[CS]E|COPYING|NOTICE)(?:[.-][\w.-]+)?", re.IGNORECASE)
_FIXTURE_HEAD: Final = """\
# Walks through all steps. Add outputs that each step must accept and refuse, once it has criteria.
"""


class OpenedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure whose files were read, and its format."""

    format: Format
    source: Source
    folder: FolderFiles
    shown: str
    """The path or URL, as it is kept in the workflow."""
    revision: str = ""


def open_source(text: str, path: str, settings: Settings) -> OpenedSource | None:
    """Read a source. None for a file in none of the formats, which may hold runs. Raises `CommandError`."""
    if _URL.match(text):
        return _open_url(text, path, settings)
    full = os.path.join(text, path) if path else text
    return _open_path(full, full, "")


def _open_url(text: str, path: str, settings: Settings) -> OpenedSource:
    refuse_if_frozen(settings)
    scheme, separator, rest = text.rpartition("://")
    authority, slash, inner = rest.partition("/")
    inner, _, revision = inner.partition("@")
    url = f"{scheme}{separator}{authority}{slash}{inner}"
    is_file = path.lower().endswith((".md", ".yaml", ".yml", ".json", ".toml"))
    folder = os.path.dirname(path) if is_file else path
    try:
        source = checked(GitSource(url=url, rev=revision, path=folder))
    except ValueError as problem:
        raise CommandError(f"{text}: expected {problem}.", 2) from problem
    fetched = fetch(source, cache=settings.cache_directory, seconds=settings.git_timeout_seconds)
    for left_out in fetched.left_out[:MAX_CHOICES]:
        complain(f"{left_out.path} was left out: {left_out.reason}.")
    place = os.path.join(fetched.directory, os.path.basename(path)) if is_file else fetched.directory
    shown = "/".join(filter(None, (str(source), path.strip("/"))))
    opened = _open_path(place, shown, fetched.commit, inner.rstrip("/").removesuffix(".git"), path)
    if opened is None:
        raise CommandError(f"{shown} is in none of the formats that can be imported: {_formats()}.")
    return opened


def _formats() -> str:
    return ", ".join(each.words for each in FORMATS)


def _open_path(path: str, shown: str, revision: str, repository: str = "", inner: str = "") -> OpenedSource | None:
    """Read a file or a folder. In a repository, its path there stands for the one in the cache."""
    if os.path.isdir(path):
        main = main_file(path)
        if not main:
            return _open_only_skill(path, shown, revision, repository, inner)
        folder, place = read_folder(path, main), os.path.join(path, main)
    elif has_folder(path):
        root, main = os.path.split(os.path.abspath(path))
        folder, place = read_folder(root, main), path
    elif path.lower().endswith((".md", ".markdown", ".mdc", ".yaml", ".yml", ".json", ".toml")):
        if path.lower().endswith(".json") and os.path.exists(path) and os.path.getsize(path) > MAX_FILE_BYTES:
            return None  # only runs are that long
        folder, place = read_one(path), path
    else:
        return None
    location = os.path.abspath(place)
    if repository:
        location = "/".join(
            filter(None, (repository, os.path.dirname(inner) if inner.endswith(folder.main) else inner))
        )
        location = location if location.endswith(folder.main) else f"{location}/{folder.main}"
    source = Source(main=folder.main, files=folder.files, location=location.replace(os.sep, "/"))
    try:
        found = recognise(source)
    except NotImportable as problem:
        raise CommandError(f"{shown_path(shown)} cannot be imported. {problem}") from problem
    if found is None:
        if os.path.isdir(path) or not path.lower().endswith(".json"):
            message = f"{shown_path(shown)} is in none of the formats that can be imported: {_formats()}."
            raise CommandError(message)
        return None
    return OpenedSource(format=found, source=source, folder=folder, shown=shown, revision=revision)


def _open_only_skill(path: str, shown: str, revision: str, repository: str, inner: str) -> OpenedSource | None:
    """The only skill in a folder that is none itself."""
    folders = folders_below(path)
    if len(folders) == 1:
        folder = folders[0]
        inner = "/".join(filter(None, (inner.strip("/"), folder)))
        return _open_path(os.path.join(path, folder), f"{shown}/{folder}", revision, repository, inner)
    if not folders:
        raise CommandError(f"{shown_path(shown)} has no SKILL.md, and no folder in it has one. Name a file of it.")
    some = first_few([shown_path(folder) for folder in folders], MAX_CHOICES)
    raise CommandError(f"{shown_path(shown)} has {plural(len(folders), 'skill')}. Choose one with --path: {some}.")


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def import_workflow(opened: OpenedSource, directory: str, *, is_strict: bool, is_forced: bool, is_json: bool) -> int:
    """Write the workflow, its fixture and the report. Returns the exit code."""
    try:
        draft = opened.format.read(opened.source)
        provenance = provenance_of(opened, draft)
        document, changes = document_of(draft, provenance)
        text = markdown_of(document, draft)
    except NotImportable as problem:
        raise CommandError(f"{shown_path(opened.shown)} cannot be imported. {problem}") from problem
    report = report_of(
        draft,
        document,
        opened.format.words,
        provenance,
        guessed=changes,
        left_out=list(_not_taken(opened, provenance)),
        suspicious=suspicious(opened.folder.files),
    )
    if is_strict and not draft.is_split:
        raise CommandError(
            f"nothing was written. {shown_path(opened.shown)} has no steps that could be found: it has "
            "no numbered headings and no single numbered list. Without --strict it becomes one step."
        )
    stem = os.path.join(directory, document["id"])
    contents = {
        f"{stem}{WORKFLOW_SUFFIX}": text,
        f"{stem}{FIXTURE_SUFFIX}": _FIXTURE_HEAD + document_text(fixture_of(document), YAML),
        f"{stem}{REPORT_SUFFIX}": report_text(report, provenance),
    }
    _refuse_existing(stem, contents, is_forced=is_forced)
    write_all(contents)
    if is_json:
        write_json({**report.as_json(), "files": list(contents)})
    else:
        _show(report, list(contents), document["id"], directory)
    return 0


def provenance_of(opened: OpenedSource, draft: Draft) -> Provenance:
    """Where the workflow of a draft comes from."""
    used = {
        opened.source.main,
        *(step.place.file for step in draft.steps),
        *(place.file for _, place in draft.guidance),
    }
    files = {path: data for path, data in opened.folder.files.items() if path in used}
    licence = next((path for path in opened.folder.files if _LICENCE.fullmatch(path)), "")
    stated = text_of(draft.header.get("license")) or text_of(draft.header.get("licence"))
    return Provenance(
        format=opened.format.name,
        location=opened.shown,
        revision=opened.revision,
        license=one_line(stated),
        license_file=licence,
        files={path: hashlib.sha256(data).hexdigest() for path, data in files.items()},
    )


def _not_taken(opened: OpenedSource, provenance: Provenance) -> Iterator[Note]:
    """The files that are not part of the workflow."""
    others = [path for path in opened.folder.files if path not in provenance.files]
    if len(others) > MAX_CHOICES:
        yield Note(f"{len(others):,} files are not part of the workflow: {first_few(others, MAX_CHOICES)}")
    else:
        yield from (Note("this file is not part of the workflow", Place(path, 1, 1)) for path in others)
    for path, reason in opened.folder.refused:
        yield Note(f"`{path}` was not read: {reason}")
    if not opened.folder.is_complete:
        limit = f"{MAX_FILES} files or {MAX_BYTES >> 20} MiB"
        yield Note(f"The folder has more than {limit}. The others were not read, and not checked for injections")


def _refuse_existing(stem: str, contents: Mapping[str, str], *, is_forced: bool) -> None:
    existing = [path for path in contents if os.path.lexists(path)]
    others = [stem + suffix for suffix in DOCUMENT_SUFFIXES if os.path.lexists(stem + suffix)]
    others = [path for path in others if path not in contents]
    if others:
        raise CommandError(f"{shown_path(others[0])} exists, and would have the same id. Remove it first.")
    if existing and not is_forced:
        raise CommandError(f"{shown_path(existing[0])} exists. Replace it with --force, or use another --directory.")
    for path in existing:
        if os.path.isdir(path):
            raise CommandError(f"{shown_path(path)} is a folder. Remove it first.")


def write_all(contents: Mapping[str, str]) -> None:
    """Write all files or none: each is complete and synced before the first one is renamed. Raises `StorageError`."""
    try:
        with contextlib.ExitStack() as files:
            for path, text in contents.items():
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                files.enter_context(replacing(path, None)).write(text.encode())
    except OSError as problem:
        raise StorageError(f"Nothing was written: {problem.strerror}.", file=problem.filename) from problem


def _show(report: Report, paths: Sequence[str], identifier: str, directory: str) -> None:
    write(f"{report.format}. {report.split}.")
    suggested = sum(note.text.startswith("suggested ") for note in report.guessed)
    write(
        f"Guessed: {len(report.guessed)}, of which {plural(suggested, 'suggestion')}. Left out: {len(report.left_out)}."
    )
    for note in report.suspicious[:MAX_CHOICES]:
        write((f"Suspicious: {note}", "yellow"))
    for path in paths:
        write((f"Wrote {shown_path(path)}.", "green"))
    directories = [] if directory == PROJECT_DIRECTORY else ["--directories", directory]
    write("Next: read the report, take over or delete the suggestions. Then:")
    for words in (["lint", paths[0]], ["test", paths[0]], ["next", identifier, *directories]):
        write(("  workflowlookup " + shlex.join(words), "bold"), wrap=False)
