"""Where the documents are that a command was asked to look at: by default, in a project, and behind a wrong path."""

import math
import os
from collections.abc import Sequence

from workflowlookup.app import PROJECT_DIRECTORY
from workflowlookup.errors import StorageError, WorkflowLookupError
from workflowlookup.library.changes import Polling
from workflowlookup.library.directory import DirectorySource, Listing
from workflowlookup.library.files import DOCUMENT_SUFFIXES

PATHS_HELP = f"(default: {PROJECT_DIRECTORY})"


def paths_or_project(paths: Sequence[str]) -> Sequence[str]:
    """The paths that were given, or else the workflows of the project. Raises `StorageError` when there are none."""
    if paths or os.path.isdir(PROJECT_DIRECTORY):
        return paths or [PROJECT_DIRECTORY]
    raise StorageError(
        f"There is no {PROJECT_DIRECTORY} here. Name documents or directories, or run `workflowlookup init`."
    )


def places_in(directory: str) -> list[str]:
    """The directories that a directory stands for.

    What lies in `.workflowlookup` beside its workflows (the schema, a CI job) is no document, and from the root of a
    project its workflows would not be seen, because their directory is hidden.
    """
    if os.path.basename(os.path.realpath(directory)) == os.path.dirname(PROJECT_DIRECTORY):
        workflows = os.path.join(directory, os.path.basename(PROJECT_DIRECTORY))
        return [workflows] if os.path.isdir(workflows) else [directory]
    project = os.path.join(directory, PROJECT_DIRECTORY)
    return [directory, project] if os.path.isdir(project) else [directory]


def documents_in(directory: str) -> tuple[list[str], WorkflowLookupError | None]:
    """The documents that the library would find in a directory, and why it cannot be read, if so."""
    source = DirectorySource("given", directory, required=True)
    listing = source.scan(Listing(), (), Polling(), math.inf)  # one look: nothing is watched
    files = dict(listing.files)
    whole = files.pop(source.root, None)  # its documents are more than the library takes
    paths = [os.path.join(directory, os.path.relpath(file, source.root)) for file in files]
    return paths, listing.refusal or (whole.refusal if whole else None)


def hint_at(missing: str) -> str:
    """What to do about a path that leads nowhere; often it is the id of a workflow."""
    stem = os.path.join(PROJECT_DIRECTORY, missing)
    meant = next((stem + suffix for suffix in DOCUMENT_SUFFIXES if os.path.exists(stem + suffix)), None)
    if meant and not os.path.lexists(missing):
        return f"Paths are wanted here, not ids: did you mean {meant}?"
    if not os.path.lexists(missing) and os.path.basename(missing) == missing and "." not in missing:
        return f"Paths are wanted here, not ids; the workflows of a project are in {PROJECT_DIRECTORY}"
    return "Check that the path is right and that you may read it"
