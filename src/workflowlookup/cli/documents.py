"""Finds the documents and workflows that a command was given: by path, by directory, by id, or at a git revision.

A path is read as the library would read it. `PATH@REV` and `ID@REV` are read from git, so that `diff` can compare with
what was committed.
"""

import math
import os
import subprocess
from collections.abc import Sequence
from typing import Final

from workflowlookup.app import PROJECT_DIRECTORY, make_catalog, origin_of
from workflowlookup.errors import InvalidWorkflow, StorageError, WorkflowLookupError, WorkflowNotFound
from workflowlookup.language.document.building import build
from workflowlookup.language.forms import DOCUMENT_SUFFIXES, SUFFIXES_IN_WORDS, form_of
from workflowlookup.language.model import Workflow
from workflowlookup.library.changes import PollingWatcher
from workflowlookup.library.directory import DirectorySource, Listing
from workflowlookup.library.files import parse_document, read_bytes, summarise
from workflowlookup.repository import find_above, find_project, find_repository
from workflowlookup.settings import Settings

GIT_TIMEOUT: Final = 30.0
_NO_TRANSPORT: Final = {"GIT_ALLOW_PROTOCOL": ""}
"""Keeps git from fetching. A directory of a clone can itself be a bare repository, whose configuration names the
program that fetches missing objects."""


def open_workflow(name: str, settings: Settings) -> Workflow:
    """The workflow with this id or path. Raises `WorkflowNotFound`, or the error of its document."""
    return find_document(name, settings)[0]


def find_document(name: str, settings: Settings) -> tuple[Workflow, str]:
    """The same, and the path of its document; empty if it was read from git."""
    path, _, revision = name.rpartition("@")
    if form_of(path) and not os.path.exists(name):
        return _parse(_from_git(path, revision), path, settings), ""
    if form_of(name) or os.path.basename(name) != name:
        return _parse(read_bytes(name, os.path.dirname(os.path.realpath(name)))[0], name, settings), name
    catalog = make_catalog(settings)
    try:
        workflow = catalog.get(path or name)
    except WorkflowNotFound as refusal:
        provider, dot, _ = name.partition(".")
        advice = (
            f"Workflows of the provider '{provider}' are for MCP clients; `workflowlookup tools` lists them."
            if dot and provider in settings.providers
            else "Call workflow_list to see every id."
        )
        raise WorkflowNotFound(f"{refusal.remedy} {advice}", **refusal.data) from refusal
    file = catalog.snapshot().entries[path or name].file.path
    return (_parse(_from_git(file, revision), file, settings), "") if path else (workflow, file)


def _parse(data: bytes, path: str, settings: Settings) -> Workflow:
    if form_of(path) is None:
        raise InvalidWorkflow(f"{path}: the name of a document must end in {SUFFIXES_IN_WORDS}.", file=path)
    document = parse_document(data, path)
    summarise(document, path)
    return build(document, origin_of_document(path, settings))


def origin_of_document(path: str, settings: Settings) -> str:
    """The real path of a document that came with a repository, whatever the working directory; empty for the user's."""
    return origin_of(path, settings) or _origin_elsewhere(path)


def _origin_elsewhere(path: str) -> str:
    """The real path of a document in another repository than the current project; empty for other documents."""
    repository = find_repository(path)
    return os.path.realpath(path) if repository is not None and repository.brings(path) else ""


def _from_git(path: str, revision: str) -> bytes:
    directory, file = os.path.split(path)
    if revision.startswith("-"):
        raise StorageError(f"'{revision}' is an option, not a git revision.", file=path)
    command = ["git", "-C", directory or ".", "cat-file", "blob", f"{revision}:./{file}"]
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, capture_output=True, timeout=GIT_TIMEOUT, check=False, env={**os.environ, **_NO_TRANSPORT}
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
        raise StorageError(f"git cannot read {path}@{revision}: {problem}.", file=path) from problem
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        raise StorageError(f"git has no {path}@{revision}: {reason.rstrip('.')}.", file=path, details=reason)
    return done.stdout


PATHS_HELP = f"(default: {PROJECT_DIRECTORY})"


def paths_or_project(paths: Sequence[str]) -> Sequence[str]:
    """These paths, or the directory of the project's workflows. Raises `StorageError` when there is neither."""
    if paths:
        return paths
    directory = find_above(PROJECT_DIRECTORY, find_project(os.curdir).root, os.curdir)
    if os.path.isdir(directory):
        return [os.path.relpath(directory)]
    raise StorageError(
        f"There is no {PROJECT_DIRECTORY} here or above. Name documents or directories, or run `workflowlookup init`."
    )


def document_directories(directory: str) -> list[str]:
    """The directories to search for documents when a command was given this one.

    For `.workflowlookup` only its workflows, because the schema and the CI job beside them are not documents. For the
    root of a project also its workflows, because their directory is hidden.
    """
    if os.path.basename(os.path.realpath(directory)) == os.path.dirname(PROJECT_DIRECTORY):
        workflows = os.path.join(directory, os.path.basename(PROJECT_DIRECTORY))
        return [workflows] if os.path.isdir(workflows) else [directory]
    project = os.path.join(directory, PROJECT_DIRECTORY)
    return [directory, project] if os.path.isdir(project) else [directory]


def documents_in(directory: str) -> tuple[list[str], WorkflowLookupError | None]:
    """The documents that the library would find in a directory, and the error if it cannot be read."""
    source = DirectorySource("argument", directory, required=True)
    listing = source.scan(Listing(), (), PollingWatcher(), math.inf)  # one look: nothing is watched
    files = dict(listing.files)
    overflow = files.pop(source.root, None)  # stands for documents beyond the limits of the library
    paths = [os.path.join(directory, os.path.relpath(file, source.root)) for file in files]
    return paths, listing.refusal or (overflow.refusal if overflow else None)


def path_hint(missing: str) -> str:
    """What to do about a path that does not exist; often it is the id of a workflow."""
    stem = os.path.join(PROJECT_DIRECTORY, missing)
    document = next((stem + suffix for suffix in DOCUMENT_SUFFIXES if os.path.exists(stem + suffix)), None)
    if document and not os.path.lexists(missing):
        return f"This command takes paths, not ids: did you mean {document}?"
    if not os.path.lexists(missing) and os.path.basename(missing) == missing and "." not in missing:
        return f"This command takes paths, not ids; the workflows of a project are in {PROJECT_DIRECTORY}"
    return "Check that the path is right and that you have permission to read it"
